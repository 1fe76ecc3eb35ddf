"""Selectors: what they learn from times, what they make of holes, and that what is stored of them is what was trained."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.database import Database
from autotune.errors import AutotuneError
from autotune.operation import PACKS_A_THREAD
from autotune.problem import Problem
from autotune.search import Budget
from autotune.selector import Model, Regret, train, train_all
from autotune.selector.cover import cover
from autotune.selector.dense import missed, reachable, uncompiled, unmeasured
from autotune.selector.features import features, place
from autotune.selector.matrix import Array, Matrix, default_choices
from autotune.selector.model import Predictor
from autotune.selector.neighbours import DOUBT, HANDICAP, NEAREST, Neighbours
from autotune.selector.regret import hurt
from autotune.selector.training import choose, cross_validated, first_known, fit
from autotune.selector.tree import Tree
from autotune.sweeping import sweep
from tests.dispatch_cases import H200, SOFTMAX
from tests.fake import DEVICE, TIMING, FakeBackend
from tests.imagined_gpu import matrix, time_us

OLD = ("v1", "v2", "v3", "v4")
GRID = [(rows, cols) for cols in (128, 512, 1024, 2048, 4096, 16384, 65536) for rows in (4, 256, 4096)] + [(64, 1001), (4096, 1001)]


@pytest.fixture(scope="module")
def grid() -> Matrix:
    return matrix(GRID, versions=OLD)


def problems(*sizes: tuple[int, int]) -> tuple[Problem, ...]:
    return tuple(Problem("softmax", rows, cols) for rows, cols in sizes)


def predictors(where: Sequence[Problem], costs: Array) -> list[Predictor]:
    return [made.fit(tuple(where), costs, H200) for made in (Tree, Neighbours)]


def best(predictor: Predictor, problem: Problem) -> int:
    return next(iter(predictor.ranking(problem, H200)))[1]


# Families


sizes = st.tuples(st.integers(1, 2**18), st.integers(1, 2**18))
layouts = st.fixed_dictionaries({"input_alignment": st.sampled_from([4, 8, 16]), "in_place": st.booleans()})
everything = st.sampled_from(SOFTMAX.configurations())


@settings(max_examples=300)
@given(everything, sizes, st.sampled_from(["float32", "bfloat16"]), layouts)
def test_an_applicable_configuration_is_the_member_of_its_family_that_is_made_for_the_problem(
    configuration: Configuration, size: tuple[int, int], dtype: str, layout: dict[str, int]
) -> None:
    problem = Problem("softmax", *size, dtype, **layout)  # type: ignore[arg-type]
    member = SOFTMAX.fitted(SOFTMAX.family(configuration), problem)
    if SOFTMAX.applicable(configuration, problem, H200):
        assert member == configuration
    for family in [SOFTMAX.family(configuration), *SOFTMAX.relatives(SOFTMAX.family(configuration))]:
        member = SOFTMAX.fitted(family, problem)
        if member is not None:
            declared = SOFTMAX.version(member.version).parameters
            assert [name for name, _ in member.parameters] == list(declared)
            assert all(value in declared[name] for name, value in member.parameters)


def test_packs_a_thread_choose_the_threads() -> None:
    family = Configuration.of("v7", packs=4, vector=4, hold="exponentials")
    chosen = [SOFTMAX.fitted(family, Problem("softmax", 8, cols)) for cols in (1024, 4096, 16384)]
    assert [c and (c["block"], c["items"]) for c in chosen] == [(64, 4), (256, 4), (1024, 4)]
    assert [c["packs"] for c in SOFTMAX.relatives(SOFTMAX.family(chosen[0] or SOFTMAX.safe))] == list(PACKS_A_THREAD)


@settings(max_examples=150)
@given(sizes, st.sampled_from(["float32", "float16", "bfloat16"]), layouts, st.sets(st.sampled_from(sorted(SOFTMAX.versions))))
def test_the_analytic_default_proposes_only_what_is_declared_and_asked_for(
    size: tuple[int, int], dtype: str, layout: dict[str, int], versions: set[str]
) -> None:
    problem = Problem("softmax", *size, dtype, **layout)  # type: ignore[arg-type]
    for configuration in SOFTMAX.defaults(problem, H200, versions):
        assert configuration.version in versions
        declared = SOFTMAX.version(configuration.version).parameters
        assert all(value in declared[name] for name, value in configuration.parameters)
    if dtype == "float32":
        assert next(default_choices(SOFTMAX, H200, problem, {*versions, SOFTMAX.safe.version}))


# What is learnt


def test_each_predictor_chooses_the_member_that_is_faster_there() -> None:
    where = problems(*((64, 2**k) for k in range(6, 16)))
    costs = np.array([[0.5, 0.0, 0.4] if p.cols <= 512 else [0.5, 0.4, 0.0] for p in where])
    for predictor in predictors(where, costs):
        chosen = [best(predictor, p) for p in problems((64, 100), (64, 300), (64, 3000), (64, 100_000))]
        assert chosen == [1, 1, 2, 2], predictor.kind


def test_a_tie_costs_nothing_so_the_tree_does_not_split_for_it() -> None:
    where = problems(*((64, 2**k) for k in range(6, 16)))
    labels_alternate = np.array([[0.3, 0.0, 0.001] if i % 2 else [0.3, 0.001, 0.0] for i in range(len(where))])
    assert Tree.fit(where, labels_alternate, H200).root[0] is None


def test_a_member_that_was_never_measured_near_a_size_is_not_chosen_there() -> None:
    where = problems(*((64, 2**k) for k in range(6, 16)))
    costs = np.array([[0.2, 0.0 if p.cols == 64 else np.nan, 0.0 if p.cols > 64 else 0.9] for p in where])
    for predictor in predictors(where, costs):
        assert best(predictor, problems((64, 9000))[0]) == 2, predictor.kind


cells = st.one_of(st.none(), st.floats(0, 2))
tables = st.integers(2, 4).flatmap(lambda m: st.lists(st.tuples(sizes, st.lists(cells, min_size=m, max_size=m)), min_size=2, max_size=8))


@settings(max_examples=60, deadline=None)
@given(tables, sizes)
def test_whatever_the_holes_every_member_is_ranked_once_and_a_stored_predictor_ranks_alike(
    table: list[tuple[tuple[int, int], list[float | None]]], asked: tuple[int, int]
) -> None:
    where = problems(*(size for size, _ in table))
    costs = np.array([[np.nan if cost is None else cost for cost in row] for _, row in table])
    (problem,) = problems(asked)
    for predictor in predictors(where, costs):
        ranking = list(predictor.ranking(problem, H200))
        assert sorted(member for _, member in ranking) == list(range(costs.shape[1]))
        assert all(np.isfinite(cost) for cost, _ in ranking)
        again = type(predictor).from_json(json.loads(json.dumps(predictor.to_json())), costs.shape[1])
        assert list(again.ranking(problem, H200)) == ranking


def test_neighbours_choose_what_the_plain_formula_chooses(grid: Matrix) -> None:
    random = np.random.default_rng(0)
    shape = len(grid.problems), 20
    costs = np.where(random.random(shape) < 0.3, np.nan, random.exponential(0.2, shape))
    learnt = Neighbours.fit(grid.problems, costs, H200)
    hurts, doubt = hurt(learnt.costs), (DOUBT**2 + NEAREST) ** -learnt.power
    for rows, cols, dtype in zip(
        2 ** random.uniform(0, 18, 500), 2 ** random.uniform(0, 18, 500), ["float32", "float16"] * 250, strict=True
    ):
        problem = Problem("softmax", int(rows), int(cols), dtype)
        seen = features(problem, H200)
        found = np.zeros(len(learnt.guess))
        for tall, long, aligned, between in learnt.metrics:
            apart = (np.array(place(seen)) - learnt.places) ** 2 @ np.array([1, tall, long, aligned, between, between]) ** 2
            weights = (apart + NEAREST) ** -learnt.power
            found += (weights @ (hurts * learnt.known) + doubt * hurt(learnt.guess)) / (weights @ learnt.known + doubt)
        found = found / len(learnt.metrics)
        found[0] += HANDICAP
        assert learnt.expected(seen) == pytest.approx(found, rel=1e-4)
        assert found[next(iter(learnt.ranking(problem, H200)))[1]] == pytest.approx(min(found), rel=1e-5)


def test_a_cover_begins_with_the_default_and_each_member_lowers_the_regret(grid: Matrix) -> None:
    members = cover(grid)
    assert members[0] == 0
    best = [hurt(np.nanmin(grid.costs[:, members[: count + 1]], axis=1)).mean() for count in range(len(members))]
    assert all(later < earlier for earlier, later in pairwise(best))
    assert Regret.of(np.nanmin(grid.costs[:, members], axis=1)).worst < 1.1


def test_sizes_that_only_the_default_could_run_get_a_member_of_their_own() -> None:
    whole = matrix([*GRID, (333, 1003)], versions=OLD)
    aligned = [i for i, family in enumerate(whole.families) if family and dict(family.parameters).get("vector") == 4]
    odd = next(i for i, p in enumerate(whole.problems) if p.cols == 1003)
    whole.times_us[:, 0] = np.nanmin(whole.times_us, axis=1)
    kept = Matrix(whole.problems, whole.families, whole.times_us.copy(), {})
    kept.times_us[odd, 1:][np.isfinite(kept.times_us[odd, 1:])] = kept.times_us[odd, 0]  # as good as the default: no gain, and yet
    assert any(np.isfinite(kept.times_us[odd, column]) for column in cover(kept)[1:])
    assert aligned


def test_rows_longer_than_any_tuned_one_have_a_member_that_can_run_them() -> None:
    few = matrix([(4, 8192), (4, 65536), (64, 16384), (64, 65536)], versions=("v7", "v8", "v10"))
    longer = Problem("softmax", 4, 4 * 65536)
    assert np.isfinite(few.costs_beyond).any()
    members = [SOFTMAX.fitted(few.families[column] or SOFTMAX.safe, longer) for column in cover(few)[1:]]
    assert any(member and SOFTMAX.applicable(member, longer, H200) for member in members)
    assert np.isfinite(few.only([0]).costs_beyond).sum() <= np.isfinite(few.costs_beyond).sum()


def test_training_is_deterministic_and_beats_the_default_on_sizes_it_did_not_see(grid: Matrix) -> None:
    model, why = choose(grid, SOFTMAX, H200)
    again, _ = choose(grid, SOFTMAX, H200)
    assert model.to_json() == again.to_json()
    assert model.predictor is not None, why
    assert model.default_regret is not None
    assert model.regret.geomean < model.default_regret.geomean
    sizes = [
        (30, 700),
        (1000, 3000),
        (9000, 1200),
        (100, 30000),
        (2000, 999),
        (16, 256),
        (600, 20000),
        (5000, 300),
        (50, 5000),
        (300, 1500),
    ]
    unseen = matrix([*sizes, (8, 60000), (2000, 8192)], versions=OLD)
    columns = {family: column for column, family in enumerate(unseen.families)}
    regrets = []
    for problem, costs in zip(unseen.problems, unseen.costs, strict=True):
        regrets.append(first_known(costs, [columns[f] for _, f in model.ranking(problem, H200) if f in columns]))
    assert Regret.of(regrets).geomean < min(1.1, Regret.of(unseen.costs[:, 0]).geomean)


def test_where_nothing_is_better_than_the_default_the_default_it_is(grid: Matrix) -> None:
    times = grid.times_us.copy()
    times[:, 0] = np.nanmin(times, axis=1)
    model, why = choose(Matrix(grid.problems, grid.families, times, grid.templates), SOFTMAX, H200)
    assert (model.kind, model.members) == ("default", (None,))
    assert "nothing that was trained beats the analytic default by more than noise" in why
    assert [family for _, family in model.ranking(grid.problems[0], H200)] == [None]


def test_many_small_regrets_hurt_less_than_few_large_ones_of_the_same_mean() -> None:
    where = problems(*((64, 2**k) for k in range(6, 16)))
    seldom = np.array([[0.5, 0.1, 0.45 if place in (4, 5) else 0.0] for place in range(len(where))])
    assert seldom[:, 2].mean() < seldom[:, 1].mean()
    members = predictors(where, seldom[:, :])
    assert [best(predictor, problems((64, 1448))[0]) for predictor in members] == [1] * len(members)


def test_a_search_that_left_holes_can_be_learnt_from(grid: Matrix) -> None:
    chance = np.random.default_rng(3)
    times = np.where(chance.random(grid.times_us.shape) < 0.7, np.nan, grid.times_us)
    best = np.nanargmin(grid.times_us, axis=1)
    times[range(len(best)), best] = grid.times_us[range(len(best)), best]
    sparse = Matrix(grid.problems, grid.families, times, grid.templates)
    assert all(np.isfinite(costs).all() for costs in cross_validated(sparse, H200).values())
    model, _ = choose(sparse, SOFTMAX, H200)
    assert model.regret.geomean < 2
    asked = unmeasured(sparse, SOFTMAX, H200, model.members)
    assert asked
    for problem, configuration in asked:
        assert SOFTMAX.applicable(configuration, problem, H200)
    assert not [pair for pair in unmeasured(grid, SOFTMAX, H200, model.members) if SOFTMAX.family(pair[1]) in grid.families]


# What is stored


@pytest.fixture(scope="module")
def model(grid: Matrix) -> Model:
    members, made = fit(grid, H200)
    families = tuple(grid.families[column] for column in members)
    return Model(families, made["tree"], Regret(1.01, 1.05, 1.2), None, len(grid.problems), dict.fromkeys(OLD, "sha"))


def test_a_stored_model_is_the_model(model: Model) -> None:
    again = Model.from_json(model.to_json(), SOFTMAX, lambda version: "sha")
    assert again.to_json() == model.to_json()
    for problem in problems((1, 1), (7, 77), (4096, 4095), (1, 1 << 18)):
        assert list(again.ranking(problem, H200)) == list(model.ranking(problem, H200))


def test_kernels_that_have_changed_since_are_not_chosen(model: Model) -> None:
    changed = Model.from_json(model.to_json(), SOFTMAX, lambda version: "other" if version == "v4" else "sha")
    assert changed.versions == {"v1", "v2", "v3"}
    chosen = [family for _, family in changed.ranking(problems((64, 1024))[0], H200)]
    assert None in chosen
    assert all(family is None or family.version != "v4" for family in chosen)


def damaged(text: str) -> dict[str, str]:
    body = json.loads(text)
    return {
        "nothing": "",
        "a list": "[]",
        "another format": json.dumps(body | {"format": 99}),
        "another kind": json.dumps(body | {"kind": "oracle"}),
        "no default": json.dumps(body | {"members": body["members"][1:]}),
        "a version that is gone": json.dumps(body | {"members": [None, ["v99", {"block": 1}]]}),
        "a value that is gone": json.dumps(body | {"members": [None, ["v3", {"block": 7, "vector": 4, "unroll": 4}]]}),
        "a tree without leaves": json.dumps(body | {"predictor": [0, 1.0]}),
        "a feature that is none": json.dumps(body | {"predictor": [77, 1.0, body["predictor"], body["predictor"]]}),
        "a regret that is none": json.dumps(body | {"regret": [0.0, 1.0, 1.0]}),
        "a cost that is no number": json.dumps(body | {"predictor": [None, [[float("nan"), m] for m in range(len(body["members"]))]]}),
        "a leaf that forgets": json.dumps(body | {"predictor": [None, [[0.0, 0]]]}),
    }


@pytest.mark.parametrize("how", list(damaged('{"members": [], "predictor": []}')))
def test_what_is_no_model_is_refused_in_one_sentence(model: Model, how: str) -> None:
    with pytest.raises(AutotuneError):
        Model.from_json(damaged(model.to_json())[how], SOFTMAX)


def test_what_a_model_may_choose_is_all_that_has_to_be_compiled(model: Model) -> None:
    wanted = set(reachable(model, SOFTMAX, H200, "float32"))
    assert len(wanted) < 150
    for problem in problems((3, 1000), (500, 999), (17, 12345), (4000, 64), (128, 50257)):
        for _, family in model.ranking(problem, H200):
            member = SOFTMAX.fitted(family, problem) if family else next(default_choices(SOFTMAX, H200, problem, model.versions))
            if member and SOFTMAX.applicable(member, problem, H200):
                assert member in wanted


# In a sweep


def test_a_sweep_over_enough_sizes_trains_and_keeps_what_may_be_chosen_compiled_and_does_neither_again(tmp_path: Path) -> None:
    backend = FakeBackend(time_us)
    few = [Problem("softmax", rows, cols) for cols in (256, 1024, 4096, 16384) for rows in (16, 2048)]
    with Database(tmp_path / "db.sqlite", create=True) as database:
        sweep(SOFTMAX, few[:7], backend, database, versions=("v2", "v3"), budget=Budget(trials=12))
        assert database.select("SELECT * FROM active_selectors") == []
        sweep(SOFTMAX, few, backend, database, versions=("v2", "v3"), budget=Budget(trials=12))
        (row,) = database.select("SELECT * FROM active_selectors")
        model = Model.from_json(row["body"], SOFTMAX)
        assert (row["device"], row["dtype"], row["kind"]) == (DEVICE.name, "float32", model.kind)
        assert (row["regret_geomean"], row["regret_worst"]) == (model.regret.geomean, model.regret.worst)
        wanted = reachable(model, SOFTMAX, DEVICE, "float32")
        assert uncompiled(database, SOFTMAX, DEVICE, "float32", wanted) == []
        compiled = len(backend.compiled)
        sweep(SOFTMAX, few, backend, database, versions=("v2", "v3"), budget=Budget(trials=12))
        assert len(backend.compiled) == compiled
        again = train(database, SOFTMAX, DEVICE, TIMING, "float32")
        assert again is not None
        assert not again.changed
        assert [t.changed for t in train_all(database)] == [False]


def test_misses_become_the_next_sweep_s_problems_until_they_are_tuned(tmp_path: Path) -> None:
    with Database(tmp_path / "db.sqlite", create=True) as database:
        rare, often = Problem("softmax", 5, 100), Problem("softmax", 9, 300, input_alignment=4)
        half = Problem("softmax", 9, 300, "float16")
        database.add_misses(DEVICE, [(rare, "selector", None, 1), (often, "safe", None, 50), (half, "safe", None, 7)])
        assert missed(database, SOFTMAX, DEVICE.name) == [Problem("softmax", 9, 300), half, rare]
        assert missed(database, SOFTMAX, DEVICE.name, ["float16"]) == [half]
        assert missed(database, SOFTMAX, "another GPU") == []
        sweep(SOFTMAX, [rare], FakeBackend(time_us), database, versions=("v2",), budget=Budget(trials=3))
        assert rare not in missed(database, SOFTMAX, DEVICE.name)
