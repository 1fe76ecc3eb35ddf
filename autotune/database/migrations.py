"""How a database comes to today's schema: one named step per change, applied in order and each recorded in the file.

`PRAGMA user_version` counts the steps, so that a reader without sqlite-utils can tell a newer file from one it understands.
"""

import sqlite3
import statistics
from collections import defaultdict

import sqlite_utils
from sqlite_utils.migrations import Migrations

from autotune.database.schema import APPLICATION_ID, SCHEMA, TABLES, only_added
from autotune.database.views import VIEWS

steps = Migrations("autotune")


@steps()
def m1_first_schema(db: sqlite_utils.Database) -> None:
    db.executescript(TABLES)


@steps()
def m2_card_of_a_run(db: sqlite_utils.Database) -> None:
    """A device is a kind of card; which card it was tells a slow one from a slow driver."""
    db.execute("ALTER TABLE runs ADD COLUMN card TEXT NOT NULL DEFAULT ''")


@steps()
def m3_time_by_each_round(db: sqlite_utils.Database) -> None:
    """A trial's time as of each round, so that a view finds it with one look-up: medians of a million trials took minutes."""
    db.execute("DROP VIEW IF EXISTS trial_times")  # what answered this before
    db.execute("ALTER TABLE rounds ADD COLUMN time_us REAL")
    db.execute("CREATE INDEX rounds_by_care ON rounds (trial, kind, number, time_us)")
    db.execute("DROP TRIGGER rounds_are_only_added")
    medians: dict[tuple[int, str], list[float]] = defaultdict(list)
    for round_id, trial, kind, median_us in db.execute("SELECT id, trial, kind, median_us FROM rounds ORDER BY trial, number").fetchall():
        medians[trial, kind].append(median_us)
        db.execute("UPDATE rounds SET time_us = ? WHERE id = ?", (statistics.median(medians[trial, kind]), round_id))
    db.execute(only_added("rounds"))


@steps()
def m4_binaries_packed_either_way(db: sqlite_utils.Database) -> None:
    """A binary is packed by zlib or by xz, which its first bytes tell, so the column is named after neither."""
    db.execute("ALTER TABLE binaries RENAME COLUMN zlib TO packed")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to today's schema. Must be called inside the write transaction, which makes it all or nothing."""
    db = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
    for name in VIEWS:
        connection.execute(f"DROP VIEW IF EXISTS {name}")
    steps.apply(db)
    remake_views(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def remake_views(connection: sqlite3.Connection) -> None:
    """Replace the views of the file by today's, whoever made them."""
    for name, sql in VIEWS.items():
        connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(sql)
