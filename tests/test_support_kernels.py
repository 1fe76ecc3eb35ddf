"""The kernels that make inputs, judge outputs and empty the cache, and softmax's float64 reference: run on the CPU by the emulator."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import catalogue, check
from autotune.backends.cuda_check import COMPARE, MISTAKES
from autotune.backends.cuda_compile import support_source
from autotune.backends.cuda_setup import FILL, FLUSH
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Launch, Library
from autotune.element import ELEMENTS
from autotune.problem import Problem

KERNELS = ("autotune_fill", "autotune_compare", "autotune_flush", "softmax_reference")
BLOCKS, THREADS = 2, 64
WARPS = BLOCKS * THREADS // 32
GUARD = 64
ROWS, COLS, STRIDE = 5, 37, 40

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def library(dtype: str) -> Library:
    exports = "".join(f"EMULATED_KERNEL(emulated_{name}, {name})\n" for name in KERNELS)
    return Library(build.library(support_source(dtype, catalogue.load("softmax")) + exports))


def launch(dtype: str, kernel: str, *arguments: Any, blocks: int = BLOCKS) -> None:
    library(dtype).launch(Launch(f"emulated_{kernel}", arguments, blocks=blocks, threads=THREADS))


def filled(dtype: str, seed: int, rows: int = ROWS, cols: int = COLS, stride: int = STRIDE) -> Array:
    matrix = np.full((rows, stride), 7, check.numpy_dtype(dtype))
    launch(dtype, "autotune_fill", matrix, rows, cols, stride, np.uint64(seed), None)
    return matrix


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_inputs_are_normal_with_deviation_3_and_leave_the_gaps_between_rows_alone(dtype: str) -> None:
    matrix = filled(dtype, seed=1, rows=64, cols=500, stride=512).astype(np.float64)
    values = matrix[:, :500]
    assert abs(values.mean()) < 0.1
    assert abs(values.std() - 3) < 0.1
    assert np.abs(values).max() > 9
    assert (matrix[:, 500:] == 7).all()


def test_inputs_depend_on_the_seed_and_on_nothing_else() -> None:
    first = filled("float32", seed=1)
    np.testing.assert_array_equal(first, filled("float32", seed=1))
    np.testing.assert_array_equal(first[:, :COLS], filled("float32", seed=1, stride=COLS))
    assert (first != filled("float32", seed=2))[:, :COLS].mean() > 0.99


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_a_changed_input_is_noticed(dtype: str) -> None:
    matrix, counts = filled(dtype, seed=3), np.full(WARPS, -1, np.int64)
    launch(dtype, "autotune_fill", matrix, ROWS, COLS, STRIDE, np.uint64(3), counts)
    assert counts.sum() == 0
    matrix[4, 36] += 1
    matrix[0, 0] = np.nan
    matrix[2, 38] = 0  # outside the matrix
    launch(dtype, "autotune_fill", matrix, ROWS, COLS, STRIDE, np.uint64(3), counts)
    assert counts.sum() == 2


class Output:
    """An output between its guard zones, right in every element, and what the comparison says of it after it was changed."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        numpy_dtype = check.numpy_dtype(dtype)
        x = check.inputs(Problem("softmax", ROWS, COLS, dtype), seed=4)  # with a row of -inf and a row with a NaN
        self.reference = catalogue.load("softmax").reference(x.astype(np.float64))
        self.memory = np.full((GUARD + ROWS * STRIDE + GUARD) * numpy_dtype.itemsize, 0xFF, np.uint8).view(numpy_dtype)
        self.matrix = self.memory[GUARD:-GUARD].reshape(ROWS, STRIDE)
        self.matrix[:, :COLS] = self.reference
        self.tolerance = catalogue.load("softmax").tolerances[dtype]

    def compare(self) -> tuple[int, int, int, float]:
        """Wrong elements, index of the first, elements written outside the matrix, largest error."""
        found = np.zeros(WARPS, MISTAKES)
        sizes = (ROWS, COLS, STRIDE, GUARD)
        tolerance = (np.float64(self.tolerance.relative), np.float64(self.tolerance.absolute))
        launch(self.dtype, "autotune_compare", found, self.memory[GUARD:], self.reference, *sizes, *tolerance)
        first = found["first"][found["wrong"] > 0].min(initial=1 << 62)
        return int(found["wrong"].sum()), int(first), int(found["strayed"].sum()), float(found["max_error"].max())


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_a_right_output_passes_with_its_rounding_as_the_largest_error(dtype: str) -> None:
    output = Output(dtype)
    wrong, _, strayed, error = output.compare()
    assert (wrong, strayed) == (0, 0)
    got = check.compare(output.matrix[:, :COLS], output.reference, output.tolerance)
    assert got
    assert error == pytest.approx(got.max_error, rel=1e-9)


