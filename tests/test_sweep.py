"""A sweep measures what is not known, stores it at once, survives whatever fails, and settles the same best every time."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.known import look
from autotune.problem import Problem
from autotune.search import Budget
from autotune.source import read
from autotune.sweeping import sweep
from autotune.trial import Failure, Outcome, Round
from tests.fake import FakeBackend, Told
from tests.test_sharing_faults import altered

# Five versions whose first parameter is a block: enough for every rule, and few enough to be quick.
SOFTMAX = replace(load("softmax"), versions={name: load("softmax").version(name) for name in ("v0", "v1", "v2", "v3", "v4")})
PROBLEM = Problem("softmax", 4096, 4096)
OTHER = Problem("softmax", 64, 1000)


def plausible(c: Configuration, problem: Problem) -> float:
    """Later versions are faster, and each has one best block size."""
    block = c.integer("block")
    return 100.0 / (1 + int(c.version[1:])) * (1 + abs(block - 256) / 1000) * (1.01 if c.parameters[-1][1] == 1 else 1.0)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "test.sqlite", mode="write", create=True)


def space(problem: Problem = PROBLEM) -> list[Configuration]:
    backend = FakeBackend(plausible)
    return [c for c in SOFTMAX.configurations() if SOFTMAX.applicable(c, problem, backend.device)]


def test_every_applicable_configuration_of_a_small_space_is_tried_once(database: Database) -> None:
    backend = FakeBackend(plausible)
    summary = sweep(SOFTMAX, [PROBLEM, OTHER], backend, database)
    assert Counter(backend.tried) == Counter([*((PROBLEM, c) for c in space()), *((OTHER, c) for c in space(OTHER))])
    assert summary.new_trials == len(backend.tried)


def test_each_instance_is_built_once_however_many_sizes_there_are(database: Database) -> None:
    backend = FakeBackend(plausible)
    sweep(SOFTMAX, [PROBLEM, OTHER], backend, database)
    assert max(Counter(backend.compiled).values()) == 1


def test_the_fastest_is_settled_with_its_runner_up_and_share_of_copy(database: Database) -> None:
    sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
    (best,) = database.best("softmax", 4096, 4096, "float32")
    fastest = min(space(), key=lambda c: plausible(c, PROBLEM))
    assert (best["version"], best["parameters"]["block"]) == (fastest.version, 256)
    assert best["state"] == "confirmed"
    assert best["fraction_of_copy"] == pytest.approx(10.0 / plausible(fastest, PROBLEM))
    assert best["runner_up"] is not None


def test_a_second_sweep_tries_and_times_nothing(database: Database) -> None:
    sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
    before = database.trials(FakeBackend.device, FakeBackend.timing)
    again = FakeBackend(plausible)
    summary = sweep(SOFTMAX, [PROBLEM], again, database)
    assert (summary.new_trials, again.tried, again.compiled) == (0, [], [])
    assert database.trials(FakeBackend.device, FakeBackend.timing) == before
    assert summary.problems[0].choice is not None


def test_an_interrupted_sweep_keeps_what_it_measured_and_goes_on_from_there(database: Database) -> None:
    first = sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible, stop_after=40), database)
    assert first.interrupted
    assert first.new_trials == 40
    assert database.best("softmax", 4096, 4096)[0]["state"] == "provisional"
    second = sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
    assert first.new_trials + second.new_trials == len(space())
    runs = [t.run_id for t in database.trials(FakeBackend.device, FakeBackend.timing) if any(r.kind == "final" for r in t.rounds)]
    assert set(runs) == {2}  # samples of two runs never mix in one trial
    assert database.best("softmax", 4096, 4096)[0]["state"] == "confirmed"


def test_a_larger_space_measures_only_what_is_new(database: Database) -> None:
    sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database, versions=("v0", "v1"))
    backend = FakeBackend(plausible)
    sweep(SOFTMAX, [PROBLEM], backend, database)
    assert {c.version for _, c in backend.tried} == {"v2", "v3", "v4"}


@pytest.mark.parametrize("outcome", [Outcome.WRONG_RESULT, Outcome.LAUNCH_ERROR, Outcome.TIMEOUT, Outcome.CRASHED, Outcome.OUT_OF_MEMORY])
def test_a_failing_configuration_is_recorded_tried_twice_and_never_selected(database: Database, outcome: Outcome) -> None:
    fastest = min(space(), key=lambda c: plausible(c, PROBLEM))

    def times(c: Configuration, problem: Problem) -> Told:
        return Failure(outcome, "as the test says") if c == fastest else plausible(c, problem)

    backend = FakeBackend(times)
    summary = sweep(SOFTMAX, [PROBLEM], backend, database)
    assert backend.tried.count((PROBLEM, fastest)) == 2
    assert summary.problems[0].outcomes[outcome] == 2
    (best,) = database.best("softmax", 4096, 4096)
    assert (best["version"], best["parameters"]) != (fastest.version, dict(fastest.parameters))
    assert [row["message"] for row in database.trial_rows(outcome=str(outcome))] == ["as the test says"] * 2
    again = FakeBackend(times)
    sweep(SOFTMAX, [PROBLEM], again, database)
    assert again.tried == []


def test_a_configuration_that_does_not_compile_costs_one_trial(database: Database) -> None:
    broken = space()[3]
    backend = FakeBackend(plausible, compile_failures={broken: Failure(Outcome.COMPILE_ERROR, "expected a ;")})
    summary = sweep(SOFTMAX, [PROBLEM], backend, database)
    assert summary.problems[0].outcomes == {Outcome.COMPILE_ERROR: 1, Outcome.OK: len(space()) - 1}
    assert (PROBLEM, broken) not in backend.tried


def test_a_configuration_that_fails_in_the_race_is_not_selected(database: Database) -> None:
    fastest = min(space(), key=lambda c: plausible(c, PROBLEM))
    backend = FakeBackend(plausible, sample_failures={(fastest, "final"): Failure(Outcome.CRASHED, "late")})
    sweep(SOFTMAX, [PROBLEM], backend, database)
    (best,) = database.best("softmax", 4096, 4096)
    assert (best["version"], best["parameters"]) != (fastest.version, dict(fastest.parameters))
    assert database.trial_rows(outcome="crashed")[0]["message"] == "late"


def test_one_configuration_that_is_far_behind_is_timed_once(database: Database) -> None:
    slow = set(space()[::3])
    sweep(SOFTMAX, [PROBLEM], FakeBackend(lambda c, p: 10_000.0 if c in slow else plausible(c, p)), database)
    pruned = [t for t in database.trials(FakeBackend.device, FakeBackend.timing) if t.outcome is Outcome.PRUNED]
    assert len(pruned) > len(slow) / 2  # those that were met before any fast one could not be known to be slow
    assert {t.configuration for t in pruned} <= slow
    assert all([len(r.samples_us) for r in t.rounds] == [1] for t in pruned)


def test_a_first_launch_that_the_host_held_up_prunes_nothing(database: Database) -> None:
    unlucky = space()[40]
    backend = FakeBackend(plausible, first_launch_us={unlucky: 10_000.0})
    sweep(SOFTMAX, [PROBLEM], backend, database)
    (trial,) = (t for t in database.trials(FakeBackend.device, FakeBackend.timing) if t.configuration == unlucky)
    assert (trial.outcome, trial.rounds[0].launches_per_sample) == (Outcome.OK, 64)


def test_two_noisy_sweeps_choose_kernels_that_are_equally_fast(tmp_path: Path) -> None:
    chosen = []
    for seed in (1, 2):
        with Database(tmp_path / f"{seed}.sqlite", mode="write", create=True) as database:
            sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible, noise=0.01, seed=seed), database, seed=seed)
            (best,) = database.best("softmax", 4096, 4096)
            chosen.append(plausible(Configuration.of(best["version"], **best["parameters"]), PROBLEM))
    assert chosen[0] == pytest.approx(chosen[1], rel=0.01)


def test_a_budget_counts_the_trials_of_earlier_sweeps(database: Database) -> None:
    assert sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database, budget=Budget(trials=30)).new_trials == 30
    assert sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database, budget=Budget(trials=30)).new_trials == 0
    assert sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database, budget=Budget(trials=45)).new_trials == 15


def test_throttled_rounds_are_taken_again(database: Database) -> None:
    clocks = iter([1980] * 300 + [900] + [1980] * 10_000)
    sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible, clocks_mhz=lambda: next(clocks)), database)
    rounds = [r for t in database.trials(FakeBackend.device, FakeBackend.timing) for r in t.rounds if r.kind != "screen"]
    assert rounds
    assert {r.sm_clock_mhz for r in rounds} == {1980}


SPOILT = {
    "all samples of the best": "UPDATE rounds SET samples_us = '[]' WHERE trial IN (SELECT trial FROM best)",
    "the final rounds of the best": "UPDATE rounds SET samples_us = '[0]' WHERE kind = 'final' AND trial IN (SELECT trial FROM best)",
    "the rounds of the best": "DELETE FROM rounds WHERE trial IN (SELECT trial FROM best)",
    "all rounds": "UPDATE rounds SET samples_us = '[]'",
}


@pytest.mark.parametrize("what", SPOILT)
@pytest.mark.filterwarnings("ignore:.* cannot be used and")
def test_what_has_lost_its_times_is_measured_again_and_the_best_stays_the_best(tmp_path: Path, what: str) -> None:
    path = tmp_path / "test.sqlite"
    with Database(path, create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database)
        (before,) = database.best()
    altered(path, SPOILT[what])
    with Database(path) as database:
        again = FakeBackend(plausible)
        sweep(SOFTMAX, [PROBLEM], again, database)
        (after,) = database.best()
        lost = space() if what == "all rounds" else [Configuration.of(before["version"], **before["parameters"])]
        assert again.tried == [(PROBLEM, c) for c in lost]
        assert (after["version"], after["parameters"], after["state"]) == (before["version"], before["parameters"], "confirmed")
        assert sweep(SOFTMAX, [PROBLEM], FakeBackend(plausible), database).new_trials == 0


def test_a_spoilt_later_trial_takes_nothing_from_an_earlier_one_and_crashes_count_without_times(tmp_path: Path) -> None:
    path = tmp_path / "test.sqlite"
    twice, crashing = space()[:2]
    with Database(path, create=True) as database:
        for _ in range(2):
            run = database.begin_run(FakeBackend.device, FakeBackend.environment, FakeBackend.timing)
            for configuration, outcome in ((twice, Outcome.OK), (crashing, Outcome.CRASHED)):
                template = read(SOFTMAX.version(configuration.version))
                database.add_template("softmax", configuration.version, template)
                database.record(run, PROBLEM, configuration, template.sha, outcome, rounds=[Round("screen", (50.0,), 1)])
    altered(path, "UPDATE rounds SET samples_us = 'null' WHERE trial > 2")
    shas = {name: read(version).sha for name, version in SOFTMAX.versions.items()}
    with Database(path) as database, pytest.warns(UserWarning, match="cannot be used"):
        known = look(database, FakeBackend(plausible), SOFTMAX, PROBLEM, space(), shas)
    assert known.times == {twice: 50.0, crashing: None}
    assert (known.ids[twice], known.failed[crashing]) == (1, 2)


def test_a_sweep_of_seconds_leaves_out_the_rest_of_a_batch_when_they_are_over(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands but for the trials, of which each takes a second; compiling is faster than expected."""
    now, backend = [0.0], FakeBackend(plausible)

    def taking_a_second(c: Configuration, problem: Problem) -> float:
        now[0] += 1.0
        return plausible(c, problem)

    backend.times = taking_a_second
    monkeypatch.setattr("autotune.tuning.time", SimpleNamespace(monotonic=lambda: now[0]))
    summary = sweep(SOFTMAX, [PROBLEM], backend, database, budget=Budget(seconds=30.0))
    screened = [c for _, c in backend.tried]
    assert len(screened) == len(set(screened)) == summary.problems[0].done
    assert 14 <= len(screened) <= 16  # two seconds each, one for the check and one for the first sample
