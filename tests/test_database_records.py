"""What is recorded is read back equal, and what follows from it is shown in plain rows."""

import dataclasses
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.database import Database
from autotune.errors import AutotuneError, UsageError
from autotune.problem import Problem
from autotune.trial import Check, Outcome, Resources, Round
from tests.database_samples import (
    COLD,
    CUBIN,
    DEVICE,
    ENVIRONMENT,
    FAST,
    OTHER_DEVICE,
    PROBLEM,
    SLOW,
    SOURCE,
    WARM,
    begin,
    instance,
    record,
    screen,
    settle,
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "fresh.sqlite", create=True) as fresh:
        yield fresh


@pytest.fixture
def run(db: Database) -> int:
    return begin(db)


def test_a_trial_is_read_back_as_it_was_recorded(db: Database, run: int) -> None:
    trial = record(db, run, FAST, [screen(51.0, 50.0, 49.0)])
    db.add_rounds({trial: Round("race", (40.1, 40.2), 8, None, None)})
    (stored,) = db.trials(DEVICE, COLD, PROBLEM)
    assert stored.configuration == FAST
    assert stored.rounds == (screen(51.0, 50.0, 49.0), Round("race", (40.1, 40.2), 8, None, None))
    assert (stored.max_error, stored.first_us, stored.outcome, stored.trial_id) == (1e-6, 90.0, Outcome.OK, trial)


def test_the_time_of_a_trial_is_that_of_its_most_careful_rounds(db: Database, run: int) -> None:
    trial = record(db, run, FAST, [screen(50.0)])
    assert db.trials(DEVICE, COLD)[0].time_us == db.trial_rows()[0]["time_us"] == 50.0
    for kind, samples in (("race", (45.0,)), ("final", (41.0, 42.0, 49.0)), ("final", (40.0,)), ("race", (30.0,))):
        db.add_rounds({trial: Round(kind, samples, 8)})  # type: ignore[arg-type]
    # The median of the finals' medians 42 and 40, in Python as in SQL.
    assert db.trials(DEVICE, COLD)[0].time_us == db.trial_rows()[0]["time_us"] == 41.0
    assert db.trial_rows()[0]["evidence"] == "final"


def test_an_ending_outranks_the_outcome_and_the_first_one_stands(db: Database, run: int) -> None:
    trial = record(db, run, FAST, [screen(50.0)])
    db.finish(trial, Outcome.OK)
    assert db.trials(DEVICE, COLD)[0].outcome is Outcome.OK
    db.finish(trial, Outcome.CRASHED, "illegal address")
    db.finish(trial, Outcome.PRUNED)
    (stored,) = db.trials(DEVICE, COLD)
    assert (stored.outcome, stored.message) == (Outcome.CRASHED, "illegal address")
    assert db.trial_rows(outcome="crashed")[0]["message"] == "illegal address"
    assert [row["trial"] for row in db.select("SELECT * FROM failures")] == [trial]


@pytest.mark.parametrize("table", ["trials", "rounds", "endings", "copies", "binaries"])
def test_what_was_measured_cannot_be_edited(db: Database, run: int, table: str) -> None:
    trial = record(db, run, FAST, [screen(50.0)])
    db.finish(trial, Outcome.PRUNED)
    db.record_copy(run, PROBLEM, 36.0)
    db.store_binary(instance(FAST))
    column = db.select(f"SELECT name FROM pragma_table_info('{table}') WHERE pk = 0")[0]["name"]
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} are never changed"), db.write() as connection:
        connection.execute(f"UPDATE {table} SET {column} = {column}")


