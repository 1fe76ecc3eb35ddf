"""A user's definition that is edited between two sweeps: what was found before counts as far as it depends on nothing that has changed."""

import re
import shutil
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune import catalogue
from autotune.backends.emulator import EmulatorBackend
from autotune.database import Database
from autotune.dispatch import explain
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.sweeping import sweep
from autotune.watch import ProblemSummary
from tests.command import rows, said

OPERATION = '''"""A third of every element."""
from autotune.operation import Tolerance
DIVISOR = 3
TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"block": 32})
def reference(x):
    return x / DIVISOR
def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
'''
DEFINITION = '''"""One block per row."""
from autotune.definition import Bounds, Launch, all_of
TEMPLATE = "third.cu"
PARAMETERS = {"block": (32,)}
DTYPES = ("float32",)
IN_PLACE = True
SHARE = 1  # rows of a block
MOST_COLS = 1 << 20
def bounds(configuration):
    return Bounds(threads=configuration.integer("block"))
def applicable(configuration, problem, device):
    return all_of((problem.cols <= MOST_COLS, "a row is too long"))
def launch(configuration, problem, device):
    return Launch(blocks=_blocks(problem))
def _blocks(problem):
    return -(-problem.rows // SHARE)
'''
TEMPLATE = """#include "common.cuh"
template <class Element, int block>
__device__ void third_VERSION(Element* output, const Element* input, long long, long long cols, long long output_stride,
                              long long input_stride, void*) {
    for (long long i = threadIdx.x; i < cols; i += block)
        output[blockIdx.x * output_stride + i] = input[blockIdx.x * input_stride + i] / 3.0f;
}
"""
SIZE = (4, 64)
# What makes the kernels of v1 wrong, or has them called wrong.
SPOILT = {
    "launch": ("v1.py", "blocks=_blocks(problem)", "blocks=_blocks(problem) // 2"),
    "a constant that launch reaches": ("v1.py", "SHARE = 1", "SHARE = 2"),
    "bounds": ("v1.py", 'configuration.integer("block")', 'configuration.integer("block") // 2'),
    "the reference": ("operation.py", "x / DIVISOR", "x / DIVISOR + 1"),
    "a constant of the reference": ("operation.py", "DIVISOR = 3", "DIVISOR = 4"),
    "a tolerance": ("operation.py", "relative=1e-6", "relative=1e-12"),
}
RIGHT = {
    "launch": ("v1.py", "_blocks(problem))", "max(1, _blocks(problem)))"),
    "a looser tolerance": ("operation.py", "relative=1e-6", "relative=2e-6"),
    "that it works in place": ("v1.py", "IN_PLACE = True", "IN_PLACE = False"),
}
OF_NO_WEIGHT = {
    "a comment": ("v1.py", "  # rows of a block", "  # so many rows are a block's"),
    "formatting": ("v1.py", "SHARE = 1", "SHARE = (\n    1\n)"),
    "a docstring": ("operation.py", "A third of every element", "Every element, divided by three"),
    "applicable": ("v1.py", "problem.cols <= MOST_COLS", "0 < problem.cols <= MOST_COLS"),
    "a constant of applicable": ("v1.py", "MOST_COLS = 1 << 20", "MOST_COLS = 1 << 10"),
    "the safe kernel": ("operation.py", 'SAFE = ("v0"', 'SAFE = ("v1"'),
    "the bytes that are moved": ("operation.py", "return 2 * problem", "return problem"),
}


def spoil(mine: Path, name: str, right: str, other: str) -> None:
    file = mine / "third" / name
    assert file.read_text().count(right) == 1
    file.write_text(file.read_text().replace(right, other))
    catalogue.load.cache_clear()  # as in a new process


def swept(mine: Path) -> ProblemSummary:
    summary = autotune.sweep(
        "third", sizes=[SIZE], device="emulator", versions=["v1"], db=mine / "x.sqlite", kernels=mine, hang_timeout_s=30
    )
    return summary.problems[0]


