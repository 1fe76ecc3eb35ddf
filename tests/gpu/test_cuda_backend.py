"""The `cuda` backend on a real GPU: what it accepts, what it catches, what it survives, and that its times are right."""

from pathlib import Path

import pytest

from autotune import catalogue
from autotune.backends.cuda import CudaBackend, describe
from autotune.configuration import Configuration
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.statistics import median
from autotune.trial import Failure, Instance, Outcome, Round

pytestmark = pytest.mark.gpu


def instance_of(backend: CudaBackend, operation: Operation, configuration: Configuration) -> Instance:
    version = operation.version(configuration.version)
    ((_, result),) = backend.compile(version, [configuration], "float32")
    if isinstance(result, Failure):
        raise result
    return result


def doubling(backend: CudaBackend, kernels: Path, version: str) -> tuple[Operation, Instance]:
    operation = catalogue.load("doubling", kernels)
    return operation, instance_of(backend, operation, Configuration.of(version, block=256))


def sampled(backend: CudaBackend, kernels: Path, version: str, problem: Problem, *, single: bool = False) -> tuple[Round, float | None]:
    operation, instance = doubling(backend, kernels, version)
    with backend.open(operation, problem) as bench:
        return bench.sample(instance, "final", 9, single=single), bench.copy_us


def test_everything_that_the_backend_needs_is_there() -> None:
    report = describe()
    assert [sentence for _, there, sentence in report if not there] == []
    assert [name for name, _, _ in report] == ["GPU", "nvcc", "clocks", "compile", "launch"]


def test_the_device_and_the_software_are_known(backend: CudaBackend) -> None:
    device, environment = backend.device, backend.environment
    assert device.sm_count > 0
    assert device.l2_bytes > 1 << 20
    assert device.shared_bytes_per_block > 48 << 10
    assert all((environment.package, environment.python, environment.os, environment.cuda, environment.compiler, environment.pycuda))