@given(row=st.integers(0, ROWS - 1), col=st.integers(0, COLS - 1), dtype=st.sampled_from(list(ELEMENTS)), data=st.data())
@settings(deadline=None, max_examples=60)
def test_one_wrong_element_is_found_wherever_it_is(row: int, col: int, dtype: str, data: st.DataObject) -> None:
    output = Output(dtype)
    right = float(output.matrix[row, col])
    mistakes = [0.5, np.inf, -np.inf] if np.isnan(right) else [right * 1.1 + 0.01, np.nan, np.inf, -1.0]
    output.matrix[row, col] = data.draw(st.sampled_from(mistakes))
    assert output.compare()[:3] == (1, row * COLS + col, 0)


@given(row=st.integers(0, ROWS - 1), col=st.integers(0, COLS - 1), dtype=st.sampled_from(list(ELEMENTS)))
@settings(deadline=None, max_examples=40)
def test_an_unwritten_element_is_found_even_where_nan_is_right(row: int, col: int, dtype: str) -> None:
    output = Output(dtype)
    place = GUARD + row * STRIDE + col
    output.memory.view(np.uint8).reshape(len(output.memory), -1)[place] = 0xFF
    assert output.compare()[:2] == (1, row * COLS + col)


@pytest.mark.parametrize("place", [0, GUARD - 1, GUARD + COLS, GUARD + STRIDE - 1, GUARD + ROWS * STRIDE - 1, GUARD + ROWS * STRIDE, -1])
def test_an_element_written_outside_the_matrix_is_found(place: int) -> None:
    output = Output("float32")
    output.memory[place] = 0.0
    assert output.compare()[:3] == (0, 1 << 62, 1)


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_an_output_of_zeros_never_passes(dtype: str) -> None:
    output = Output(dtype)
    output.matrix[:, :COLS] = 0
    assert output.compare()[0] > ROWS * COLS // 2


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize(("rows", "cols", "stride"), [(18, 100, 128), (9, 1, 1), (20, 33, 33)])
def test_the_softmax_reference_of_the_gpu_is_that_of_the_host(dtype: str, rows: int, cols: int, stride: int) -> None:
    x = np.zeros((rows, stride), check.numpy_dtype(dtype))
    x[:, :cols] = check.inputs(Problem("softmax", rows, cols, dtype), seed=5)
    got = np.zeros((rows, cols))
    launch(dtype, "softmax_reference", got, x, rows, cols, cols, stride, None, blocks=-(-rows * 32 // THREADS))
    expected = catalogue.load("softmax").reference(x[:, :cols].astype(np.float64))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=0, equal_nan=True)


def test_the_flush_reads_and_never_writes() -> None:
    memory, sink = np.full(4096, 0.2, np.float32), np.full(4, 9, np.float32)
    before = memory.copy()
    launch("float32", "autotune_flush", memory, len(memory) // 4, np.float32(np.nan), sink)
    np.testing.assert_array_equal(memory, before)
    assert (sink == 9).all()


def test_arguments_are_packed_as_the_kernels_declare_them() -> None:
    assert (FILL.size, COMPARE.size, FLUSH.size) == (48, 72, 32)
