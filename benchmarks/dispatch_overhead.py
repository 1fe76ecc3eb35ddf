"""Host time per call, in microseconds: ours, the bare launch that it makes, PyCUDA's own launches, and other libraries' softmax.

    python benchmarks/dispatch_overhead.py --seconds 60 --json overhead.json

Needs a GPU, torch, and a database with a kernel for the size. Everything runs on one small matrix, so that the GPU is always ahead of
the host. Contestants take turns, and each figure is the median of its rounds. What is not installed, or not ready in time, is left out and
named; other libraries that compile or load much come last, in turns of their own, when the rest is written already. The bar is torch's
softmax with `out=` in the same run, and the bare launch plus 1.5 us.
"""

import faulthandler
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.dispatch import Dispatcher, store
from autotune.dispatch.cuda_launch import as_argument, frame
from autotune.problem import Problem
from benchmarks.dispatch_run import Deadline, OutOfTime, about

CALLS = 300  # per sample: well below the depth at which a full launch queue holds the host back
NEW_SIZES = range(300, 500)  # columns
MEASURING_S = 12.0  # kept free for measuring what is ready

BARE, TORCH, OURS = "bare launch, cuda-bindings cuLaunchKernelEx", "torch.softmax, out given", "autotune.softmax, out given"
MOST_OVER_BARE_US, MOST_DECISION_US = 1.5, 50.0

Call = Callable[[], object]
Family = Callable[[Dispatcher, Any, Any], dict[str, Call]]


@click.command()
@click.option("--size", default="64x128", show_default=True)
@click.option("--rounds", default=41, show_default=True, help="Fewer where time is short.")
@click.option("--seconds", default=60.0, show_default=True, help="The whole run ends by then, imports included.")
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the figures are written.")
def main(size: str, rounds: int, seconds: float, db: Path | None, path: Path | None) -> None:
    """Print the table of host times."""
    faulthandler.enable()  # a driver or a library that is handed nonsense may end the process without a word
    faulthandler.dump_traceback_later(seconds + 10, exit=True)
    deadline = Deadline(seconds)
    rows, cols = map(int, size.split("x"))
    softmax = Dispatcher("softmax", db=db)
    x, out = torch.randn(rows, cols, device="cuda"), torch.empty(rows, cols, device="cuda")
    run = about(torch.cuda.get_device_name()) | {"size": size, "calls": CALLS, "rounds": rounds, "seconds": seconds}
    figures: dict[str, float] = {}
    for families in ((ours, bare_launches, torch_softmax, pycuda_launches), (cupy_launches, triton_launch, liger)):
        calls = ready(families, deadline, softmax, x, out)
        if OURS not in {**calls, **figures}:
            raise click.ClickException("ours does not run here; what is above says why")
        _say(f"measuring {len(calls)} contestants")
        found = measure(calls, rounds, deadline)
        if not figures:
            _say(f"deciding for {len(NEW_SIZES)} new sizes")
            found |= new_sizes(softmax)
        figures |= found
        if path is not None:
            path.write_text(json.dumps({**run, "us": figures}, indent=2) + "\n")
        show(figures)


def show(figures: dict[str, float]) -> None:
    """Print the table, and which bars are met."""
    for name, us in sorted(figures.items(), key=lambda item: item[1]):
        print(f"{us:8.2f} us  {us - figures.get(BARE, 0.0):+8.2f}  {name}")
    for held, bar in bars(figures):
        print(f"{'met' if held else 'NOT MET'}: {bar}", flush=True)


def _say(what: str) -> None:
    print(f"{time.strftime('%T')} {what}", flush=True)


