"""Matrices for emulated kernels: at exactly the asked alignment and stride, between pages that nothing may touch."""

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.check import AROUND_OUTPUT, Array

AROUND_BOTH = 0xC2C5  # in place they are one, and only what is finite (-98.9, or -3.4 in float16) changes when something is done to it
FENCE_BYTES = 1 << 20  # of address space, not of memory, on both sides; what strays farther is a crash, or lands in something else
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it since 3.13
_PROT_NONE = 0
_GAP_END_BYTES = 256
_WIDEST = 16
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Fence:
    """The addresses [begin, end) that can be touched only by mistake, but for [first, last), where the matrix called `name` lies."""

    begin: int
    end: int
    first: int
    last: int
    name: str


class Matrix:
    """A (rows, cols) matrix whose row r starts `r * stride` elements after the first, as the NumPy array `values`.

    The address of the first element is divisible by `alignment` and, below 16, by no larger power of two. It lies at the end of its pages,
    as far as its alignment allows, or after `place(at_end=False)` at their start: beyond it is memory that cannot be accessed. `around` is
    repeated before, after and between the rows, and in elements that are not written. Pages take memory only when they are touched, so a
    stride may be far larger than the machine: rows 2^32 elements apart cost a few pages each.
    Raises MemoryError when the machine has no address space left.
    """

    def __init__(
        self, rows: int, cols: int, dtype: np.dtype[Any], stride: int = 0, alignment: int = _WIDEST, around: int = AROUND_OUTPUT
    ) -> None:
        self._shape, self._dtype, self._around = (rows, cols), dtype, around
        self._pitch, self._row_bytes = (stride or cols) * dtype.itemsize, cols * dtype.itemsize
        self._extent = max(rows - 1, 0) * self._pitch + self._row_bytes
        self._start, self._step = (alignment, 2 * alignment) if alignment < _WIDEST else (0, _WIDEST)
        self._room = max(1, -(-(self._start + self._extent) // mmap.PAGESIZE)) * mmap.PAGESIZE
        try:
            self._memory = mmap.mmap(-1, self._room + 2 * FENCE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{self._extent} bytes of memory could not be mapped") from error
        self._address: int = np.frombuffer(self._memory, np.uint8, 1).ctypes.data
        for fence in (self._address, self._address + FENCE_BYTES + self._room):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(FENCE_BYTES), _PROT_NONE):
                raise MemoryError("memory around a matrix could not be protected")
        self.place(at_end=True)

    def place(self, *, at_end: bool) -> None:
        """Move the matrix to the end of its pages or to their start, and `poison` it."""
        rows, cols = self._shape
        before = self._start
        if at_end:
            before += (self._room - self._extent - self._start) // self._step * self._step
        start, memory, pitch, row_bytes = FENCE_BYTES + before, self._memory, self._pitch, self._row_bytes
        self.values: Array = np.ndarray((rows, cols), self._dtype, memory, start, (pitch, self._dtype.itemsize))
        self.bits: Array = self.values.view(_BITS[self._dtype.itemsize])
        after = self._room - before - self._extent
        self._guards = [
            np.ndarray((before // 2,), np.uint16, memory, FENCE_BYTES),
            np.ndarray((after // 2,), np.uint16, memory, start + self._extent),
        ]
        # Of each gap between two rows its two ends: what strays goes there first, and a gap may be too large to look at whole.
        head = min(pitch - row_bytes, _GAP_END_BYTES)
        tail = min(pitch - row_bytes - head, _GAP_END_BYTES)
        if rows > 1 and head:
            self._guards.append(np.ndarray((rows - 1, head // 2), np.uint16, memory, start + row_bytes, (pitch, 2)))
        if rows > 1 and tail:
            self._guards.append(np.ndarray((rows - 1, tail // 2), np.uint16, memory, start + pitch - tail, (pitch, 2)))
        self.poison()

    def fence(self, name: str) -> Fence:
        """What a launch needs to know to say that something beyond the matrix was accessed."""
        first = self.values.ctypes.data
        return Fence(self._address, self._address + self._room + 2 * FENCE_BYTES, first, first + self._extent, name)

    def poison(self) -> None:
        """Write the pattern over every element, and before, after and between the rows."""
        self.bits[:] = self._pattern
        for guard in self._guards:
            guard[:] = self._around

    @property
    def untouched(self) -> Array:
        """Which elements still have the bits that `poison` gave them, shape (rows, cols)."""
        untouched: Array = self.bits == self._pattern
        return untouched

    @property
    def strayed(self) -> bool:
        """Whether anything was written before, after or between the rows, as far as that can be written to."""
        return any(bool((guard != self._around).any()) for guard in self._guards)

    @property
    def _pattern(self) -> Any:
        return np.full(self._dtype.itemsize // 2, self._around, np.uint16).view(self.bits.dtype)[0]
