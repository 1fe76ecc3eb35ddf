"""Launches that the dispatcher's own are compared with: the bare one that it makes, PyCUDA's and CuPy's, and other libraries' softmax."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from autotune.dispatch import Dispatcher, store
from autotune.dispatch.cuda_launch import as_argument, fixed_launch
from autotune.problem import Problem

BARE, TORCH = "bare launch, cuda-bindings cuLaunchKernelEx", "torch.softmax, out given"

Call = Callable[[], object]


def arguments(softmax: Dispatcher, x: Any, out: Any) -> tuple[Any, Any, bytes, str]:
    """The chosen version's launch and bounds, and its binary and symbol."""
    planner = softmax._planner(torch.cuda.current_device())
    problem = Problem("softmax", *x.shape)
    configuration = planner.selector.choose(problem).configuration
    version = softmax.operation.version(configuration.version)
    stored = planner.selector.knowledge.instances[configuration, "float32"]  # type: ignore[index]
    launch = version.launch(configuration, problem, planner.launcher.device)
    return launch, version.bounds(configuration), store.binary(stored), stored.symbol


def bare_launches(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import ctypes

    from cuda.bindings import driver

    launch, bounds, binary, symbol = arguments(softmax, x, out)
    _, module = driver.cuModuleLoadData(binary)
    _, function = driver.cuModuleGetFunction(module, symbol.encode())
    values = (ctypes.c_uint64 * 7)(out.data_ptr(), x.data_ptr(), x.shape[0], x.shape[1], x.shape[1], x.shape[1], 0)
    pointers = (ctypes.c_void_p * 7)(*[ctypes.addressof(values) + 8 * place for place in range(7)])
    packed, stream = ctypes.addressof(pointers), driver.CUstream(0)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = bounds.threads, 1, 1
    config.sharedMemBytes, config.hStream = launch.shared_bytes, stream
    grid = (launch.blocks, 1, 1, bounds.threads, 1, 1, launch.shared_bytes)
    problem = Problem("softmax", *x.shape)
    launch_kernel, handle = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, as_argument(int(function))
    _, fixed, words = fixed_launch(launch_kernel, handle, problem, launch, bounds.threads, out.data_ptr(), x.data_ptr(), 0)

    # Each call keeps the memory that it passes addresses of: what is freed is soon written by others.
    def by_ctypes(kept: object = words) -> object:
        return launch_kernel(*fixed)

    def extended(kept: object = (values, pointers)) -> object:
        return driver.cuLaunchKernelEx(config, function, packed, 0)

    def plain(kept: object = (values, pointers)) -> object:
        return driver.cuLaunchKernel(function, *grid, stream, packed, 0)

    return {"bare launch, ctypes cuLaunchKernelEx": by_ctypes, BARE: extended, "bare launch, cuda-bindings cuLaunchKernel": plain}


def pycuda_launches(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import numpy as np
    import pycuda.driver as cuda
    from pycuda.gpuarray import GPUArray

    import_module("pycuda.autoprimaryctx")
    launch, bounds, binary, symbol = arguments(softmax, x, out)
    function = cuda.module_from_buffer(binary).get_function(symbol)
    numbers = (out.data_ptr(), x.data_ptr(), x.shape[0], x.shape[1], x.shape[1], x.shape[1], 0)
    wide = tuple(np.uint64(number) for number in numbers)
    grid, block = (launch.blocks, 1), (bounds.threads, 1, 1)
    function.prepare("QQQQQQQ")
    packed = np.array(numbers, np.uint64).tobytes()
    source, target = GPUArray(tuple(x.shape), np.float32), GPUArray(tuple(x.shape), np.float32)
    return {
        "PyCUDA function(...)": lambda: function(*wide, block=block, grid=grid, shared=launch.shared_bytes),
        "PyCUDA prepared_async_call": lambda: function.prepared_async_call(grid, block, None, *numbers, shared_size=launch.shared_bytes),
        "PyCUDA _launch_kernel": lambda: function._launch_kernel(grid, block, packed, launch.shared_bytes, None),
        "ours, GPUArray, out given": lambda: softmax(source, target),
    }


def torch_softmax(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    return {
        TORCH: lambda: torch.softmax(x, -1, out=out),
        "torch.softmax, result allocated": lambda: torch.softmax(x, -1),
    }


def cupy_launches(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import cupy

    launch, bounds, binary, symbol = arguments(softmax, x, out)
    module = cupy.cuda.function.Module()
    module.load(binary)
    function = module.get_function(symbol)
    raw = cupy.RawKernel('extern "C" __global__ void nothing(float* y, const float* x, long long rows, long long cols) {}', "nothing")
    source, target = cupy.asarray(x), cupy.empty(tuple(x.shape), cupy.float32)
    values = (target, source, *x.shape, x.shape[1], x.shape[1], 0)
    return {
        "CuPy RawKernel, an empty one": lambda: raw((launch.blocks,), (bounds.threads,), (target, source, x.shape[0], x.shape[1])),
        "CuPy function of the same cubin": lambda: function((launch.blocks,), (bounds.threads,), values, shared_mem=launch.shared_bytes),
        "ours, CuPy, out given": lambda: softmax(source, target),
    }


def triton_launch(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import triton

    from benchmarks.triton_softmax import kernel

    cols, block = x.shape[1], triton.next_power_of_2(x.shape[1])
    return {"Triton": lambda: kernel[(x.shape[0],)](out, x, cols, cols, BLOCK=block)}


def liger(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return {"Liger": lambda: LigerSoftmaxFunction.apply(x)}