def ready(families: tuple[Family, ...], deadline: Deadline, softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    """Every contestant of `families` that is installed and in working order before the time for measuring begins."""
    calls: dict[str, Call] = {}
    for family in families:
        _say(f"preparing {family.__name__}")
        try:
            with deadline.within(MEASURING_S):
                members = family(softmax, x, out)
                for call in members.values():
                    call()
            torch.cuda.synchronize()
            calls |= members
        except OutOfTime as end:
            _say(f"left out: {family.__name__} ({end})")
        except Exception as error:  # a rival that is broken here must not cost the others' figures
            _say(f"left out: {family.__name__} ({type(error).__name__}: {error})")
    return calls


def measure(calls: dict[str, Call], rounds: int, deadline: Deadline) -> dict[str, float]:
    """The median time of each call over interleaved rounds, in microseconds."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(50):
            call()
    for done in range(rounds):
        if done and not deadline.left_s(MEASURING_S / 2):
            break
        for name, call in calls.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            taken[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def new_sizes(softmax: Dispatcher) -> dict[str, float]:
    """The median time to choose a kernel for a size never seen, to choose and bind one, and of the whole first call, in microseconds."""
    planner = softmax._planner(torch.cuda.current_device())
    sizes = [(64, cols) for cols in NEW_SIZES]
    chosen = list(timed(planner.selector.choose, [Problem("softmax", *size) for size in sizes]))
    problems = [Problem("softmax", *size) for size in sizes]
    bound = list(timed(lambda problem: planner.launch_of(problem, loaded_only=False), problems))
    arrays = [(torch.randn(60, cols, device="cuda"), torch.empty(60, cols, device="cuda")) for cols in NEW_SIZES]
    torch.cuda.synchronize()
    called = list(timed(lambda pair: softmax(pair[0], out=pair[1]), arrays))
    torch.cuda.synchronize()
    whole = {"a decision for a new size": chosen, "a decision, and its launch bound": bound, "the first call of a new size": called}
    return {name: statistics.median(times) for name, times in whole.items()}


def bars(figures: dict[str, float]) -> Iterator[tuple[bool, str]]:
    """Whether each bar is met, and what it is."""
    us, decision = figures[OURS], figures["a decision for a new size"]
    if TORCH in figures:
        yield us <= figures[TORCH], f"a call takes {us:.2f} us and torch's with out= {figures[TORCH]:.2f} us"
    if BARE in figures:
        most = figures[BARE] + MOST_OVER_BARE_US
        yield us <= most, f"a call takes {us:.2f} us and may take {most:.2f} us: the bare launch and {MOST_OVER_BARE_US} us"
    yield decision <= MOST_DECISION_US, f"a decision takes {decision:.2f} us and may take {MOST_DECISION_US:.0f} us"


def timed(call: Callable[[Any], object], arguments: list[Any]) -> Iterator[float]:
    for argument in arguments:
        begun = time.perf_counter()
        call(argument)
        yield (time.perf_counter() - begun) * 1e6


def ours(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import autotune

    softmax(x, out=out)
    assert torch.allclose(out, torch.softmax(x, -1), rtol=1e-5)
    plan = softmax._plans.all()[0]
    source, target = x.data_ptr(), out.data_ptr()
    return {
        OURS: lambda: autotune.softmax(x, out=out),
        "autotune.softmax, result allocated": lambda: autotune.softmax(x),
        "a Dispatcher, out given": lambda: softmax(x, out),
        "a Dispatcher, result allocated": lambda: softmax(x),
        "a Dispatcher, in place": lambda: softmax(x, x),
        "the plan's launch alone": lambda: plan.launch(target, source, 0),
        "torch.empty_like": lambda: torch.empty_like(x),
    }


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
    *words, configuration, packed_arguments = frame(problem, launch, bounds.threads)
    words[1].value, words[2].value = out.data_ptr(), x.data_ptr()
    library, handle = ctypes.CDLL("libcuda.so.1"), as_argument(int(function))

    # Each call keeps the memory that it passes addresses of: what is freed is soon written by others.
    def by_ctypes(kept: object = words) -> object:
        return library.cuLaunchKernelEx(configuration, handle, packed_arguments, None)

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


if __name__ == "__main__":
    main()
