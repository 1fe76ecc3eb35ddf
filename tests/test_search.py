"""The search: what it may ask, what it remembers, and how soon it finds what is worth finding."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.errors import UsageError
from autotune.search import Budget, Study

values = st.one_of(
    st.lists(st.integers(0, 2048), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True),
)
axes = st.dictionaries(st.sampled_from(["block", "vector", "unroll", "cache"]), values, min_size=0, max_size=3)


@st.composite
def spaces(draw: st.DrawFn) -> list[Configuration]:
    """Sets of up to 40 configurations of one to three versions, with axes of one value and up, and holes where some are invalid."""
    found = []
    for version in draw(st.sets(st.sampled_from(["v0", "v1", "v2"]), min_size=1)):
        rows: list[dict[str, int | str]] = [{}]
        for name, options in draw(axes).items():
            rows = [{**row, name: value} for row in rows for value in options]
        found += [Configuration.of(version, **row) for row in rows]
    return draw(st.lists(st.sampled_from(found), min_size=0, max_size=40, unique=True))


def softmax_like(configuration: Configuration) -> float | None:
    """A time in microseconds with the habits of a softmax kernel: a floor, steps with the vector's width, and a cliff of failures."""
    if configuration.version == "v0":
        return 400.0 - configuration.integer("block") / 8
    block, vector, unroll = (configuration.integer(name) for name in ("block", "vector", "unroll"))
    if block * vector * unroll > 16384:
        return None
    busy = 1 + 0.15 * abs(math.log2(block * vector / 1024)) ** 1.5
    time_us: float = 34.0 * busy * (1 + 0.3 / vector) * (1 + 0.04 * abs(unroll - 2)) * (1.3 if configuration["cache"] == "none" else 1.0)
    return time_us


def softmax_space() -> list[Configuration]:
    tuned = [
        Configuration.of("v3", block=block, vector=vector, unroll=unroll, cache=cache)
        for block in (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
        for vector in (1, 2, 4, 8)
        for unroll in (1, 2, 4, 8)
        for cache in ("none", "streaming")
    ]
    return [Configuration.of("v0", block=block) for block in (32, 64, 128)] + tuned


def measurements_to(share: float, study: Study) -> int:
    """How many configurations it takes until one is within `share` of the optimum's speed."""
    optimum = min(time for time in map(softmax_like, softmax_space()) if time is not None)
    for count in range(1, 300):
        (configuration,) = study.ask()
        time_us = softmax_like(configuration)
        study.tell(configuration, time_us)
        if time_us is not None and time_us <= optimum / share:
            return count
    raise AssertionError("the optimum was never measured")


@settings(max_examples=40, deadline=None)
@given(spaces(), st.integers(0, 3), st.integers(1, 7), st.data())
def test_every_valid_configuration_is_asked_exactly_once(space: list[Configuration], seed: int, count: int, data: st.DataObject) -> None:
    study, asked = Study(space, seed=seed), []
    while batch := study.ask(count):
        assert len(batch) <= count
        asked += batch
        for configuration in batch:
            study.tell(configuration, data.draw(st.one_of(st.none(), st.floats(0.5, 1e6))))
    assert sorted(asked, key=str) == sorted(space, key=str)
    assert study.remaining == 0
    assert study.measured == len(space)
    assert study.expected_gain() == 0.0


@settings(max_examples=20, deadline=None)
@given(spaces(), st.integers(0, 3))
def test_a_seed_and_the_answers_decide_the_questions(space: list[Configuration], seed: int) -> None:
    def questions() -> list[Configuration]:
        study, asked = Study(space, seed=seed), []
        while batch := study.ask(2):
            asked += batch
            for configuration in batch:
                study.tell(configuration, None if "8" in str(configuration) else 10.0 + len(str(configuration)))
        return asked

    assert questions() == questions()


@settings(max_examples=20, deadline=None)
@given(spaces())
def test_what_is_known_is_never_asked(space: list[Configuration]) -> None:
    known = {configuration: None if i % 3 == 0 else 5.0 + i for i, configuration in enumerate(space[::2])}
    asked = Study(space, seed=0, known=known).ask(100)
    assert sorted(asked, key=str) == sorted(space[1::2], key=str)


def test_what_was_asked_and_not_yet_told_is_not_asked_again() -> None:
    study = Study(softmax_space(), seed=0)
    asked = [configuration for _ in range(10) for configuration in study.ask(9)]
    assert len(set(asked)) == 90


def test_the_best_is_the_fastest_that_worked() -> None:
    slow, failed, fast = softmax_space()[:3]
    study = Study(softmax_space(), seed=0, known={slow: 9.0, failed: None, fast: 3.0})
    assert study.best == (fast, 3.0)
    study.tell(fast, None)
    assert study.best == (slow, 9.0)


def test_without_a_time_there_is_no_best() -> None:
    study = Study(softmax_space(), seed=0)
    study.tell(softmax_space()[0], None)
    assert study.best is None
    assert study.expected_gain() == 1.0


def test_a_space_where_everything_fails_is_searched_to_its_end() -> None:
    study = Study(softmax_space(), seed=0)
    while batch := study.ask(40):
        for configuration in batch:
            study.tell(configuration, None)
    assert study.best is None
    assert study.measured == len(softmax_space())


@pytest.mark.parametrize("seed", range(3))
def test_failures_are_not_taken_for_slow_times(seed: int) -> None:
    """A cliff of failures beside the optimum does not keep the search from it."""
    assert measurements_to(0.99, Study(softmax_space(), seed=seed)) <= 40


def test_knowing_nothing_99_percent_of_the_optimum_takes_a_median_of_at_most_40() -> None:
    assert np.median([measurements_to(0.99, Study(softmax_space(), seed=seed)) for seed in range(5)]) <= 40


def test_with_neighbours_99_percent_of_the_optimum_takes_at_most_12() -> None:
    noise = np.random.default_rng(3)
    neighbour = {c: 2.0 * time * noise.uniform(0.9, 1.1) for c in softmax_space() if (time := softmax_like(c)) is not None}
    assert max(measurements_to(0.99, Study(softmax_space(), seed=seed, priors=[neighbour])) for seed in range(5)) <= 12


def test_the_nearest_neighbours_winner_is_asked_first_then_the_next_ones() -> None:
    space = softmax_space()
    near, far = {space[7]: 1.0, space[9]: 2.0}, {space[20]: 30.0, space[30]: 3.0}
    assert Study(space, seed=0, priors=[near, far]).ask(2) == [space[7], space[30]]


def test_neighbours_that_mislead_cost_little() -> None:
    opposite = {c: 1e4 / time for c in softmax_space() if (time := softmax_like(c)) is not None}
    assert np.median([measurements_to(0.95, Study(softmax_space(), seed=seed, priors=[opposite])) for seed in range(3)]) <= 60


def test_configurations_of_priors_and_known_outside_the_set_are_ignored() -> None:
    space, alien = softmax_space()[:4], Configuration.of("v9", block=1)
    study = Study(space, seed=0, known={alien: 1.0}, priors=[{alien: 1.0}])
    assert study.measured == 0
    assert sorted(study.ask(9), key=str) == sorted(space, key=str)


def test_times_that_are_no_times_are_refused() -> None:
    study = Study(softmax_space(), seed=0)
    for time_us in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="not a time"):
            study.tell(softmax_space()[0], time_us)
    with pytest.raises(KeyError):
        study.tell(Configuration.of("v9"), 1.0)
    with pytest.raises(ValueError, match="2 distances for 1 priors"):
        Study(softmax_space(), seed=0, priors=[{}], distances=[1.0, 2.0])


