"""Matrices for emulated kernels: at exactly the asked alignment and stride, between guard zones, on memory that is there when touched."""

import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

GUARD_BYTES = 256
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it since 3.13
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Matrix:
    """A (rows, cols) matrix whose row r starts `r * stride` elements after the first, as the NumPy array `values`.

    The address of the first element is divisible by `alignment` and, below 16, by no larger power of two. Pages take memory only when
    they are touched, so a stride may be far larger than the machine: rows 2^32 elements apart cost a few pages each.
    Raises MemoryError when the machine has no address space left.
    """

    def __init__(self, rows: int, cols: int, dtype: np.dtype[Any], stride: int = 0, alignment: int = 16) -> None:
        pitch = (stride or cols) * dtype.itemsize
        row_bytes = cols * dtype.itemsize
        extent = max(rows - 1, 0) * pitch + row_bytes
        start = GUARD_BYTES + (alignment if alignment < 16 else 0)
        try:
            memory = mmap.mmap(-1, start + extent + GUARD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{extent} bytes of memory could not be mapped") from error
        self.values: Array = np.ndarray((rows, cols), dtype, memory, start, (pitch, dtype.itemsize))
        self.bits: Array = self.values.view(_BITS[dtype.itemsize])
        self._guards = [
            np.ndarray((start,), np.uint8, memory, 0),
            np.ndarray((GUARD_BYTES,), np.uint8, memory, start + extent),
        ]
        # Of each gap between two rows its two ends: what strays goes there first, and a gap may be too large to look at whole.
        head = min(pitch - row_bytes, GUARD_BYTES)
        tail = min(pitch - row_bytes - head, GUARD_BYTES)
        if rows > 1 and head:
            self._guards.append(np.ndarray((rows - 1, head), np.uint8, memory, start + row_bytes, (pitch, 1)))
        if rows > 1 and tail:
            self._guards.append(np.ndarray((rows - 1, tail), np.uint8, memory, start + pitch - tail, (pitch, 1)))
        self.poison()

    def poison(self) -> None:
        """Set every byte to 0xff: a NaN of every element type that no arithmetic produces."""
        self.bits[:] = ~self.bits.dtype.type(0)
        for guard in self._guards:
            guard[:] = 0xFF

    @property
    def untouched(self) -> Array:
        """Which elements still have the bits that `poison` gave them, shape (rows, cols)."""
        untouched: Array = self.bits == ~self.bits.dtype.type(0)
        return untouched

    @property
    def strayed(self) -> bool:
        """Whether anything was written before, after or between the rows."""
        return any(bool((guard != 0xFF).any()) for guard in self._guards)
