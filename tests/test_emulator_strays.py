"""Elementwise kernels that access what lies before, after or between the rows, and what the emulator says of each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends.emulation.memory import AROUND_BOTH
from autotune.backends.emulator import EmulatorBackend
from autotune.check import AROUND_INPUT, AROUND_OUTPUT, numpy_dtype
from autotune.configuration import Configuration
from autotune.element import ELEMENTS
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Failure, Instance
from tests.elementwise import elementwise

TEMPLATE = """
template <class Element, int bug>
__device__ void halve_v0(Element* output, const Element* input, long long rows, long long cols, long long output_stride,
                         long long input_stride, void*) {
    const Element* x = input + blockIdx.x * input_stride;
    Element* y = output + blockIdx.x * output_stride;
    if (bug == 8) for (long long i = threadIdx.x; i < cols; i += blockDim.x) y[i] = Element(0.0f);
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) y[i] = Element(0.5f * float(x[i]));
    if (threadIdx.x) return;
    bool first = blockIdx.x == 0, last = blockIdx.x == rows - 1;
    if (bug == 1) y[cols] = Element(0.5f * float(x[cols]));
    if (bug == 2) y[cols] = x[cols];
    if (bug == 3) y[cols] = Element(-float(x[cols]));
    if (bug == 4 && first) y[-1] = Element(0.5f * float(x[-1]));
    if (bug == 5 && first) y[-1] = x[-1];
    if (bug == 6) { volatile float unused = float(x[cols + (last ? 8 : 0)]); (void)unused; }
    if (bug == 7 && first) { volatile float unused = float(x[-8]); (void)unused; }
}
"""
RIGHT, HALVED, COPIED, NEGATED, HALVED_BEFORE, COPIED_BEFORE, READ_AFTER, READ_BEFORE, ZEROED_FIRST = range(9)
LAYOUTS = {
    "packed": Problem("halve", 5, 7),
    "to the end of a pack": Problem("halve", 4, 64),
    "strided": Problem("halve", 5, 7, input_stride=9, output_stride=11),
    "misaligned": Problem("halve", 5, 7, input_alignment=4, output_alignment=8),
    "strided alike and misaligned": Problem("halve", 3, 6, input_stride=8, output_stride=8, input_alignment=4, output_alignment=4),
    "one row": Problem("halve", 1, 33),
}


@pytest.fixture(scope="module")
def halve(tmp_path_factory: pytest.TempPathFactory) -> Operation:
    folder = tmp_path_factory.mktemp("kernels")
    return elementwise(folder, "halve", TEMPLATE, factor=0.5, bugs=9, tolerance=0.01)


@pytest.fixture(scope="module")
def backend() -> Iterator[EmulatorBackend]:
    backend = EmulatorBackend(jobs=2)
    yield backend
    backend.close()


@pytest.fixture(scope="module", params=list(ELEMENTS))
def instances(backend: EmulatorBackend, halve: Operation, request: pytest.FixtureRequest) -> list[Instance]:
    version = halve.version("v0")
    fates = dict(backend.compile(version, version.configurations(), request.param))
    found = [fates[configuration] for configuration in version.configurations()]
    return [instance for instance in found if isinstance(instance, Instance)]


def fault(backend: EmulatorBackend, operation: Operation, problem: Problem, instance: Instance) -> str:
    with backend.open(operation, replace(problem, dtype=instance.dtype)) as bench:
        try:
            bench.check(instance)
        except Failure as failure:
            return failure.message
    return ""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_strays_is_found_in_every_layout_and_element_type(
    backend: EmulatorBackend, halve: Operation, instances: list[Instance], layout: str
) -> None:
    problem = LAYOUTS[layout]
    assert fault(backend, halve, problem, instances[RIGHT]) == ""
    for bug in (HALVED, COPIED, NEGATED, HALVED_BEFORE, COPIED_BEFORE):
        said = fault(backend, halve, problem, instances[bug])
        assert "wrote before, after or between the rows" in said or " outside the " in said, f"{Configuration.of('v0', bug=bug)}: {said!r}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("bug", "where"), [(READ_AFTER, "after its last element"), (READ_BEFORE, "before its first element")])
def test_a_read_beyond_the_matrix_is_found_though_its_value_is_discarded(
    backend: EmulatorBackend, halve: Operation, instances: list[Instance], layout: str, bug: int, where: str
) -> None:
    said = fault(backend, halve, LAYOUTS[layout], instances[bug])
    assert " outside the input, " in said
    assert where in said


def test_the_next_read_after_a_matrix_that_ends_with_a_pack_is_found(
    backend: EmulatorBackend, halve: Operation, instances: list[Instance]
) -> None:
    said = fault(backend, halve, LAYOUTS["to the end of a pack"], instances[HALVED])
    assert "outside the input, right after its last element" in said
    assert fault(backend, halve, LAYOUTS["packed"], instances[RIGHT]) == ""  # by the same process, which goes on


def test_in_place_even_a_value_that_was_computed_there_is_found(
    backend: EmulatorBackend, halve: Operation, instances: list[Instance]
) -> None:
    for problem in (Problem("halve", 5, 7, in_place=True), Problem("halve", 5, 7, input_stride=9, output_stride=9, in_place=True)):
        assert fault(backend, halve, problem, instances[RIGHT]) == ""
        for bug in (HALVED, NEGATED, HALVED_BEFORE):
            assert "in place, the kernel wrote before, after or between the rows" in fault(backend, halve, problem, instances[bug])


def test_a_version_that_declares_in_place_is_checked_in_place(
    backend: EmulatorBackend, halve: Operation, instances: list[Instance], tmp_path: Path
) -> None:
    said = fault(backend, halve, Problem("halve", 20, 70), instances[ZEROED_FIRST])
    assert "in place, " in said
    assert "elements are wrong" in said
    undeclared = elementwise(tmp_path, "halve", TEMPLATE, factor=0.5, bugs=9, tolerance=0.01, in_place=False)
    assert fault(backend, undeclared, Problem("halve", 20, 70), instances[ZEROED_FIRST]) == ""


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_nothing_that_is_done_to_what_surrounds_an_input_gives_what_surrounds_an_output(dtype: str) -> None:
    def filled(pattern: int, name: str) -> Any:
        return np.full(64, pattern, np.uint16).view(numpy_dtype(name))

    mine = numpy_dtype(dtype)
    unwritten = filled(AROUND_OUTPUT, dtype).view(np.uint16)[0]
    with np.errstate(all="ignore"):
        for other in ELEMENTS:
            x = filled(AROUND_INPUT, other)
            assert np.isnan(x.astype(np.float64)).all()  # what reads it by mistake and uses it computes nothing but NaN
            for value in (x, -x, abs(x), x * x.dtype.type(0.5), x + x, x.astype(np.float32), -x.astype(np.float32), x.astype(np.float64)):
                assert (value.astype(mine).view(np.uint16) != unwritten).any()
        for integer in (np.int16, np.int32, np.int64):
            assert (filled(AROUND_INPUT, dtype).view(np.uint16).astype(integer).view(np.uint16) != unwritten).any()
        both = filled(AROUND_BOTH, dtype).astype(np.float64)
        assert np.isfinite(both).all()
        assert (both < 0).all()
