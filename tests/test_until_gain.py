"""A search that ended because too little was still to be gained is over for whoever asks for no more, and goes on for whoever does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import load
from autotune.database import Database
from autotune.problem import Problem
from autotune.search import Budget
from autotune.settling import Extent
from autotune.sweeping import sweep
from autotune.watch import Summary

SHIPPED = Path(__file__).parent.parent / "results" / "nvidia-h200.sqlite"
SIZES = ((4096, 4096), (1024, 1024), (256, 1024))
PROBLEMS = [Problem("softmax", rows, cols) for rows, cols in SIZES]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "test.sqlite", create=True) as database:
        yield database


def swept(database: Database, problems: Sequence[Problem] = PROBLEMS, **limits: float) -> Summary:
    backend = RecordedBackend(SHIPPED)
    try:
        return sweep(load("softmax"), problems, backend, database, budget=Budget(**limits))  # type: ignore[arg-type]
    finally:
        backend.close()


def added(summary: Summary) -> tuple[int, int]:
    return summary.new_trials, summary.raced_again


@pytest.mark.parametrize("gain", [0.05, 0.2])
def test_a_repeated_sweep_until_a_gain_adds_nothing(database: Database, gain: float) -> None:
    first = swept(database, until_gain=gain)
    assert first.new_trials > 0
    assert not first.problems[0].whole
    assert added(swept(database, until_gain=gain)) == (0, 0)
    assert added(swept(database, until_gain=min(1.0, 2 * gain))) == (0, 0)


def test_a_smaller_gain_and_a_budget_that_asks_for_more_go_on_and_what_is_known_then_counts_anew(database: Database) -> None:
    first = swept(database, PROBLEMS[:1], until_gain=0.2)
    known = first.new_trials
    assert added(swept(database, PROBLEMS[:1], trials=known)) == (0, 0)
    assert swept(database, PROBLEMS[:1], trials=known + 5).new_trials == 5
    assert Extent.read(database.best("softmax", 4096, 4096)[0]["space_sha"]).gain is None
    assert swept(database, PROBLEMS[:1], until_gain=0.001).new_trials > 0


def test_a_search_that_was_stopped_by_another_limit_has_no_gain_to_its_name(database: Database) -> None:
    swept(database, PROBLEMS[:1], until_gain=0.001, trials=20)
    (best,) = database.best("softmax", 4096, 4096)
    assert Extent.read(best["space_sha"]).gain is None
    assert swept(database, PROBLEMS[:1], until_gain=0.01).new_trials > 0
