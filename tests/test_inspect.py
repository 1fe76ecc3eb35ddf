"""`autotune inspect` on a file with more than one operation, and what its columns mean."""

from pathlib import Path

import pytest

from autotune.cli.inspect import inspect_command
from autotune.database import Database
from autotune.problem import Problem
from autotune.trial import Check, Outcome
from tests.command import refused, rows, said
from tests.database_samples import COLD, DEVICE, FAST, OTHER_DEVICE, SLOW, SOURCE, begin, instance, record, screen, settle

KINDS = ("best", "trials", "problems", "devices", "versions", "misses", "pins", "blocked")
DOUBLE = Problem("double", 4096, 4096)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two operations at one size, the second also on another device, with a pin, a block and a miss of each."""
    path = tmp_path / "mixed.sqlite"
    with Database(path, create=True) as db:
        run = begin(db)
        settle(db, run, record(db, run, FAST, [screen(40.0)]), FAST, 40.0)
        db.add_template("double", "v3", SOURCE)
        for device in (DEVICE, OTHER_DEVICE):
            run = begin(db, device)
            done = Check(1e-6, 90.0)
            db.record(run, DOUBLE, FAST, SOURCE.sha, Outcome.OK, instance=instance(FAST), check=done, rounds=[screen(20.0)])
        for problem in (Problem("softmax", 4096, 4096), DOUBLE):
            name = problem.operation
            db.pin(DEVICE, name, "float32", (1, 2), (1, 2), FAST, author="ada", why="calm")
            db.block(DEVICE, name, SLOW, SOURCE.sha, "float32", "it hums")
            db.add_misses(DEVICE, [(problem, "nearest", FAST, 2)])
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_two_operations_in_one_file_are_told_apart_and_chosen_by_name(kind: str, mixed: Path) -> None:
    db = ("--db", str(mixed))
    told = {row.get("operation") for row in rows("inspect", kind, *db)}
    assert told == ({"softmax"} if kind == "best" else {None} if kind == "devices" else {"softmax", "double"})
    for name in sorted(told - {None}):
        assert name in said("inspect", kind, *db)
        assert {row["operation"] for row in rows("inspect", kind, "--operation", name, *db)} == {name}
    assert "operation 'triple' is not in database" in refused("inspect", kind, "--operation", "triple", *db)


def test_of_an_operation_the_devices_are_those_that_it_was_tried_on(mixed: Path) -> None:
    found = {
        name: [(row["device"], row["problems"], row["runs"]) for row in rows("inspect", "devices", "--operation", name, "--db", str(mixed))]
        for name in ("softmax", "double")
    }
    assert found == {"softmax": [("Test GPU", 1, 1)], "double": [("Other GPU", 0, 1), ("Test GPU", 0, 1)]}


def test_versions_count_the_configurations_that_have_trials(mixed: Path) -> None:
    assert [row["configurations"] for row in rows("inspect", "versions", "--db", str(mixed))] == [1, 1]  # SLOW is blocked, never tried
    assert COLD.name in {row["protocol"] for row in rows("inspect", "trials", "--db", str(mixed))}


def test_the_help_says_what_headings_leave_open() -> None:
    helps = {name: " ".join((command.help or "").split()) for name, command in inspect_command.commands.items()}
    for name, headings in {
        "best": ("state", "tried", "of copy", "gap"),
        "trials": ("evidence", "outcome"),
        "misses": ("answered by",),
        "devices": ("runs",),
    }.items():
        assert all(f'"{heading}" is ' in helps[name] for heading in headings), helps[name]
