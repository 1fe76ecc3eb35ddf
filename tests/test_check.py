"""What kernels are checked with."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.check import COMPARED_AT_ONCE, KINDS, compare, inputs, seeds
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


@given(rows=st.integers(1, 12), cols=st.integers(1, 1 << 15), seed=st.integers(0, 2**32 - 1))
def test_the_inputs_of_few_rows_hold_every_kind_between_them(rows: int, cols: int, seed: int) -> None:
    found = seeds(Problem("softmax", rows, cols), seed)
    assert found[0] == seed
    assert {(row + each) % 9 for each in found for row in range(rows)} == set(range(9))
    assert len(found) == -(-9 // min(rows, 9))


def test_a_single_very_long_row_meets_the_kinds_that_find_most() -> None:
    met = [KINDS[seed % 9].values for seed in seeds(Problem("softmax", 1, 131072))]
    assert met == [
        "values are normal with deviation 3",
        "values include one NaN",
        "values include one +inf",
        "values are all -inf",
        "first values are -inf, as under a causal mask",
    ]
    assert len(seeds(Problem("softmax", 2, 1 << 20))) == 5


def test_every_kind_of_row_is_explained_to_those_who_write_kernels_in_the_words_of_the_message() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "own_kernels.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (whose [^|]+?) \|", page, re.MULTILINE) == [f"whose {kind.values}" for kind in KINDS]


@pytest.mark.parametrize("problem", [Problem("softmax", 0, 5), Problem("softmax", 5, 0)])
def test_nothing_has_one_input(problem: Problem) -> None:
    assert seeds(problem, 3) == [3]


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


@pytest.mark.parametrize(("rows", "cols"), [(3, 2 * COMPARED_AT_ONCE + 7), (COMPARED_AT_ONCE // 100, 301)])
@pytest.mark.parametrize("wrong", [((0, 0), (-1, -1)), ((1, -1), (2, 0)), ((-1, 300), (-1, 301)), ((2, 255), (2, 256))])
def test_wrong_elements_are_counted_wherever_they_are_in_a_large_matrix(
    rows: int, cols: int, wrong: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    reference = np.full((rows, cols), 0.5)
    y = reference.astype(np.float32)
    places = sorted({(row % rows, col % cols) for row, col in wrong})
    for place in places:
        y[place] = 0.5001
    comparison = compare(y, reference, TOLERANCE)
    assert (comparison.wrong_count, comparison.first_wrong) == (len(places), places[0])
    assert comparison.max_error == pytest.approx(2e-4, rel=1e-3)
    assert f"first row {places[0][0]}, column {places[0][1]}: " in str(comparison)


@pytest.mark.parametrize(
    ("seed", "expected", "said"),
    [
        (None, 0.5, "first row 2, column 1: 7 where 0.5 is right within 5e-06 (relative 1e-05 + absolute 1e-37)"),
        (
            0,
            0.5,
            "first row 2 (whose values are shifted by 1e4), column 1: 7 where 0.5 is right within 5e-06 (relative 1e-05 + absolute 1e-37)",
        ),
        (3, np.nan, "first row 2 (whose values include one NaN), column 1: 7 where nan is right"),
        (4, np.inf, "first row 2 (whose values include one +inf), column 1: 7 where inf is right"),
    ],
)
def test_a_wrong_element_is_told_with_the_kind_of_its_row_and_its_tolerance(seed: int | None, expected: float, said: str) -> None:
    y, reference = np.zeros((3, 2), np.float32), np.zeros((3, 2))
    y[2, 1], reference[2, 1] = 7, expected
    assert compare(y, reference, TOLERANCE).told(seed) == f"1 element is wrong, {said}"


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
