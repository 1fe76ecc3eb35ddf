"""A problem: what is to be computed, how large, and how it lies in memory."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

from autotune.element import element
from autotune.errors import UsageError, shortened

# No access of the GPUs served so far is wider than 16 bytes, so a better alignment makes no difference.
WIDEST_ACCESS_BYTES = 16
MOST_ELEMENTS = 1 << 40  # no GPU holds as many
MOST_DIGITS = 14  # more than MOST_ELEMENTS has
MOST_SHOWN = 60  # characters of what is no size


@dataclass(frozen=True)  # without slots, which would leave no place for what is computed once: every decision asks for it many times
class Problem:
    """An operation on a matrix of `rows` x `cols` elements.

    Row r of the input starts `r * input_stride` elements after the first one; the same holds for the output. An alignment is
    the largest power of two, at most 16, that divides the pointer in bytes. Strides left at 0 mean packed rows.

    >>> problem = Problem("softmax", 64, 1001)
    >>> problem.bytes_per_row, problem.alignment_bytes
    (4004, 4)
    """

    operation: str
    rows: int
    cols: int
    dtype: str = "float32"
    input_stride: int = field(default=0)
    output_stride: int = field(default=0)
    input_alignment: int = WIDEST_ACCESS_BYTES
    output_alignment: int = WIDEST_ACCESS_BYTES
    in_place: bool = False

    def __post_init__(self) -> None:
        element(self.dtype)
        if self.rows < 0 or self.cols < 0:
            raise UsageError(f"size {self.rows}x{self.cols} is negative; rows and columns are 0 or more")
        for name in ("input_stride", "output_stride"):
            stride = getattr(self, name) or self.cols
            if stride < self.cols:
                raise UsageError(f"{name} {stride} is less than the {self.cols} columns of a row; rows must not overlap")
            object.__setattr__(self, name, stride)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return self.rows == 0 or self.cols == 0

    @cached_property
    def element_bytes(self) -> int:
        return element(self.dtype).bytes

    @cached_property
    def bytes_per_row(self) -> int:
        return self.cols * self.element_bytes

    @property
    def packed(self) -> bool:
        """Whether the rows of both matrices follow each other without a gap."""
        return self.input_stride == self.cols == self.output_stride

    @cached_property
    def alignment_bytes(self) -> int:
        """The widest access, in bytes, that is aligned at the start of every row of both matrices."""
        pitches = (self.input_stride * self.element_bytes, self.output_stride * self.element_bytes) if self.rows > 1 else ()
        return gcd(self.input_alignment, self.output_alignment, *pitches)

    @property
    def size(self) -> str:
        return f"{self.rows}x{self.cols}"

    def __str__(self) -> str:
        return f"{self.operation} {self.size} {self.dtype}"


def too_large(shown: str) -> UsageError:
    return UsageError(f"size {shown} has 2^40 elements or more, which no GPU holds; use a smaller one")


def parse_size(text: str) -> tuple[int, int]:
    """The rows and columns written as `MxN`.

    >>> parse_size("4096x1024")
    (4096, 1024)

    Raises UsageError for anything but two whole numbers of at least 1.
    """
    match = re.fullmatch(r"0*([0-9]+)x0*([0-9]+)", text.strip())
    shown = repr(shortened(text, MOST_SHOWN))
    if not match or "0" in match.groups():
        raise UsageError(f"size {shown} is not ROWSxCOLS with both at least 1; write it like 4096x4096")
    digits = match.groups()
    rows, cols = (int(part[:MOST_DIGITS]) for part in digits)
    if max(map(len, digits)) >= MOST_DIGITS or rows * cols >= MOST_ELEMENTS:
        raise too_large(shown)
    return rows, cols
