"""The defects that were found in Kernel Tuner 1.5.0, as tests of this tuner: `docs/kernel_tuner.md` has the table.

Each test begins with the number of its defect there.
"""

import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

from autotune import catalogue
from autotune.backends.emulator import EmulatorBackend
from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import shipped
from autotune.check import compare
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Environment, Failure, Instance, Outcome, RoundKind, TimingProtocol
from tests.fake import DEVICE, ENVIRONMENT, FakeBackend, Told

ROOT = Path(__file__).parent.parent
SOFTMAX = replace(catalogue.load("softmax"), versions={name: catalogue.load("softmax").version(name) for name in ("v2", "v3")})
PROBLEM = Problem("softmax", 4096, 4096)


def plausible(configuration: Configuration, problem: Problem) -> float:
    away = abs(configuration.integer("block") - 256) + 10 * sum(
        configuration.integer(n) for n, _ in configuration.parameters if n != "block"
    )
    return 100.0 / int(configuration.version[1:]) * (1 + away / 1000)


def space(operation: Operation = SOFTMAX, problem: Problem = PROBLEM) -> list[Configuration]:
    return [c for c in operation.configurations() if operation.applicable(c, problem, DEVICE)]


FASTEST = min(space(), key=lambda c: plausible(c, PROBLEM))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        yield database


def autotune(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "autotune", *arguments], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


@pytest.mark.parametrize("outcome", [Outcome.WRONG_RESULT, Outcome.COMPILE_ERROR])
def test_1_and_2_a_wrong_result_or_a_compile_error_ends_no_session_and_is_stored(database: Database, outcome: Outcome) -> None:
    failure = Failure(outcome, "as the test says")

    def times(configuration: Configuration, problem: Problem) -> Told:
        return failure if configuration == FASTEST else plausible(configuration, problem)

    broken = {FASTEST: failure} if outcome is Outcome.COMPILE_ERROR else {}
    summary = sweep(SOFTMAX, [PROBLEM], FakeBackend(times, compile_failures=broken), database)
    assert summary.problems[0].outcomes[Outcome.OK] == len(space()) - 1
    assert {row["outcome"] for row in database.trial_rows()} == {"ok", outcome}
    resumed = FakeBackend(times, compile_failures=broken)
    assert sweep(SOFTMAX, [PROBLEM], resumed, database).new_trials == 0
    assert resumed.tried == []


