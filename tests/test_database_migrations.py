"""Old databases: a copy is kept, every row survives, and what the file was asked before it answers after."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from autotune.database import Database
from autotune.database.migrations import steps
from autotune.database.schema import SCHEMA
from autotune.errors import UsageError
from autotune.trial import Outcome
from tests.database_samples import COLD, CUBIN, DEVICE, FAST, PROBLEM, SLOW, begin, record

OLD = sorted((Path(__file__).parent / "data").glob("schema*.sqlite"))


def rows_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> '_sqlite_migrations'")]
    rows = {table: connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in tables}
    connection.close()
    return rows


def declared(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return found


def test_there_is_a_database_of_every_schema_before_this_one() -> None:
    assert [path.stem for path in OLD] == [f"schema{number}" for number in range(1, SCHEMA)]
    assert len(steps._migrations) == SCHEMA


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_opening_to_write_migrates_and_keeps_a_copy_and_every_row(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    shutil.copy(old, path)
    before = rows_of(path)
    with Database(path) as db:
        assert db.select("PRAGMA user_version") == [{"user_version": SCHEMA}]
        assert {t.configuration: (t.outcome, t.time_us) for t in db.trials(DEVICE, COLD, PROBLEM)} == {
            FAST: (Outcome.OK, 40.25),
            SLOW: (Outcome.OK, 42.25),
            db.trials(DEVICE, COLD)[2].configuration: (Outcome.WRONG_RESULT, None),
        }
        assert db.best()[0]["parameters"] == {"block": 256}
        assert db.load_binary(db.select("SELECT binary_sha FROM dispatchable")[0]["binary_sha"]) == CUBIN
        record(db, begin(db), SLOW)
    after = rows_of(path)
    for table, rows in before.items():
        kept = after[table][: len(rows)]
        assert [row[: len(old_row)] for row, old_row in zip(kept, rows, strict=True)] == rows
    copy = tmp_path / f"mine.sqlite.{old.stem}"
    assert rows_of(copy) == before


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_a_migrated_database_is_declared_as_a_new_one(old: Path, tmp_path: Path) -> None:
    shutil.copy(old, tmp_path / "old.sqlite")
    Database(tmp_path / "old.sqlite").close()
    Database(tmp_path / "new.sqlite", create=True).close()
    assert declared(tmp_path / "old.sqlite") == declared(tmp_path / "new.sqlite")


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_an_old_database_can_be_read_and_imported_and_stays_as_it_is(old: Path, tmp_path: Path) -> None:
    before = old.read_bytes()
    with Database(old, mode="read") as read, Database(tmp_path / "new.sqlite", create=True) as db:
        assert [row["time_us"] for row in read.trial_rows(outcome="ok")] == [42.25, 40.25]
        with pytest.raises(UsageError, match="cannot be written"):
            read.record_copy(1, PROBLEM, 36.0)
        db.import_from(old)
        assert db.best()[0] | {"origin": "local"} == read.best()[0]
        assert db.content_hash() == read.content_hash()
    assert old.read_bytes() == before


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.sqlite"
    shutil.copy(OLD[0], path)
    before, tables = rows_of(path), declared(path)
    monkeypatch.setattr("autotune.database.migrations.VIEWS", {"broken": "CREATE VIEW broken AS SELECT"})
    with pytest.raises((sqlite3.OperationalError, UsageError)):
        Database(path)
    assert (rows_of(path), declared(path)) == (before, tables)
    monkeypatch.undo()
    with Database(path) as db:
        assert len(db.best()) == 1
