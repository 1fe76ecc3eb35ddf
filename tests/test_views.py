"""What a person reads who opens the file with `sqlite3` or Datasette: views that say what a row is, and units in the names."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotune.database import Database, shipped_databases
from autotune.database.views import VIEWS
from tests.database_samples import FAST, begin, record, screen
from tests.report_samples import measured

RATIOS = {"spread", "gap", "fraction_of_copy", "max_error", "regret_geomean", "regret_p95", "regret_worst"}
ID = re.compile(r"(^|_)id$")


@pytest.fixture(params=["fresh", "shipped"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return measured(tmp_path / "x.sqlite") if request.param == "fresh" else shipped_databases()[0]


def test_every_measured_number_says_its_unit_or_is_a_ratio(path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        for name in names:
            cursor = connection.execute(f'SELECT * FROM "{name}" LIMIT 50')
            columns = [column[0] for column in cursor.description]
            for row in cursor:
                measured = {column for column, value in zip(columns, row, strict=True) if isinstance(value, float)}
                assert all(column in RATIOS or column.endswith(("_us", "_per_s")) for column in measured), (name, measured)


def test_views_for_people_speak_of_devices_and_configurations_by_name(path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for name in ("best_kernels", "best_per_version", "trial_results", "failures", "coverage"):
            cursor = connection.execute(f"SELECT * FROM {name}")
            columns = {column[0]: place for place, column in enumerate(cursor.description)}
            assert not [column for column in columns if ID.search(column)], name
            assert {"device", "operation", "dtype"} <= set(columns)
            for row in cursor.fetchmany(20):
                assert all(isinstance(row[columns[column]], str) for column in ("device", "operation", "dtype"))


def test_every_view_answers_and_none_is_missing(path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
        assert there == set(VIEWS)
        for name in there:
            connection.execute(f"SELECT * FROM {name} LIMIT 1").fetchall()


def test_a_file_with_the_views_of_another_autotune_is_read_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with Database(path, create=True) as db:
        record(db, begin(db), FAST, [screen(40.0)])
        before = db.best_per_version()
        with db.write() as connection:
            connection.execute("DROP VIEW best_per_version")
            connection.execute("CREATE VIEW best_per_version AS SELECT 'nonsense' AS version")
    with Database(path, mode="read") as db:
        assert db.best_per_version() == before
        assert db.select("SELECT version FROM best_per_version") == [{"version": "v3"}]
