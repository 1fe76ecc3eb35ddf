"""The emulator as a backend: what a sweep gets from it for right kernels and for every kind of wrong one."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.backends import Backend, emulator
from autotune.backends.emulation import build
from autotune.backends.emulator import EmulatorBackend
from autotune.configuration import Configuration
from autotune.definition import Launch
from autotune.device import EMULATOR
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.source import render
from autotune.trial import Failure, Instance, Outcome
from tests.elementwise import elementwise

TEMPLATE = """
template <class Element, int bug>
__device__ void twice_v0(Element* output, const Element* input, long long rows, long long cols, long long output_stride,
                         long long input_stride, void* workspace) {
    SHARED_ARRAY(float, from_last, 1);
    const Element* x = input + blockIdx.x * input_stride;
    Element* y = output + blockIdx.x * output_stride;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) y[i] = Element(2.0f * float(x[i]));
    long long last = cols - 1;
    if (threadIdx.x != last % 64) return;
    if constexpr (bug == 1) y[last] = Element(float(y[last]) + 1.0f);
    if constexpr (bug == 2) y[cols] = Element(1.0f);
    if constexpr (bug == 3) if (blockIdx.x == 0) y[-1] = Element(1.0f);
    if constexpr (bug == 4) const_cast<Element*>(x)[last] = Element(1.0f);
    if constexpr (bug == 5) { __syncthreads(); __shfl_xor_sync(0xffffffffu, 1, 1); spin_until([] { return false; }); }
    if constexpr (bug == 6) *reinterpret_cast<volatile int*>(16) = 1;
    if constexpr (bug == 7) for (volatile bool forever = true; forever;) {}
    if constexpr (bug == 8) *reinterpret_cast<float4*>(workspace) = *reinterpret_cast<const float4*>(x + 1);
    static_assert(bug != 9, "bug 9 does not compile");
    if constexpr (bug == 10) {  // right only if the row before was computed first
        auto* next = static_cast<unsigned*>(workspace);
        if (*next != blockIdx.x) y[last] = Element(0.0f);
        *next = (*next + 1) % gridDim.x;
    }
    if constexpr (bug == 11) if (atomicInc(static_cast<unsigned*>(workspace), gridDim.x - 1) >= gridDim.x) y[last] = Element(0.0f);
}
"""


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Operation:
    folder = tmp_path_factory.mktemp("kernels")
    return elementwise(folder, "twice", TEMPLATE, factor=2, bugs=12, tolerance=0)


@pytest.fixture(scope="module")
def backend() -> Iterator[EmulatorBackend]:
    backend = EmulatorBackend(jobs=2, hang_timeout_s=1.5)
    yield backend
    backend.close()


def compiled(backend: EmulatorBackend, operation: Operation, dtype: str, *bugs: int) -> list[Instance]:
    version = operation.version("v0")
    fates = dict(backend.compile(version, [Configuration.of("v0", bug=bug) for bug in bugs], dtype))
    instances = [fates[Configuration.of("v0", bug=bug)] for bug in bugs]
    assert all(isinstance(instance, Instance) for instance in instances)
    return [instance for instance in instances if isinstance(instance, Instance)]


@pytest.fixture(scope="module")
def instances(backend: EmulatorBackend, twice: Operation) -> dict[int, Instance]:
    bugs = [bug for bug in range(12) if bug != 9]
    return dict(zip(bugs, compiled(backend, twice, "float32", *bugs), strict=True))


def test_it_is_a_backend_that_never_stands_for_a_gpu(backend: EmulatorBackend) -> None:
    declared: Backend = backend
    assert declared.device == EMULATOR
    assert declared.timing.name == "cpu"
    assert not declared.replayed
    assert declared.known(Problem("twice", 4, 4)) is None
    assert "g++" in declared.environment.compiler


def test_a_right_kernel_is_checked_and_timed(backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance]) -> None:
    with backend.open(twice, Problem("twice", 20, 100)) as bench:
        check = bench.check(instances[0])
        assert check.max_error == 0
        assert check.first_us > 0
        taken = bench.sample(instances[0], "screen", 3)
        assert len(taken.samples_us) == 3
        assert min(taken.samples_us) > 0
        assert (taken.kind, taken.launches_per_sample, bench.copy_us) == ("screen", 1, None)


@pytest.mark.parametrize(
    "problem",
    [
        Problem("twice", 5, 33, input_stride=35, output_stride=40, input_alignment=4, output_alignment=8),
        Problem("twice", 5, 33, in_place=True),
        Problem("twice", 3, 10, input_stride=(1 << 30) + 3, output_stride=(1 << 31) + 1),
        Problem("twice", 1, 1),
        Problem("twice", 0, 5),
        Problem("twice", 5, 0),
    ],
    ids=["strides and alignments", "in place", "offsets beyond 2^31", "one element", "no rows", "no columns"],
)
def test_every_layout_can_be_checked(backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance], problem: Problem) -> None:
    with backend.open(twice, problem) as bench:
        assert bench.check(instances[0]).max_error == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_elements_can_be_checked(backend: EmulatorBackend, twice: Operation, dtype: str) -> None:
    right, wrong = compiled(backend, twice, dtype, 0, 1)
    with backend.open(twice, Problem("twice", 9, 50, dtype)) as bench:
        assert bench.check(right).max_error == 0
        with pytest.raises(Failure, match=r"wrong, first row 0 \(whose .*\), column 49"):
            bench.check(wrong)


@pytest.mark.parametrize(
    ("bug", "outcome", "message"),
    [
        (1, Outcome.WRONG_RESULT, r"^\d+ elements are wrong, first row 0 \(whose .*\), column 32: .* is right"),
        (2, Outcome.WRONG_RESULT, "wrote before, after or between the rows"),
        (3, Outcome.WRONG_RESULT, "wrote before, after or between the rows"),
        (4, Outcome.WRONG_RESULT, "changed its input"),
        (5, Outcome.TIMEOUT, "block 0 hangs: of its 1 running threads 1 wait at a condition"),
        (6, Outcome.CRASHED, "SIGSEGV"),
        (7, Outcome.TIMEOUT, r"no answer within \d"),
        (8, Outcome.LAUNCH_ERROR, r"/v0.cu:\d+: misaligned access: .* 16-byte alignment"),
        (10, Outcome.WRONG_RESULT, r"^with its threads in shuffled order 1, \d+ elements are wrong"),
    ],
)
def test_a_wrong_kernel_is_an_outcome_and_the_bench_stays_usable(
    backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance], bug: int, outcome: Outcome, message: str
) -> None:
    with backend.open(twice, Problem("twice", 9, 33, output_stride=36)) as bench:
        with pytest.raises(Failure, match=message) as failure:
            bench.check(instances[bug])
        assert failure.value.outcome == outcome
        assert bench.check(instances[0]).max_error == 0


KINDS = """
template <class Element, int bug>
__device__ void kinds_v0(Element* output, const Element* input, long long, long long cols, long long output_stride,
                         long long input_stride, void*) {
    const Element* x = input + blockIdx.x * input_stride;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float value = x[i];
        const bool finite = fabsf(value) < INFINITY;
        bool hit = false;
        if constexpr (bug == 1) hit = value != value;
        if constexpr (bug == 2) hit = value == INFINITY;
        if constexpr (bug == 3) hit = value == -INFINITY;
        if constexpr (bug == 4) hit = finite && value > 9000;
        if constexpr (bug == 5) hit = value > 40 && value < 9000;
        if constexpr (bug == 6) hit = finite && value < -100;
        if constexpr (bug == 7) hit = value == x[0] && finite && x[0] == x[1];
        output[blockIdx.x * output_stride + i] = Element(hit ? 0.0f : value);
    }
}
"""
WRONG_KINDS = {
    1: "include one NaN",
    2: "include one [+]inf",
    3: "are (all )?-inf",
    4: "shifted by 1e4",
    5: "30",
    6: "far below",
    7: "equal",
}


def test_a_kernel_that_is_wrong_for_one_kind_of_row_is_found_however_few_rows_there_are(backend: EmulatorBackend, tmp_path: Path) -> None:
    operation = elementwise(tmp_path, "kinds", KINDS, factor=1, bugs=len(WRONG_KINDS) + 1, in_place=False)
    right, *wrong = compiled(backend, operation, "float32", 0, *WRONG_KINDS)
    for rows in (1, 2, 3, 8):
        with backend.open(operation, Problem("kinds", rows, 100)) as bench:
            assert bench.check(right).max_error == 0
            for instance, kind in zip(wrong, WRONG_KINDS.values(), strict=True):
                with pytest.raises(
                    Failure, match=rf"^\d+ elements? (?:is|are) wrong, .* \(whose .*{kind}.*\), column \d+: 0 where .* is right"
                ) as failure:
                    bench.check(instance)
                assert failure.value.outcome == Outcome.WRONG_RESULT


def test_an_output_that_was_never_written_is_wrong_even_where_nan_is_right(backend: EmulatorBackend, tmp_path: Path) -> None:
    template = (
        "template <class Element, int bug> void nothing_v0(Element*, const Element*, long long, long long, long long, long long, void*) {}"
    )
    operation = elementwise(tmp_path, "nothing", template, factor=float("nan"))
    (instance,) = compiled(backend, operation, "float32", 0)
    with backend.open(operation, Problem("nothing", 2, 3)) as bench, pytest.raises(Failure, match="6 elements were not written, or made"):
        bench.check(instance)


MADE_OF_NOTHING = """#include "common.cuh"
template <class Element, int bug>
__device__ void made_v0(Element* output, const Element* input, long long, long long cols, long long output_stride, long long input_stride,
                        void*) {
    SHARED_ARRAY(Element, low, 64);
    SHARED_ARRAY(double, high, 64);
    const float x = float(input[blockIdx.x * input_stride + threadIdx.x % cols]);
    if (threadIdx.x > 0) low[threadIdx.x] = x, high[threadIdx.x] = x;
    __syncthreads();
    float value = x;
    if constexpr (bug == 1) value = low[threadIdx.x];
    if constexpr (bug == 2) value = float(high[threadIdx.x]);
    if (bug == 3 && threadIdx.x % 32 < 16) value = x + __shfl_down_sync(0xffffu, 0.0f, 16);
    Element& y = output[blockIdx.x * output_stride + threadIdx.x];
    if (threadIdx.x >= cols) return;
    if constexpr (bug == 4) y = Element(float(y) + x);
    else if constexpr (bug == 5) y = low[threadIdx.x];
    else y = Element(value);
}
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_is_made_of_memory_or_of_lanes_that_were_not_written_was_written_itself(
    backend: EmulatorBackend, tmp_path: Path, dtype: str
) -> None:
    operation = elementwise(tmp_path, "made", MADE_OF_NOTHING, factor=1, bugs=6, in_place=False)
    right, *wrong = compiled(backend, operation, dtype, 0, 1, 2, 3, 4, 5)
    with backend.open(operation, Problem("made", 9, 33, dtype)) as bench:
        assert bench.check(right).max_error == 0
        for instance in wrong:
            with pytest.raises(Failure) as failure:
                bench.check(instance)
            accumulates = instance.configuration["bug"] == 4
            assert ("elements were not written, or made of what the output held" in failure.value.message) == (
                accumulates and dtype == "float32"
            )
            assert ("; nan is also what shared memory holds" in failure.value.message) == (not accumulates or dtype != "float32")