def test_optuna_holds_every_trial_with_readable_parameters() -> None:
    import optuna

    study = Study(softmax_space(), seed=0, known={softmax_space()[0]: 390.0})
    first, second = study.ask(2)
    study.tell(first, 50.0)
    study.tell(second, None)
    known, complete, failed = study.optuna.trials
    assert known.params == {"version": "v0", "block": 32}
    assert complete.params == {"version": first.version, **dict(first.parameters)}
    assert complete.value == 50.0
    assert failed.state == optuna.trial.TrialState.FAIL


def test_the_expected_gain_falls_once_the_optimum_is_found() -> None:
    study = Study(softmax_space(), seed=0)
    for _ in range(120):
        (configuration,) = study.ask()
        study.tell(configuration, softmax_like(configuration))
    assert study.expected_gain() < 0.01


def test_a_hundred_thousand_configurations_are_searched() -> None:
    space = [
        Configuration.of("v1", block=block, vector=vector, unroll=unroll, stage=stage)
        for block in range(32, 1025, 32)
        for vector in range(1, 17)
        for unroll in range(1, 17)
        for stage in range(12)
    ]
    study = Study(space, seed=0)
    for _ in range(12):
        (configuration,) = study.ask()
        study.tell(configuration, 10.0 + abs(configuration.integer("block") - 512) + configuration.integer("stage"))
    assert study.measured == 12
    assert study.remaining == len(space) - 12


def test_importing_the_search_imports_no_optuna() -> None:
    program = "import sys, autotune.search; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def told(count: int) -> Study:
    study = Study(softmax_space(), seed=0)
    for configuration in study.ask(count):
        study.tell(configuration, softmax_like(configuration))
    return study


def test_a_budget_of_trials_counts_what_earlier_runs_measured() -> None:
    assert not Budget(trials=3).done(told(2), 0.0, 1e9)
    assert Budget(trials=3).done(told(3), 0.0, 0.0)


def test_a_budget_of_seconds_counts_from_the_start() -> None:
    assert not Budget(seconds=5).done(told(2), 100.0, 104.9)
    assert Budget(seconds=5).done(told(2), 100.0, 105.0)


def test_a_budget_below_start_up_ends_in_time() -> None:
    study, asked = Study(softmax_space(), seed=0), 0
    while not Budget(trials=1).done(study, 0.0, 0.0):
        for configuration in study.ask():
            study.tell(configuration, softmax_like(configuration))
            asked += 1
    assert asked == 1


def test_an_exhausted_space_ends_every_budget() -> None:
    study = told(1000)
    assert all(
        budget.done(study, 0.0, 0.0) for budget in (Budget(exhaustive=True), Budget(trials=10**6), Budget(until_gain=1e-9), Budget())
    )


def test_until_gain_stops_before_the_end_with_a_good_configuration() -> None:
    study, budget = Study(softmax_space(), seed=0), Budget(until_gain=0.01)
    while not budget.done(study, 0.0, 0.0):
        for configuration in study.ask():
            study.tell(configuration, softmax_like(configuration))
    optimum = min(time for time in map(softmax_like, softmax_space()) if time is not None)
    assert study.measured < 150
    assert study.best is not None
    assert study.best[1] <= optimum / 0.97


@pytest.mark.parametrize("arguments", [{"trials": 0}, {"seconds": -1.0}, {"until_gain": 0.0}, {"exhaustive": True, "trials": 5}])
def test_budgets_without_sense_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Budget(**arguments)  # type: ignore[arg-type]
