"""Where there is nothing to try, or nothing was tried yet, a sweep says so and why."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.catalogue import load
from autotune.cli.progress import JsonWatcher, PlainWatcher
from autotune.cli.sweep import _next_step
from autotune.database import Database
from autotune.definition import Verdict
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.sweeping import sweep
from tests.command import refused
from tests.fake import FakeBackend

SOFTMAX = load("softmax")
WHOLE_PACKS, ODD = Problem("softmax", 4, 4096), Problem("softmax", 4, 33)
NEVER = replace(
    SOFTMAX,
    versions={v: replace(SOFTMAX.version(v), own_applicable=lambda c, p, d: Verdict("rows are never right")) for v in ("v0", "v2")},
)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "test.sqlite", mode="write", create=True)


def test_a_named_version_that_is_applicable_nowhere_is_refused_with_its_first_reason(tmp_path: Path) -> None:
    command = ("sweep", "softmax", "--device", "emulator", "--version", "v9", "--db", str(tmp_path / "x.sqlite"))
    sentence = refused(*command, "--size", "4x4096")
    assert "v9 has no applicable configuration (rows of 16384 bytes are whole packs" in sentence
    assert sentence.endswith(" at softmax 4x4096 float32; name another version or size")
    assert " float32, nor at softmax 8x4096 float32; name another" in refused(*command, "--size", "4x4096", "--size", "8x4096")


def test_a_named_version_without_anything_to_try_at_one_size_is_told_and_the_others_are_tuned(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = FakeBackend(lambda configuration, problem: 10.0)
    summary = sweep(SOFTMAX, [WHOLE_PACKS, ODD], backend, database, versions=("v9",), watcher=PlainWatcher())
    said = capsys.readouterr().out
    assert "softmax 4x4096 float32: v9 has no applicable configuration (rows of 16384 bytes are whole packs" in said
    assert "softmax 4x4096 float32: 0 new trials, 0 of 0 applicable configurations known; there is none to try\n" in said
    assert "softmax 4x33 float32: v9" not in said
    assert [p.choice is None for p in summary.problems] == [True, False]


def test_where_no_version_is_applicable_each_says_why(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(NEVER, [ODD], FakeBackend(lambda configuration, problem: 10.0), database, watcher=JsonWatcher())
    settled = next(e for e in map(json.loads, capsys.readouterr().out.splitlines()) if e["event"] == "settled")
    assert settled["impossible"] == {"v0": "rows are never right", "v2": "rows are never right"}
    with pytest.raises(UsageError, match=r"^v2 has no applicable configuration \(rows are never right\) at softmax 4x33 float32; name"):
        sweep(NEVER, [ODD], FakeBackend(lambda configuration, problem: 10.0), database, versions=("v2",))


def test_an_interrupt_before_the_first_trial_blames_no_configuration(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend(lambda configuration, problem: 10.0, stop_after=0)
    summary = sweep(SOFTMAX, [ODD], backend, database, watcher=PlainWatcher())
    assert summary.interrupted
    assert _next_step(summary) == "nothing was tried yet"
    said = capsys.readouterr().out
    assert "; nothing was tried\n" in said
    assert "can be used" not in said
