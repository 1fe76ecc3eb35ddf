"""Export, import and content hash: the same whichever comes first, and nothing foreign is believed unchecked."""

import itertools
import json
import shutil
import sqlite3
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.database import Database
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.trial import Outcome, Round
from tests.database_samples import COLD, CUBIN, DEVICE, FAST, OTHER_DEVICE, PROBLEM, SLOW, SOURCE, begin, instance, record, screen, settle

RANGES = ((1, 64), (1, 1024))


def filled(path: Path, configuration: Configuration = FAST, state: str = "confirmed", time_us: float = 40.0) -> Path:
    """A database with one trial, a binary, a best and a bit of all else."""
    with Database(path, create=True) as db:
        run = begin(db)
        trial = record(db, run, configuration, [screen(time_us)])
        db.record(run, PROBLEM, SLOW, SOURCE.sha, Outcome.TIMEOUT, message="spins")
        db.add_rounds({trial: Round("final", (time_us,), 16)})
        db.record_copy(run, PROBLEM, 36.0)
        db.store_binary(instance(configuration))
        settle(db, run, trial, configuration, time_us, state)
        db.block(DEVICE, "softmax", SLOW, SOURCE.sha, "float32", "timeout twice", PROBLEM)
        db.add_misses(OTHER_DEVICE, [(PROBLEM, "nearest", None, 3)])
        db.store_selector(DEVICE, "softmax", "float32", "nearest", "{}", "train", (1.01, 1.05, 1.2))
        db.end_run(run, "done")
    return path


def exported(path: Path) -> Path:
    target = path.with_suffix(".export")
    with Database(path, mode="read") as db:
        db.export(target)
    return target


def imported(path: Path, *sources: Path) -> str:
    """The content hash of a new database at `path` after importing `sources`."""
    with Database(path, create=True) as db:
        for source in sources:
            db.import_from(source)
        assert db.select("PRAGMA foreign_key_check") == []
        return db.content_hash()


