"""One launch of a kernel that `build` compiled, in this process."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autotune.backends.emulation import build
from autotune.backends.emulation.memory import Fence
from autotune.errors import KernelError

Array = np.ndarray[Any, np.dtype[Any]]
# An array is passed as the pointer to its first element, None as a null pointer, an int as 64 bits, a NumPy scalar as it is.
Argument = Array | np.generic | int | None


class HangError(KernelError):
    """No thread could run on, and not all had returned."""


class FaultError(KernelError):
    """A thread did what would be undefined behaviour: a misaligned access, one out of bounds, an overflow."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel by its symbol, its arguments and its grid.

    With `cooperative` all blocks run together; otherwise the blocks of a cluster do. Seed 0 runs threads in index order, any other
    seed in a shuffled order that it determines. Who accesses what lies within `fences` but outside their matrices is told so; without
    them, that is a crash of this process.
    """

    symbol: str
    arguments: Sequence[Argument]
    blocks: int
    threads: int
    shared_bytes: int = 0
    cluster: int = 1
    cooperative: bool = False
    seed: int = 0
    fences: Sequence[Fence] = ()


class _Fence(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_size_t),
        ("end", ctypes.c_size_t),
        ("first", ctypes.c_size_t),
        ("last", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("blocks", ctypes.c_uint),
        ("threads", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
        ("cooperative", ctypes.c_uint),
        ("seed", ctypes.c_uint),
        ("shared_bytes", ctypes.c_size_t),
        ("fences", ctypes.POINTER(_Fence)),
        ("fence_count", ctypes.c_size_t),
    )


class Library:
    """The kernels of one shared library. `runtime` is built when it is not given."""

    def __init__(self, path: Path, runtime: Path | None = None) -> None:
        self._message = _loaded(runtime or build.runtime()).cuda_on_cpu_message
        self._library = ctypes.CDLL(str(path))

    def launch(self, launch: Launch) -> None:
        """Run `launch` to its end.

        Raises HangError or FaultError when the kernel is wrong, and KernelError when the launch is: too many threads, another
        block or cluster than the instance was compiled for, another number of arguments, an unknown symbol.
        """
        self.prepared(launch)()

    def prepared(self, launch: Launch) -> "Prepared":
        """`launch` with its arguments packed, to be run several times."""
        try:
            entry = self._library[launch.symbol]
        except AttributeError:
            raise KernelError(f"the library has no kernel {launch.symbol!r}; it is named where its source says INSTANCE") from None
        return Prepared(entry, launch, self._message)


class Prepared:
    """A launch that costs one foreign call."""

    def __init__(self, entry: Any, launch: Launch, message: Any) -> None:
        self._entry = entry
        self._message = message
        self._kept = [_packed(argument) for argument in launch.arguments]
        self._arguments = (ctypes.c_void_p * len(self._kept))(*[value.ctypes.data for value in self._kept])
        fences = [_Fence(f.begin, f.end, f.first, f.last, f.name.encode()) for f in launch.fences]
        self._launch = _Launch(
            launch.blocks,
            launch.threads,
            launch.cluster,
            launch.cooperative,
            launch.seed,
            launch.shared_bytes,
            (_Fence * len(fences))(*fences),
            len(fences),
        )
        self._source = launch.arguments  # arrays stay alive as long as their addresses are packed

    def __call__(self) -> None:
        status = self._entry(ctypes.byref(self._launch), self._arguments, len(self._kept))
        if status:
            text = self._message().decode(errors="replace")
            raise (KernelError, HangError, FaultError)[status - 1](text)


def _packed(argument: Argument) -> Array:
    if isinstance(argument, np.ndarray):
        return np.array([argument.ctypes.data], np.uint64)
    if isinstance(argument, np.generic):
        return np.array([argument])
    return np.array([argument or 0], np.int64)


@lru_cache(maxsize=1)
def _loaded(runtime: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    library.cuda_on_cpu_message.restype = ctypes.c_char_p
    return library