def tier(mine: Path) -> str:
    """Why the dispatcher would take what it takes: "exact" for what was found, "safe" where nothing counts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 tuned sizes in .* are of another state of the third kernels and are left out; run `autotune")
        return explain(Problem("third", *SIZE), "emulator", db=mine / "x.sqlite", kernels=mine).tier


def written(mine: Path) -> Path:
    (mine / "third").mkdir(parents=True)
    (mine / "third" / "operation.py").write_text(OPERATION)
    for version in ("v0", "v1"):
        (mine / "third" / f"{version}.py").write_text(DEFINITION.replace("third.cu", f"{version}.cu"))
        (mine / "third" / f"{version}.cu").write_text(TEMPLATE.replace("VERSION", version))
    return mine


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mine = written(tmp_path_factory.mktemp("tuned") / "mine")
    assert swept(mine).choice is not None
    return mine


@pytest.fixture
def mine(tuned: Path, tmp_path: Path) -> Path:
    catalogue.load.cache_clear()
    return Path(shutil.copytree(tuned, tmp_path / "mine"))


def test_unchanged_it_is_dispatched_and_not_tried_again(mine: Path) -> None:
    again = swept(mine)
    assert (again.known, again.stale, again.new_trials, tier(mine)) == (1, 0, 0, "exact")


@pytest.mark.parametrize("what", OF_NO_WEIGHT)
def test_what_has_no_part_in_a_result_leaves_it(what: str, mine: Path) -> None:
    spoil(mine, *OF_NO_WEIGHT[what])
    again = swept(mine)
    assert (again.known, again.stale, again.new_trials, tier(mine)) == (1, 0, 0, "exact")


@pytest.mark.parametrize("what", SPOILT)
def test_a_kernel_that_an_edit_made_wrong_is_found_and_not_dispatched(what: str, mine: Path) -> None:
    spoil(mine, *SPOILT[what])
    assert tier(mine) == "safe"
    again = swept(mine)
    assert (again.stale, again.blocked, again.choice) == (1, 0, None)
    assert {outcome.value for outcome in again.outcomes} == {"wrong_result"}
    assert tier(mine) == "safe"


def test_what_is_left_where_the_best_has_changed_is_not_called_the_best(mine: Path) -> None:
    autotune.sweep("third", sizes=[SIZE], device="emulator", db=mine / "x.sqlite", kernels=mine, hang_timeout_s=30)
    with Database(mine / "x.sqlite", mode="read") as database:
        (best,) = database.best("third", *SIZE)
    spoil(mine, f"{best['version']}.py", *RIGHT["launch"][1:])
    with warnings.catch_warnings(action="ignore"):
        story = explain(Problem("third", *SIZE), "emulator", db=mine / "x.sqlite", kernels=mine)
    assert story.chosen
    assert (story.tier, story.chosen.configuration.version == best["version"]) == ("exact", False)
    assert story.chosen.expected_regret is None


@pytest.mark.parametrize("what", RIGHT)
def test_a_kernel_that_is_right_after_an_edit_too_is_checked_again_first(what: str, mine: Path) -> None:
    spoil(mine, *RIGHT[what])
    assert tier(mine) == "safe"
    again = swept(mine)
    assert (again.stale, again.known, dict(again.outcomes)) == (1, 0, {"ok": 1})
    assert tier(mine) == "exact"


@pytest.mark.parametrize("what", ["a constant that launch reaches", "the reference", "a tolerance"])
def test_what_was_blocked_before_its_definition_was_corrected_is_tried_again(what: str, tmp_path: Path) -> None:
    mine, (file, right, wrong) = written(tmp_path / "mine"), SPOILT[what]
    spoil(mine, file, right, wrong)
    assert swept(mine).choice is None
    spoil(mine, file, wrong, right)
    again = swept(mine)
    assert (again.blocked, again.known, dict(again.outcomes)) == (0, 0, {"ok": 1})
    assert again.choice is not None
    third = autotune.Dispatcher("third", kernels=mine, db=mine / "x.sqlite", device="emulator")
    x = np.arange(SIZE[0] * SIZE[1], dtype=np.float32).reshape(SIZE)
    np.testing.assert_allclose(third(x), x / 3, rtol=1e-6)
    assert third.stats().hits == {"exact": 1}


def test_an_edit_while_a_sweep_runs_ends_it_for_its_results_would_be_of_either(mine: Path) -> None:
    loaded = catalogue.load("third", mine)
    spoil(mine, *RIGHT["launch"])
    with Database(mine / "y.sqlite", create=True) as database, closing(EmulatorBackend()) as backend:
        edited = re.escape(f"the definitions in {mine / 'third'} were changed while they were in use; run the command again")
        with pytest.raises(UsageError, match=f"^{edited}$"):
            sweep(loaded, [Problem("third", *SIZE)], backend, database)
        assert database.trial_rows() == []


def test_commands_go_by_the_definition_too(mine: Path) -> None:
    of_mine = ("--db", str(mine / "x.sqlite"), "--kernels", str(mine))
    assert rows("prune", "--stale", *of_mine)[0]["trials"] == 0
    spoil(mine, *RIGHT["launch"])
    assert rows("prune", "--stale", *of_mine)[0]["trials"] == 0  # a best rests on it
    (done,) = rows("rebuild", *of_mine)
    assert (done["settled"], done["stale"]) == (0, 1)
    assert rows("inspect", "best", *of_mine[:2])[0]["state"] == "stale"
    swept(mine)
    assert rows("prune", "--stale", *of_mine)[0]["trials"] == 1
    printed = said("source", "third", "4x64", "--device", "emulator", *of_mine)
    assert "FunctionDef(name=launch" in printed
    assert "Call(func=max, args=[1, Call(func=_blocks, args=[problem])])" in printed


def test_a_kernel_of_ones_own_that_its_definition_forbids_now_is_stale_with_kernels_alone(mine: Path) -> None:
    db, of_mine = ("--db", str(mine / "x.sqlite")), ("--kernels", str(mine))
    assert [row["state"] for row in rows("inspect", "best", *db, *of_mine)] == ["confirmed"]
    said("block", "third", "v1 block 32", "--why", "it hums", "--size", "8x8", "--device", "emulator", *db, *of_mine)
    assert [row["state"] for row in rows("inspect", "blocked", *db, *of_mine)] == ["blocked"]
    assert {row["version"] for row in rows("inspect", "versions", *db, *of_mine)} == {"v0", "v1"}
    spoil(mine, "v1.py", "problem.cols <= MOST_COLS", "problem.cols < 64")
    assert [row["state"] for row in rows("inspect", "best", *db, *of_mine)] == ["stale"]
    assert [row["state"] for row in rows("inspect", "best", *db)] == ["confirmed"]  # nothing is known of what is not here
    spoil(mine, *RIGHT["launch"])
    assert [row["state"] for row in rows("inspect", "blocked", *db, *of_mine)] == ["stale"]