def test_a_workspace_is_zeroed_once(backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance]) -> None:
    with backend.open(twice, Problem("twice", 9, 33)) as bench:
        assert bench.check(instances[11]).max_error == 0


def test_a_launch_of_as_many_blocks_as_a_grid_holds_is_not_waited_for_without_an_end(
    backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert emulator.MOST_LAUNCHES_S == 3600
    monkeypatch.setattr(emulator, "MOST_LAUNCHES_S", 0.5)
    version = replace(twice.version("v0"), launch=lambda configuration, problem, device: Launch(blocks=2**31 - 1))
    with backend.open(replace(twice, versions={"v0": version}), Problem("twice", 9, 33)) as bench:
        with pytest.raises(Failure) as failure:
            bench.check(instances[7])
        assert failure.value.outcome == Outcome.TIMEOUT


def test_two_problems_may_be_open_when_a_kernel_brings_the_child_down(
    backend: EmulatorBackend, twice: Operation, instances: dict[int, Instance]
) -> None:
    with backend.open(twice, Problem("twice", 4, 10)) as one, backend.open(twice, Problem("twice", 4, 11)) as two:
        with pytest.raises(Failure):
            one.check(instances[6])
        assert two.check(instances[0]).max_error == 0
        assert one.check(instances[0]).max_error == 0


def test_an_instance_that_does_not_compile_fails_alone(backend: EmulatorBackend, twice: Operation) -> None:
    version = twice.version("v0")
    fates = {c["bug"]: fate for c, fate in backend.compile(version, version.configurations(), "float32")}
    assert len(fates) == 12
    failed = fates.pop(9)
    assert isinstance(failed, Failure)
    assert failed.outcome == Outcome.COMPILE_ERROR
    assert "bug 9 does not compile" in failed.message
    assert all(isinstance(fate, Instance) for fate in fates.values())


def test_what_was_compiled_before_a_kill_is_not_compiled_again_beside_others_or_fewer(
    twice: Operation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first unit is done when whoever asked is gone; of what it holds, one instance is timed already and not asked for again."""
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(emulator, "MOST_INSTANCES_PER_UNIT", 2)
    version = twice.version("v0")
    wanted = [Configuration.of("v0", bug=bug) for bug in (0, 1, 2, 3)]
    compiled: list[str] = []
    library = build.library

    def noted(source: str) -> Path:
        compiled.append(source)
        return library(source)

    monkeypatch.setattr(build, "library", noted)
    with closing(EmulatorBackend(jobs=1)) as backend:
        asked = backend.compile(version, wanted, "float32")
        first = next(asked)
        asked.close()  # type: ignore[attr-defined]
        compiled.clear()
        again = dict(backend.compile(version, wanted[1:], "float32"))
        assert compiled == [render(version, wanted[2:], "float32")]
        compiled.clear()
        assert dict(backend.compile(version, wanted, "float32")) == again | dict([first])
        assert compiled == []
        with backend.open(twice, Problem("twice", 3, 65)) as bench:
            for_one = again[wanted[1]]
            assert isinstance(for_one, Instance)
            with pytest.raises(Failure, match="wrong"):
                bench.check(for_one)


def test_a_problem_that_does_not_fit_is_out_of_memory(backend: EmulatorBackend, twice: Operation) -> None:
    huge = Problem("twice", 1 << 20, 8, input_stride=1 << 50)
    with pytest.raises(Failure) as failure, backend.open(twice, huge):
        pass
    assert failure.value.outcome == Outcome.OUT_OF_MEMORY
