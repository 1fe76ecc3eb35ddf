"""What kernels are checked with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.check import compare, inputs
from autotune.operation import Tolerance
from autotune.problem import Problem

TOLERANCE = Tolerance(relative=1e-5, absolute=1e-37)


@given(rows=st.integers(0, 30), cols=st.integers(0, 40), seed=st.integers(0, 50), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_inputs_have_the_problems_shape_and_repeat(rows: int, cols: int, seed: int, dtype: str) -> None:
    problem = Problem("softmax", rows, cols, dtype)
    x = inputs(problem, seed)
    assert x.shape == (rows, cols)
    assert x.dtype.name == dtype
    assert x.tobytes() == inputs(problem, seed).tobytes()


def test_inputs_of_another_seed_differ() -> None:
    problem = Problem("softmax", 9, 100)
    assert not np.array_equal(inputs(problem, 0), inputs(problem, 1), equal_nan=True)


@pytest.mark.parametrize("seed", [0, 4])
def test_nine_rows_hold_every_kind_of_row(seed: int) -> None:
    x = np.roll(inputs(Problem("softmax", 9, 1000), seed), seed, axis=0)
    assert 2.5 < x[0].std() < 3.5
    assert 25 < x[1].std() < 35
    assert 9990 < x[2].mean() < 10010
    masked = np.isneginf(x[3])
    assert masked.sum() == np.argmin(masked) < 1000
    assert np.isneginf(x[4]).all()
    assert np.isnan(x[5]).sum() == 1
    assert np.isposinf(x[6]).sum() == 1
    assert len(set(x[7])) == 1
    with np.errstate(under="ignore"):
        terms = np.exp(x[8] - x[8].max())
    assert (terms == 1).sum() == 1
    assert (terms < np.finfo(np.float32).tiny).any()


def test_float16_inputs_do_not_overflow() -> None:
    x = inputs(Problem("softmax", 9, 1000, "float16"), 0)
    assert np.isposinf(x).sum() == 1


def test_an_exact_result_is_right() -> None:
    r = np.array([[0.25, 0.75], [np.nan, np.inf]])
    comparison = compare(r.astype(np.float32), r, TOLERANCE)
    assert comparison
    assert (comparison.max_error, comparison.wrong_count, comparison.first_wrong) == (0, 0, None)


@pytest.mark.parametrize(
    ("got", "right"), [(np.nan, 0.5), (0.5, np.nan), (np.inf, 0.5), (0.5, np.inf), (-np.inf, np.inf), (0.0, 1e-30), (0.50001, 0.5)]
)
def test_one_wrong_element_is_found_wherever_it_is(got: float, right: float) -> None:
    reference = np.full((3, 5), 0.125)
    reference[1, 3] = right
    y = reference.astype(np.float32)
    y[1, 3] = got
    comparison = compare(y, reference, TOLERANCE)
    assert not comparison
    assert (comparison.wrong_count, comparison.first_wrong) == (1, (1, 3))
    assert str(comparison).startswith("1 element is wrong, first row 1, column 3: ")


@settings(deadline=None)
@given(error=st.floats(0, 3e-5), r=st.floats(1e-20, 1.0))
def test_an_element_passes_up_to_the_tolerance_and_its_error_is_reported(error: float, r: float) -> None:
    y = np.array([[r * (1 + error)]])
    comparison = compare(y, np.array([[r]]), TOLERANCE)
    assert bool(comparison) == (abs(y[0, 0] - r) <= 1e-37 + 1e-5 * r)
    assert comparison.max_error == pytest.approx(error, abs=1e-15)


def test_results_below_the_absolute_tolerance_may_be_flushed_to_zero() -> None:
    comparison = compare(np.zeros((1, 1), np.float32), np.array([[5e-38]]), TOLERANCE)
    assert comparison
    assert comparison.max_error == 0