TWICE = {
    "operation.py": '''"""Twice the input."""
from autotune.operation import Tolerance
TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"fault": 0})
def reference(x):
    return 2 * x
def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
''',
    "v0.py": '''"""One block a row."""
from autotune.definition import Bounds, Launch, all_of
TEMPLATE = "v0.cu"
PARAMETERS = {"fault": (0, 1, 2)}
DTYPES = ("float32",)
IN_PLACE = True
def bounds(configuration):
    return Bounds(threads=32)
def applicable(configuration, problem, device):
    return all_of()
def launch(configuration, problem, device):
    return Launch(blocks=problem.rows)
''',
    "v0.cu": """#include "common.cuh"
template <class Element, int fault, bool odd = (fault > 0), int spare = (3 > 2 ? 4 : 5)>
__device__ void twice_v0(Element* output, const Element* input, long long, long long cols, long long output_stride,
                         long long input_stride, void*) {
    static_assert(fault != 2, "fault 2 does not compile");
    for (long long i = threadIdx.x; i < cols; i += blockDim.x)
        output[blockIdx.x * output_stride + i] = 2 * input[blockIdx.x * input_stride + i] + (odd && i == 0 ? spare : 0);
}
""",
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "twice"
    folder.mkdir()
    for name, text in TWICE.items():
        (folder / name).write_text(text)
    return folder.parent


def test_1_and_2_nothing_is_left_in_the_working_folder(kernels: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sized = ("--size", "4x32", "--device", "emulator", "--kernels", str(kernels), "--db", str(tmp_path / "x.sqlite"))
    done = autotune("sweep", "twice", *sized, cwd=work)
    assert done.returncode == 0, done
    assert "fault 2 does not compile" in done.stdout
    assert list(work.iterdir()) == []


def test_3_a_database_cut_anywhere_at_its_end_is_gone_on_from(tmp_path: Path) -> None:
    """What a kill, or a full disk, leaves of the write-ahead log is the trials up to some moment."""
    whole, chance = tmp_path / "whole.sqlite", random.Random(3)
    with Database(whole, mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible, stop_after=40), database, budget=Budget(exhaustive=True))
        log = whole.with_name("whole.sqlite-wal").read_bytes()
        content = whole.read_bytes()
    counts = []
    for length in sorted(chance.randrange(len(log) // 4, len(log)) for _ in range(6)):
        cut = tmp_path / f"cut{length}.sqlite"
        cut.write_bytes(content)
        cut.with_name(f"{cut.name}-wal").write_bytes(log[:length])
        with Database(cut, mode="write", create=True) as database:
            counts.append(len(database.trial_rows()))
            sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
            tried = {(row["version"], json.dumps(row["parameters"])) for row in database.trial_rows()}
        assert len(tried) == len(space())
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] <= 40


TUNER = textwrap.dedent(
    """
    import sys
    from autotune.database import Database
    from autotune.sweeping import sweep
    from tests.fake import FakeBackend
    from tests.test_kernel_tuner_defects import PROBLEM, SOFTMAX, plausible

    with Database(sys.argv[1], mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
    """
)


def test_4_three_tuners_on_one_database_lose_nothing(tmp_path: Path) -> None:
    path, env = tmp_path / "x.sqlite", {**os.environ, "PYTHONPATH": str(ROOT)}
    tuners = [subprocess.Popen([sys.executable, "-c", TUNER, str(path)], env=env, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(tuner.communicate(timeout=200)[1], tuner.returncode) for tuner in tuners] == [(b"", 0)] * 3
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Database(path, mode="read") as database:
        tried = Counter((row["version"], json.dumps(row["parameters"])) for row in database.trial_rows() if row["outcome"] == "ok")
        (best,) = database.best("softmax", 4096, 4096)
    assert len(tried) == len(space())
    assert (best["version"], best["parameters"]["block"]) == ("v3", 256)


def tuned(database: Database, backend: FakeBackend, budget: Budget | None = None) -> list[Configuration]:
    """What a sweep on `backend` measures."""
    sweep(SOFTMAX, [PROBLEM], backend, database, budget=budget)
    return [configuration for _, configuration in backend.tried]


def slower(configuration: Configuration, problem: Problem) -> float:
    return 1.1 * plausible(configuration, problem)


CHANGED: dict[str, Environment] = {
    "driver": replace(ENVIRONMENT, driver="2"),
    "compiler": replace(ENVIRONMENT, compiler="nvcc 2"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_5_times_under_another_driver_or_compiler_are_shown_as_stale_and_confirmed_by_one_measurement(
    database: Database, what: str
) -> None:
    tuned(database, FakeBackend(plausible))
    (stale,) = database.stale(SOFTMAX, CHANGED[what])
    assert stale["state"] == "stale"
    assert what in stale["why"]
    assert tuned(database, FakeBackend(plausible, environment=CHANGED[what])) == [FASTEST]
    assert database.stale(SOFTMAX, CHANGED[what]) == []
    assert database.best("softmax", 4096, 4096)[0]["state"] == "confirmed"
    assert tuned(database, FakeBackend(plausible, environment=CHANGED[what])) == []


@pytest.mark.parametrize("what", CHANGED)
def test_5_times_that_a_driver_or_compiler_has_changed_are_taken_again(database: Database, what: str) -> None:
    tuned(database, FakeBackend(plausible))
    again = tuned(database, FakeBackend(slower, environment=CHANGED[what]))
    assert again[0] == FASTEST
    assert Counter(again) == Counter(space())
    assert database.best("softmax", 4096, 4096)[0]["time_us"] == pytest.approx(1.1 * plausible(FASTEST, PROBLEM))


def test_5_a_sentinel_that_now_fails_has_everything_taken_again(database: Database) -> None:
    tuned(database, FakeBackend(plausible))

    def failing(configuration: Configuration, problem: Problem) -> Told:
        return Failure(Outcome.LAUNCH_ERROR, "the new driver refuses it") if configuration == FASTEST else plausible(configuration, problem)

    again = tuned(database, FakeBackend(failing, environment=CHANGED["driver"]))
    assert set(again) == set(space())
    assert again.count(FASTEST) == 2
    (best,) = database.best("softmax", 4096, 4096)
    assert Configuration.of(best["version"], **best["parameters"]) != FASTEST


@pytest.mark.parametrize("before", [[], [Failure(Outcome.CRASHED, "early")]])
def test_5_a_sentinel_that_fails_while_it_is_timed_has_everything_taken_again(before: list[Failure], database: Database) -> None:
    tuned(database, FakeBackend(plausible))
    first = iter(before)

    def wavering(configuration: Configuration, problem: Problem) -> Told:
        return next(first, plausible(configuration, problem)) if configuration == FASTEST else plausible(configuration, problem)

    late: dict[tuple[Configuration, RoundKind], Failure] = {(FASTEST, "race"): Failure(Outcome.CRASHED, "late")}
    again = tuned(database, FakeBackend(wavering, environment=CHANGED["driver"], sample_failures=late))
    assert set(again) == set(space())
    (best,) = database.best("softmax", 4096, 4096)
    assert (best["state"], Configuration.of(best["version"], **best["parameters"]) != FASTEST) == ("confirmed", True)
    assert FASTEST in database.blocked(DEVICE, "softmax", "float32")


def test_5_a_kernel_that_did_not_compile_is_compiled_again_by_another_compiler(database: Database) -> None:
    broken = {FASTEST: Failure(Outcome.COMPILE_ERROR, "internal error")}
    assert FASTEST not in tuned(database, FakeBackend(plausible, compile_failures=broken))
    assert FASTEST in tuned(database, FakeBackend(plausible, environment=CHANGED["compiler"]))
    (best,) = database.best("softmax", 4096, 4096)
    assert Configuration.of(best["version"], **best["parameters"]) == FASTEST


def test_5_other_flags_or_another_protocol_reuse_no_time(database: Database) -> None:
    tuned(database, FakeBackend(plausible))
    assert Counter(tuned(database, FakeBackend(slower, flags="-O1"))) == Counter(space())
    assert database.best("softmax", 4096, 4096)[0]["time_us"] == pytest.approx(1.1 * plausible(FASTEST, PROBLEM))
    assert Counter(tuned(database, FakeBackend(plausible, timing=TimingProtocol("cold", 2, "another way")))) == Counter(space())


def test_5_an_edited_kernel_is_measured_again_beginning_with_what_won_before(tmp_path: Path, database: Database) -> None:
    for folder in ("kernels", "templates"):
        shutil.copytree(shipped(folder), tmp_path / folder)
    for template in (tmp_path / "templates" / "softmax").glob("*.cu*"):
        shutil.copy(template, tmp_path / "kernels" / "softmax")
    template = tmp_path / "kernels" / "softmax" / "v3.cu"
    before = _only(catalogue.load("softmax", tmp_path / "kernels"), "v3")
    sweep(before, [PROBLEM], FakeBackend(plausible), database)
    template.write_text("// only a comment\n" + template.read_text())
    _forget()
    commented = FakeBackend(plausible)
    assert sweep(_only(catalogue.load("softmax", tmp_path / "kernels"), "v3"), [PROBLEM], commented, database).new_trials == 0
    template.write_text(template.read_text().replace("sum.total;", "sum.total + 0.0f;").replace("sum.total)", "sum.total + 0.0f)"))
    _forget()
    edited = FakeBackend(plausible)
    sweep(_only(catalogue.load("softmax", tmp_path / "kernels"), "v3"), [PROBLEM], edited, database, budget=Budget(trials=3))
    assert edited.tried[0] == (PROBLEM, FASTEST)
    assert len(edited.tried) == 3
    (shown,) = json.loads(autotune("inspect", "best", "--json", "--db", str(database.path), cwd=tmp_path).stdout)
    assert shown["state"] == "stale"  # by the kernels that are installed, which are not those of this test


def _only(operation: Operation, version: str) -> Operation:
    return replace(operation, versions={version: operation.version(version)})


def _forget() -> None:
    from autotune import source

    source.expanded.cache_clear()


def test_6_an_output_of_zeros_is_wrong_however_small_the_expected_values_are() -> None:
    expected = np.full((2, 1 << 20), 1e-7)
    tolerance = SOFTMAX.tolerances["float32"]
    assert not compare(np.zeros(expected.shape, np.float32), expected, tolerance)
    assert not compare((expected * 1.03).astype(np.float32), expected, tolerance)
    assert compare(expected.astype(np.float32), expected, tolerance)


def test_6_nan_is_right_only_where_it_is_expected() -> None:
    expected = np.array([[np.nan, 0.5]])
    tolerance = SOFTMAX.tolerances["float32"]
    assert not compare(np.array([[np.nan, np.nan]], np.float32), expected, tolerance)
    assert not compare(np.array([[0.5, 0.5]], np.float32), expected, tolerance)
    assert compare(np.array([[np.nan, 0.5]], np.float32), expected, tolerance)


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H100 80GB HBM3 (PCIe) [MIG 1g.10gb]", "Tesla/T4 <'\"%_>"])
def test_10_the_dispatcher_uses_exactly_what_was_tuned_whatever_the_device_is_called(tmp_path: Path, name: str) -> None:
    from autotune.dispatch.explain import explain

    path = tmp_path / "x.sqlite"
    backend = FakeBackend(plausible, device=replace(DEVICE, name=name))
    with Database(path, mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], backend, database)
    decision = explain(PROBLEM, name, db=path)
    assert decision.chosen is not None
    assert (decision.chosen.tier, decision.chosen.configuration) == ("exact", FASTEST)


def test_11_the_command_line_starts(tmp_path: Path) -> None:
    assert "sweep" in autotune("--help", cwd=tmp_path).stdout
    (command,) = entry_points(group="console_scripts", name="autotune")
    assert callable(command.load())


def test_12_the_same_seed_gives_the_same_trials_in_the_same_order(tmp_path: Path) -> None:
    recordings = min(shipped("results").glob("*.sqlite"))

    def order(name: str, seed: int) -> list[tuple[str, str]]:
        backend = RecordedBackend(recordings)
        try:
            with Database(tmp_path / name, mode="write", create=True) as database:
                operation = catalogue.load("softmax")
                sweep(operation, backend.problems("softmax")[:3], backend, database, budget=Budget(trials=25), seed=seed)
                trials = database.trials(backend.device, backend.timing)
                return [(str(t.problem), str(t.configuration)) for t in trials if any(r.kind == "screen" for r in t.rounds)]
        finally:
            backend.close()

    first = order("a.sqlite", seed=42)
    assert len(first) == 75
    assert order("b.sqlite", seed=42) == first
    assert order("c.sqlite", seed=43) != first


def test_13_a_template_whose_parameters_contain_a_greater_sign_is_instantiated_and_run(kernels: Path) -> None:
    operation = catalogue.load("twice", kernels)
    backend = EmulatorBackend(jobs=1, hang_timeout_s=10.0)
    right, wrong = Configuration.of("v0", fault=0), Configuration.of("v0", fault=1)
    try:
        built = {c: made for c, made in backend.compile(operation.version("v0"), [right, wrong], "float32") if isinstance(made, Instance)}
        with backend.open(operation, Problem("twice", 3, 40)) as bench:
            assert bench.check(built[right]).max_error == 0
            with pytest.raises(Failure, match=r"first row 0 \(whose .*\), column 0"):
                bench.check(built[wrong])
    finally:
        backend.close()


@pytest.mark.nvcc
def test_13_such_a_template_and_launch_bounds_by_a_parameter_pass_nvcc(kernels: Path) -> None:
    from autotune import nvcc

    operation = catalogue.load("twice", kernels)
    ((_, built),) = nvcc.compile_instances(operation.version("v0"), [Configuration.of("v0", fault=1)], "float32", "sm_90")
    assert isinstance(built, Instance)
    assert built.resources is not None
    assert built.resources.registers <= 65536 // 32


def test_every_test_that_the_table_names_exists() -> None:
    page = (ROOT / "docs" / "kernel_tuner.md").read_text()
    tests = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py")), re.MULTILINE))
    named = re.findall(r"`(test_\w+)(…?)`(?: \((\w+)\))?", page)
    numbers = {"": 1, "two": 2, "seven": 7}
    found = {name: sum(test.startswith(name) if more else test == name for test in tests) for name, more, _ in named}
    wrong = [name for name, _, number in named if found[name] != numbers[number]]
    assert len(named) > 60
    assert wrong == []
    assert {f"test_{number}_" for number in (3, 4, 5, 6, 10, 11, 12, 13)} <= {name for name, more, _ in named if more}
