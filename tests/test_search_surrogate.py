"""What the search expects of configurations it has not measured, and from which problems it learns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.problem import Problem
from autotune.search import Study
from autotune.search.forest import Forest
from autotune.search.neighbours import NEIGHBOURS, distance, nearest
from autotune.search.pool import MOST, Pool
from autotune.search.process import GaussianProcess
from autotune.search.proposal import expectation, improvement
from autotune.search.space import Space
from autotune.search.surrogate import Surrogate


def grid() -> list[Configuration]:
    return [
        Configuration.of("v1", block=block, vector=vector, cache=cache)
        for block in range(32, 1025, 32)
        for vector in (1, 2, 4, 8)
        for cache in ("none", "streaming")
    ]


def time_us(configuration: Configuration) -> float:
    block, vector = configuration.integer("block"), configuration.integer("vector")
    return 30.0 * (1 + 0.2 * abs(math.log2(block * vector / 1024))) * (1.0 if block % 128 == 0 else 1.5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_a_process_that_is_brought_up_to_date_says_what_a_new_one_says(seed: int, added: int) -> None:
    space, random = Space(grid()), np.random.default_rng(seed)
    rows = random.permutation(len(space))
    measured, asked = rows[:20], rows[20:60]
    targets = random.standard_normal(20)
    old, new = GaussianProcess(space.groups), GaussianProcess(space.groups)
    old.condition(space.process[measured[:-added]], space.codes[measured[:-added]])
    old.widen(space.process[asked[:30]], space.codes[asked[:30]])
    old.add(space.process[measured[-added:]], space.codes[measured[-added:]])
    old.widen(space.process[asked[30:]], space.codes[asked[30:]])
    new.condition(space.process[measured], space.codes[measured])
    new.widen(space.process[asked], space.codes[asked])
    for one, other in zip(old.predict(targets), new.predict(targets), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_a_forest_says_of_a_measured_point_what_was_measured() -> None:
    random = np.random.default_rng(0)
    features, targets = random.random((40, 3)), random.standard_normal(40)
    forest = Forest(features, targets, random)
    leaves = forest.leaves(features)
    said, deviation = forest.predict(leaves, targets, leaves)
    np.testing.assert_allclose(said, targets, atol=0.2)
    assert np.median(deviation) < 0.1


def test_predictions_are_better_than_the_mean() -> None:
    space, random = Space(grid()), np.random.default_rng(0)
    times = {row: time_us(space.configurations[row]) for row in random.permutation(len(space))[:60].tolist()}
    pool = Pool(space, len(space), random)
    pool.unseen[list(times)] = False
    surrogate = Surrogate(space, pool, None, random)
    surrogate.learn(times)
    said, _ = surrogate.predict()
    true = np.log([time_us(space.configurations[row]) for row in surrogate.asked])
    assert set(surrogate.asked.tolist()).isdisjoint(times)
    assert np.corrcoef(said, true)[0, 1] > 0.8


def test_of_many_configurations_a_part_is_looked_at_with_all_near_the_best() -> None:
    space = Space([Configuration.of("v1", a=a, b=b) for a in range(100) for b in range(100)])
    pool = Pool(space, len(space), np.random.default_rng(0))
    best = space.index[Configuration.of("v1", a=50, b=50)]
    pool.unseen[best] = False
    drawn = {space.configurations[row] for row in pool.draw({best: 1.0}).tolist()}
    assert len(drawn) <= MOST
    assert all(Configuration.of("v1", a=a, b=b) in drawn for a in (49, 51) for b in (49, 50, 51))
    assert Configuration.of("v1", a=50, b=50) not in drawn


@pytest.mark.parametrize(("mean", "deviation"), [(1.0, 0.5), (0.0, 1.0), (4.0, 0.5), (-3.0, 0.1)])
def test_the_expected_improvement_is_what_samples_say(mean: float, deviation: float) -> None:
    drawn = np.random.default_rng(0).normal(mean, deviation, 400_000)
    (computed,) = improvement(np.array([mean]), np.array([deviation]), 0.5)
    assert computed == pytest.approx(np.maximum(0.5 - drawn, 0.0).mean(), rel=0.02, abs=2e-6)


def test_knowing_nothing_the_newest_versions_are_tried_once_each_first() -> None:
    space = [Configuration.of(version, block=block) for version in ("v2", "v10", "v9", "v0") for block in range(32, 513, 32)]
    study = Study(space, seed=0)
    asked = []
    for _ in range(4):
        (configuration,) = study.ask()
        study.tell(configuration, 10.0)
        asked.append(configuration.version)
    assert asked == ["v10", "v9", "v2", "v0"]


def test_neighbours_whose_winner_is_impossible_here_teach_what_is_like_it() -> None:
    """Elsewhere there are other blocks, so nothing is known of any configuration here; the like of the winner comes first."""
    here = [Configuration.of(v, block=block, vector=vector) for v in ("v1", "v2") for block in range(64, 1025, 64) for vector in (1, 2, 4)]
    elsewhere = {
        Configuration.of(v, block=block, vector=vector): (10.0 if v == "v1" else 30.0) / vector + abs(block - 512) / 100
        for v in ("v1", "v2")
        for block in range(96, 1025, 64)
        for vector in (1, 2, 4)
    }
    (first,) = Study(here, seed=0, priors=[elsewhere]).ask()
    assert (first.version, first["vector"]) == ("v1", 4)
    assert first not in elsewhere


def test_what_a_neighbour_measured_to_be_fast_is_not_outweighed_by_guesses_of_those_that_know_nothing_of_it() -> None:
    """The nearer ones measured a few kernels of very different times, and none of the blocks that are fast at the third."""
    space = Space([Configuration.of(v, block=block) for v in ("v1", "v2") for block in (32, 64, 96, 128, 192, 256)])
    row = {(c.version, c["block"]): i for i, c in enumerate(space.configurations)}
    fast = row["v2", 256]
    near = {row["v1", 32]: 1.0, row["v1", 64]: 1.1, row["v2", 32]: 5.0, row["v2", 64]: 1.2, row["v1", 128]: 9.0}
    third = {row["v1", 32]: 1.3, row["v2", 64]: 1.2, fast: 1.0}
    expected = expectation(space, [near, near, third], [3.0, 4.0, 5.0], np.random.default_rng(0))
    assert expected is not None
    unmeasured = [i for i in range(len(space)) if i not in {*near, *third}]
    assert expected[fast] < min(0.3, *expected[unmeasured])


def test_the_longer_rows_differ_the_further_problems_are_apart() -> None:
    here = Problem("softmax", 4096, 4096, "float32")
    assert distance(here, here) == 0
    assert distance(here, Problem("softmax", 8192, 4096, "float32")) == 1
    assert distance(here, Problem("softmax", 8192, 4096, "float32")) < distance(here, Problem("softmax", 4096, 8192, "float32"))
    assert distance(here, Problem("softmax", 4096, 4095, "float32")) > distance(here, Problem("softmax", 2048, 4096, "float32"))


def test_neighbours_are_of_the_same_operation_and_element_type_and_never_the_problem_itself() -> None:
    here = Problem("softmax", 4096, 4096, "float32")
    others = [Problem("softmax", rows, 4096, "float32") for rows in (4096, 1, 16384, 8192, 2)]
    others += [Problem("softmax", 4096, 4096, "bfloat16"), Problem("layernorm", 4096, 4096, "float32")]
    found = nearest(here, others)
    assert [problem.rows for problem in found] == [8192, 16384, 2]
    assert len(found) == NEIGHBOURS
