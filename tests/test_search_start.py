"""What a search starts from: kernels of neighbours made for the new size, what the operation proposes, and never those alone."""

import shutil
from pathlib import Path

import pytest

from autotune.backends.select import select
from autotune.configuration import Configuration, Value
from autotune.database import Database
from autotune.problem import Problem
from autotune.search import Budget, Study
from autotune.search.neighbours import carried
from autotune.sweeping import sweep
from autotune.watch import Attempt, ProblemSummary, Watcher
from tests.dispatch_cases import H200, SOFTMAX

HERE = Problem("softmax", 8192, 8192)
THERE = Problem("softmax", 4096, 4096)
V7: dict[str, Value] = {"vector": 4, "hold": "exponentials", "edges": "exact"}


def applicable(problem: Problem) -> list[Configuration]:
    return [c for c in SOFTMAX.configurations() if SOFTMAX.applicable(c, problem, H200)]


def test_a_neighbours_kernel_is_made_for_the_new_size_with_as_many_threads_and_with_as_many_packs_a_thread() -> None:
    winner = Configuration.of("v7", block=256, items=4, **V7)
    assert winner in applicable(THERE)
    found = carried({winner: 30.0}, THERE, HERE, SOFTMAX, applicable(HERE))
    as_many_threads, as_many_packs = (Configuration.of("v7", block=b, items=i, **V7) for b, i in ((256, 8), (512, 4)))
    assert found == {winner: 30.0, as_many_threads: 30.0, as_many_packs: 30.0}


def test_where_a_neighbours_vectors_do_not_divide_the_row_its_kernel_is_also_made_with_those_that_do() -> None:
    """Of rows of 55 elements a masked kernel with vectors of 4 and an exact one with single elements are the likes."""
    there, here = Problem("softmax", 100_000, 100), Problem("softmax", 150_000, 55)

    def v6(items: int, vector: int, edges: str) -> Configuration:
        return Configuration.of("v6", lanes=16, rows=1, items=items, vector=vector, warps=4, edges=edges)

    assert v6(2, 4, "exact") in applicable(there)
    found = carried({v6(2, 4, "exact"): 20.0}, there, here, SOFTMAX, applicable(here))
    assert {v6(1, 4, "masked"): 20.0, v6(4, 1, "exact"): 20.0}.items() <= found.items()


def test_what_was_measured_here_too_what_is_slow_and_what_is_gone_is_taken_as_it_is() -> None:
    possible, gone = applicable(HERE), Configuration.of("v11", block=256)
    other, bare = Configuration.of("v7", threads=256), Configuration.of("v7")
    everywhere = next(c for c in applicable(THERE) if c in possible)
    slow = Configuration.of("v7", block=128, items=8, **V7)
    times = {gone: 10.0, other: 10.0, bare: 10.0, everywhere: 11.0, slow: 25.0}
    assert carried(times, THERE, HERE, SOFTMAX, possible) == times


def test_of_kernels_that_become_one_the_faster_time_counts() -> None:
    short, long = Problem("softmax", 4096, 1024), Problem("softmax", 4096, 2048)
    one, other = (Configuration.of("v7", block=b, items=i, **V7) for b, i in ((64, 4), (128, 2)))
    found = carried({one: 3.0, other: 2.0}, short, long, SOFTMAX, applicable(long))
    assert found[Configuration.of("v7", block=128, items=4, **V7)] == 2.0


def test_far_neighbours_leave_most_first_questions_to_what_would_be_asked_without_them() -> None:
    """They only know the oldest version, which is applicable everywhere, and say nothing against the others."""
    space = [Configuration.of(version, block=block) for version in ("v2", "v3", "v4", "v5") for block in range(32, 513, 32)]
    prior = {c: 10.0 + c.integer("block") / 100 for c in space if c.version == "v2"}
    near, far = (Study(space, seed=0, priors=[prior], distances=[distance]).ask(4) for distance in (1.0, 12.0))
    assert near[0] == min(prior, key=lambda c: prior[c])
    assert [c.version for c in far] == ["v5", "v4", "v3", "v2"]


def test_far_neighbours_that_know_the_newer_versions_too_are_asked_more() -> None:
    space = [Configuration.of(version, block=block) for version in ("v2", "v3", "v4", "v5") for block in range(32, 513, 32)]
    prior = {c: (10.0 if c.version == "v3" else 30.0) + c.integer("block") / 100 for c in space}
    asked = [c.version for c in Study(space, seed=0, priors=[prior], distances=[12.0]).ask(8)]
    assert asked[0] == "v5"
    assert asked.count("v3") >= 4


def test_what_is_suggested_comes_before_what_covers_the_space_and_after_the_winner_of_a_close_neighbour() -> None:
    space = [Configuration.of(version, block=block) for version in ("v2", "v3") for block in range(32, 513, 32)]
    winner, advice, gone = space[3], space[7], Configuration.of("v1")
    assert Study(space, seed=0, suggested=[gone, advice]).ask(1) == [advice]
    assert Study(space, seed=0, suggested=[advice], priors=[{winner: 1.0}], distances=[2.0]).ask(1) == [winner]
    assert Study(space, seed=0, suggested=[advice], priors=[{winner: 1.0}], distances=[6.0]).ask(2) == [advice, winner]


@pytest.fixture(scope="module")
def one_size_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start") / "one.sqlite"
    measured(path, THERE, Budget(exhaustive=True))
    return path


class Listener(Watcher):
    def __init__(self) -> None:
        self.tried: list[Configuration] = []

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        self.tried.append(attempt.configuration)


def measured(path: Path, problem: Problem, budget: Budget) -> tuple[float, list[Configuration]]:
    """The best time of a sweep over the shipped recording, and what was tried in which order."""
    listener = Listener()
    with Database(path, mode="write", create=True) as database:
        summary = sweep(SOFTMAX, [problem], select("recorded").backend, database, budget=budget, watcher=listener)
    choice = summary.problems[0].choice
    assert choice
    return choice.time_us, listener.tried


@pytest.mark.parametrize(
    ("size", "trials"), [((1024, 65536), 4), ((1024, 65536), 16), ((4096, 1024), 4), ((4096, 1024), 6), ((4096, 16384), 1)]
)
def test_a_small_budget_is_not_worse_spent_where_one_size_is_known(
    one_size_known: Path, tmp_path: Path, size: tuple[int, int], trials: int
) -> None:
    problem, known = Problem("softmax", *size), tmp_path / "known.sqlite"
    shutil.copy(one_size_known, known)
    assert measured(known, problem, Budget(trials=trials))[0] <= 1.02 * measured(tmp_path / "new.sqlite", problem, Budget(trials=trials))[0]


def test_the_same_seed_asks_the_same_of_a_recording_in_the_same_order(one_size_known: Path, tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        shutil.copy(one_size_known, tmp_path / name)
        runs.append(measured(tmp_path / name, HERE, Budget(trials=30))[1])
    assert runs[0] == runs[1]
    assert len(runs[0]) == 30
