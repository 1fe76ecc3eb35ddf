"""A sweep's words and the columns of `inspect` count the same things, and say which."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import load
from autotune.cli.progress import JsonWatcher, PlainWatcher
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.watch import Summary
from tests.command import rows, said
from tests.dispatch_cases import V3, write_database
from tests.fake import DEVICE, FakeBackend
from tests.test_changed_definitions import RIGHT, mine, spoil, tuned  # noqa: F401 (fixtures)
from tests.test_changed_definitions import swept as swept_emulated

SOFTMAX = replace(load("softmax"), versions={"v1": load("softmax").version("v1")})
PROBLEM = Problem("softmax", 64, 1000)


def times(configuration: Configuration, problem: Problem) -> float:
    return 20.0 + SOFTMAX.configurations().index(configuration) / 100


def swept(path: Path, budget: Budget, backend: FakeBackend | None = None) -> Summary:
    with Database(path, create=True) as database:
        return sweep(SOFTMAX, [PROBLEM], backend or FakeBackend(times), database, budget=budget, watcher=PlainWatcher())


def stored(path: Path) -> int:
    return len(rows("inspect", "trials", "--db", str(path)))


def test_new_trials_and_those_that_raced_again_are_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sqlite"
    first, second = swept(path, Budget(trials=4)), swept(path, Budget(trials=8))
    assert (first.raced_again, second.raced_again > 0) == (0, True)
    assert stored(path) == first.new_trials + second.new_trials + second.raced_again
    printed = capsys.readouterr().out
    assert f"\n4 new trials (4 ok) and {second.raced_again} more of known configurations that raced again in " in printed
    (problem,) = rows("inspect", "problems", "--db", str(path))
    assert problem["trials"] == stored(path)
    with Database(path) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(times), database, watcher=JsonWatcher())
    ended = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert stored(path) == problem["trials"] + ended["new_trials"] + ended["raced_again"]
    for kind in ("problems", "versions"):
        assert '"trials" is how many are stored: each try' in " ".join(said("inspect", kind, "--help").split())


def test_of_a_recording_only_what_was_recorded_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = tmp_path / "recording.sqlite"
    swept(recording, Budget(trials=3))
    capsys.readouterr()
    backend = RecordedBackend(recording)
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], backend, database, watcher=PlainWatcher())
    backend.close()
    printed = capsys.readouterr().out
    assert "3 of 3 recorded configurations known" in printed
    assert ", and every recorded configuration was tried (recorded on" in printed
    assert "every configuration" not in printed


def test_of_versions_that_were_named_only_theirs_were_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = replace(load("softmax"), versions={name: load("softmax").version(name) for name in ("v0", "v1")})
    with Database(tmp_path / "x.sqlite", create=True) as database:
        sweep(both, [PROBLEM], FakeBackend(times), database, versions=("v1",), watcher=PlainWatcher())
    assert capsys.readouterr().out.endswith(", and every configuration of v1 was tried\n")


def test_runs_without_trials_are_none_of_a_device(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    swept(path, Budget(trials=2))
    with Database(path) as database:
        database.begin_run(DEVICE, FakeBackend.environment, FakeBackend.timing)
    assert [row["runs"] for row in rows("inspect", "devices", "--db", str(path))] == [1]


def test_the_selector_is_told_once(tmp_path: Path) -> None:
    db = ("--db", str(write_database(tmp_path / "x.sqlite", [(4096, 4096, V3)])))
    bare = next(c for c in load("softmax").configurations(("v0",)))
    said("pin", "softmax", "4096x5000", str(bare), "--why", "so", *db)
    first, *others = rows("explain", "softmax", "4096x5000", *db)
    assert first["selector"]["kernels"]
    assert others
    assert {row["selector"] for row in others} == {None}


def test_a_sweep_that_goes_on_beside_blocks_says_which_command_shows_them(tmp_path: Path) -> None:
    db = ("--db", str(tmp_path / "x.sqlite"))
    recorded = ("sweep", "softmax", "--size", "4096x4096", "--device", "recorded", *db)
    assert "inspect blocked" not in said(*recorded)
    best = rows("inspect", "best", *db)[0]
    chosen = Configuration.of(best["version"], **best["parameters"])
    assert chosen != V3
    said("block", "softmax", str(chosen), "--why", "it hums", *db)
    assert f"shows what was chosen, `autotune inspect blocked {' '.join(db)}` what is blocked and why" in said(*recorded)


def test_what_no_longer_counts_is_counted_once_however_often_it_was_measured(mine: Path) -> None:  # noqa: F811
    spoil(mine, *RIGHT["launch"])
    assert swept_emulated(mine).stale == 1
    spoil(mine, RIGHT["launch"][0], RIGHT["launch"][2], "max(2 - 1, _blocks(problem)))")
    again = swept_emulated(mine)
    assert (again.stale, again.new_trials) == (1, 1)  # of the two trials that count no more
