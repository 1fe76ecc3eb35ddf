"""The plane of sizes, cut into cells within which the same kernels should be fast: where a table says what runs there.

Rows are cut more finely where there are few on each SM. Row lengths up to `SHORT` have a cell each; longer ones are cut by the 16-byte
packs that a row takes, a few to a doubling and next to the powers of two, apart for each alignment.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from math import gcd, sqrt

from autotune.device import Device
from autotune.problem import WIDEST_ACCESS_BYTES, Problem

SHORT = 64  # columns
FEW = 8  # rows, and packs of a row: each number of them has a cell
PER_DOUBLING = 4  # cells of the rows, up to so many on each SM; half as many beyond
ROWS_PER_SM = 16
MOST_ROWS = 1 << 22
PACKS = (4, 5, 6, 7)  # over 4: where a doubling of the packs is cut
MOST_PACKS = 1 << 20


@dataclass(frozen=True)
class Cells:
    """Cells for elements of `element_bytes`; each axis by the largest value of each cell."""

    element_bytes: int
    rows: tuple[int, ...]
    packs: tuple[int, ...]

    @classmethod
    def of(cls, device: Device, element_bytes: int) -> "Cells":
        rows = set(range(1, FEW + 1)) | {MOST_ROWS}
        for step in range(-PER_DOUBLING * 20, PER_DOUBLING * 22):
            share = 2 ** (step / PER_DOUBLING)
            if share <= ROWS_PER_SM or step % 2 == 0:
                rows.add(int(device.sm_count * share + 1e-9))
        packs = set(range(1, FEW + 1)) | {MOST_PACKS}
        for power in range(FEW.bit_length() - 1, MOST_PACKS.bit_length() - 1):
            one = 1 << power
            packs |= {one - 1, one, one + 1, *(one * quarter // 4 for quarter in PACKS), one * 3 // 2 - 1}
        return cls(element_bytes, tuple(sorted(row for row in rows if 1 <= row <= MOST_ROWS)), tuple(sorted(packs)))

    @cached_property
    def shape(self) -> tuple[int, int]:
        """How many cells there are along the columns, all alignments one after the other, and along the rows."""
        return SHORT + len(self.alignments) * len(self.packs), len(self.rows)

    @cached_property
    def alignments(self) -> tuple[int, ...]:
        """Those that rows may have, in bytes."""
        found = [self.element_bytes]
        while found[-1] < WIDEST_ACCESS_BYTES:
            found.append(2 * found[-1])
        return tuple(found)

    def place(self, problem: Problem) -> tuple[int, int]:
        """The cell of a problem, along the columns and along the rows; what lies beyond is in the last one."""
        rows, cols = problem.rows, problem.cols
        along = min(bisect_left(self.rows, rows), len(self.rows) - 1)
        if cols <= SHORT:
            return cols - 1, along
        row_bytes = cols * self.element_bytes
        aligned = max(self.element_bytes, gcd(problem.alignment_bytes, row_bytes))
        packs = -(-(row_bytes + (WIDEST_ACCESS_BYTES - aligned if rows > 1 else 0)) // WIDEST_ACCESS_BYTES)
        across = min(bisect_left(self.packs, packs), len(self.packs) - 1)
        doublings = (aligned // self.element_bytes).bit_length() - 1
        return SHORT + doublings * len(self.packs) + across, along

    def middle(self, across: int, along: int, like: Problem) -> Problem:
        """The problem that stands for a cell, a packed matrix of the operation and dtype of `like`."""
        rows = _middle(self.rows, along)
        if across < SHORT:
            return Problem(like.operation, rows, across + 1, like.dtype)
        plane, place = divmod(across - SHORT, len(self.packs))
        row_bytes = (_middle(self.packs, place) - 1) * WIDEST_ACCESS_BYTES + self.alignments[plane]
        return Problem(like.operation, rows, row_bytes // self.element_bytes, like.dtype)


def _middle(ends: tuple[int, ...], place: int) -> int:
    """The middle of a cell, by ratio."""
    last = ends[place]
    first = ends[place - 1] + 1 if place else last
    return max(first, min(last, round(sqrt(first * last))))