def test_trials_are_kept_apart_by_device_protocol_problem_template_and_origin(db: Database, run: int) -> None:
    other = Problem("softmax", 4096, 4096, input_alignment=4)
    record(db, run, FAST)
    record(db, run, FAST, problem=other)
    record(db, begin(db, OTHER_DEVICE), SLOW)
    record(db, begin(db, DEVICE, WARM), SLOW)
    db.record(run, PROBLEM, SLOW, SOURCE.sha, Outcome.OK, replayed=True)
    assert [t.configuration for t in db.trials(DEVICE, COLD)] == [FAST, FAST, SLOW]
    assert [t.configuration for t in db.trials(DEVICE, COLD, PROBLEM, replayed=False)] == [FAST]
    assert [t.problem for t in db.trials(DEVICE, COLD, other)] == [other]
    assert [t.configuration for t in db.trials(OTHER_DEVICE, COLD, operation="softmax")] == [SLOW]
    assert db.trials(dataclasses.replace(DEVICE, sm_count=66), COLD) == []
    assert db.trials(DEVICE, dataclasses.replace(COLD, rule=2)) == []
    assert db.trials(DEVICE, COLD, template_shas=["another"]) == []
    assert db.trials(DEVICE, COLD, operation="layernorm") == []


def test_failing_tries_are_counted_and_blocked_configurations_named(db: Database, run: int) -> None:
    for outcome in (Outcome.TIMEOUT, Outcome.CRASHED, Outcome.NOT_APPLICABLE):
        db.record(run, PROBLEM, SLOW, SOURCE.sha, outcome, message="spins")
    record(db, run, FAST)
    assert db.attempts(DEVICE, COLD, PROBLEM) == {SLOW: 2}
    db.block(DEVICE, "softmax", SLOW, SOURCE.sha, "float32", "timeout twice", PROBLEM)
    db.block(DEVICE, "softmax", SLOW, SOURCE.sha, "float32", "again", PROBLEM)
    db.block(DEVICE, "softmax", FAST, SOURCE.sha, "float32", "by hand")
    assert db.blocked(DEVICE, "softmax", "float32", PROBLEM) == {SLOW: "timeout twice", FAST: "by hand"}
    assert db.blocked(DEVICE, "softmax", "float32") == {FAST: "by hand"}
    assert db.blocked(DEVICE, "softmax", "float32", template_shas=["changed since"]) == {}
    assert db.blocked(OTHER_DEVICE, "softmax", "float32", PROBLEM) == {}
    with pytest.raises(UsageError, match="the reason is blank"):
        db.block(DEVICE, "softmax", FAST, SOURCE.sha, "float32", " ")


def test_a_trial_of_an_unknown_template_is_refused_and_leaves_nothing(db: Database, run: int) -> None:
    with pytest.raises(AutotuneError, match="add_template"):
        db.record(run, PROBLEM, FAST, "0" * 64, Outcome.OK)
    assert db.problems() == []


def test_best_shows_what_was_settled(db: Database, run: int) -> None:
    trial = record(db, run, FAST, [screen(40.0)])
    db.store_binary(instance(FAST))
    settled = settle(db, run, trial, FAST, 40.0)
    (row,) = db.best("softmax", 4096, 4096, "float32")
    assert row["gb_per_s"] == pytest.approx(settled.bytes_moved / 40e-6 / 1e9)
    assert row["fraction_of_copy"] == pytest.approx(0.9)
    assert row["runner_up"] == {"version": "v3", "parameters": {"block": 512}}
    assert (row["parameters"], row["trials"], row["state"], row["device"]) == ({"block": 256}, 2, "confirmed", "Test GPU")
    assert db.settled(DEVICE, COLD, PROBLEM) == settled
    assert db.best("softmax", 4096, 4097) == db.best(device="Other GPU") == []
    assert db.best_per_version("softmax", version="v3")[0]["time_us"] == 40.0
    assert db.trial_rows(outcome="ok")[0]["registers"] == 32
    assert db.select("SELECT problems, confirmed FROM coverage") == [{"problems": 1, "confirmed": 1}]


def test_a_replayed_choice_never_replaces_a_measured_one(db: Database, run: int) -> None:
    settle(db, run, record(db, run, FAST, [screen(40.0)]), FAST, 40.0, "provisional")
    replayed = db.record(run, PROBLEM, SLOW, SOURCE.sha, Outcome.OK, rounds=[screen(30.0)], replayed=True)
    settle(db, run, replayed, SLOW, 30.0)
    assert db.best()[0]["parameters"] == {"block": 256}
    settle(db, run, record(db, run, SLOW, [screen(35.0)]), SLOW, 35.0)
    assert db.best()[0]["parameters"] == {"block": 512}


