"""Sharing when something is wrong: nothing new lies about, nothing is half done, and the sentence names what is at fault."""

import csv
import errno
import fcntl
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from autotune.cli.streams import printable
from autotune.database import Database
from autotune.database.faults import temporary_folder
from autotune.database.placing import clear_leftovers, new_file, partial_of, scratch_folder
from autotune.errors import StorageError, UsageError
from autotune.finite import finite
from tests.command import refused, rows, run, said
from tests.database_samples import COLD, DEVICE, FAST, PROBLEM, begin, record, screen, settle
from tests.report_samples import measured
from tests.small_disk import on_a_small_disk
from tests.test_database_faults import LIMITED
from tests.test_database_sharing import exported, filled

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "nvidia-h200.sqlite"
V3 = "v3 block 384, vector 4, unroll 4"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    folder = tmp_path / "good"
    folder.mkdir()
    return exported(filled(folder / "good.sqlite"))


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def altered(path: Path, *statements: str) -> Path:
    path.chmod(0o644)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            connection.execute(statement)
    return path


def bad_database(path: Path) -> None:
    altered(exported(filled(path.with_name("of.sqlite"))), "UPDATE best SET time_us = 1.0").replace(path)


def other_tables(path: Path) -> None:
    altered(exported(filled(path.with_name("of.sqlite"))), "DROP TABLE manifest", "ALTER TABLE best ADD COLUMN payload TEXT").replace(path)


def from_the_future(path: Path) -> None:
    statements = ("DROP TABLE manifest", "UPDATE best SET updated = '9999-01-01T00:00:00.000Z'")
    altered(exported(filled(path.with_name("of.sqlite"))), *statements).replace(path)


def endless(path: Path) -> None:
    statements = ("DROP TABLE manifest", f"UPDATE misses SET count = {2**63 - 1}")
    altered(exported(filled(path.with_name("of.sqlite"))), *statements).replace(path)


def cut(path: Path) -> None:
    path.write_bytes(RESULTS.read_bytes()[: 1 << 20])


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE trials (id)")


def bad_cache(path: Path) -> None:
    path.write_text('{"device_name": ""}')


def empty(path: Path) -> None:
    path.touch()


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def absent(path: Path) -> None: ...


FAULTS = [bad_database, other_tables, from_the_future, endless, cut, foreign, bad_cache, empty, folder, fifo, loop, absent]


@pytest.mark.parametrize("fault", FAULTS)
def test_one_file_that_cannot_be_imported_keeps_all_of_them_out_and_leaves_nothing_new(
    tmp_path: Path, good: Path, fault: Callable[[Path], None]
) -> None:
    work = tmp_path / "work"
    (work / "files").mkdir(parents=True)
    bad = work / "files" / "bad"
    fault(bad)
    sentence = refused("import", str(good), str(bad), "--db", str(work / "deep" / "mine.sqlite"))
    assert str(bad) in sentence
    assert "nothing was imported" in sentence
    assert names(work) == {"files"}


def test_an_existing_database_stays_as_it_was_when_one_of_the_files_is_bad(tmp_path: Path, good: Path) -> None:
    mine = filled(tmp_path / "mine.sqlite")
    with Database(mine, mode="read") as db:
        before = db.content_hash()
    bad_database(tmp_path / "bad")
    refused("import", str(good), str(tmp_path / "bad"), "--db", str(mine))
    with Database(mine, mode="read") as db:
        assert db.content_hash() == before


@pytest.mark.parametrize("mine", ["/dev/null", "/proc/version", "{folder}", "{loop}", "{fifo}", "{long}", "{cut}", "{other}"])
def test_a_place_that_no_database_can_be_at_is_one_sentence(tmp_path: Path, good: Path, mine: str) -> None:
    (tmp_path / "folder").mkdir()
    loop(tmp_path / "loop")
    fifo(tmp_path / "fifo")
    cut(tmp_path / "cut")
    foreign(tmp_path / "other")
    place = mine.format(**{n: tmp_path / n for n in ("folder", "loop", "fifo", "cut", "other")}, long=tmp_path / ("x" * 300))
    before = names(tmp_path)
    assert f"database {place} " in refused("import", str(good), "--db", place)
    assert f"database {place} " in refused("inspect", "best", "--db", place)
    assert names(tmp_path) == before


