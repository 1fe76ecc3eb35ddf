"""Who runs in `softmax_peers.py` besides ours: each makes (input, output) -> anything, or raises where it cannot run."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from autotune import nvcc, source
from autotune.device import Device
from autotune.dispatch import Dispatcher
from autotune.problem import Problem

Call = Callable[[torch.Tensor, torch.Tensor], object]


def _torch() -> Call:
    return lambda x, y: torch.softmax(x, -1, out=y)


def _torch_compile() -> Call:
    torch._dynamo.config.recompile_limit = 1000
    return torch.compile(lambda x, y: torch.softmax(x, -1), dynamic=False)


def _liger() -> Call:
    forward = import_module("liger_kernel.ops.softmax")._softmax_forward
    return lambda x, y: forward(x)[0]


def _quack() -> Call:
    forward = import_module("quack.softmax").softmax_fwd
    return lambda x, y: forward(x)


def _triton() -> Call:
    """One program per row, the number of warps tuned for each size."""
    triton = import_module("triton")
    kernel = import_module("triton_softmax").kernel  # beside this file

    @cache
    def warps(rows: int, cols: int, dtype: torch.dtype) -> int:
        x, y = (torch.randn(rows, cols, device="cuda", dtype=dtype) for _ in range(2))
        block = triton.next_power_of_2(cols)
        possible = [w for w in (1, 2, 4, 8, 16, 32) if block <= 8192 * w]
        bench = partial(triton.testing.do_bench, warmup=2, rep=10, return_mode="median")
        return min(possible, key=lambda w: bench(lambda: kernel[(rows,)](y, x, cols, cols, BLOCK=block, num_warps=w)))

    def call(x: torch.Tensor, y: torch.Tensor) -> None:
        rows, cols = x.shape
        kernel[(rows,)](y, x, cols, cols, BLOCK=triton.next_power_of_2(cols), num_warps=warps(rows, cols, x.dtype))

    return call


def _cudnn() -> Call:
    """cudnnSoftmaxForward, accurate, over its C interface."""
    import nvidia

    files = [file for folder in nvidia.__path__ for file in Path(folder).glob("**/libcudnn.so*")]
    library = ctypes.CDLL(str(files[0]), mode=ctypes.RTLD_GLOBAL)
    handle, one, zero = ctypes.c_void_p(), ctypes.c_float(1), ctypes.c_float(0)
    _no_error(library.cudnnCreate(ctypes.byref(handle)))
    codes = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}

    @cache
    def described(rows: int, cols: int, dtype: torch.dtype) -> ctypes.c_void_p:
        tensor = ctypes.c_void_p()
        _no_error(library.cudnnCreateTensorDescriptor(ctypes.byref(tensor)))
        _no_error(library.cudnnSetTensor4dDescriptor(tensor, 0, codes[dtype], rows, cols, 1, 1))
        return tensor

    def call(x: torch.Tensor, y: torch.Tensor) -> None:
        tensor = described(*x.shape, x.dtype)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, y)]
        _no_error(library.cudnnSetStream(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))
        arguments = (handle, 1, 0, ctypes.byref(one), tensor, pointers[0], ctypes.byref(zero), tensor, pointers[1])
        _no_error(library.cudnnSoftmaxForward(*arguments))

    return call


def _no_error(status: int) -> None:
    if status:
        raise RuntimeError(f"cuDNN answered {status}")


PEERS = {"torch": _torch, "triton": _triton, "liger": _liger, "quack": _quack, "cudnn": _cudnn, "torch_compile": _torch_compile}


def installed() -> dict[str, Call]:
    found = {}
    for name, make in PEERS.items():
        try:
            found[name] = make()
        except Exception as error:  # a peer that is missing or broken here must not cost the others' figures
            print(f"left out: {name} ({type(error).__name__}: {error})", file=sys.stderr)
    return found


def floor(dispatcher: Dispatcher, problem: Problem, device: Device) -> Call:
    """The kernel that the dispatcher chooses, without its exponentials."""
    from cuda.bindings import driver

    chosen = dispatcher.explain(problem.rows, problem.cols, problem.dtype).chosen.configuration
    version = dispatcher.operation.version(chosen.version)
    text = source.render(version, [chosen], problem.dtype).replace("ex2.approx.ftz.f32 %0, %1;", "mov.f32 %0, %1;")
    cubin, _ = nvcc.compile_cubin(text, device.arch)
    function = _value(
        driver.cuModuleGetFunction(_value(driver.cuModuleLoadData(cubin)), source.symbol(version, chosen, problem.dtype).encode())
    )
    plan, threads = version.launch(chosen, problem, device), version.bounds(chosen).threads
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _value(driver.cuFuncSetAttribute(function, most, plan.shared_bytes))
    workspace = torch.zeros(plan.workspace_bytes // 4 + 1, dtype=torch.int32, device="cuda")
    sizes = (problem.rows, problem.cols, problem.output_stride, problem.input_stride)
    types = (ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_longlong] * 4, ctypes.c_void_p)

    def call(x: torch.Tensor, y: torch.Tensor) -> None:
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        values = (y.data_ptr(), x.data_ptr(), *sizes, workspace.data_ptr())
        grid = (plan.blocks, 1, 1, threads, 1, 1, plan.shared_bytes)
        _value(driver.cuLaunchKernel(function, *grid, stream, (values, types), 0))

    return call


def _value(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise RuntimeError(f"the CUDA driver answered {status}")
    return values[0] if values else None