def edited(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> None:
    """Change a file behind our back, constraints and triggers aside."""
    path.chmod(0o644)
    connection = sqlite3.connect(path)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(sql, parameters)
    connection.commit()
    connection.close()


def test_an_export_is_one_read_only_file_that_says_what_it_holds(tmp_path: Path) -> None:
    path = filled(tmp_path / "mine.sqlite")
    with Database(path, mode="read") as db:
        manifest = db.export(tmp_path / "shared.sqlite")
        assert manifest["content"] == db.content_hash()
        with pytest.raises(UsageError, match="exists; export to a new file"):
            db.export(tmp_path / "shared.sqlite")
        with pytest.raises(UsageError, match=r"cannot be written: .*; export to another folder"):
            db.export(tmp_path / "absent" / "shared.sqlite")
    assert stat.S_IMODE((tmp_path / "shared.sqlite").stat().st_mode) == 0o444
    assert {file.name for file in tmp_path.iterdir()} == {"mine.sqlite", "shared.sqlite"}
    with Database(tmp_path / "shared.sqlite", mode="read") as db:
        assert json.loads(db.select("SELECT manifest FROM manifest")[0]["manifest"]) == manifest
        assert db.select("PRAGMA journal_mode") == [{"journal_mode": "delete"}]
        assert sorted(manifest["devices"]) == ["Other GPU", "Test GPU"]
        assert (manifest["rows"]["trials"], len(db.best())) == (2, 1)


def test_an_import_brings_everything_once(tmp_path: Path) -> None:
    source = exported(filled(tmp_path / "a.sqlite"))
    with Database(tmp_path / "a.sqlite", mode="read") as a, Database(tmp_path / "new.sqlite", create=True) as db:
        first, again = db.import_from(source), db.import_from(source)
        assert first.added["trials"] == 2
        assert first.added["rounds"] == 2
        assert (again.added, again.clashes) == ({}, [])
        assert db.content_hash() == a.content_hash()
        assert [t.samples_us for t in db.trials(DEVICE, COLD)] == [t.samples_us for t in a.trials(DEVICE, COLD)]
        assert db.best()[0] | {"origin": "local", "trial": 1} == a.best()[0] | {"trial": 1}
        assert db.best()[0]["origin"] == "imported"
        assert db.blocked(DEVICE, "softmax", "float32", PROBLEM) == {SLOW: "timeout twice"}
        assert db.import_from(tmp_path / "a.sqlite").added == {}


def test_what_was_added_after_an_export_comes_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Database(path, create=True) as db, Database(tmp_path / "b.sqlite", create=True) as other:
        run = begin(db)
        trial = record(db, run, FAST, [screen(40.0)])
        db.export(tmp_path / "1")
        other.import_from(tmp_path / "1")
        db.add_rounds({trial: screen(41.0)})
        db.finish(trial, Outcome.PRUNED)
        record(db, run, SLOW)
        db.end_run(run, "done")
        db.export(tmp_path / "2")
        assert other.import_from(tmp_path / "2").added == {"configurations": 1, "instances": 1, "trials": 1, "endings": 1, "rounds": 1}
        assert other.content_hash() == db.content_hash()
        other.import_from(tmp_path / "1")
        assert other.content_hash() == db.content_hash()


@pytest.mark.parametrize(
    ("local", "foreign", "kept"),
    [
        ("confirmed", "confirmed", "local"),
        ("confirmed", "provisional", "local"),
        ("provisional", "provisional", "local"),
        ("provisional", "confirmed", "imported"),
    ],
)
def test_local_results_are_replaced_only_by_surer_ones(tmp_path: Path, local: str, foreign: str, kept: str) -> None:
    mine = filled(tmp_path / "mine.sqlite", FAST, local)
    source = exported(filled(tmp_path / "theirs.sqlite", Configuration.of("v3", block=1024), foreign, 30.0))
    with Database(mine) as db:
        db.import_from(source)
        assert [row["origin"] for row in db.best()] == [kept]
        assert len(db.trials(DEVICE, COLD)) == 4


def test_of_two_pins_the_newer_stands_and_the_clash_is_told(tmp_path: Path) -> None:
    paths = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    for path, chosen, day in zip(paths, (FAST, SLOW), ("2026-01-01", "2026-02-02"), strict=True):
        with Database(path, create=True) as db:
            begin(db)
            db.pin(DEVICE, "softmax", "float32", *RANGES, chosen, author=path.stem, why="known better")
            with db.write() as connection:
                connection.execute("UPDATE pins SET created = ?", (day,))
    for mine, theirs in itertools.permutations(paths):
        copy = tmp_path / f"{mine.stem}-first.sqlite"
        shutil.copy(mine, copy)
        with Database(copy) as db:
            clashes = db.import_from(theirs).clashes
            assert [row["author"] for row in db.select("SELECT * FROM pinned")] == ["b"]
            assert len(clashes) == 1
            assert f"{theirs.stem} pinned v3" in clashes[0]
            assert ("the imported one is newer" in clashes[0]) == (theirs.stem == "b")
            assert db.import_from(paths[1]).clashes == []


def test_foreign_kernels_stay_behind_unless_asked_for(tmp_path: Path) -> None:
    source = exported(filled(tmp_path / "a.sqlite"))
    with Database(tmp_path / "new.sqlite", create=True) as db:
        for kernels_of in ((), ("0" * 64,), ("x') OR ('1'='1",)):
            db.import_from(source, kernels_of=kernels_of)
            assert db.select("SELECT * FROM binaries") == db.select("SELECT * FROM dispatchable") == []
        assert db.import_from(source, kernels_of=[SOURCE.sha]).added == {"binaries": 1}
        (entry,) = db.select("SELECT * FROM dispatchable")
        assert db.load_binary(entry["binary_sha"]) == CUBIN


def changed_time(path: Path) -> None:
    edited(path, "UPDATE best SET time_us = 1.0")


def changed_template(path: Path) -> None:
    edited(path, "UPDATE templates SET text = 'something else'")


def changed_binary(path: Path) -> None:
    edited(path, "UPDATE binaries SET packed = ?", (zlib.compress(b"\x7fELF something else"),))


def dangling_reference(path: Path) -> None:
    edited(path, "DROP TABLE manifest")
    edited(path, "UPDATE trials SET problem = 99")


def broken_constraint(path: Path) -> None:
    edited(path, "DROP TABLE manifest")
    edited(path, "PRAGMA ignore_check_constraints = ON")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("UPDATE best SET state = 'certain'")
    connection.commit()
    connection.close()


def view_for_a_table(path: Path) -> None:
    edited(path, "DROP TABLE misses")
    edited(path, "CREATE VIEW misses AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n")


def other_columns(path: Path) -> None:
    edited(path, "DROP TABLE manifest")
    edited(path, "ALTER TABLE best ADD COLUMN payload TEXT")


def not_a_database(path: Path) -> None:
    path.chmod(0o644)
    path.write_text("cuda\n" * 1000)


def damaged(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xa5" * 20000)


def newer(path: Path) -> None:
    edited(path, "PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (changed_time, "is not what its manifest says"),
        (changed_template, "is not what its manifest says|template .* is not what its hash says"),
        (changed_binary, "binary .* is not what its hash says"),
        (dangling_reference, "does not fit|damaged"),
        (broken_constraint, "does not fit|damaged"),
        (view_for_a_table, "lacks tables that autotune makes"),
        (other_columns, "does not declare its tables as autotune does"),
        (not_a_database, "is not an SQLite database"),
        (damaged, "is damaged"),
        (newer, "is of schema 99"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused_whole(tmp_path: Path, change: Callable[[Path], None], sentence: str) -> None:
    source = exported(filled(tmp_path / "a.sqlite"))
    change(source)
    with Database(filled(tmp_path / "mine.sqlite", SLOW)) as db:
        before = db.content_hash()
        with pytest.raises(UsageError, match=sentence) as raised:
            db.import_from(source, kernels_of=[SOURCE.sha])
        assert "\n" not in str(raised.value)
        assert db.content_hash() == before
        assert db.import_from(exported(filled(tmp_path / "good.sqlite"))).added["trials"] == 2


# A database is a list of (what, device, rows, configuration, state, time), recorded in one run per device.
steps = st.lists(
    st.tuples(
        st.sampled_from(["trial", "settle", "pin", "block", "unblock", "copy", "fail", "end", "selector"]),
        st.sampled_from([DEVICE, OTHER_DEVICE]),
        st.sampled_from([64, 4096]),
        st.sampled_from([FAST, SLOW]),
        st.sampled_from(["confirmed", "provisional"]),
        st.floats(1, 100),
    ),
    max_size=8,
)


def play(db: Database, script: list[tuple[str, object, int, Configuration, str, float]]) -> None:
    runs = {device: begin(db, device) for device in (DEVICE, OTHER_DEVICE)}
    for what, device, rows, configuration, state, time_us in script:
        run, problem = runs[device], Problem("softmax", rows, 4096)  # type: ignore[index]
        match what:
            case "trial":
                record(db, run, configuration, [screen(time_us)], problem)
            case "settle":
                settle(db, run, record(db, run, configuration, [screen(time_us)]), configuration, time_us, state)
            case "pin":
                db.pin(device, "softmax", "float32", *RANGES, configuration, author=state, why=str(time_us))  # type: ignore[arg-type]
            case "block":
                db.block(device, "softmax", configuration, SOURCE.sha, "float32", f"{time_us}", problem)  # type: ignore[arg-type]
            case "unblock":
                db.unblock(device, "softmax", configuration if time_us < 50 else None, "float32", problem)  # type: ignore[arg-type]
            case "copy":
                db.record_copy(run, problem, time_us)
            case "fail":
                db.finish(db.record(run, problem, configuration, SOURCE.sha, Outcome.OK), Outcome.CRASHED)
            case "selector":
                db.store_selector(device, "softmax", "float32", state, f"[{time_us}]", "t", (1.0, 1.0, 1.0))  # type: ignore[arg-type]
            case "end":
                db.end_run(run, "done")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=steps, b=steps, mine=steps)
def test_imports_commute_and_repeating_them_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, a: list[object], b: list[object], mine: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("import")
    for name, script in (("a", a), ("b", b), ("mine", mine)):
        with Database(folder / name, create=True) as db:
            play(db, script)  # type: ignore[arg-type]
            db.export(folder / f"{name}.export")
    first, second, own = folder / "a.export", folder / "b.export", folder / "mine"
    assert imported(folder / "ab", first, second) == imported(folder / "ba", second, first, second, first)
    for name in ("mine-ab", "mine-ba"):
        shutil.copy(own, folder / name)
    assert imported(folder / "mine-ab", first, second) == imported(folder / "mine-ba", second, first, first, second)
