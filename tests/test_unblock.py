"""What was blocked is tried again once it is unblocked, and not sooner; nothing of what was measured goes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.database.prune import FAILED
from autotune.database.rebuild import templates_here
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Failure, Outcome
from tests.fake import DEVICE, FakeBackend, Told

SOFTMAX = replace(load("softmax"), versions={name: load("softmax").version(name) for name in ("v1",)})
PROBLEM, OTHER = Problem("softmax", 64, 1000), Problem("softmax", 4096, 4096)
SPACE = [c for c in SOFTMAX.configurations() if SOFTMAX.applicable(c, PROBLEM, DEVICE)]
BROKEN = SPACE[7]
CRASH = Failure(Outcome.CRASHED, "as the test says")


def fine(configuration: Configuration, problem: Problem) -> float:
    """Of all, the one that is broken elsewhere is the fastest."""
    return 1.0 if configuration == BROKEN else 10.0 + SPACE.index(configuration)


def failing(failure: Failure = CRASH, **how: int) -> FakeBackend:
    def told(configuration: Configuration, problem: Problem) -> Told:
        return failure if configuration == BROKEN and problem == PROBLEM else fine(configuration, problem)

    return FakeBackend(told, **how)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """One in which a sweep has blocked one configuration."""
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], failing(), database)
        assert set(blocked(database)) == {BROKEN}
        yield database


def blocked(database: Database, problem: Problem = PROBLEM) -> dict[Configuration, str]:
    return database.blocked(DEVICE, "softmax", "float32", problem)


def failures(database: Database) -> int:
    return sum(not t.outcome.timed for t in database.trials(DEVICE, FakeBackend.timing))


def best(database: Database) -> Configuration:
    (row,) = database.best("softmax", PROBLEM.rows, PROBLEM.cols)
    return Configuration.of(row["version"], **row["parameters"])


@pytest.mark.parametrize("budget", [None, Budget(exhaustive=True), Budget(trials=len(SPACE))], ids=["whole", "exhaustive", "trials"])
def test_what_was_unblocked_is_tried_again_and_its_failed_trials_stay(database: Database, budget: Budget | None) -> None:
    mended = FakeBackend(fine)
    assert sweep(SOFTMAX, [PROBLEM], mended, database, budget=budget).new_trials == 0
    assert database.unblock(DEVICE, "softmax", BROKEN, "float32") == 1
    summary = sweep(SOFTMAX, [PROBLEM], mended, database, budget=budget)
    assert mended.tried == [(PROBLEM, BROKEN)]
    assert [(p.known, p.blocked, p.whole) for p in summary.problems] == [(len(SPACE) - 1, 0, True)]
    assert best(database) == BROKEN
    assert failures(database) == 2
    assert sweep(SOFTMAX, [PROBLEM], mended, database, budget=budget).new_trials == 0


def test_two_new_failures_block_it_again_with_the_new_reason(database: Database) -> None:
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    still = failing(Failure(Outcome.WRONG_RESULT, "otherwise"))
    sweep(SOFTMAX, [PROBLEM], still, database)
    assert still.tried == [(PROBLEM, BROKEN)] * 2
    assert blocked(database) == {BROKEN: f"wrong_result at {PROBLEM.size}: otherwise"}
    assert failures(database) == 4
    assert sweep(SOFTMAX, [PROBLEM], still, database).new_trials == 0
    assert database.unblock(DEVICE, "softmax", BROKEN, "float32") == 1
    assert sweep(SOFTMAX, [PROBLEM], still, database).new_trials == 2


def test_a_failure_since_then_counts_towards_the_two_of_a_later_sweep(database: Database) -> None:
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    still = failing(stop_after=1)
    assert sweep(SOFTMAX, [PROBLEM], still, database).interrupted
    assert blocked(database) == {}
    still.stop_after = None
    sweep(SOFTMAX, [PROBLEM], still, database)
    assert still.tried == [(PROBLEM, BROKEN)] * 2
    assert set(blocked(database)) == {BROKEN}


def test_what_failed_in_the_race_is_measured_again(tmp_path: Path) -> None:
    with Database(tmp_path / "x.sqlite", create=True) as database:
        late = FakeBackend(fine, sample_failures={(BROKEN, "final"): CRASH})
        sweep(SOFTMAX, [PROBLEM], late, database)
        sweep(SOFTMAX, [PROBLEM], late, database)
        assert set(blocked(database)) == {BROKEN}
        database.unblock(DEVICE, "softmax", BROKEN, "float32")
        sweep(SOFTMAX, [PROBLEM], FakeBackend(fine), database)
        assert best(database) == BROKEN


def test_all_are_unblocked_at_once_or_those_of_one_size(tmp_path: Path) -> None:
    def told(configuration: Configuration, problem: Problem) -> Told:
        wrong = Failure(Outcome.WRONG_RESULT, "wrong")
        return {SPACE[0]: wrong, SPACE[1]: wrong, SPACE[2]: Failure(Outcome.OUT_OF_MEMORY, "too much")}.get(
            configuration, fine(configuration, problem)
        )

    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(SOFTMAX, [PROBLEM, OTHER], FakeBackend(told), database)
        assert set(blocked(database)) == set(blocked(database, OTHER)) == set(SPACE[:3])
        assert database.unblock(DEVICE, "softmax", None, "float32", OTHER) == 1
        assert set(blocked(database)) == set(SPACE[:3])
        assert set(blocked(database, OTHER)) == set(SPACE[:2])
        assert database.unblock(DEVICE, "softmax", None, "float16") == database.unblock(DEVICE, "double", None, "float32") == 0
        assert database.unblock(DEVICE, "softmax", None, "float32") == 3
        assert blocked(database) == blocked(database, OTHER) == {}
        mended = FakeBackend(fine)
        sweep(SOFTMAX, [PROBLEM, OTHER], mended, database)
        assert set(mended.tried) == {(PROBLEM, c) for c in SPACE[:3]} | {(OTHER, c) for c in SPACE[:3]}


def test_unblocking_what_is_not_blocked_changes_nothing(database: Database) -> None:
    before = database.content_hash()
    assert database.unblock(DEVICE, "softmax", SPACE[0], "float32") == 0
    assert database.unblock(DEVICE, "softmax", BROKEN, "float32", Problem("softmax", 3, 5)) == 0
    assert database.content_hash() == before


def test_pruned_failures_are_tried_again_unless_they_are_blocked(database: Database) -> None:
    pruned = database.to_prune(FAILED)
    assert (len(pruned), database.still_blocked(pruned)) == (2, 1)
    database.prune(pruned)
    mended = FakeBackend(fine)
    sweep(SOFTMAX, [PROBLEM], mended, database)
    assert (mended.tried, set(blocked(database))) == ([], {BROKEN})
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    sweep(SOFTMAX, [PROBLEM], mended, database)
    assert (mended.tried, best(database)) == ([(PROBLEM, BROKEN)], BROKEN)


def test_pruning_alone_has_an_unblocked_failure_forgotten_too(database: Database) -> None:
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    pruned = database.to_prune(FAILED)
    assert database.still_blocked(pruned) == 0
    database.prune(pruned)
    mended = FakeBackend(fine)
    sweep(SOFTMAX, [PROBLEM], mended, database)
    assert mended.tried == [(PROBLEM, BROKEN)]


def copied(database: Database, path: Path) -> Path:
    database.export(path)
    return path


def test_an_unblock_outranks_the_older_block_and_is_outranked_by_a_newer_one_in_whatever_order(database: Database, tmp_path: Path) -> None:
    before = copied(database, tmp_path / "blocked")
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    between = copied(database, tmp_path / "unblocked")
    sweep(SOFTMAX, [PROBLEM], failing(Failure(Outcome.CRASHED, "again")), database)
    after = copied(database, tmp_path / "again")

    def told(name: str, *sources: Path) -> tuple[str, dict[Configuration, str], set[int]]:
        with Database(tmp_path / name, create=True) as mine:
            for source in sources:
                mine.import_from(source)
            return mine.content_hash(), blocked(mine), mine.forgiven(DEVICE, PROBLEM)

    first, one = told("a", before, between), told("b", between, before, between)
    assert first[0] == one[0]
    assert (first[1], one[1]) == ({}, {})
    assert len(first[2]) == len(one[2]) == 2
    first, one = told("c", before, between, after), told("d", after, between, before)
    assert first[0] == one[0]
    assert first[1] == one[1] == {BROKEN: f"crashed at {PROBLEM.size}: again"}


def test_rebuilding_after_an_unblock_changes_nothing_the_second_time(database: Database, tmp_path: Path) -> None:
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    database.rebuild({"softmax": SOFTMAX})
    before = database.content_hash()
    database.rebuild({"softmax": SOFTMAX})
    assert database.content_hash() == before
    with Database(tmp_path / "y.sqlite", create=True) as mine:
        mine.import_from(copied(database, tmp_path / "shared"))
        assert mine.content_hash() == before


def test_a_clock_that_was_set_back_does_not_undo_an_unblock(database: Database) -> None:
    later = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+2 hours')"
    with database.write() as connection:
        connection.execute("DROP TRIGGER trials_are_only_added")
        connection.execute(f"UPDATE trials SET created = {later}")
        connection.execute(f"UPDATE blocked SET created = {later}")
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    mended = FakeBackend(fine)
    sweep(SOFTMAX, [PROBLEM], mended, database)
    assert mended.tried == [(PROBLEM, BROKEN)]


def test_what_has_a_time_of_today_wherever_it_was_tried_is_tried_no_more(database: Database) -> None:
    shas = set(templates_here(SOFTMAX).values())
    asked = (DEVICE, "softmax", BROKEN, "float32", None)
    assert database.blocked_though_timed(*asked, shas) == 0
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    sweep(SOFTMAX, [PROBLEM], FakeBackend(fine), database)
    database.block(DEVICE, "softmax", BROKEN, templates_here(SOFTMAX)["v1"], "float32", "it hums")
    assert (database.blocked_though_timed(*asked, shas), database.blocked_though_timed(*asked, {"of another"})) == (1, 0)
    database.unblock(DEVICE, "softmax", BROKEN, "float32")
    assert sweep(SOFTMAX, [PROBLEM], FakeBackend(fine), database).new_trials == 0
