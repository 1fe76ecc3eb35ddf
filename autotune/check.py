"""What a kernel is checked with: inputs that find wrong kernels, and the comparison of an output with its float64 reference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autotune.element import element
from autotune.operation import Tolerance
from autotune.problem import Problem

Array = np.ndarray[Any, np.dtype[Any]]

# What surrounds a matrix of the output, and what surrounds one of the input, as 16 bits again and again. Both are NaNs of every element
# type, and neither a copy, nor arithmetic (which on a CPU keeps a NaN's bits), nor a change of sign or of element type makes one of the
# other: so whatever is written around an output by mistake, even what was read around the input, is not what was there.
AROUND_OUTPUT = 0xFFFF
AROUND_INPUT = 0x7FC1

# How many inputs follow the first of a problem that has fewer rows than there are kinds: with all eight, verifying 1x131072 took twice as
# long in the emulator, with four a fifth longer.
MOST_OTHER_ELEMENTS = 1 << 19
LEAST_OTHERS = 4
COMPARED_AT_ONCE = 1 << 14  # elements: memory for more comes from the system anew each time, which takes longer than all arithmetic here


def inputs(problem: Problem, seed: int = 0) -> Array:
    """The input of `problem`, shape (rows, cols) in its dtype, the same for the same seed.

    Row r is of kind (r + seed) modulo 9 of KINDS.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((problem.rows, problem.cols), dtype=np.float32)
    for number, kind in enumerate(KINDS):
        rows = x[(number - seed) % len(KINDS) :: len(KINDS)]
        if rows.size:  # a problem may have fewer rows than there are kinds, or no columns
            kind.change(rows, random)
    return x.astype(numpy_dtype(problem.dtype), copy=False)


