"""What the softmax kernels read and write: layouts, alignment, offsets beyond 2^31, shared memory, and nothing past the ends."""

import mmap

import numpy as np
import pytest

from autotune import source
from autotune.backends.emulation.run import FaultError
from autotune.backends.emulation.sanitize import sanitize
from autotune.check import compare, inputs
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.problem import Problem
from tests import emulated
from tests.emulated import SOFTMAX, Array, configuration, launch_of, matrix, runs, wrong
from tests.test_softmax_numbers import EACH

NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's; Python names it from 3.13 on


def laid_out(problem: Problem, offset: int = 0) -> Array:
    x = matrix(problem.rows, problem.cols, problem.input_stride, problem.dtype, offset)
    x[:] = inputs(problem)
    return x


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_nothing_between_the_rows_is_read_or_written(chosen: Configuration) -> None:
    problem = Problem("softmax", 9, 130, input_stride=136, output_stride=140)
    x, y = laid_out(problem), matrix(9, 130, 140, fill=-77)
    assert not wrong(chosen, x, problem, output=y)
    gaps = np.lib.stride_tricks.as_strided(y, (8, 140), y.strides)[:, 130:]
    assert (gaps == -77).all()


@pytest.mark.parametrize("chosen", EACH, ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_pointers_that_are_not_aligned_take_narrower_vectors(chosen: Configuration, offset: int) -> None:
    problem = Problem("softmax", 9, 128, input_alignment=8 if offset == 2 else 4)
    x = laid_out(problem, offset)
    if runs(chosen, problem):
        assert not wrong(chosen, x, problem)
    else:
        assert chosen.integer("vector") * 4 > problem.input_alignment
        with pytest.raises(FaultError, match="misaligned"):
            emulated.softmax(chosen, x, problem)


def test_rows_that_are_no_multiple_of_the_vector_fault_where_they_are_refused() -> None:
    chosen = configuration("v3", block=64, vector=4, unroll=1)
    problem = Problem("softmax", 2, 1001)
    assert not runs(chosen, problem)
    with pytest.raises(FaultError, match="misaligned"):
        emulated.softmax(chosen, laid_out(problem), problem)


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_one_row_may_have_any_number_of_columns(chosen: Configuration) -> None:
    for cols in (1, 2, 3, 5, 127, 1001):
        problem = Problem("softmax", 1, cols)
        assert runs(chosen, problem)
        assert not wrong(chosen, laid_out(problem), problem)


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_the_output_may_be_the_input(chosen: Configuration) -> None:
    problem = Problem("softmax", 9, 516, in_place=True)
    x = laid_out(problem)
    reference = SOFTMAX.reference(x.astype(np.float64))
    emulated.softmax(chosen, x, problem, output=x)
    assert compare(x, reference, SOFTMAX.tolerances["float32"])


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_empty_matrices_leave_memory_alone(chosen: Configuration) -> None:
    for rows, cols in ((0, 8), (8, 0)):
        problem = Problem("softmax", rows, cols, input_stride=8, output_stride=8)
        y = matrix(8, 8, fill=-77)
        if SOFTMAX.version(chosen.version).launch(chosen, problem, EMULATOR).blocks:
            emulated.softmax(chosen, matrix(8, 8), problem, output=y)
        assert (y == -77).all()


@pytest.mark.parametrize("chosen", EACH, ids=str)
def test_rows_may_start_beyond_two_to_the_31_elements(chosen: Configuration) -> None:
    rows, cols, stride = 4, 40, 3 * 2**29 + 4  # row 2 lies past 2^31 elements, row 3 past 2^32; only the touched pages exist
    problem = Problem("softmax", rows, cols, input_stride=stride, output_stride=stride)
    x, y = (_sparse(rows, cols, stride) for _ in range(2))
    x[:] = inputs(problem)
    assert not wrong(chosen, x, problem, output=y)


def _sparse(rows: int, cols: int, stride: int) -> Array:
    count = (rows - 1) * stride + cols
    space = mmap.mmap(-1, count * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.lib.stride_tricks.as_strided(np.frombuffer(space, np.float32), (rows, cols), (stride * 4, 4), writeable=True)


@pytest.mark.parametrize("stash", ["exponentials", "inputs"])
def test_a_row_may_fill_the_shared_memory_of_a_block(stash: str) -> None:
    chosen = configuration("v4", block=1024, vector=4, unroll=2, stash=stash)
    most = (EMULATOR.shared_bytes_per_block - 256) // 4
    assert most * 4 > 48 * 1024
    assert not wrong(chosen, laid_out(Problem("softmax", 2, most)), Problem("softmax", 2, most))
    assert not runs(chosen, Problem("softmax", 2, most + 4))


def test_no_version_touches_memory_past_an_array_or_its_shared_memory() -> None:
    reports = []
    for chosen in EACH:
        version = SOFTMAX.version(chosen.version)
        launches = []
        for problem in (Problem("softmax", 2, 300), Problem("softmax", 1, 131), Problem("softmax", 9, 1, input_stride=4, output_stride=4)):
            y = matrix(problem.rows, problem.cols, problem.output_stride)
            launches.append(launch_of(chosen, problem, y, laid_out(problem)))
        reports += sanitize("address", source.render(version, [chosen], "float32"), launches)
    assert reports == []


@pytest.mark.parametrize("seed", range(4))
def test_shared_memory_is_written_before_it_is_read(seed: int) -> None:
    """The emulator starts every block with NaN in its shared memory; the third row of each kind would show it."""
    problem = Problem("softmax", 18, 260)
    for chosen in EACH:
        assert not wrong(chosen, laid_out(problem), problem, seed=seed)
