"""What a kernel is checked with: inputs that find wrong kernels, and the comparison of an output with its float64 reference."""

from dataclasses import dataclass
from typing import Any

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


def inputs(problem: Problem, seed: int = 0) -> Array:
    """The input of `problem`, shape (rows, cols) in its dtype, the same for the same seed.

    Row r is of kind (r + seed) modulo 9: normal with deviation 3; with deviation 30; shifted by 1e4; a causal mask's prefix of -inf;
    nothing but -inf; one NaN; one +inf; constant; and values of which all but one underflow against the maximum.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((problem.rows, problem.cols), dtype=np.float32)
    for kind, change in enumerate(_KINDS):
        rows = x[(kind - seed) % len(_KINDS) :: len(_KINDS)]
        if rows.size:  # a problem may have fewer rows than there are kinds, or no columns
            change(rows, random)
    return x.astype(numpy_dtype(problem.dtype), copy=False)


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
    first_wrong: tuple[int, int] | None = None
    got: float = 0.0
    expected: float = 0.0

    def __bool__(self) -> bool:
        return self.wrong_count == 0

    def __str__(self) -> str:
        if self.first_wrong is None:
            return f"right, with a relative error of at most {self.max_error:.2g}"
        elements = "1 element is" if self.wrong_count == 1 else f"{self.wrong_count} elements are"
        row, col = self.first_wrong
        return f"{elements} wrong, first row {row}, column {col}: {self.got:.9g} where {self.expected:.9g} is right"


def compare(y: Array, reference: Array, tolerance: Tolerance) -> Comparison:
    """Compare the output `y` with `reference`, both of shape (rows, cols), the latter in float64.

    An element passes when |y - r| <= absolute + relative * |r|; NaN matches NaN alone, and an infinity itself alone.
    """
    got = y.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - reference)
        size = np.abs(reference)
        right = (error <= tolerance.absolute + tolerance.relative * size) & np.isfinite(size)
        right |= got == reference
        right |= np.isnan(got) & np.isnan(reference)
        counted = np.isfinite(error) & (size * tolerance.relative > tolerance.absolute)
        max_error = float(np.max(error[counted] / size[counted], initial=0.0))
    wrong_count = int(right.size - np.count_nonzero(right))
    if not wrong_count:
        return Comparison(max_error, 0)
    row, col = divmod(int(np.argmin(right)), right.shape[1])
    return Comparison(max_error, wrong_count, (row, col), float(got[row, col]), float(reference[row, col]))


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


_KINDS = (_spread_3, _spread_30, _shifted, _masked_prefix, _masked, _one_nan, _one_infinity, _constant, _underflowing)
