"""A database of which one cell, or a part, says nothing sensible: everything else in it still answers, with one warning for the file."""

import sqlite3
import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import source
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.definition import Bounds, Launch, Version
from autotune.device import EMULATOR
from autotune.dispatch import Dispatcher
from autotune.dispatch.knowledge import Knowledge, read
from autotune.dispatch.plan import LaunchCall, Planner, nothing
from autotune.dispatch.selection import Selector
from autotune.dispatch.store import Layer, StoredInstance, binary
from autotune.problem import Problem
from tests.dispatch_cases import H200, SOFTMAX, V2, V3, V4, V10, normal, softmax64, write_database

SIZES = [(64, 128, V3), (64, 256, V2), (4096, 512, V4), (64, 4096, V10), (128, 1024, V3)]
PINNED, BLOCKED = (1, 2000), (64, 256)
ASKED = [*((rows, cols) for rows, cols, _ in SIZES), PINNED]
TABLES = (
    *("best", "problems", "devices", "protocols", "configurations", "templates", "instances", "binaries", "pins", "blocked", "selectors"),
)
NOT_UTF8 = object()
GARBAGE = [
    *(None, -1, 0, 2**62, 0.5, float("inf"), -1e308, NOT_UTF8, b"\xff\xfe", "", "nonsense", "NaN", "9999"),
    *("{", "[1, 2]", '{"block": true}', '{"a": ' * 2000, '{"block": 1e999}'),
]


@dataclass(frozen=True)
class Case:
    """A database without any constraint, what each size is answered with, and the cells that may be changed."""

    path: Path
    answers: dict[tuple[int, int], tuple[str, Configuration]]
    cells: list[tuple[str, int, str]]
    concerned: dict[tuple[str, int], set[tuple[int, int]]]


def answers(knowledge: Knowledge) -> dict[tuple[int, int], tuple[str, Configuration]]:
    selector = Selector(SOFTMAX, H200, knowledge)
    chosen = {size: selector.choose(Problem("softmax", *size)) for size in ASKED}
    return {size: (candidate.tier, candidate.configuration) for size, candidate in chosen.items()}


