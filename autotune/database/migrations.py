"""How a database comes to today's schema: one named step per change, applied in order and each recorded in the file.

`PRAGMA user_version` counts the steps, so that a reader without sqlite-utils can tell a newer file from one it understands.
"""

import sqlite3

import sqlite_utils
from sqlite_utils.migrations import Migrations

from autotune.database.schema import APPLICATION_ID, SCHEMA, TABLES
from autotune.database.views import VIEWS

steps = Migrations("autotune")


@steps()
def m1_first_schema(db: sqlite_utils.Database) -> None:
    db.executescript(TABLES)


@steps()
def m2_card_of_a_run(db: sqlite_utils.Database) -> None:
    """A device is a kind of card; which card it was tells a slow one from a slow driver."""
    db.execute("ALTER TABLE runs ADD COLUMN card TEXT NOT NULL DEFAULT ''")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to today's schema. Must be called inside the write transaction, which makes it all or nothing."""
    db = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
    for name in VIEWS:
        connection.execute(f"DROP VIEW IF EXISTS {name}")
    steps.apply(db)
    for sql in VIEWS.values():
        connection.execute(sql)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