def test_a_block_that_fails_before_it_stored_anything_takes_its_new_database_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "new.sqlite"
    with pytest.raises(KeyboardInterrupt), Database(path, create=True):
        raise KeyboardInterrupt
    assert names(tmp_path) == set()
    with pytest.raises(KeyboardInterrupt), Database(path, create=True) as db:
        _interrupted_after(db)
    assert path.exists()
    with pytest.raises(KeyboardInterrupt), Database(tmp_path / "used.sqlite", create=True), Database(tmp_path / "used.sqlite"):
        raise KeyboardInterrupt
    (tmp_path / "found.sqlite").touch()
    with pytest.raises(KeyboardInterrupt), Database(tmp_path / "found.sqlite", create=True):
        raise KeyboardInterrupt
    assert "found.sqlite" in names(tmp_path)  # it was there before


def _interrupted_after(db: Database) -> None:
    begin(db)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "arguments",
    [
        ("pin", "softmax", "4096x4096", V3, "--why", "x", "--device", "NVIDIA H200"),
        ("unpin", "softmax", "4096x4096", "--device", "NVIDIA H200"),
        ("block", "softmax", V3, "--why", "x", "--device", "NVIDIA H200"),
        ("unblock", "softmax", V3, "--device", "NVIDIA H200"),
        ("prune", "--failed", "--yes"),
        ("rebuild",),
        ("sweep", "softmax", "--size", "4096x4096", "--device", "recorded", "--trials", "1"),
        ("import", "{good}"),
    ],
)
def test_an_export_is_not_written_to_whatever_its_permissions(tmp_path: Path, good: Path, arguments: tuple[str, ...]) -> None:
    shipped = tmp_path / "shipped.sqlite"
    shutil.copy(good if arguments[0] == "import" else RESULTS, shipped)
    shipped.chmod(0o666)
    before = shipped.read_bytes()
    sentence = refused(*(part.format(good=good) for part in arguments), "--db", str(shipped))
    assert f"database {shipped} is an export, which stays as its manifest says; take it into a database of your own" in sentence
    assert f"`autotune import {shipped} --db mine.sqlite`" in sentence
    assert shipped.read_bytes() == before
    assert names(tmp_path) == {"shipped.sqlite", "good"}


@pytest.mark.parametrize("version", [-1, 0, -(2**31)])
@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_schema_that_no_autotune_has_written_is_refused(tmp_path: Path, version: int, mode: str) -> None:
    path = filled(tmp_path / "x.sqlite")
    altered(path, f"PRAGMA user_version = {version}")
    with pytest.raises(UsageError, match=f"of schema {version}, which no autotune has written; restore a copy"):
        Database(path, mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("statement", ["DROP TABLE misses", "DROP TABLE best", "ALTER TABLE devices DROP COLUMN arch"])
def test_a_file_that_lacks_what_ours_has_is_one_sentence(tmp_path: Path, statement: str) -> None:
    path = filled(tmp_path / "x.sqlite")
    altered(path, "PRAGMA legacy_alter_table = ON", statement)
    sentence = refused("export", str(tmp_path / "e.sqlite"), "--db", str(path))
    assert f"{path} is not as autotune made it (no such" in sentence
    assert names(tmp_path) <= {"x.sqlite", "x.sqlite-wal", "x.sqlite-shm"}


KILLED = """
import os, signal, sys
from autotune.database import Database, transfer
from autotune.database.placing import partial_of
sealed = transfer._seal
def stop(path, note):
    sealed(path, note)
    open(f"{path}-journal", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
transfer._seal = stop
with Database(sys.argv[1], mode="read") as db:
    db.export(sys.argv[2])
"""


def test_what_a_killed_export_leaves_goes_with_the_next_to_the_same_place(tmp_path: Path) -> None:
    mine, out = filled(tmp_path / "mine.sqlite"), tmp_path / "out"
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(mine), str(out / "e.sqlite")], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    left = names(out)
    assert len(left) == 2
    living = partial_of(out / "e.sqlite").with_name(f".e.sqlite.{os.getppid()}.partial")  # of an export that goes on
    for other in (living, out / ".f.sqlite.1.partial", out / ".e.sqlite.notes"):
        other.touch()
    said("export", str(out / "e.sqlite"), "--db", str(mine))
    assert names(out) == {"e.sqlite", living.name, ".f.sqlite.1.partial", ".e.sqlite.notes"}


def test_what_killed_imports_leave_in_the_temporary_folder_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for process in (4194305, os.getppid()):  # Linux gives no process the first; the other stands for a number that was given again
        left = tmp_path / f"autotune-import-{process}-a"
        left.mkdir()
        (left / "copy.sqlite").touch()
    with scratch_folder("import") as mine:
        assert names(tmp_path) == {mine.name}
        with scratch_folder("import") as other:
            assert names(tmp_path) == {mine.name, other.name}
    assert names(tmp_path) == set()


def test_a_temporary_folder_whose_file_system_has_no_locks_is_worked_in_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refused)
    with scratch_folder("import") as mine, scratch_folder("import") as other:
        assert names(tmp_path) == {mine.name, other.name}
    assert names(tmp_path) == set()