def known(path: Path) -> tuple[Knowledge, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        knowledge = read([Layer(path)], SOFTMAX, H200)
    return knowledge, [str(warning.message) for warning in caught]


def without_constraints(path: Path, target: Path) -> Path:
    """A copy whose tables take any value in any column."""
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS whole", (str(path),))
        for pragma in ("application_id", "user_version"):
            connection.execute(f"PRAGMA {pragma} = {connection.execute(f'PRAGMA whole.{pragma}').fetchone()[0]}")
        for (name,) in connection.execute("SELECT name FROM whole.sqlite_master WHERE type = 'table'").fetchall():
            columns = [row[1] for row in connection.execute(f"PRAGMA whole.table_info({name})")]
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            connection.execute(f"INSERT INTO {name} SELECT * FROM whole.{name}")
    return target


def concerned(connection: sqlite3.Connection, table: str, row: int) -> set[tuple[int, int]]:
    """The sizes whose answer rests on a row."""
    kernel = "b.configuration IN (SELECT configuration FROM instances i JOIN binaries n ON n.sha = i.binary_sha WHERE {})"
    condition = {
        "best": "b.rowid = ?1",
        "instances": kernel.format("i.rowid = ?1"),
        "binaries": kernel.format("n.rowid = ?1"),
        "templates": f"b.template = ?1 OR {kernel.format('i.template = ?1')}",
        "pins": "false AND ?1",
        "blocked": "false AND ?1",
        "selectors": "false AND ?1",
    }.get(table, f"b.{table.rstrip('s')} = ?1")
    found = connection.execute(f"SELECT p.rows, p.cols FROM best b JOIN problems p ON p.id = b.problem WHERE {condition}", (row,))
    sizes = set(found.fetchall()) | {"pins": {PINNED}, "blocked": {BLOCKED}}.get(table, set())
    return sizes | {PINNED} if BLOCKED in sizes else sizes  # what is blocked here is pinned there


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("cells")
    whole = write_database(folder / "whole.sqlite", SIZES, stored=[SOFTMAX.safe])
    write_database(whole, [(512, 512, V3)], device=replace(H200, name="NVIDIA H100"))
    with Database(whole) as db:
        sha = source.read(SOFTMAX.version("v2")).sha
        db.pin(H200, "softmax", "float32", (1, 1), (2000, 2000), V2, author="me", why="calm")
        db.block(H200, "softmax", V2, sha, "float32", "it hums", Problem("softmax", *BLOCKED))
        db.store_selector(H200, "softmax", "float32", "tree", "{}", "of no use", (1.0, 1.0, 1.0))
    path = without_constraints(whole, folder / "loose.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        found = {table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] for table in TABLES}
        rows = {table: [row for (row,) in connection.execute(f"SELECT rowid FROM {table}")] for table in TABLES}
        cells = [(table, row, column) for table in TABLES for row in rows[table] for column in found[table]]
        about = {(table, row): concerned(connection, table, row) for table in TABLES for row in rows[table]}
    return Case(path, answers(known(path)[0]), cells, about)


def changed(path: Path, table: str, row: int, column: str, value: Any) -> Any:
    """Write a value into a cell; returns what was there."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA synchronous = OFF")
        (before,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
        said = "CAST(x'80ff' AS TEXT)" if value is NOT_UTF8 else "?"
        connection.execute(f"UPDATE {table} SET {column} = {said} WHERE rowid = ?", (row,) if value is NOT_UTF8 else (value, row))
        connection.commit()
    return before


def test_the_case_is_one_in_which_everything_counts(case: Case) -> None:
    assert {tier for tier, _ in case.answers.values()} == {"pin", "exact", "safe", "nearest"} - {"safe"}
    assert case.answers[PINNED] == ("pin", V2)
    assert case.answers[BLOCKED][1] != V2


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_one_cell_says_all_other_sizes_are_answered_as_before(case: Case, data: st.DataObject) -> None:
    table, row, column = data.draw(st.sampled_from(case.cells))
    value = data.draw(st.sampled_from(GARBAGE))
    if (table, column, value) == ("blocked", "problem", None):
        return  # that is a block of every size
    before = changed(case.path, table, row, column, value)
    try:
        knowledge, said = known(case.path)
        now = answers(knowledge)
    finally:
        changed(case.path, table, row, column, before)
    assert len(said) <= 2  # an unreadable selector is told apart, and there is one
    assert all(str(case.path) in sentence and "\n" not in sentence for sentence in said)
    others = set(ASKED) - case.concerned[table, row]
    # Nothing is said of a neighbour: where a size has no answer of its own, any tuned one may have been the nearest.
    own = {size for size in others if case.answers[size][0] in ("pin", "exact")}
    assert {size: now[size] for size in own} == {size: case.answers[size] for size in own}


@pytest.mark.parametrize(
    ("table", "column", "value", "sentence"),
    [
        ("best", "time_us", None, "1 row of database .*loose.sqlite cannot be used and is left out: row 1 of best .*None is no time"),
        ("best", "time_us", float("inf"), "row 1 of best .*inf is no time"),
        ("best", "problem", 99, "row 1 of best .*names a row that is missing"),
        ("configurations", "parameters", "[1, 2]", "row 1 of best"),
        ("configurations", "parameters", "{", "row 1 of best .*are not a JSON object"),
        ("configurations", "parameters", '{"block": 7}', "2 tuned sizes in .*loose.sqlite are left out, measured with other"),
        ("problems", "rows", -4, "row 1 of best .*no matrix has such a size"),
        ("problems", "dtype", "float17", "row 1 of best .*'float17' is no dtype"),
        ("devices", "compute_capability", "nine", "row 1 of devices"),
        ("instances", "symbol", NOT_UTF8, "row 1 of instances"),
        ("pins", "most_cols", 2**62, "row 1 of pins"),
        ("blocked", "problem", 99, "row 1 of blocked"),
        ("selectors", "body", "{", "the selector for float32 on NVIDIA H200 in .*loose.sqlite is left out"),
        ("selectors", "created", "tomorrow", "row 1 of selectors .*'tomorrow' is no date"),
    ],
)
def test_a_bad_row_is_left_out_with_one_warning_that_names_it(case: Case, table: str, column: str, value: object, sentence: str) -> None:
    with closing(sqlite3.connect(case.path)) as connection, connection:
        connection.execute(
            "UPDATE selectors SET operation = 'other'" if table != "selectors" else "UPDATE selectors SET operation = 'softmax'"
        )
    before = changed(case.path, table, 1, column, value)
    try:
        with pytest.warns(RuntimeWarning, match=sentence) as caught:
            read([Layer(case.path)], SOFTMAX, H200)
        assert len(caught) == 1
    finally:
        changed(case.path, table, 1, column, before)


@pytest.mark.parametrize("pragma", ["user_version = 99", "user_version = -1", "user_version = 0", "application_id = 1"])
def test_a_file_of_a_schema_that_is_not_known_is_left_out(tmp_path: Path, pragma: str) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    knowledge, said = known(path)
    assert knowledge.tuned == ()
    assert len(said) == 1
    assert "db.sqlite cannot be read and is left out: it is" in said[0]


def test_a_question_that_a_file_cannot_answer_leaves_the_others_answered(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE pins")
    knowledge, said = known(path)
    assert len(knowledge.tuned) == 1
    assert said == [f"database {path} can be read only in part, and the rest is left out: no such table: pins"]


def damaged(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize("fault", [damaged, emptied, cut, newer])
def test_a_reload_of_a_file_that_has_become_unreadable_keeps_what_it_said(tmp_path: Path, fault: Any) -> None:
    path = write_database(tmp_path / "db.sqlite", [(8, 64, V3)], device=EMULATOR)
    softmax = Dispatcher("softmax", db=path, device="emulator")
    x = normal(8, 64)
    softmax(x)
    fault(path)
    with pytest.warns(RuntimeWarning, match=r"db.sqlite cannot be read.* counts as it was read before") as caught:
        softmax.reload()
    assert len(caught) == 1
    assert abs(softmax(x) - softmax64(x)).max() < 1e-6
    assert softmax.stats().hits == {"exact": 2}
    write_database(path.with_name("new.sqlite"), [(4, 33, V2)], device=EMULATOR).replace(path)
    softmax.reload()
    softmax(normal(4, 33))
    assert softmax.stats().hits == {"exact": 3}


class Loader:
    """A GPU on which loading reads the binary, and launching does nothing."""

    device = H200
    host = False

    def load(self, version: Version, configuration: Configuration, dtype: str, stored: StoredInstance | None, bounds: Bounds) -> "Loader":
        assert stored is not None
        binary(stored)
        return self

    def bind(self, problem: Problem, launch: Launch) -> LaunchCall:
        return nothing

    def fix(self, problem: Problem, launch: Launch) -> None:
        return None

    def capturing(self, stream: int) -> bool:
        return False

    def synchronize(self, stream: int) -> None: ...

    def workspace(self, stream: int, size_bytes: int) -> int:
        return 0


def test_kernels_that_were_loaded_outlive_the_file_that_they_came_from(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3), (64, 256, V2)], stored=[SOFTMAX.safe])
    problem, other = Problem("softmax", 64, 128), Problem("softmax", 64, 256)
    planner = Planner(SOFTMAX, Loader(), (Layer(path),))
    assert planner.launch_of(problem, loaded_only=False)[0].tier == "exact"
    planner.preload_safe(("float32",))
    damaged(path)
    with pytest.warns(RuntimeWarning, match="counts as it was read before"):
        after = planner.reread((Layer(path),))
    assert after.launch_of(problem, loaded_only=False)[0].tier == "exact"
    with pytest.warns(RuntimeWarning, match="v2 .*is passed over"):  # it lies in the damaged file and was not loaded
        assert after.launch_of(other, loaded_only=False)[0].configuration != V2


def test_a_kernel_in_whose_place_other_code_is_stored_now_is_loaded_again(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(64, 128, V3)])
    planner = Planner(SOFTMAX, Loader(), (Layer(path),))
    planner.launch_of(Problem("softmax", 64, 128), loaded_only=False)
    assert planner.reread((Layer(path),))._functions
    write_database(path.with_name("new.sqlite"), [(64, 128, V3)], code=b"\x7fELF another").replace(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    assert planner.reread((Layer(path),))._functions == {}
