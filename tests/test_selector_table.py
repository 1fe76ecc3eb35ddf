"""The table of the plane of sizes: its cells, the forest that fills them, and that what is stored is what was made."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.problem import Problem
from autotune.selector.cells import MOST_PACKS, MOST_ROWS, SHORT, Cells
from autotune.selector.forest import Forest
from autotune.selector.matrix import Matrix
from autotune.selector.regret import Regret
from autotune.selector.table import Regression, Table
from autotune.selector.training import first_known
from tests.dispatch_cases import H200, SOFTMAX
from tests.imagined_gpu import matrix

GRID = [(rows, cols) for cols in (40, 100, 128, 512, 1001, 1024, 2048, 4096, 16384, 65536) for rows in (4, 64, 256, 1000, 4096)]
FEW = Cells(4, (1, 8, 64, 256, 1024, MOST_ROWS), (8, 32, 128, 512, 1024, 4096, 16384, 1 << 17, MOST_PACKS))

sizes = st.tuples(st.integers(1, 2**20), st.integers(1, 2**19))
dtypes = st.sampled_from(["float32", "float16"])


@settings(max_examples=300)
@given(sizes, dtypes)
def test_what_stands_for_a_cell_lies_in_it_and_is_aligned_like_what_it_stands_for(size: tuple[int, int], dtype: str) -> None:
    problem = Problem("softmax", *size, dtype)
    cells = Cells.of(H200, problem.element_bytes)
    place = cells.place(problem)
    assert all(0 <= at < length for at, length in zip(place, cells.shape, strict=True))
    middle = cells.middle(*place, problem)
    assert cells.place(middle) == place
    if problem.rows > 1:
        assert problem.cols <= SHORT or middle.alignment_bytes == problem.alignment_bytes
    if middle.rows == problem.rows and problem.cols <= SHORT:
        assert middle == problem


def test_sizes_beyond_the_plane_are_in_its_last_cells() -> None:
    cells = Cells.of(H200, 4)
    last = cells.place(Problem("softmax", 1 << 25, 1 << 24))
    assert last == (cells.shape[0] - 1, cells.shape[1] - 1)


def test_a_power_of_two_has_cells_of_its_own_beside_those_of_its_neighbours() -> None:
    cells = Cells.of(H200, 2)
    places = [cells.place(Problem("softmax", 64, 4096 + more, "float16")) for more in (-8, 0, 8, 16)]
    assert len(set(places)) == 4


def test_a_forest_finds_a_cliff_and_the_same_points_give_the_same_forest() -> None:
    chance = np.random.default_rng(5)
    seen = chance.random((400, 3))
    targets = np.where(seen[:, 1] > 0.5, 0.3, 0.0) + 0.1 * seen[:, 2]
    forest, again = Forest.fit(seen, targets), Forest.fit(seen, targets)
    asked = chance.random((50, 3))
    told = forest.predict(asked)
    assert np.array_equal(told, again.predict(asked))
    clear = np.abs(asked[:, 1] - 0.5) > 0.05
    assert np.abs(told - np.where(asked[:, 1] > 0.5, 0.3, 0.0) - 0.1 * asked[:, 2])[clear].max() < 0.1
    assert targets.min() <= told.min() <= told.max() <= targets.max()
    assert len(forest.predict(asked[:0])) == 0


def test_a_forest_of_equal_targets_says_just_that() -> None:
    assert Forest.fit(np.eye(4), np.full(4, 0.25)).predict(np.zeros((3, 4))) == pytest.approx([0.25] * 3)


@pytest.fixture(scope="module")
def grid() -> Matrix:
    return matrix(GRID, versions=("v1", "v2", "v3", "v4"))


@pytest.fixture(scope="module")
def regression(grid: Matrix) -> tuple[Regression, list[int]]:
    return Regression.fit(grid, SOFTMAX, H200, FEW)


@pytest.fixture(scope="module")
def table(grid: Matrix, regression: tuple[Regression, list[int]]) -> Table:
    return Table.fit(regression[0], grid.problems, FEW)


def test_what_a_regression_expects_of_sizes_it_did_not_see_chooses_better_than_the_default(
    grid: Matrix, regression: tuple[Regression, list[int]]
) -> None:
    unseen = matrix(
        [(30, 700), (1000, 3000), (2000, 999), (16, 256), (600, 20000), (5000, 300), (50, 5000)], versions=("v1", "v2", "v3", "v4")
    )
    made, members = regression
    assert members[0] == 0
    assert [grid.families[column] for column in members] == list(made.members)
    columns = {family: column for column, family in enumerate(unseen.families)}
    regrets = []
    for costs, told in zip(unseen.costs, made.expected(unseen.problems), strict=True):
        ranking = [made.members[member] for member in told.argsort() if np.isfinite(told[member])]
        regrets.append(first_known(costs, [columns[family] for family in ranking if family in columns]))
    assert Regret.of(regrets).geomean < min(1.1, Regret.of(unseen.costs[:, 0]).geomean)


@settings(max_examples=100)
@given(sizes)
def test_every_member_is_ranked_once_and_a_stored_table_ranks_alike(table: Table, size: tuple[int, int]) -> None:
    problem = Problem("softmax", *size)
    ranking = list(table.ranking(problem, H200))
    assert sorted(member for _, member in ranking) == list(range(len(table.others)))
    assert all(0 <= cost < 1 for cost, _ in ranking)
    again = Table.from_json(json.loads(json.dumps(table.to_json())), len(table.others))
    assert list(again.ranking(problem, H200)) == ranking


def test_rows_longer_than_any_tuned_one_are_the_default_s(table: Table) -> None:
    for rows in (1, 100):
        assert next(table.ranking(Problem("softmax", rows, 1 << 19), H200))[1] == 0


def test_where_no_tuned_version_runs_most_sizes_there_is_a_table_of_those_that_it_runs() -> None:
    short = matrix([(rows, cols) for rows in (1, 30, 900, 20000) for cols in (8, 33, 100, 256, 700)], versions=("v6",))
    regression, members = Regression.fit(short, SOFTMAX, H200, FEW)
    table = Table.fit(regression, short.problems, FEW)
    assert () in table.entries  # v6 holds no long rows, and the safe version was not tuned
    everything = list(range(len(members)))
    for cols in (200, 100_000):
        assert sorted(member for _, member in table.ranking(Problem("softmax", 50, cols), H200)) == everything
    assert Table.from_json(json.loads(json.dumps(table.to_json())), len(members)).entries == table.entries


@pytest.mark.parametrize(
    "damage",
    [
        {"numbers": "AAAA"},
        {"numbers": "no base64"},
        {"entries": []},
        {"entries": [[[0.1, 99]]]},
        {"entries": [[[0.1, 0], [0.2, 0]]]},
        {"entries": [[[float("nan"), 0]]]},
        {"others": [[0.1, 0]]},
        {"rows": [8, 1]},
        {"packs": []},
        {"element_bytes": 3},
    ],
    ids=str,
)
def test_what_is_no_table_is_refused(table: Table, damage: dict[str, object]) -> None:
    body = json.loads(json.dumps(table.to_json())) | damage
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        Table.from_json(body, len(table.others))
