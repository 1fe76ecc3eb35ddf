"""A whole sweep on a GPU over kernels that fail in every way: it ends with all others measured, and chooses none that failed."""

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotune import catalogue
from autotune.backends.cuda import CudaBackend
from autotune.database import Database
from autotune.problem import Problem
from autotune.sweeping import sweep
from autotune.trial import Outcome
from autotune.watch import Attempt, ProblemSummary, Summary, Watcher

pytestmark = pytest.mark.gpu

SIZES = (Problem("doubling", 300, 1000), Problem("doubling", 64, 1024))
RIGHT = {"v0", "v12", "v14", "v16"}
# Every other version of tests/gpu/doubling.py but v10, which is applicable nowhere: how it ends, what is said, and how often it is tried
# at the two sizes.
FAULTS = {
    "v1": (Outcome.WRONG_RESULT, "1 of 300000 elements are wrong", 2),
    "v2": (Outcome.WRONG_RESULT, "which is never written", 2),
    "v3": (Outcome.WRONG_RESULT, "outside the matrix", 2),
    "v4": (Outcome.WRONG_RESULT, "elements are wrong", 2),
    "v5": (Outcome.WRONG_RESULT, "the input was written to", 2),
    "v6": (Outcome.LAUNCH_ERROR, "illegal", 2),
    "v7": (Outcome.LAUNCH_ERROR, "misaligned", 2),
    "v8": (Outcome.TIMEOUT, "no answer within", 2),
    "v9": (Outcome.COMPILE_ERROR, "undeclared", 2),
    "v11": (Outcome.LAUNCH_ERROR, "", 2),
    "v13": (Outcome.WRONG_RESULT, "which is never written", 2),
    "v15": (Outcome.LAUNCH_ERROR, "TOO_LARGE", 2),
    "v17": (Outcome.WRONG_RESULT, "outside the matrix", 2),
    "v18": (Outcome.WRONG_RESULT, "in place", 2),
}


@pytest.fixture(scope="module")
def swept(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Summary]]:
    """The database of one sweep over all versions at both sizes, and what the sweep said of itself."""
    path = tmp_path_factory.mktemp("swept") / "x.sqlite"
    with closing(CudaBackend(hang_timeout_s=3.0)) as backend, Database(path, mode="write", create=True) as database:
        yield database, sweep(catalogue.load("doubling", kernels), SIZES, backend, database)


def test_every_right_kernel_is_measured_at_every_size(swept: tuple[Database, Summary]) -> None:
    database, summary = swept
    timed = {(row["rows"], row["version"]) for row in database.trial_rows() if row["outcome"] in ("ok", "pruned")}
    assert timed == {(problem.rows, version) for problem in SIZES for version in RIGHT}
    assert not summary.interrupted


@pytest.mark.parametrize("version", FAULTS)
def test_each_fault_is_stored_with_its_outcome_and_message(swept: tuple[Database, Summary], version: str) -> None:
    outcome, said, times = FAULTS[version]
    rows = [row for row in swept[0].trial_rows() if row["version"] == version]
    assert [row["outcome"] for row in rows] == [outcome] * times
    assert all(said in row["message"] for row in rows)


def test_what_failed_is_blocked_and_never_the_best(swept: tuple[Database, Summary]) -> None:
    database, summary = swept
    with closing(CudaBackend()) as backend:
        device = backend.device
    blocked = {c.version for c in database.blocked(device, "doubling", "float32", SIZES[0])}
    assert blocked == FAULTS.keys() - {"v9"}
    everywhere = {c.version for c in database.blocked(device, "doubling", "float32")}
    assert everywhere == blocked
    assert all(p.choice and p.choice.configuration.version in RIGHT and p.confirmed for p in summary.problems)


def test_a_second_sweep_leaves_what_failed_alone(swept: tuple[Database, Summary], kernels: Path) -> None:
    with closing(CudaBackend(hang_timeout_s=3.0)) as backend:
        assert sweep(catalogue.load("doubling", kernels), SIZES, backend, swept[0]).new_trials == 0


class Killer(Watcher):
    """Kills the child that holds the CUDA context at every tenth trial."""

    def __init__(self, ordinal_of_parent: int) -> None:
        self._parent = ordinal_of_parent
        self._trials = 0
        self.killed = 0

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        self._trials += 1
        if self._trials % 10:
            return
        for pid in Path(f"/proc/{self._parent}/task/{self._parent}/children").read_text().split():
            if b"autotune.backends.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                self.killed += 1


def test_a_child_that_is_killed_now_and_then_costs_no_configuration(tmp_path: Path) -> None:
    killer = Killer(os.getpid())
    operation = catalogue.load("softmax")
    problem = Problem("softmax", 512, 2048)
    with closing(CudaBackend()) as backend, Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        sweep(operation, [problem], backend, database, versions=("v3",), watcher=killer)
        space = [c for c in operation.configurations(("v3",)) if operation.applicable(c, problem, backend.device)]
        timed = Counter(row["version"] for row in database.best_per_version("softmax", 512, 2048))
        outcomes: dict[str, set[str]] = defaultdict(set)
        for row in database.trial_rows():
            outcomes[str(row["parameters"])].add(row["outcome"])
        assert database.blocked(backend.device, "softmax", "float32", problem) == {}
    assert killer.killed >= 3
    assert timed == {"v3": 1}
    assert len(outcomes) == len(space)
    assert all(found & {"ok", "pruned"} for found in outcomes.values())