def test_the_dispatcher_finds_the_binary_of_the_best_instance(db: Database, run: int) -> None:
    trial = record(db, run, FAST, [screen(40.0)])
    settle(db, run, trial, FAST, 40.0)
    assert db.select("SELECT * FROM dispatchable") == []
    assert db.store_binary(instance(FAST)) == db.store_binary(instance(FAST))
    (entry,) = db.select("SELECT * FROM dispatchable")
    assert db.load_binary(entry["binary_sha"]) == CUBIN
    assert (entry["symbol"], entry["arch"], entry["device"]) == ("softmax_v3_float32_block256", "sm_90", "Test GPU")
    assert json.loads(entry["parameters"]) == {"block": 256}
    assert [row["kind"] for row in db.select("SELECT * FROM stored_instances")] == ["cubin"]


def test_ptx_is_stored_beside_the_cubin_and_what_no_driver_loads_is_refused(db: Database, run: int) -> None:
    record(db, run, FAST)
    db.store_binary(instance(FAST))
    db.store_binary(instance(FAST, b"//\n.version 8.0", "compute_90"))
    assert sorted(row["kind"] for row in db.select("SELECT * FROM stored_instances")) == ["cubin", "ptx"]
    with pytest.raises(ValueError, match="neither a cubin nor PTX"):
        db.store_binary(instance(FAST, CUBIN, "x86_64"))


def test_a_damaged_binary_is_never_handed_out(db: Database, run: int) -> None:
    record(db, run, FAST)
    sha = db.store_binary(instance(FAST))
    with db.write() as connection:
        connection.execute("DROP TRIGGER binaries_are_only_added")
        connection.execute("UPDATE binaries SET packed = substr(packed, 1, 40)")
    with pytest.raises(AutotuneError, match="is damaged"):
        db.load_binary(sha)
    with pytest.raises(KeyError):
        db.load_binary("absent")


def test_pins_misses_and_selectors_are_kept(db: Database, run: int) -> None:
    ranges = ((1, 64), (1, 1024))
    db.pin(DEVICE, "softmax", "float32", *ranges, FAST, author="A", why="first")
    db.pin(DEVICE, "softmax", "float32", *ranges, SLOW, author="B", why="second")
    assert [(row["author"], row["parameters"]) for row in db.select("SELECT * FROM pinned")] == [("B", '{"block": 512}')]
    assert db.unpin(DEVICE, "softmax", "float32", *ranges)
    assert not db.unpin(DEVICE, "softmax", "float32", *ranges)
    db.add_misses(DEVICE, [(PROBLEM, "nearest", FAST, 3)])
    db.add_misses(DEVICE, [(PROBLEM, "safe", None, 2)])
    assert [(row["count"], row["tier"], row["rows"]) for row in db.misses()] == [(5, "safe", 4096)]
    for body, train in (('{"k": 1}', "a"), ('{"k": 2}', "b")):
        db.store_selector(DEVICE, "softmax", "float32", "nearest", body, train, (1.01, 1.05, 1.2))
        time.sleep(0.002)  # the newest is the active one, and the clock of the database counts milliseconds
    assert [row["body"] for row in db.select("SELECT * FROM active_selectors")] == ['{"k": 2}']


def test_a_miss_is_listed_until_its_size_is_tuned_and_again_when_it_recurs(db: Database, run: int) -> None:
    db.add_misses(DEVICE, [(PROBLEM, "nearest", FAST, 3), (Problem("softmax", 5, 7), "safe", None, 1)])
    assert db.problems() == []
    settle(db, run, record(db, run, FAST), FAST, 40.0)
    assert [row["rows"] for row in db.misses()] == [5]
    assert [row["rows"] for row in db.problems()] == [4096]
    time.sleep(0.002)
    db.add_misses(DEVICE, [(PROBLEM, "nearest", FAST, 1)])
    assert [(row["rows"], row["count"]) for row in db.misses()] == [(4096, 4), (5, 1)]


