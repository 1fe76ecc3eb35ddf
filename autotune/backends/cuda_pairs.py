"""Where the (input, output) pairs of a problem lie in device memory, and how many of them a lap needs.

A pair is one input matrix and one output matrix. All inputs lie in one arena and all outputs in another, each matrix in a slot of its
own between two guard zones, at exactly the alignment and the row strides that the problem asks for.
"""

from dataclasses import dataclass

from autotune.problem import WIDEST_ACCESS_BYTES, Problem

SLOT_ALIGNMENT = 256  # what cuMemAlloc itself gives
GUARD_BYTES = 256
MOST_PAIRS = 256
MOST_SPAN_BYTES = 32 << 30
LAP_OF_L2 = 4  # a lap touches this many times the L2, so that nothing of a pair is left when its turn comes again
FLUSH_OF_L2 = 3


@dataclass(frozen=True, slots=True)
class Slots:
    """`count` matrices of `matrix_bytes` each, one per slot of `pitch` bytes, `offset` bytes into it."""

    count: int
    matrix_bytes: int
    pitch: int
    offset: int

    @classmethod
    def of(cls, count: int, matrix_bytes: int, alignment: int) -> "Slots":
        # Slots begin at multiples of 256, so adding an alignment below the widest access makes the pointer divisible by it and no more.
        offset = GUARD_BYTES + (alignment if alignment < WIDEST_ACCESS_BYTES else 0)
        return cls(count, matrix_bytes, _round_up(offset + matrix_bytes + GUARD_BYTES, SLOT_ALIGNMENT), offset)

    @property
    def arena_bytes(self) -> int:
        return self.count * self.pitch

    def slot(self, index: int) -> int:
        """Where slot `index` begins in the arena, guard zone included."""
        return index * self.pitch

    def matrix(self, index: int) -> int:
        """Where the matrix of slot `index` begins in the arena."""
        return index * self.pitch + self.offset


def input_slots(problem: Problem, count: int) -> Slots:
    return Slots.of(count, problem.rows * problem.input_stride * problem.element_bytes, problem.input_alignment)


def output_slots(problem: Problem, count: int) -> Slots:
    return Slots.of(count, problem.rows * problem.output_stride * problem.element_bytes, problem.output_alignment)


def pair_count(bytes_moved: int, l2_bytes: int, problem: Problem) -> int:
    """How many pairs of `bytes_moved` bytes make a cold lap.

    >>> matrix = Problem("softmax", 4096, 4096)
    >>> pair_count(2 * 4096 * 4096 * 4, 60 << 20, matrix), pair_count(8192, 60 << 20, matrix), pair_count(1 << 20, 60 << 20, matrix)
    (2, 256, 240)

    Rows that lie far apart take far more memory than they move: then there are as many pairs as take 32 GiB, at least one.

    >>> pair_count(8192, 60 << 20, Problem("softmax", 3, 1000, input_stride=2**30))
    2
    """
    span_bytes = problem.rows * (problem.input_stride + problem.output_stride) * problem.element_bytes
    fitting = max(1, MOST_SPAN_BYTES // max(1, span_bytes))
    return min(fitting, max(2, min(MOST_PAIRS, -(-LAP_OF_L2 * l2_bytes // bytes_moved))))


def needs_flush(bytes_moved: int, pairs: int, l2_bytes: int) -> bool:
    """Whether a lap is so small that other memory must be read before it, for the lap to find nothing in the cache."""
    return bytes_moved * pairs < FLUSH_OF_L2 * l2_bytes


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
