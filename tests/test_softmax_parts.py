"""The softmax kernels after v4, which sum a row in parts: what is hard about that, one instance for each path through a kernel."""

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import catalogue, nvcc, source
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Launch, Library
from autotune.check import compare, inputs, numpy_dtype
from autotune.problem import Problem
from tests.softmax_instances import DEVICE, DTYPES, PATHS, SOFTMAX, Case, example, examples, launch_of, library, softmax, wrong


def test_every_path_has_an_example() -> None:
    assert {path for path in PATHS if example(path, "bfloat16", True)} == set(PATHS)
    assert {path for path in PATHS if example(path, "float32", True)} == {path for path in PATHS if not path.endswith("inputs")}


LARGE = {
    "of 3e38, whose product with log2(e) overflows": [3e38, 3e38, -3e38, 2.9e38],
    "of 1e10, where rounding that product moves it by 512": [1e10, 1e10 - 1024, 1e10, -1e10],
    "of 2^26, with neighbours 4 apart": [2.0**26, 2.0**26 - 4, 2.0**26 - 8, 2.0**26 - 80],
    "of 2^24 in one part and less in the others": [2.0**24, 2.0**24 - 64, 2.0**23, 1.0],
    "of 65536 exactly": [65536, 65535.5, 65500, 65450],
    "below -65536": [-70000, -70000.5, -70040, -70080],
    "of the smallest denormal": [1e-45, -1e-45, 0, -0.0],
}