PROBLEMS = (
    Problem("softmax", 4096, 4096),
    Problem("softmax", 64, 1001),
    Problem("softmax", 1, 131072),
    Problem("softmax", 3, 1),
    Problem("softmax", 132, 20000),  # v4 keeps 80 kB of a row in shared memory
    Problem("softmax", 40, 1000, input_stride=1024, output_stride=1004),
    Problem("softmax", 40, 1000, input_stride=1001, output_stride=1007, input_alignment=4, output_alignment=8),
    Problem("softmax", 200, 512, in_place=True),
)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.size}{'-in-place' if p.in_place else ''}-{p.input_stride}")
def test_softmax_is_right_in_every_version(backend: CudaBackend, problem: Problem) -> None:
    operation = catalogue.load("softmax")
    with backend.open(operation, problem) as bench:
        for version in operation.versions.values():
            fitting = [c for c in version.configurations() if operation.applicable(c, problem, backend.device)]
            chosen = list(dict.fromkeys(fitting[i] for i in (0, len(fitting) // 2, -1))) if fitting else []
            for _, instance in backend.compile(version, chosen, "float32"):
                assert isinstance(instance, Instance)
                assert instance.resources is not None
                assert instance.resources.registers > 0
                assert 0 < bench.check(instance).max_error <= 1e-5 or problem.cols == 1


@pytest.mark.parametrize(
    "problem",
    [Problem("softmax", 3, 1000, input_stride=2**30 + 4, output_stride=2**30 + 8), Problem("softmax", 2**17 + 1, 2**14)],
    ids=["strides", "dense"],
)
def test_offsets_beyond_two_to_the_31_elements_are_right(backend: CudaBackend, problem: Problem) -> None:
    operation = catalogue.load("softmax")
    with backend.open(operation, problem) as bench:
        assert bench.check(instance_of(backend, operation, operation.safe)).max_error <= 1e-5


@pytest.mark.parametrize("version", ["v0", "v12", "v14", "v16"])
def test_a_right_kernel_passes_and_is_timed(backend: CudaBackend, kernels: Path, version: str) -> None:
    operation, instance = doubling(backend, kernels, version)
    with backend.open(operation, Problem("doubling", 300, 1000)) as bench:
        assert bench.check(instance).max_error == 0
        taken = bench.sample(instance, "race", 3)
        assert len(taken.samples_us) == 3
        assert min(taken.samples_us) > 0.5
        assert bench.check(instance).max_error == 0  # after graphs of it ran on the same output


WRONG = {
    "v1": (Outcome.WRONG_RESULT, "1 of 300000 elements are wrong, the first at row 299, column 999"),
    "v2": (Outcome.WRONG_RESULT, "1 of 300000 elements are wrong, the first at row 149, column 999, which is never written"),
    "v3": (Outcome.WRONG_RESULT, "elements outside the matrix were written, 1 of them"),
    "v4": (Outcome.WRONG_RESULT, "elements are wrong"),
    "v5": (Outcome.WRONG_RESULT, "the input was written to"),
    "v10": (Outcome.LAUNCH_ERROR, "cuFuncSetAttribute"),
    "v15": (Outcome.LAUNCH_ERROR, "TOO_LARGE"),
    "v17": (Outcome.WRONG_RESULT, "elements outside the matrix were written, 1 of them"),
    "v18": (Outcome.WRONG_RESULT, "hard rows, in place: "),
}
POISONING = {
    "v6": (Outcome.LAUNCH_ERROR, "illegal"),
    "v7": (Outcome.LAUNCH_ERROR, "misaligned"),
    "v8": (Outcome.TIMEOUT, "no answer within"),
    "v11": (Outcome.LAUNCH_ERROR, "fail"),
}


@pytest.mark.parametrize("version", WRONG)
def test_a_wrong_kernel_is_found_and_the_bench_stays_usable(backend: CudaBackend, kernels: Path, version: str) -> None:
    outcome, said = WRONG[version]
    operation, wrong = doubling(backend, kernels, version)
    _, right = doubling(backend, kernels, "v0")
    with backend.open(operation, Problem("doubling", 300, 1000)) as bench:
        with pytest.raises(Failure, match=said) as caught:
            bench.check(wrong)
        assert caught.value.outcome is outcome
        assert bench.check(right).max_error == 0


@pytest.mark.parametrize("version", POISONING)
def test_a_kernel_that_loses_the_context_costs_only_its_own_trial(kernels: Path, version: str) -> None:
    outcome, said = POISONING[version]
    backend = CudaBackend(hang_timeout_s=3.0)
    try:
        operation, wrong = doubling(backend, kernels, version)
        _, right = doubling(backend, kernels, "v0")
        with backend.open(operation, Problem("doubling", 300, 1000)) as bench:
            assert bench.check(right).max_error == 0
            with pytest.raises(Failure, match=said) as caught:
                bench.check(wrong)
            assert caught.value.outcome is outcome
            assert bench.check(right).max_error == 0
            assert len(bench.sample(right, "screen", 2).samples_us) == 2
    finally:
        backend.close()


def test_a_kernel_that_does_not_compile_is_a_failure_of_its_own(backend: CudaBackend, kernels: Path) -> None:
    with pytest.raises(Failure, match="undeclared") as caught:
        doubling(backend, kernels, "v9")
    assert caught.value.outcome is Outcome.COMPILE_ERROR


def test_a_problem_that_does_not_fit_is_refused_and_the_next_one_is_taken(backend: CudaBackend) -> None:
    operation = catalogue.load("softmax")
    with pytest.raises(Failure, match="GiB") as caught, backend.open(operation, Problem("softmax", 2**20, 2**18)):
        pass
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    with backend.open(operation, Problem("softmax", 64, 64)) as bench:
        assert bench.check(instance_of(backend, operation, operation.safe))


@pytest.mark.parametrize("single", [False, True], ids=["graph", "single"])
def test_an_empty_kernel_takes_next_to_nothing_so_the_flush_is_outside_the_window(
    backend: CudaBackend, kernels: Path, single: bool
) -> None:
    taken, _ = sampled(backend, kernels, "v13", Problem("doubling", 64, 64), single=single)
    assert 0.2 < median(taken.samples_us) < 12  # reading three times the L2 takes some 50 us


@pytest.mark.parametrize(("rows", "cols"), [(4096, 4096), (8192, 8192)])
def test_a_kernel_of_known_bytes_takes_about_as_long_as_a_copy_of_them(backend: CudaBackend, kernels: Path, rows: int, cols: int) -> None:
    taken, copy_us = sampled(backend, kernels, "v16", Problem("doubling", rows, cols))
    assert copy_us is not None
    assert 0.93 < median(taken.samples_us) / copy_us < 1.15
    assert max(taken.samples_us) / min(taken.samples_us) < 1.1
    bytes_per_us = 2 * rows * cols * 4 / copy_us
    assert bytes_per_us < backend.device.bus_bits * 1.2e3  # no memory moves faster than 9.6 Gbit/s per pin: the copy was cold


def test_clocks_are_recorded_with_the_samples(backend: CudaBackend, kernels: Path) -> None:
    taken, _ = sampled(backend, kernels, "v0", Problem("doubling", 1024, 1024))
    assert taken.sm_clock_mhz is not None
    assert taken.sm_clock_mhz > 300
    assert taken.throttled is not None


def test_warm_times_are_below_cold_ones_where_the_cache_helps(backend: CudaBackend, warm_backend: CudaBackend, kernels: Path) -> None:
    problem = Problem("doubling", 1024, 1024)
    cold, _ = sampled(backend, kernels, "v16", problem)
    warm, _ = sampled(warm_backend, kernels, "v16", problem)
    assert median(warm.samples_us) < median(cold.samples_us)
    assert (backend.timing.name, warm_backend.timing.name) == ("cold", "warm")


def test_two_rounds_of_one_kernel_agree(backend: CudaBackend) -> None:
    operation = catalogue.load("softmax")
    with backend.open(operation, Problem("softmax", 4096, 4096)) as bench:
        instance = instance_of(backend, operation, operation.safe)
        first, second = (median(bench.sample(instance, "final", 9).samples_us) for _ in range(2))
    assert first == pytest.approx(second, rel=0.03)
