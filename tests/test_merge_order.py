"""Two files that say different things of the same rows are one content, whichever is imported first."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotune.database import Database
from autotune.database.merge import BY_NAME, TABLES
from autotune.database.transfer import Vetted
from autotune.trial import Outcome
from tests.database_samples import COLD, DEVICE, FAST, PROBLEM, SLOW, begin, instance, record, screen, settle
from tests.test_sharing_faults import altered


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with rows in every table, two of what rows of other tables refer to, and all columns known."""
    path = tmp_path_factory.mktemp("merge") / "one.sqlite"
    with Database(path, create=True) as db:
        run = begin(db)
        begin(db, timing=COLD)
        first, second = (record(db, run, c, [screen(40.0), screen(41.0)]) for c in (FAST, SLOW))
        db.finish(second, Outcome.PRUNED, "slow")
        settle(db, run, first, FAST, 40.0)
        db.store_binary(instance(FAST))
        db.record_copy(run, PROBLEM, 36.0)
        db.pin(DEVICE, "softmax", "float32", (1, 9), (1, 9), FAST, author="me", why="because")
        db.block(DEVICE, "softmax", SLOW, instance(FAST).template_sha, "float32", "it hums", PROBLEM)
        db.store_selector(DEVICE, "softmax", "float32", "table", "[1]", "t", (1.0, 1.0, 1.0))
        db.add_misses(DEVICE, [(PROBLEM, "nearest", FAST, 3)])
        db.end_run(run, "done")
    return altered(path, "UPDATE problems SET bytes_moved = 5")


CONSTRAINED: dict[str, list[object]] = {
    "outcome": ["timeout", "crashed"],
    "replayed": [0, 1],
    "kind": ["final", "race"],
    "samples_us": ["[1.0]", "[9.0, 1.0]"],
    "beyond_noise": [0, 1],
    "body": ["[]", "{}"],
}


def differing() -> Iterator[tuple[str, str]]:
    for table in TABLES:
        for column in table.data:
            if column not in table.local and table.name != "binaries":
                yield table.name, column


def values(path: Path, table: str, column: str) -> list[object]:
    """What the column may say otherwise: NULL, less, more, another row."""
    if column in CONSTRAINED:
        return CONSTRAINED[column]
    if (table, column) == ("runs", "state"):
        return ["interrupted", "running"]
    with closing(sqlite3.connect(path)) as connection:
        info = {row[1]: (row[2], row[3]) for row in connection.execute(f"PRAGMA table_info({table})")}
        (now,) = connection.execute(f"SELECT {column} FROM {table} ORDER BY rowid LIMIT 1").fetchone()
        kind, required = info[column]
        found: list[object] = [] if required else [None]
        if target := BY_NAME[table].refers.get(column):
            return found + [row[0] for row in connection.execute(f"SELECT id FROM {target} WHERE id IS NOT ?", (now,))]
    if (table, column) == ("best", "state"):
        return ["provisional", "stale", "blocked"]
    if kind == "TEXT":
        return [*found, "", "~~~"]
    return [*found, (now or 0) - 1, (now or 0) + 1]


def merged(path: Path, *sources: Path) -> str:
    with Database(path, create=True) as db:
        for source in sources:
            db.merge(Vetted(source, source))
        assert db.select("PRAGMA foreign_key_check") == []
        return db.content_hash()


@pytest.mark.parametrize(("table", "column"), list(differing()))
def test_files_that_differ_in_one_column_are_one_content_in_either_order(one: Path, tmp_path: Path, table: str, column: str) -> None:
    for place, value in enumerate(values(one, table, column)):
        other = Path(shutil.copy(one, tmp_path / f"other-{place}.sqlite"))
        altered(other)
        with closing(sqlite3.connect(other, isolation_level=None)) as connection:
            changed = connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})", (value,)
            ).rowcount
            assert changed == 1
        there = merged(tmp_path / f"a{place}", one, other)
        back = merged(tmp_path / f"b{place}", other, one)
        again = merged(tmp_path / f"b{place}", one, other, one)
        assert there == back == again


def test_what_was_measured_here_is_not_replaced_by_what_another_file_says_of_it(one: Path, tmp_path: Path) -> None:
    mine, other = (Path(shutil.copy(one, tmp_path / name)) for name in ("mine", "other"))
    altered(other, "UPDATE trials SET message = '~~~'", "UPDATE rounds SET median_us = 1e9", "UPDATE copies SET copy_us = 1e9")
    with Database(mine) as db:
        before = db.content_hash()
    assert merged(mine, other) == before
