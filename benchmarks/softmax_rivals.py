"""Who runs in `softmax_peers.py` besides ours. Whatever is missing or cannot run a problem raises, and is left out."""

import ctypes
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import torch

from autotune.problem import Problem
from benchmarks.softmax_timing import Call


@dataclass(frozen=True)
class Rival:
    """`alternatives` are its ways to run a problem, of which the fastest counts; `prepare` compiles them, in any process."""

    alternatives: Callable[[Problem], dict[str, Call]]
    prepare: Callable[[Problem], object] = lambda _: None


def _torch() -> Rival:
    return Rival(lambda _: {"out=": lambda x, y: torch.softmax(x, -1, out=y)})


def _torch_compile() -> Rival:
    torch._dynamo.config.recompile_limit = 1000
    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)

    def prepare(problem: Problem) -> None:
        compiled(matrix(problem))

    return Rival(lambda _: {"dynamic=False": lambda x, _: compiled(x)}, prepare)


def _liger() -> Rival:
    forward = import_module("liger_kernel.ops.softmax")._softmax_forward
    return Rival(lambda _: {"": lambda x, _: forward(x)[0]}, lambda problem: forward(matrix(problem, rows=2)))


def _quack() -> Rival:
    forward = import_module("quack.softmax").softmax_fwd
    return Rival(lambda _: {"": lambda x, _: forward(x)}, lambda problem: forward(matrix(problem, rows=2)))


def _triton() -> Rival:
    """One program per row; the number of warps is an alternative each."""
    kernel, power = import_module("benchmarks.triton_softmax").kernel, import_module("triton").next_power_of_2

    def warps(problem: Problem) -> list[int]:
        block = power(problem.cols)
        if block > 131072:
            raise ValueError("a row is too long for one program")
        return [w for w in (1, 2, 4, 8, 16, 32) if block <= 8192 * w]

    def call(num_warps: int, x: torch.Tensor, y: torch.Tensor) -> None:
        rows, cols = x.shape
        kernel[(rows,)](y, x, cols, cols, BLOCK=power(cols), num_warps=num_warps)

    def prepare(problem: Problem) -> None:
        dtype, cols = getattr(torch, problem.dtype), problem.cols
        for w in warps(problem):
            kernel.warmup(dtype, dtype, cols, cols, BLOCK=power(cols), num_warps=w, grid=(1,))

    return Rival(lambda problem: {f"{w} warps": partial(call, w) for w in warps(problem)}, prepare)


def _cudnn() -> Rival:
    """cudnnSoftmaxForward, accurate, over its C interface."""
    files = [file for folder in import_module("nvidia").__path__ for file in Path(folder).glob("**/libcudnn.so*")]
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

    return Rival(lambda _: {"accurate": call})


def _no_error(status: int) -> None:
    if status:
        raise RuntimeError(f"cuDNN answered {status}")


RIVALS = {"torch": _torch, "triton": _triton, "liger": _liger, "quack": _quack, "cudnn": _cudnn, "torch_compile": _torch_compile}
COMPILED = ("torch_compile", "quack", "triton", "liger")  # those whose `prepare` takes time, the slowest first


def matrix(problem: Problem, rows: int = 0) -> torch.Tensor:
    return torch.randn(rows or problem.rows, problem.cols, device="cuda", dtype=getattr(torch, problem.dtype))


def installed() -> dict[str, Rival]:
    found = {}
    for name in RIVALS:
        try:
            found[name] = rival(name)
        except Exception as error:  # one that is missing or broken here must not cost the others' figures
            print(f"left out: {name} ({type(error).__name__}: {error})", file=sys.stderr)
    return found


@cache
def rival(name: str) -> Rival:
    return RIVALS[name]()


def prepare(name: str, problem: Problem) -> str:
    """Compiles one rival for one problem into the caches on disk, in whatever process; "" or why it could not."""
    try:
        rival(name).prepare(problem)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def prepare_rivals(problems: Iterable[Problem], names: Iterable[str], processes: int, at_most_s: float) -> str:
    """Compiles rivals in many processes, so that what follows finds it in their caches; what is not done in time is compiled then."""
    wanted = list(problems)
    of_length = list(
        {(problem.dtype, problem.cols): problem for problem in wanted}.values()
    )  # all but torch.compile know the rows only then
    tasks = [(name, problem) for name in COMPILED if name in names for problem in (wanted if name == "torch_compile" else of_length)]
    until = time.monotonic() + at_most_s
    with multiprocessing.get_context("spawn").Pool(processes, alone) as pool:  # ended, whatever it does, when the block is left
        pending = [pool.apply_async(prepare, task) for task in tasks]
        for result in pending:
            result.wait(max(0.0, until - time.monotonic()))
        done = [result.get() for result in pending if result.ready()]
    forget_choices()
    return f"{len(done)} of {len(tasks)} rivals compiled, {sum(map(bool, done))} could not be"


def alone() -> None:
    """In one of many processes that compile: start none of its own."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def forget_choices() -> None:
    """Removes what torch.compile chose by timing while many processes shared the GPU; its compiled kernels stay."""
    with suppress(Exception):
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        for file in Path(cache_dir()).rglob("*.best_config"):
            file.unlink()
