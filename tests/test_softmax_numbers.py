"""What the softmax kernels compute, checked in the emulator against float64, element by element."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.check import inputs
from autotune.configuration import Configuration
from autotune.problem import Problem
from tests import emulated
from tests.emulated import configuration, matrix, runs, wrong

# One configuration per version and per path through it, for what need not be asked of all 257.
EACH = (
    configuration("v0", block=32),
    configuration("v1", block=64, unroll=4),
    configuration("v2", block=96, unroll=2),
    configuration("v3", block=64, vector=2, unroll=2),
    configuration("v3", block=32, vector=4, unroll=4),
    configuration("v4", block=96, vector=4, unroll=1, stash="exponentials"),
    configuration("v4", block=64, vector=4, unroll=2, stash="inputs"),
)


@pytest.mark.parametrize("group", emulated.units(), ids=lambda group: f"{group[0].version}-{group[0].integer('block')}")
def test_every_configuration_is_right_at_odd_sizes(group: tuple[Configuration, ...]) -> None:
    problems = (
        Problem("softmax", 9, 1, input_stride=4, output_stride=8),  # one thread of the block has work
        Problem("softmax", 9, 31, input_stride=32, output_stride=36),  # fewer columns than a warp, three of them past the last pack
        Problem("softmax", 9, 1027, input_stride=1028, output_stride=1028),  # whole batches, a part of one, and a tail
        Problem("softmax", 9, 2048),  # for most blocks nothing but whole batches
    )
    failures = []
    for problem in problems:
        x = matrix(problem.rows, problem.cols, problem.input_stride)
        x[:] = inputs(problem)
        tried = [c for c in group if runs(c, problem)]
        assert tried == list(group)
        failures += [wrong(c, x, problem, group=group) for c in tried]
    assert not list(filter(None, failures))


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_a_thread_of_few_adds_many_terms_within_the_tolerance(chosen: Configuration) -> None:
    problem = Problem("softmax", 3, 131072)
    x = np.random.default_rng(0).standard_normal((3, problem.cols), dtype=np.float32)
    x[1] = 0.3  # equal terms: the errors of a plain running sum all have one sign
    x[2] *= 30
    assert not runs(chosen, problem) or not wrong(chosen, x, problem)
    assert runs(chosen, problem) == (chosen.version != "v4")


@pytest.mark.parametrize("chosen", EACH, ids=str)
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("of 3e38, whose product with log2(e) overflows", [3e38, 3e38, -3e38, 2.9e38]),
        ("of 1e10, where rounding that product moves it by 512", [1e10, 1e10 - 1024, 1e10, -1e10]),
        ("of 2^26, with neighbours 4 apart", [2.0**26, 2.0**26 - 4, 2.0**26 - 8, 2.0**26 - 80]),
        ("of 65536 exactly", [65536, 65535.5, 65500, 65450]),
        ("below -65536", [-70000, -70000.5, -70040, -70080]),
        ("of the smallest denormal", [1e-45, -1e-45, 0, -0.0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_maximum_may_be_any_finite_number(chosen: Configuration, name: str, row: list[float]) -> None:
    x = np.tile(np.array(row, np.float32), (2, 5))
    assert not wrong(chosen, x, Problem("softmax", *x.shape)), name


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_a_healthy_row_survives_slices_that_are_masked_whole(chosen: Configuration) -> None:
    x = np.full((4, 512), -np.inf, np.float32)
    x[0, 0], x[1, 511], x[2, 250:252], x[3, :256] = 1.0, -5.0, 7.0, 0.0
    y = emulated.softmax(chosen, x, Problem("softmax", 4, 512))
    assert not np.isnan(y).any()
    assert y[0, 0] == 1
    assert y[1, 511] == 1
    np.testing.assert_array_equal(y[2, 250:252], 0.5)


@pytest.mark.parametrize("chosen", EACH, ids=str)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_one_nan_or_infinity_makes_its_row_nan_and_no_other(chosen: Configuration, poison: float) -> None:
    x = np.zeros((4, 516), np.float32)
    x[1, 515], x[2, 300:] = poison, -np.inf
    x[3] = -np.inf
    y = emulated.softmax(chosen, x, Problem("softmax", 4, 516))
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), [False, True, False, True])
    np.testing.assert_array_equal(np.isnan(y).any(axis=1), [False, True, False, True])


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_a_row_sums_to_one(chosen: Configuration) -> None:
    problem = Problem("softmax", 4, 4096)
    x = np.random.default_rng(1).standard_normal((4, 4096), dtype=np.float32)
    np.testing.assert_allclose(emulated.softmax(chosen, x, problem).astype(np.float64).sum(axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_the_order_of_threads_does_not_matter(chosen: Configuration) -> None:
    problem = Problem("softmax", 4, 1000)
    x = inputs(problem)
    first = emulated.softmax(chosen, x, problem)
    for seed in range(1, 4):
        np.testing.assert_array_equal(emulated.softmax(chosen, x, problem, seed=seed), first)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("chosen", [*EACH, configuration("v3", block=64, vector=8, unroll=2)], ids=str)
def test_sixteen_bit_elements_round_once(chosen: Configuration, dtype: str) -> None:
    problem = Problem("softmax", 9, 1027, dtype, input_stride=1032, output_stride=1032)
    x = matrix(9, 1027, 1032, dtype)
    x[:] = inputs(problem)
    assert not wrong(chosen, x, problem)


@settings(max_examples=60, deadline=None)
@given(
    chosen=st.sampled_from(EACH),
    rows=st.integers(1, 40),
    cols=st.integers(1, 700),
    gaps=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    seed=st.integers(0, 2**16),
)
def test_any_size_and_stride_that_is_applicable_is_right(
    chosen: Configuration, rows: int, cols: int, gaps: tuple[int, int], seed: int
) -> None:
    problem = Problem("softmax", rows, cols, input_stride=cols + gaps[0], output_stride=cols + gaps[1])
    if not runs(chosen, problem):
        return
    x = matrix(rows, cols, problem.input_stride)
    x[:] = inputs(problem, seed)
    assert not wrong(chosen, x, problem, seed=seed)