def test_what_was_measured_is_known_by_its_nouns(db: Database, run: int) -> None:
    record(db, run, FAST)
    db.record_copy(run, PROBLEM, 36.0)
    assert (db.devices_measured(), db.protocols_measured(DEVICE)) == ([DEVICE], [COLD])
    assert db.environment_of(DEVICE, COLD) == ENVIRONMENT
    assert db.copy_us(DEVICE, COLD, PROBLEM) == 36.0
    assert [(row["device"], row["runs"]) for row in db.devices()] == [("Test GPU", 1)]
    assert [(row["rows"], row["trials"]) for row in db.problems("softmax")] == [(4096, 1)]
    assert [(row["version"], row["template_sha"]) for row in db.versions()] == [("v3", SOURCE.sha)]


def test_a_transaction_that_raises_stores_nothing_and_a_nested_one_joins(db: Database, run: int) -> None:
    def interrupted() -> None:
        with db.write():
            record(db, run, FAST, [screen(40.0)])
            db.record_copy(run, PROBLEM, 36.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert db.trials(DEVICE, COLD) == []
    assert db.copy_us(DEVICE, COLD, PROBLEM) is None
    with db.write():
        record(db, run, FAST)
        record(db, run, SLOW)
    assert len(db.trials(DEVICE, COLD)) == 2


def test_a_person_can_read_every_table(db: Database, run: int) -> None:
    tables = db.select("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    ours = [row for row in tables if row["name"] != "_sqlite_migrations"]
    assert {"devices", "environments", "runs", "templates", "configurations", "instances", "problems", "trials", "best"} <= {
        row["name"] for row in ours
    }
    assert all(row["sql"].endswith("STRICT") for row in ours)
    for view in db.select("SELECT name FROM sqlite_master WHERE type = 'view'"):
        db.select(f"SELECT * FROM {view['name']}")


sizes = st.integers(1, 2**20 - 1)
times = st.floats(1e-3, 1e9)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
rounds = st.builds(
    Round,
    kind=st.sampled_from(["screen", "race", "final"]),
    samples_us=st.lists(times, min_size=1, max_size=5).map(tuple),
    launches_per_sample=st.integers(1, 256),
    sm_clock_mhz=st.none() | st.integers(0, 3000),
    throttled=st.none() | texts,
)
alignments = st.sampled_from([1, 2, 4, 8, 16])
problems = st.builds(
    Problem,
    operation=st.just("softmax"),
    rows=sizes,
    cols=sizes,
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    input_stride=st.just(0) | st.integers(2**31, 2**40 - 1),
    input_alignment=alignments,
    output_alignment=alignments,
    in_place=st.booleans(),
)
configurations = st.dictionaries(st.sampled_from(["block", "vector", "unroll", "stash"]), st.integers(0, 2**20) | texts).map(
    lambda parameters: Configuration("v3", tuple(parameters.items()))
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    problem=problems,
    configuration=configurations,
    outcome=st.sampled_from(Outcome),
    check=st.none() | st.builds(Check, times, times),
    taken=st.lists(rounds, max_size=6),
    message=texts,
    resources=st.none() | st.builds(Resources, *[st.integers(0, 2**17)] * 4),
    replayed=st.booleans(),
)
def test_whatever_is_recorded_is_read_back_equal(
    db: Database,
    problem: Problem,
    configuration: Configuration,
    outcome: Outcome,
    check: Check | None,
    taken: list[Round],
    message: str,
    resources: Resources | None,
    replayed: bool,
) -> None:
    run = begin(db)
    built = dataclasses.replace(instance(FAST), configuration=configuration, resources=resources, dtype=problem.dtype)
    trial = db.record(
        run, problem, configuration, SOURCE.sha, outcome, instance=built, check=check, rounds=taken, message=message, replayed=replayed
    )
    stored = next(t for t in db.trials(DEVICE, COLD, problem) if t.trial_id == trial)
    assert (stored.problem, stored.configuration, stored.outcome, stored.rounds) == (problem, configuration, outcome, tuple(taken))
    assert (stored.message, stored.replayed, stored.template_sha, stored.run_id) == (message, replayed, SOURCE.sha, run)
    assert (stored.max_error, stored.first_us) == ((check.max_error, check.first_us) if check else (None, None))
    in_sql = db.select("SELECT time_us FROM trial_results WHERE trial = ?", (trial,))[0]["time_us"]
    assert in_sql == pytest.approx(stored.time_us) if taken else in_sql is stored.time_us is None
