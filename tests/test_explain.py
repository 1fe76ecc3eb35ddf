"""`autotune explain`: which file each row came from, and whether it was measured for it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotune.configuration import Configuration
from autotune.database import Database, shipped_databases
from autotune.database.schema import APPLICATION_ID, SCHEMA
from autotune.device import Device
from tests.command import refused, rows, said
from tests.dispatch_cases import H200, V2, V3, write_database

SHIPPED = shipped_databases()[0]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_database(tmp_path / "mine.sqlite", [(4096, 4096, V3)])


def test_each_row_says_which_database_it_came_from(own: Path) -> None:
    (chosen,) = rows("explain", "softmax", "4096x4096", "--db", str(own))
    assert (chosen["tier"], chosen["database"], chosen["replayed"]) == ("exact", str(own), False)
    *_, learnt = rows("explain", "softmax", "4096x5000", "--db", str(own))
    assert (learnt["tier"], learnt["database"]) == ("selector", str(SHIPPED))
    table = said("explain", "softmax", "4096x5000", "--db", str(own)).splitlines()
    near = [line for line in table if "4096x4096" in line or "5000x4098" in line]
    assert ["mine.sqlite" in line for line in near] == [True, False]
    assert [f"shipped {SHIPPED.name}" in line for line in near] == [False, True]


def test_a_pin_says_which_database_it_is_in(own: Path) -> None:
    with Database(own) as db:
        db.pin(H200, "softmax", "float32", (1, 10), (1, 20), V2, author="me", why="calm")
    pinned = rows("explain", "softmax", "5x5", "--db", str(own))[0]
    assert (pinned["tier"], pinned["database"]) == ("pin", str(own))


def test_what_no_database_says_comes_from_none(own: Path) -> None:
    found = rows("explain", "softmax", "5x5", "--device", "emulator", "--db", str(own))
    assert [(row["tier"], row["database"]) for row in found] == [("safe", None)]


@pytest.mark.parametrize("schema", ["newer", "of another program"])
def test_a_named_database_that_cannot_be_read_is_an_error_and_no_story_of_others(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE devices (name TEXT)")
        if schema == "newer":
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    for command in ("explain", "source"):
        assert str(path) in refused(command, "softmax", "4x4", "--db", str(path))


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    """A database with one size, replayed from what is shipped, of which it has the slowest version alone."""
    path = tmp_path / "replay.sqlite"
    sweep = ("sweep", "softmax", "--device", "recorded", "--size", "4096x4096", "--version", "v1", "--db", str(path), "--json")
    assert "recorded_on" in said(*sweep)
    return path


def test_a_time_that_was_replayed_is_marked(replay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = rows("inspect", "devices", "--db", str(replay))
    assert (device["problems"], device["replayed"]) == (1, 1)
    assert "of them replayed" in said("inspect", "devices", "--db", str(replay))
    (database,) = [row for row in rows("doctor", "--db", str(replay)) if row["what"] == "database"]
    assert database["said"].endswith("1 problem tuned on NVIDIA H200 (replayed)")
    monkeypatch.setattr("autotune.dispatch.store.shipped_databases", list)
    candidates = rows("explain", "softmax", "4096x4096", "--db", str(replay))
    assert [(row["database"], row["replayed"]) for row in candidates if row["tier"] == "exact"] == [(str(replay), True)]
    lines = [line for line in said("explain", "softmax", "4096x4096", "--db", str(replay)).splitlines() if "replay.sqlite" in line]
    assert len(lines) == 2
    assert all("replay.sqlite (replayed)" in line for line in lines)


def test_a_replay_of_a_few_kernels_does_not_take_the_place_of_what_was_measured(replay: Path) -> None:
    chosen = rows("explain", "softmax", "4096x4096", "--db", str(replay))[0]
    assert (chosen["database"], chosen["replayed"]) == (str(SHIPPED), False)


def test_a_time_stands_beside_the_configuration_that_had_it() -> None:
    db = ("--db", str(SHIPPED), "--device", "NVIDIA H200")
    with Database(SHIPPED, mode="read") as database:
        (best,) = database.best("softmax", 4096, 4096, "float32")
    timed = str(Configuration(best["version"], tuple(best["parameters"].items())))
    table = said("explain", "softmax", "4096x4097", *db).partition("nearest tuned sizes")[2].splitlines()
    (line,) = [line for line in table if line.startswith("4096x4096")]
    assert timed in line
    assert line.index(timed) < line.index(f"{best['time_us']:.2f}") < line.index("edges masked")  # what it would run here as comes last


@pytest.mark.parametrize(("size", "dtype"), [("1x1048576", "bfloat16"), ("3x5000000", "float32")])
def test_far_from_all_that_was_tuned_nothing_is_expected_and_that_is_said(size: str, dtype: str) -> None:
    asked = ("explain", "softmax", size, "--dtype", dtype, "--device", "NVIDIA H200", "--db", str(SHIPPED))
    told = rows(*asked)
    assert [row["expected_regret"] for row in told] == [None] * len(told)
    assert told[-1]["verdict"].startswith("chosen")
    assert told[0]["beyond"] in said(*asked)
    assert f"{size} lies beyond what was tuned" in said(*asked)


def test_near_what_was_tuned_it_is_said_what_is_expected() -> None:
    asked = ("explain", "softmax", "4096x4097", "--device", "NVIDIA H200", "--db", str(SHIPPED))
    assert 0 <= rows(*asked)[-1]["expected_regret"] < 0.3
    assert "lies beyond" not in said(*asked)


def test_the_selector_is_named_where_it_was_asked_alone_and_its_figures_say_of_what(own: Path) -> None:
    learnt = said("explain", "softmax", "4096x5000", "--db", str(own))
    assert "time of its choice over the best, on sizes left out of training: geometric mean" in learnt
    assert "selector:" not in said("explain", "softmax", "4096x4096", "--db", str(own))
    with Database(own) as db:
        db.pin(H200, "softmax", "float32", (4096, 4096), (5000, 5000), V3, author="me", why="calm")
    pinned = rows("explain", "softmax", "4096x5000", "--db", str(own))
    assert pinned[-1]["tier"] == "pin"
    assert "selector:" not in said("explain", "softmax", "4096x5000", "--db", str(own))


def test_the_last_resort_says_why_there_is_nothing_nearer(own: Path, tmp_path: Path) -> None:
    alone = ("explain", "softmax", "64x64", "--device", "emulator", "--db", str(own))
    (row,) = rows(*alone)
    assert row["tier"] == "safe"
    assert "no float32 size was tuned on it; the emulator stands for no GPU" in row["verdict"]
    device = Device("NVIDIA Unknown", (7, 5), 40, 4 << 20, 256, 65536, 65536)
    path = write_database(tmp_path / "x.sqlite", device=device)
    *rejected, last = rows("explain", "softmax", "64x64", "--device", device.name, "--db", str(path))
    assert rejected
    assert last["tier"] == "safe"
    assert "nothing of what was proposed can run; no float32 size was tuned on it; no GPU of its generation was tuned" in last["verdict"]
