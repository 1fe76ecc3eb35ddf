"""Whatever a kernel, its process or the disk does, a sweep goes on, loses nothing that is stored, and never chooses what failed."""

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autotune import catalogue
from autotune.backends.emulator import EmulatorBackend
from autotune.backends.worker import Worker
from autotune.compilers import MachineError
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.device import EMULATOR
from autotune.errors import StorageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.sweeping import sweep
from autotune.trial import Failure, Outcome, ProblemFailure
from autotune.watch import Attempt, ProblemSummary, Summary, Watcher
from tests.fake import FakeBackend, Told

OPERATION = '''"""Twice the input."""
from autotune.operation import Tolerance
TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"turns": 1})
def reference(x):
    return 2 * x
def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
'''
DEFINITION = '''"""SUMMARY"""
from autotune.definition import Bounds, Launch, all_of
TEMPLATE = "NAME.cu"
PARAMETERS = {"turns": TURNS}
DTYPES = ("float32",)
IN_PLACE = True
def bounds(configuration):
    return Bounds(threads=32)
def applicable(configuration, problem, device):
    return all_of()
def launch(configuration, problem, device):
    return Launch(blocks=problem.rows, workspace_bytes=WORKSPACE)
'''
TEMPLATE = """#include <time.h>
template <class Element, int turns>
__device__ void twice_NAME(Element* output, const Element* input, long long, long long cols, long long output_stride,
                           long long input_stride, void*) {
    const Element* x = input + blockIdx.x * input_stride;
    Element* y = output + blockIdx.x * output_stride;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const Element value = x[i];
        for (int turn = 0; turn < turns; turn++) *const_cast<volatile Element*>(y + i) = 2 * value;
    }
    const bool last = blockIdx.x == gridDim.x - 1 && threadIdx.x == 0;
    BODY
}
"""
RIGHT = {"v0": (1, 20), "v6": (2, 40)}
SPIN = "timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a); do clock_gettime(CLOCK_MONOTONIC, &b); while (b.tv_sec < a.tv_sec + 60);"
# What a version does wrong in its body, or asks for; how that ends, what is said, and how often it is tried at two sizes.
FAULTS = {
    "v1": ("if (last) y[0] = 0;", "0", Outcome.WRONG_RESULT, "wrong, first row", 2),
    "v2": ("if (last) *reinterpret_cast<volatile int*>(16) = 1;", "0", Outcome.CRASHED, "ended by SIGSEGV", 2),
    "v3": (f"if (last) {{ {SPIN} }}", "0", Outcome.TIMEOUT, "no answer within", 2),
    "v4": ("y = undeclared(x);", "0", Outcome.COMPILE_ERROR, "undeclared", 2),
    "v5": ("", "1 << 60", Outcome.OUT_OF_MEMORY, "allocate", 4),
}
SIZES = (Problem("twice", 4, 64), Problem("twice", 7, 33))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an operation of which two versions are right and each of the others fails in its own way."""
    kernels = tmp_path_factory.mktemp("kernels")
    folder = kernels / "twice"
    folder.mkdir()
    (folder / "operation.py").write_text(OPERATION)
    versions = {name: ("", "0", turns) for name, turns in RIGHT.items()} | {name: (*fault[:2], (1,)) for name, fault in FAULTS.items()}
    for name, (body, workspace, turns) in versions.items():
        definition = DEFINITION.replace("NAME", name).replace("TURNS", str(turns)).replace("WORKSPACE", workspace)
        (folder / f"{name}.py").write_text(definition)
        (folder / f"{name}.cu").write_text(TEMPLATE.replace("NAME", name).replace("BODY", body))
    return kernels


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        yield database


@contextmanager
def emulator(hang_timeout_s: float = 1.0) -> Iterator[EmulatorBackend]:
    backend = EmulatorBackend(jobs=2, hang_timeout_s=hang_timeout_s)
    try:
        yield backend
    finally:
        backend.close()


@pytest.fixture(scope="module")
def swept(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a sweep over all versions at both sizes."""
    path = tmp_path_factory.mktemp("swept") / "x.sqlite"
    with emulator() as backend, Database(path, mode="write", create=True) as database:
        sweep(catalogue.load("twice", kernels), SIZES, backend, database)
    return path


def test_a_sweep_over_faulty_kernels_measures_all_others_at_every_size(swept: Path) -> None:
    with Database(swept, mode="read") as database:
        timed = Counter((row["rows"], row["version"]) for row in database.trial_rows() if row["outcome"] in ("ok", "pruned"))
    assert timed == {(problem.rows, version): len(RIGHT[version]) for problem in SIZES for version in RIGHT}