def seeds(problem: Problem, seed: int = 0) -> list[int]:
    """Seeds whose `inputs` of `problem` have rows of every kind between them: `seed`, then others, those that find most first.

    A single row whose other inputs would have more than MOST_OTHER_ELEMENTS elements has fewer of them, but always LEAST_OTHERS.
    """
    if problem.empty:
        return [seed]
    others = [seed + row for row in range(problem.rows, len(KINDS), problem.rows)]
    others.sort(key=lambda other: min(_TELLING.index(kind) for kind in _kinds(problem, other) - _kinds(problem, seed)))
    return [seed, *others[: max(LEAST_OTHERS, MOST_OTHER_ELEMENTS // (problem.rows * problem.cols))]]


def _kinds(problem: Problem, seed: int) -> set[int]:
    return {(row + seed) % len(KINDS) for row in range(min(problem.rows, len(KINDS)))}


def place(row: int, col: int, seed: int | None = None) -> str:
    """An element in words, with the kind of its row if the input is that of `inputs` for `seed`.

    >>> place(2, 5), place(2, 5, seed=0)
    ('row 2, column 5', 'row 2 (whose values are shifted by 1e4), column 5')
    """
    kind = "" if seed is None else f" (whose {KINDS[(row + seed) % len(KINDS)].values})"
    return f"row {row}{kind}, column {col}"


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an element type; that of bfloat16 comes from ml_dtypes."""
    if dtype != "bfloat16":
        return np.dtype(element(dtype).name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an output differs from its reference.

    `max_error` is the largest relative error over finite elements that are not tiny against the tolerance. `first_wrong` is the
    (row, col) of the first wrong element with what came and what was expected there, None when there is none.
    """

    max_error: float
    wrong_count: int
    tolerance: Tolerance
    first_wrong: tuple[int, int] | None = None
    got: float = 0.0
    expected: float = 0.0

    def __bool__(self) -> bool:
        return self.wrong_count == 0

    def __str__(self) -> str:
        return self.told()

    def told(self, seed: int | None = None) -> str:
        """The comparison in words, with the kind of the first wrong row if the input was that of `inputs` for `seed`."""
        if self.first_wrong is None:
            return f"right, with a relative error of at most {self.max_error:.2g}"
        elements = "1 element is" if self.wrong_count == 1 else f"{self.wrong_count} elements are"
        where, right = place(*self.first_wrong, seed), f"{self.expected:.9g} is right{self.tolerance.around(self.expected)}"
        return f"{elements} wrong, first {where}: {self.got:.9g} where {right}"


def compare(y: Array, reference: Array, tolerance: Tolerance) -> Comparison:
    """Compare the output `y` with `reference`, both of shape (rows, cols), the latter in float64.

    An element passes when |y - r| <= absolute + relative * |r|; NaN matches NaN alone, and an infinity itself alone.
    """
    max_error, wrong_count, first = 0.0, 0, None
    for rows, cols in _pieces(*reference.shape):
        right, error = _judged(y[rows, cols], reference[rows, cols], tolerance)
        max_error = max(max_error, error)
        wrong_count += right.size - int(np.count_nonzero(right))
        if wrong_count and first is None:
            row, col = divmod(int(np.argmin(right)), right.shape[1])
            first = rows.start + row, cols.start + col
    if first is None:
        return Comparison(max_error, 0, tolerance)
    return Comparison(max_error, wrong_count, tolerance, first, float(y[first]), float(reference[first]))


def _judged(y: Array, reference: Array, tolerance: Tolerance) -> tuple[Array, float]:
    """Which elements are right, and the largest relative error."""
    got = y.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - reference)
        size = np.abs(reference)
        right = (error <= tolerance.absolute + tolerance.relative * size) & np.isfinite(size)
        right |= got == reference
        right |= np.isnan(got) & np.isnan(reference)
        counted = np.isfinite(error) & (size * tolerance.relative > tolerance.absolute)
        relative = np.divide(error, size, out=np.zeros_like(error), where=counted)
        return right, float(np.max(relative, initial=0.0))


def _pieces(rows: int, cols: int) -> Iterator[tuple[slice, slice]]:
    """The places of a matrix in order, whole rows or parts of one, at most COMPARED_AT_ONCE elements each."""
    width = min(max(cols, 1), COMPARED_AT_ONCE)
    height = COMPARED_AT_ONCE // width if width == cols else 1
    for row in range(0, rows, height):
        for col in range(0, cols, width):
            yield slice(row, row + height), slice(col, col + width)


def _spread_3(rows: Array, random: np.random.Generator) -> None:
    rows *= 3


def _spread_30(rows: Array, random: np.random.Generator) -> None:
    rows *= 30


def _shifted(rows: Array, random: np.random.Generator) -> None:
    rows += 1e4


def _masked_prefix(rows: Array, random: np.random.Generator) -> None:
    cols = rows.shape[1]
    rows[np.arange(cols) < random.integers(0, cols, (len(rows), 1))] = -np.inf


def _masked(rows: Array, random: np.random.Generator) -> None:
    rows[:] = -np.inf


def _one_nan(rows: Array, random: np.random.Generator) -> None:
    rows[np.arange(len(rows)), random.integers(0, rows.shape[1], len(rows))] = np.nan


def _one_infinity(rows: Array, random: np.random.Generator) -> None:
    rows[np.arange(len(rows)), random.integers(0, rows.shape[1], len(rows))] = np.inf


def _constant(rows: Array, random: np.random.Generator) -> None:
    rows[:] = rows[:, :1]


def _underflowing(rows: Array, random: np.random.Generator) -> None:
    # exp(-88) is about float32's smallest normal number, exp(-104) less than its smallest subnormal one.
    peaks = random.integers(0, rows.shape[1], len(rows))
    rows -= 96 - 4 * rows
    rows[np.arange(len(rows)), peaks] = 2.0


class Kind(NamedTuple):
    """One kind of row: what its values are, in words, and how rows of normal values become such rows."""

    values: str
    change: Callable[[Array, np.random.Generator], None]


KINDS = (
    Kind("values are normal with deviation 3", _spread_3),
    Kind("values are normal with deviation 30", _spread_30),
    Kind("values are shifted by 1e4", _shifted),
    Kind("first values are -inf, as under a causal mask", _masked_prefix),
    Kind("values are all -inf", _masked),
    Kind("values include one NaN", _one_nan),
    Kind("values include one +inf", _one_infinity),
    Kind("values are all equal", _constant),
    Kind("values are far below the largest one", _underflowing),
)
_TELLING = (0, 5, 6, 4, 3, 1, 2, 8, 7)  # the kinds, those that find most wrong kernels first