@pytest.mark.parametrize("case", examples("float32", "bfloat16", odd=(False,)))
def test_a_maximum_may_be_any_finite_number(case: Case) -> None:
    rows, cols = case.problem.rows, case.problem.cols
    x = np.zeros((rows, cols), numpy_dtype(case.problem.dtype))
    for row, values in enumerate(LARGE.values()):
        x[row] = values[-1]
        x[row, : cols // 2] = np.resize(np.array(values, np.float32), cols // 2)  # parts of the row have other maxima
    assert not wrong(case.configuration, x, case.problem)


@pytest.mark.parametrize("case", examples("float32", "float16", "bfloat16"))
def test_elements_that_all_equal_a_large_maximum_have_equal_shares(case: Case) -> None:
    # The product of a maximum with log2(e) is rounded, and exp(maximum - maximum) is as far from 1: up to 2 in bfloat16.
    kind = numpy_dtype(case.problem.dtype)
    with np.errstate(over="ignore"):
        values = np.random.default_rng(0).uniform(500, min(2.0**24, float(np.float32(65504))), 100_000)
        values = np.concatenate([values, np.random.default_rng(1).uniform(2.0**22, 2.0**24, 100_000)]).astype(kind).astype(np.float32)
    values = values[np.isfinite(values)]
    product = values.astype(np.float64) * np.float64(np.float32(1.44269504))
    above = product - product.astype(np.float32)
    x = np.empty((case.problem.rows, case.problem.cols), kind)
    x[:] = values[np.argsort(above)[-len(x) :], np.newaxis].astype(kind)
    assert not wrong(case.configuration, x, case.problem)


@pytest.mark.parametrize("case", examples("float16", odd=(False,)))
def test_parts_of_float16_whose_maxima_differ_near_10000_are_put_together_exactly(case: Case) -> None:
    x = np.full((case.problem.rows, case.problem.cols), 9999, np.float16)  # neighbours are 8 apart
    for row in range(len(x)):
        x[row] -= 8 * np.random.default_rng(row).integers(0, 3, x.shape[1])
        x[row, : row * x.shape[1] // 8] -= 8  # the maximum of this part
    assert not wrong(case.configuration, x, case.problem)


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nvcc_does_not_fuse_the_products_whose_roundings_must_cancel(dtype: str) -> None:
    case = example("v8 exponentials", dtype, odd=False)
    assert case
    ptx = nvcc.compile_ptx(source.render(SOFTMAX.version("v8"), [case.configuration], dtype), "sm_90")
    products = set(re.findall(r"mul\.rn\.f32\s+(%f\d+),", ptx))
    differences = re.findall(r"sub\.rn\.f32\s+%f\d+, (%f\d+), (%f\d+)", ptx)
    assert differences
    assert all({a, b} <= products for a, b in differences)


@pytest.mark.parametrize("case", [each for each in examples("float32", "bfloat16") if each.values[0].problem.cols > 4])
def test_a_healthy_row_survives_parts_that_are_masked_whole_and_a_sick_one_is_nan_throughout(case: Case) -> None:
    rows, cols = case.problem.rows, case.problem.cols
    x = np.full((rows, cols), -np.inf, numpy_dtype(case.problem.dtype))
    x[0, 0], x[1, -1], x[2, cols // 2] = 1.0, -5.0, 7.0
    x[3, : cols // 4] = 0.0
    x[5:] = 0.0
    x[5, cols // 3], x[6, -1] = np.nan, np.inf
    y = softmax(case.configuration, x, case.problem).astype(np.float32)
    sick = [False, False, False, False, True, True, True, False, False]
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), sick)
    np.testing.assert_array_equal(np.isnan(y).any(axis=1), sick)
    assert (y[0, 0], y[1, -1], y[2, cols // 2]) == (1, 1, 1)


@pytest.mark.parametrize("case", [each for each in examples(*DTYPES, odd=(False,)) if each.values[0].problem.cols == 2])
def test_of_several_rows_in_a_pack_only_the_sick_ones_are_nan(case: Case) -> None:
    nan, inf = np.nan, np.inf
    x = np.array(
        [[1, 2], [nan, 1], [3, -inf], [-inf, -inf], [-inf, 0], [inf, 0], [5, 5], [1, nan], [0, 0]], numpy_dtype(case.problem.dtype)
    )
    y = softmax(case.configuration, x, case.problem).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), [False, True, False, True, False, True, False, True, False])
    np.testing.assert_array_equal(np.isnan(y).any(axis=1), np.isnan(y).all(axis=1))
    assert (y[2, 0], y[4, 1], y[6, 0], y[8, 1]) == (1, 1, 0.5, 0.5)


@pytest.mark.parametrize("case", examples("float32"))
def test_a_row_sums_to_one(case: Case) -> None:
    x = np.random.default_rng(1).standard_normal((case.problem.rows, case.problem.cols), dtype=np.float32)
    x[1] = 0.3  # equal terms: the errors of a plain running sum all have one sign
    np.testing.assert_allclose(softmax(case.configuration, x, case.problem).astype(np.float64).sum(axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", examples("bfloat16", odd=(True,)))
def test_the_order_of_threads_and_blocks_does_not_matter(case: Case) -> None:
    x = inputs(case.problem)
    first = softmax(case.configuration, x, case.problem)
    for seed in range(1, 4):
        np.testing.assert_array_equal(softmax(case.configuration, x, case.problem, seed=seed).view(np.uint16), first.view(np.uint16))


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from([e.values[0] for e in examples("float16", "float32", odd=(True,))]),
    rows=st.integers(1, 40),
    less=st.integers(0, 60),
    gap=st.integers(0, 2),
    where=st.sampled_from(["apart", "in place", "misaligned"]),
    seed=st.integers(0, 2**16),
)
def test_any_layout_that_is_applicable_is_right(case: Case, rows: int, less: int, gap: int, where: str, seed: int) -> None:
    cols = max(1, case.problem.cols - less)
    pitch = cols + 8 * gap + seed % 8
    alignment = 4 if where == "misaligned" else 16
    problem = Problem(
        "softmax", rows, cols, case.problem.dtype, pitch, pitch + 8 * gap * (where == "apart"), alignment, alignment, where != "apart"
    )
    if not SOFTMAX.applicable(case.configuration, problem, DEVICE):
        return
    assert not wrong(case.configuration, inputs(problem, seed), problem, seed=seed)


def test_v10_leaves_its_workspace_as_it_found_it_whatever_ran_before() -> None:
    workspace = np.zeros(4096, np.uint64)
    for rows, cols, together in ((1, 4096, True), (7, 8192, True), (3, 4096, False), (2, 16384, True), (1, 4096, False)):
        problem = Problem("softmax", rows, cols)
        version = SOFTMAX.version("v10")
        c = next(c for c in version.configurations() if c.integer("block") == 128 and version.applicable(c, problem, DEVICE))
        x, y = inputs(problem), np.full((rows, cols), np.nan, np.float32)
        library((c,), "float32").launch(launch_of(c, problem, y, x, workspace, seed=rows, together=together))
        assert compare(y, SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances["float32"])
        assert not workspace.any()


SUMS = "".join(f"EMULATED_KERNEL(sums_{width}_{most}, sums<{width}, {most}>)\n" for width in (16, 32) for most in (4, 128, 8192, 1 << 22))
KERNEL = """
template <int width, int most>
__global__ void sums(float* output, const float* input) { output[threadIdx.x] = warp_sum<width, most>(input[threadIdx.x]); }
"""


@cache
def sums() -> Library:
    folder = catalogue.shipped("templates")
    return Library(build.library("".join(source.expanded(folder / name) for name in ("common.cuh", "softmax/warp.cuh")) + KERNEL + SUMS))


@settings(max_examples=60, deadline=None)
@given(
    width=st.sampled_from([16, 32]),
    most=st.sampled_from([4, 128, 8192, 1 << 22]),
    shares=st.lists(st.floats(0, 1, width=32), min_size=16, max_size=32),
    sick=st.booleans(),
)
def test_lanes_are_summed_as_integers_to_the_last_place_of_a_float(width: int, most: int, shares: list[float], sick: bool) -> None:
    x, y = np.resize(np.array(shares[:width], np.float32) * np.float32(most), 32), np.zeros(32, np.float32)
    x[width:] = x[: 32 - width]
    if sick:
        x[shares.index(max(shares)) % 32] = np.nan
    sums().launch(Launch(f"sums_{width}_{most}", (y, x), 1, 32))
    exact = x[:width].astype(np.float64).sum() if not sick else np.nan
    np.testing.assert_array_equal(np.isnan(y), sick)
    np.testing.assert_allclose(y, np.full(32, exact), rtol=2.0**-23, atol=32 * most * 2.0**-45)