TERMINATED = """
import os, signal
from autotune.cli import main
from autotune.database import transfer
transfer.vet = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
main(["import", os.environ["GOOD"], "--db", os.environ["MINE"]])
"""


def test_an_import_that_is_terminated_leaves_nothing(tmp_path: Path, good: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = os.environ | {"TMPDIR": str(temporary), "GOOD": str(good), "MINE": str(tmp_path / "mine.sqlite")}
    done = subprocess.run([sys.executable, "-c", TERMINATED], cwd=ROOT, env=env, timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert (names(temporary), names(tmp_path)) == (set(), {"temporary", "good"})


def test_a_new_file_is_placed_where_a_file_system_knows_no_links_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with new_file(tmp_path / "x") as partial:
        partial.write_text("whole")
    assert (tmp_path / "x").read_text() == "whole"
    with pytest.raises(UsageError, match="x exists; export to a new file"), new_file(tmp_path / "x"):
        pass
    with pytest.raises(UsageError, match="y exists"), new_file(tmp_path / "y") as partial:
        (tmp_path / "y").write_text("another's")
    assert ((tmp_path / "y").read_text(), names(tmp_path)) == ("another's", {"x", "y"})
    clear_leftovers(tmp_path / "x")


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "x"):
        raise KeyboardInterrupt
    assert names(tmp_path) == set()


# What is full, and a line of shell that runs into it: $FULL is a folder of at most one megabyte, $DB a database of three.
FULL = {
    "export": ('autotune export "$FULL/e.sqlite" --db "$DB"', "{full}/e.sqlite could not be written (database or disk is full)"),
    "t4": ('autotune export --t4 "$FULL/e.json" --db "$DB"', "{full}/e.json could not be written (No space left on device)"),
    "copy": ('TMPDIR="$FULL" autotune import "$DB" --db "$DB.new"', "no room in the temporary folder {full} to work in"),
    "database": ('autotune import "$DB" --db "$FULL/mine.sqlite"', "database {full}/mine.sqlite could not be written ("),
    "optuna": ('TMPDIR="$FULL" autotune export --optuna "$DB.optuna" --db "$DB"', "no room in the temporary folder {full} to work in"),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of three megabytes."""
    path = tmp_path_factory.mktemp("large") / "large.sqlite"
    with Database(path, create=True) as db:
        run_id = begin(db)
        with db.write():
            for _ in range(300):
                record(db, run_id, FAST, [screen(*([1.0 / 3.0] * 500))])
    return path


@pytest.mark.parametrize("what", FULL)
def test_the_sentence_names_what_is_full_and_nothing_is_left_of_it(large: Path, tmp_path: Path, what: str) -> None:
    line, sentence = FULL[what]
    size = "64k" if what == "optuna" else "1m"
    shutil.copy(large, tmp_path / "large.sqlite")
    full = tmp_path / "full"
    full.mkdir()
    script = f'autotune() {{ "$PYTHON" -m autotune "$@"; }}; {line}; status=$?; ls -A "{full}"; exit $status'
    env = os.environ | {"PYTHONPATH": str(ROOT), "FULL": str(full), "DB": str(tmp_path / "large.sqlite")}
    done = on_a_small_disk(full, size, script, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    (told,) = done.stderr.splitlines()
    assert sentence.format(full=full) in told
    assert names(tmp_path) == {"large.sqlite", "full"}


def test_an_export_that_may_not_grow_names_itself_and_leaves_nothing(large: Path, tmp_path: Path) -> None:
    code = LIMITED + "from autotune.cli import main\nimport sys\nmain(sys.argv[1:])"
    target = tmp_path / "e.sqlite"
    command = [sys.executable, "-c", code, "export", str(target), "--db", str(large)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"autotune: {target} could not be written (")
    assert names(tmp_path) == set()


def test_where_room_was_looked_for_is_told_with_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.database.faults import explanation

    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    told = explanation(tmp_path / "x.sqlite", full, 2.0)
    assert isinstance(told, StorageError)
    assert "MB left; all stored before is kept" in str(told)
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    assert temporary_folder() == tmp_path


def test_several_files_of_which_one_no_longer_fits_say_which_went_in(tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.database.file import Database as Whole

    merge, calls = Whole.merge, []

    def full_at_the_second(self: Whole, *given: object, **named: object) -> object:
        calls.append(given)
        if len(calls) == 2:
            raise StorageError("database mine.sqlite could not be written (database or disk is full)")
        return merge(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Whole, "merge", full_at_the_second)
    mine = tmp_path / "mine.sqlite"
    other = exported(filled(tmp_path / "other.sqlite"))
    status, out, err = run("import", str(good), str(other), str(good), "--db", str(mine))
    assert (status, out) == (1, "")
    assert err.endswith(f"; imported before that: {good}; not imported: {other}, {good}\n")
    assert len(rows("inspect", "trials", "--db", str(mine))) == 2


def test_a_database_is_imported_into_itself_and_round_in_a_circle_without_a_change(tmp_path: Path) -> None:
    a, b = filled(tmp_path / "a.sqlite"), tmp_path / "b.sqlite"
    with Database(a, mode="read") as db:
        content = db.content_hash()
    assert rows("import", str(a), "--db", str(a))[0]["added"] == {}
    for turn in range(2):
        said("export", str(tmp_path / f"a{turn}"), "--db", str(a))
        said("import", str(tmp_path / f"a{turn}"), "--db", str(b))
        said("export", str(tmp_path / f"b{turn}"), "--db", str(b))
        assert rows("import", str(tmp_path / f"b{turn}"), "--db", str(a))[0]["added"] == {}
        said("export", str(tmp_path / f"again{turn}"), "--db", str(tmp_path / f"b{turn}"))
    for path in (a, b, tmp_path / "again1"):
        with Database(path, mode="read") as db:
            assert db.content_hash() == content


def test_a_database_that_is_being_written_is_exported_as_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    with Database(path, create=True) as db, Database(path, mode="read") as reader:
        run_id = begin(db)
        record(db, run_id, FAST, [screen(40.0)])
        with db.write():
            trial = record(db, run_id, FAST, [screen(41.0)])
            reader.export(tmp_path / "during")
        settle(db, run_id, trial, FAST, 41.0)
        reader.export(tmp_path / "after")
    for name, trials in (("during", 1), ("after", 2)):
        with Database(tmp_path / "new.sqlite", create=True) as db:
            db.import_from(tmp_path / name)
            assert len(db.trials(DEVICE, COLD, PROBLEM)) == trials


def test_views_of_another_are_neither_used_nor_kept(tmp_path: Path) -> None:
    path = filled(tmp_path / "mine.sqlite")
    hostile = "CREATE VIEW pinned AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
    altered(path, "DROP VIEW pinned", hostile)
    assert rows("inspect", "pins", "--db", str(path)) == []
    with Database(path, mode="read") as db:
        assert db.export(tmp_path / "e.sqlite")["rows"]["trials"] == 2
    for source in (path, tmp_path / "e.sqlite"):
        with Database(tmp_path / "new.sqlite", create=True) as db:
            assert db.import_from(source).clashes == []
    with closing(sqlite3.connect(f"file:{tmp_path / 'e.sqlite'}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM pinned").fetchone() == (0,)


def test_numbers_that_json_has_no_word_for_are_null_and_no_cell(tmp_path: Path) -> None:
    path = measured(tmp_path / "x.sqlite")
    altered(path, "UPDATE trials SET max_error = 9e999")
    out = said("inspect", "trials", "--json", "--db", str(path))
    assert {row["max_error"] for row in json.loads(out, parse_constant=pytest.fail)} == {None}
    assert {row["max_error"] for row in csv.DictReader(io.StringIO(said("inspect", "trials", "--csv", "--db", str(path))))} == {""}
    said("export", "--t4", str(tmp_path / "t4.json"), "--db", str(path))
    json.loads((tmp_path / "t4.json").read_text(), parse_constant=pytest.fail)
    assert finite({"a": [float("nan"), (1, float("-inf"))], "b": "inf"}) == {"a": [None, [1, None]], "b": "inf"}


def test_control_characters_reach_no_terminal_and_cells_are_as_they_are_otherwise(tmp_path: Path) -> None:
    path = filled(tmp_path / "x.sqlite")
    why = '=1+1,"\x1b[2J\x07\x9b\n@x'
    with Database(path) as db:
        db.pin(DEVICE, "softmax", "float32", (1, 1), (2, 2), FAST, author="ada", why=why)
    (row,) = csv.DictReader(io.StringIO(said("inspect", "pins", "--csv", "--db", str(path))))
    assert row["why"] == '=1+1,"\\x1b[2J\\x07\\x9b\\n@x'
    for form in ("--table", "--csv", "--json"):
        out = said("inspect", "pins", form, "--db", str(path))
        assert not {letter for letter in out if not letter.isprintable()} - {"\n"}
    assert rows("inspect", "pins", "--db", str(path))[0]["why"] == why
    sentence = refused("inspect", "best", "--db", str(tmp_path / "\x1b]0;x\x07"))
    assert sentence.isprintable()
    assert printable("a\ud800\t") == "a\\ud800\\t"