@pytest.mark.parametrize("version", FAULTS)
def test_each_fault_is_stored_with_its_outcome_and_message(swept: Path, version: str) -> None:
    _, _, outcome, said, times = FAULTS[version]
    with Database(swept, mode="read") as database:
        rows = [row for row in database.trial_rows() if row["version"] == version]
    assert [row["outcome"] for row in rows] == [outcome] * times
    assert all(said in row["message"] for row in rows)


def test_what_failed_twice_is_blocked_for_its_size_or_wherever_it_would_run(swept: Path, kernels: Path) -> None:
    from autotune.dispatch.explain import explain

    with Database(swept, mode="read") as database:
        of_size = {c.version for c in database.blocked(EMULATOR, "twice", "float32", SIZES[0])}
        everywhere = {c.version for c in database.blocked(EMULATOR, "twice", "float32")}
    assert (of_size, everywhere) == ({"v1", "v2", "v3", "v5"}, {"v1", "v2", "v3"})
    decision = explain(Problem("twice", 4, 64), EMULATOR, db=swept, kernels=kernels)
    assert decision.chosen is not None
    assert decision.chosen.configuration.version in RIGHT


def test_what_failed_is_never_the_best(swept: Path) -> None:
    with Database(swept, mode="read") as database:
        best = [row for problem in SIZES for row in database.best("twice", problem.rows, problem.cols)]
    assert [(row["version"] in RIGHT, row["state"]) for row in best] == [(True, "confirmed")] * len(SIZES)


def test_a_second_sweep_leaves_what_failed_alone(swept: Path, kernels: Path) -> None:
    with emulator() as backend, Database(swept, mode="write") as database:
        summary = sweep(catalogue.load("twice", kernels), SIZES, backend, database)
    assert summary.new_trials == 0
    assert [problem.blocked for problem in summary.problems] == [4, 4]


@dataclass
class Killer(Watcher):
    """Kills the processes that kernels run in, with SIGKILL, at the first trial."""

    killed: int = 0

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        if not self.killed:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            workers = [int(pid) for pid in children if b"autotune.backends.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            self.killed = len(workers)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_killed_from_outside_costs_nothing(kernels: Path, database: Database) -> None:
    killer = Killer()
    with emulator(hang_timeout_s=10.0) as backend:
        summary = sweep(catalogue.load("twice", kernels), SIZES, backend, database, versions=tuple(RIGHT), watcher=killer)
    assert killer.killed
    assert [sum(n for outcome, n in p.outcomes.items() if outcome.timed) for p in summary.problems] == [4, 4]
    assert database.blocked(EMULATOR, "twice", "float32", SIZES[0]) == {}


DIES = """    import os, pathlib, signal
    seen = pathlib.Path(__file__).with_name("deaths")
    deaths = int(seen.read_text()) if seen.exists() else 0
    if deaths < TIMES:
        seen.write_text(str(deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * x
"""


@pytest.mark.parametrize(("times", "measured"), [(1, [2, 2]), (2, [0, 2])])
def test_a_worker_that_dies_while_a_problem_is_set_up_is_replaced_once_and_no_configuration_is_blamed(
    times: int, measured: list[int], kernels: Path, database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "kernels" / "twice"
    shutil.copytree(kernels / "twice", folder)
    (folder / "operation.py").write_text(OPERATION.replace("    return 2 * x\n", DIES.replace("TIMES", str(times))))
    with emulator(hang_timeout_s=10.0) as backend:
        summary = sweep(catalogue.load("twice", folder.parent), SIZES, backend, database, versions=("v0",))
    assert [p.outcomes.total() for p in summary.problems] == measured
    cannot = (
        "it cannot be set up: the process that ran it ended by SIGKILL, as the one before it did, while inputs were made and reference of "
    )
    cannot += f"{folder / 'operation.py'} was asked"
    assert [dict(p.failures) == {cannot: 1} for p in summary.problems] == [count == 0 for count in measured]
    assert database.blocked(EMULATOR, "twice", "float32", SIZES[0]) == {}


def test_a_worker_that_is_killed_while_it_is_asked_whether_a_problem_is_set_up_costs_nothing(
    kernels: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    ask = Worker._ask

    def kill(worker: Worker, request: tuple[str, tuple[object, ...], dict[str, object]], timeout_s: float) -> object:
        if request[0] == "has" and not killed:
            assert worker._process is not None
            killed.append(worker._process.pid)
            worker._process.kill()
        return ask(worker, request, timeout_s)

    monkeypatch.setattr(Worker, "_ask", kill)
    with emulator(hang_timeout_s=10.0) as backend:
        summary = sweep(catalogue.load("twice", kernels), SIZES, backend, database, versions=("v0",))
    assert killed
    assert [dict(p.outcomes) for p in summary.problems] == [{Outcome.OK: 2}] * 2


SOFTMAX = replace(catalogue.load("softmax"), versions={name: catalogue.load("softmax").version(name) for name in ("v1", "v2", "v3")})
LARGE, SMALL = Problem("softmax", 4096, 4096), Problem("softmax", 64, 1000)


def plausible(configuration: Configuration, problem: Problem) -> float:
    return 100.0 / int(configuration.version[1:]) * (1 + abs(configuration.integer("block") - 256) / 1000)


def space(operation: Operation, problem: Problem) -> list[Configuration]:
    return [c for c in operation.configurations() if operation.applicable(c, problem, FakeBackend.device)]


def test_what_turns_out_wrong_at_one_size_is_no_longer_the_best_of_another(database: Database) -> None:
    culprit = min(space(SOFTMAX, SMALL), key=lambda c: plausible(c, SMALL))

    def times(configuration: Configuration, problem: Problem) -> Told:
        if configuration == culprit:
            return 0.5 if problem == LARGE else Failure(Outcome.WRONG_RESULT, "as the test says")
        return plausible(configuration, problem)

    summary = sweep(SOFTMAX, [LARGE, SMALL], FakeBackend(times), database)
    assert all(p.choice and p.choice.configuration != culprit for p in summary.problems)
    rows = [*database.best("softmax", 4096, 4096), *database.best("softmax", 64, 1000)]
    assert culprit not in [Configuration.of(row["version"], **row["parameters"]) for row in rows]
    assert [row["state"] for row in rows] == ["provisional", "confirmed"]  # at the first nothing that is left was in a final

    assert sweep(SOFTMAX, [LARGE, SMALL], FakeBackend(times), database).new_trials == 0
    assert [row["state"] for row in database.best("softmax", 4096, 4096)] == ["confirmed"]


def test_a_failure_of_an_earlier_sweep_counts_towards_the_two(database: Database) -> None:
    unlucky = space(SOFTMAX, SMALL)[0]
    failing = FakeBackend(lambda c, p: Failure(Outcome.CRASHED, "bad luck") if c == unlucky else plausible(c, p), stop_after=1)
    sweep(SOFTMAX, [SMALL], failing, database)
    failing.stop_after = None
    sweep(SOFTMAX, [SMALL], failing, database)
    assert failing.tried.count((SMALL, unlucky)) == 2


def test_a_configuration_that_fails_once_is_measured_at_the_second_try(database: Database) -> None:
    unlucky = space(SOFTMAX, SMALL)[0]
    told: list[Told] = [Failure(Outcome.CRASHED, "bad luck")]
    backend = FakeBackend(lambda c, p: told.pop() if c == unlucky and told else plausible(c, p))
    summary = sweep(SOFTMAX, [SMALL], backend, database)
    assert summary.problems[0].outcomes == {Outcome.CRASHED: 1, Outcome.OK: len(space(SOFTMAX, SMALL))}
    assert database.blocked(FakeBackend.device, "softmax", "float32", SMALL) == {}


def test_a_problem_that_cannot_be_set_up_again_blames_no_configuration_and_the_next_problem_is_tuned(database: Database) -> None:
    gone = space(SOFTMAX, SMALL)[5]

    def times(configuration: Configuration, problem: Problem) -> Told:
        if (configuration, problem) == (gone, SMALL):
            return ProblemFailure(Outcome.OUT_OF_MEMORY, "it cannot be set up again")
        return plausible(configuration, problem)

    summary = sweep(SOFTMAX, [SMALL, LARGE], FakeBackend(times), database)
    assert [dict(p.failures) for p in summary.problems] == [{"it cannot be set up again": 1}, {}]
    assert {row["outcome"] for row in database.trial_rows()} <= {"ok", "pruned"}
    assert [database.best("softmax", p.rows, p.cols)[0]["state"] for p in (SMALL, LARGE)] == ["provisional", "confirmed"]
    assert summary.problems[0].new_trials < len(space(SOFTMAX, SMALL))
    again = sweep(SOFTMAX, [SMALL], FakeBackend(plausible), database)
    assert summary.problems[0].new_trials + again.new_trials == len(space(SOFTMAX, SMALL))


@dataclass
class FullDisk(Watcher):
    """Fills the disk at the tenth trial: no file of this process can grow any further. `room_again` empties it once the sweep waits."""

    path: Path
    room_again: bool
    trials: int = 0
    waited: list[str] = field(default_factory=list)
    told_of_the_end: bool = False

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        self.trials += 1
        if self.trials == 10:
            used = self.path.with_name(f"{self.path.name}-wal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (used + 8192, resource.RLIM_INFINITY))

    def waiting(self, why: str, seconds: float) -> None:
        self.waited.append(why)
        if self.room_again:
            empty_the_disk()

    def aborted(self) -> None:
        self.told_of_the_end = True


def empty_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_sweep_waits_for_room_on_a_full_disk_and_then_goes_on(database: Database) -> None:
    watcher = FullDisk(database.path, room_again=True)
    try:
        summary = sweep(SOFTMAX, [LARGE], FakeBackend(plausible), database, watcher=watcher, room_wait_s=60)
    finally:
        empty_the_disk()
    (why,) = watcher.waited
    assert "could not be written" in why
    assert summary.new_trials == len(space(SOFTMAX, LARGE)) == len(database.trial_rows())
    assert database.best("softmax", 4096, 4096)[0]["state"] == "confirmed"


def test_a_disk_that_stays_full_ends_the_sweep_and_the_same_sweep_goes_on_once_there_is_room(database: Database) -> None:
    watcher = FullDisk(database.path, room_again=False)
    first = FakeBackend(plausible)
    try:
        with pytest.raises(StorageError, match="all stored before is kept"):
            sweep(SOFTMAX, [LARGE], first, database, watcher=watcher, room_wait_s=0.6)
    finally:
        empty_the_disk()
    stored = len(database.trial_rows())
    assert 10 <= stored == watcher.trials < len(space(SOFTMAX, LARGE))
    assert watcher.told_of_the_end
    second = sweep(SOFTMAX, [LARGE], FakeBackend(plausible), database)
    assert stored + second.new_trials == len(space(SOFTMAX, LARGE))
    assert {Configuration.of(row["version"], **row["parameters"]) for row in database.trial_rows()} == set(space(SOFTMAX, LARGE))
    assert database.best("softmax", 4096, 4096)[0]["state"] == "confirmed"


def test_a_compiler_without_room_for_its_files_blames_no_configuration(database: Database) -> None:
    complaint = Failure(Outcome.COMPILE_ERROR, "fatal error: error writing to /tmp/x.s: No space left on device")
    full = FakeBackend(plausible, compile_failures={space(SOFTMAX, SMALL)[7]: complaint})
    with pytest.raises(MachineError, match="make room"):
        sweep(SOFTMAX, [SMALL], full, database)
    assert "compile_error" not in {row["outcome"] for row in database.trial_rows()}
    assert sweep(SOFTMAX, [SMALL], FakeBackend(plausible), database).problems[0].confirmed


KILLS = 4
SLOW_SWEEP = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from autotune.database import Database
    from autotune.sweeping import sweep
    from tests.fake import FakeBackend
    from tests.test_faults import LARGE, SMALL, SOFTMAX, Teller, plausible

    def slowly(configuration, problem):
        time.sleep(0.01)
        return plausible(configuration, problem)

    with Database(sys.argv[1], mode="write", create=True) as database:
        sweep(SOFTMAX, [LARGE, SMALL], FakeBackend(slowly), database, watcher=Teller())
    """
)


class Teller(Watcher):
    """Writes a line for each trial as soon as it is stored."""

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        sys.stdout.write(f"{summary.problem.size} {attempt.configuration}\n")
        sys.stdout.flush()

    def ended(self, summary: Summary) -> None:
        sys.stdout.write("ended\n")


def test_kill_9_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    path, chance = tmp_path / "x.sqlite", random.Random(4)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    told: list[str] = []
    for kill in range(KILLS + 1):
        running = subprocess.Popen([sys.executable, "-c", SLOW_SWEEP, str(path)], stdout=subprocess.PIPE, text=True, env=env)
        assert running.stdout is not None
        lines = [running.stdout.readline()]
        assert lines[0]
        if kill < KILLS:
            time.sleep(chance.uniform(0, 0.3))
            running.kill()
        lines += running.stdout.readlines()
        assert running.wait() == (-signal.SIGKILL if kill < KILLS else 0)
        told += [line.strip() for line in lines if line.endswith("\n")]
    assert told.pop() == "ended"
    with Database(path, mode="read") as database:
        rows = database.trial_rows()
        screened = Counter(
            (row["rows"], row["version"], json.dumps(row["parameters"])) for row in rows if _first_round(database, row["trial"]) == "screen"
        )
    assert len(told) == len(set(told))
    assert len(told) <= len(screened)  # a kill may come between the storing of a trial and the telling of it
    assert sum(screened.values()) == len(screened) == len(space(SOFTMAX, LARGE)) + len(space(SOFTMAX, SMALL))
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _first_round(database: Database, trial: int) -> str:
    (row,) = database.select("SELECT kind FROM rounds WHERE trial = ? ORDER BY number LIMIT 1", (trial,))
    return str(row["kind"])
