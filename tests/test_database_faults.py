"""What goes wrong with files: each fault is one sentence, and nothing that was stored is lost."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.database import Database, filesystem
from autotune.errors import AutotuneError, UsageError
from tests.database_samples import COLD, DEVICE, FAST, begin, record, screen, settle
from tests.small_disk import on_a_small_disk

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a best, all of it in the main file."""
    path = tmp_path / "kept.sqlite"
    with Database(path, create=True) as db:
        run = begin(db)
        settle(db, run, record(db, run, FAST, [screen(40.0)]), FAST, 40.0)
    return path


def run_python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    prelude = "import sys\nfrom tests.database_samples import *\nfrom tests.test_database_faults import *\n"
    command = [sys.executable, "-c", prelude + code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def missing(path: Path) -> None:
    path.unlink()


def not_a_database(path: Path) -> None:
    path.write_text("M,N,time\n4096,4096,40\n" * 100)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def without_its_head(path: Path) -> None:
    os.truncate(path, 50)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def of_another_program(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE trials (id INTEGER)")
    connection.close()


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (missing, "does not exist; autotune sweep, import, compile, pin or block makes one"),
        (not_a_database, "is not an SQLite database"),
        (truncated, "is damaged"),
        (without_its_head, "is not an SQLite database|is damaged"),
        (empty, "is empty"),
        (of_another_program, "is an SQLite file of another program"),
        (newer, "is of schema 99 and this autotune knows up to .*; install the newer autotune"),
        (a_folder, "is a folder; name a file in it"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(path: Path, fault: Callable[[Path], None], sentence: str, mode: str) -> None:
    fault(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UsageError, match=sentence) as raised:
        Database(path, mode=mode)  # type: ignore[arg-type]
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_status == 2
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize("fault", [not_a_database, truncated, of_another_program, newer])
def test_a_file_that_is_no_database_of_ours_is_not_overwritten_by_creating(path: Path, fault: Callable[[Path], None]) -> None:
    fault(path)
    before = path.read_bytes()
    with pytest.raises(UsageError):
        Database(path, create=True)
    assert path.read_bytes() == before


def test_an_empty_file_and_a_missing_folder_can_be_made_into_a_database(tmp_path: Path) -> None:
    for path in (tmp_path / "empty.sqlite", tmp_path / "a" / "b" / "new.sqlite"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with Database(path, create=True) as db:
            assert db.best() == []


def test_damage_inside_the_file_is_one_sentence_when_it_is_met(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (path.stat().st_size - 8192))
    with pytest.raises(UsageError, match="is damaged"), Database(path, mode="read") as db:
        db.trials(DEVICE, COLD)


def test_a_network_file_system_is_refused_for_writing_and_read_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = path.parent / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/home {path.parent} nfs4 rw 0 0\ntmpfs {path.parent}/deeper tmpfs rw 0 0\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    with pytest.raises(UsageError, match=r"network file system \(nfs4\).*write to a local file and share it with autotune export"):
        Database(path)
    with Database(path, mode="read") as db:
        assert len(db.best()) == 1
    with Database(path.parent / "deeper" / "local.sqlite", create=True) as db:
        assert db.best() == []


def test_the_file_system_of_a_folder_is_that_of_its_deepest_and_last_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "mounts")
    for mounts, kind in {
        "a / ext4 rw\nb /data fuse.sshfs rw": "fuse.sshfs",
        "a / cifs rw\nb /data ext4 rw": "",
        "a / ext4 rw\nb /data ext4 rw\nc /data nfs rw": "nfs",
        "a / ext4 rw\nb /dat nfs rw": "",
        "a / ext4 rw\nb /data/my\\040files nfs rw": "",
    }.items():
        (tmp_path / "mounts").write_text(mounts)
        assert filesystem.network_filesystem(Path("/data/folder")) == kind
    assert filesystem.network_filesystem(Path("/data/my files/x")) == "nfs"


@pytest.fixture
def locked_folder(path: Path) -> Iterator[Path]:
    """A folder with a copy of the database that user 65534 can read and not write."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-read-only-"))
    shutil.copy(path, folder / "kept.sqlite")
    (folder / "kept.sqlite").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


# Root may write anywhere, so the process first becomes somebody who may not.
AS_NOBODY = """
import os
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
"""


def test_a_read_only_folder_is_read_from_and_refused_for_writing(locked_folder: Path) -> None:
    code = """
path = Path(sys.argv[1]) / "kept.sqlite"
with Database(path, mode="read") as db:
    print(db.best()[0]["time_us"], db.trials(DEVICE, COLD)[0].time_us)
for name, create in (("kept.sqlite", False), ("new.sqlite", True)):
    try:
        Database(path.with_name(name), create=create)
    except UsageError as error:
        print(error)
"""
    process = run_python(AS_NOBODY + code, locked_folder)
    output, errors = process.communicate(timeout=60)
    times, *sentences = output.splitlines()
    assert times == "40.0 40.0", errors
    assert len(sentences) == 2
    assert all("read-only; name another with --db" in sentence for sentence in sentences)
    assert sorted(file.name for file in locked_folder.iterdir()) == ["kept.sqlite"]


FILL = """
with Database(sys.argv[1], create=True) as db:
    run = begin(db)
    for block in range(1, 10**6):
        record(db, run, Configuration.of("v3", block=block), [screen(*([1.0 / 3.0] * 500))])
        print(block, flush=True)
"""
LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
"""


def assert_intact(path: Path, acknowledged: int) -> None:
    """Every trial that was reported stored is there with its rounds; at most the one being stored is there besides."""
    with Database(path) as db:
        assert db.select("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        assert db.select("PRAGMA foreign_key_check") == []
        trials = db.trials(DEVICE, COLD)
        blocks = [trial.configuration.integer("block") for trial in trials]
        assert blocks in (list(range(1, acknowledged + 1)), list(range(1, acknowledged + 2)))
        assert all(trial.rounds for trial in trials)
        before = len(trials)
        record(db, begin(db), FAST, [screen(40.0)])
        assert len(db.trials(DEVICE, COLD)) == before + 1


def test_a_file_that_may_not_grow_is_one_sentence_and_keeps_what_it_has(tmp_path: Path) -> None:
    process = run_python(LIMITED + FILL, tmp_path / "limited.sqlite")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "could not be written" in errors.splitlines()[-1]
    assert "all stored before is kept" in errors.splitlines()[-1]
    assert len(output.split()) > 5
    assert_intact(tmp_path / "limited.sqlite", len(output.split()))


def test_a_full_disk_is_one_sentence_and_keeps_what_it_has(tmp_path: Path) -> None:
    disk, saved = tmp_path / "disk", tmp_path / "saved"
    disk.mkdir()
    saved.mkdir()
    fill = f"from tests.database_samples import *\nimport sys\n{FILL}"
    script = f'"$PYTHON" -c "$1" {disk}/full.sqlite; status=$?; cp {disk}/full.sqlite* {saved}; exit $status'
    done = on_a_small_disk(disk, "1m", script, fill, cwd=REPOSITORY)
    assert done.returncode == 1
    assert "could not be written (database or disk is full)" in done.stderr.splitlines()[-1]
    assert_intact(saved / "full.sqlite", len(done.stdout.split()))


@pytest.mark.parametrize("free_kib", [0, 8, 64, 200])  # for nothing; for the file; for its log's index too; for a part of the tables
def test_a_database_that_there_is_no_room_to_make_is_one_sentence_and_leaves_nothing(tmp_path: Path, free_kib: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = f"dd if=/dev/zero of={disk}/fill bs=1k count={1024 - free_kib} 2>/dev/null"
    sweep = f'"$PYTHON" -m autotune sweep softmax --device recorded --db {disk}/new/x.sqlite'
    done = on_a_small_disk(disk, "1m", f"{fill}; {sweep}; status=$?; ls {disk}; exit $status", cwd=REPOSITORY)
    assert done.returncode == 2
    assert "new/x.sqlite could not be made (" in done.stderr
    assert done.stderr.endswith("; make some, or name another with --db\n")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "fill\n"


def test_a_full_disk_lets_no_work_start_on_a_database_that_is_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    Database(tmp_path / "x.sqlite", create=True).close()
    fill = f"cp {tmp_path}/x.sqlite {disk}; dd if=/dev/zero of={disk}/fill bs=1k 2>/dev/null"
    sweep = f'"$PYTHON" -m autotune sweep softmax --device recorded --db {disk}/x.sqlite'
    done = on_a_small_disk(disk, "1m", f"{fill}; {sweep}; status=$?; ls {disk}; exit $status", cwd=REPOSITORY)
    assert done.returncode == 2, done.stderr
    assert "no room beside it" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_moment_loses_nothing_that_was_stored(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "killed.sqlite"
    process = run_python(FILL, path)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0.01, 0.3))
    process.send_signal(signal.SIGKILL)
    acknowledged = 1 + len(process.stdout.read().split())
    process.communicate(timeout=60)
    assert_intact(path, acknowledged)


def test_a_kill_while_the_database_is_made_leaves_one_that_can_be_made(tmp_path: Path) -> None:
    for delay_ms in range(0, 40, 13):
        path = tmp_path / f"{delay_ms}.sqlite"
        process = run_python("print(flush=True)\nDatabase(sys.argv[1], create=True)", path)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_ms / 1000)
        process.kill()
        process.communicate(timeout=60)
        with Database(path, create=True) as db:
            assert db.best() == []


def test_reading_makes_no_files_beside_an_export(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with Database(path, mode="read") as db:
        db.export(out / "shared.sqlite")
    with Database(out / "shared.sqlite", mode="read") as db:
        assert db.best()[0]["time_us"] == 40.0
        assert [file.name for file in out.iterdir()] == ["shared.sqlite"]


def test_who_only_reads_leaves_no_file_behind(path: Path) -> None:
    with Database(path, mode="read") as db:
        with Database(path, mode="read") as another:
            assert another.best() == db.best() != []
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db._connection.execute("DELETE FROM best")
    assert list(path.parent.iterdir()) == [path]


def test_reading_after_a_killed_writer_sees_what_was_committed_and_clears_its_log_away(path: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed.sqlite"
    with Database(path) as db:
        run = begin(db)
        record(db, run, FAST, [screen(39.0)])
        shutil.copy(path, killed)
        shutil.copy(f"{path}-wal", f"{killed}-wal")
    with Database(killed, mode="read") as db:
        assert len(db.trial_rows()) == 2
    assert sorted(tmp_path.iterdir()) == sorted([path, killed])


def test_a_database_that_is_deleted_while_it_is_open_is_said_to_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "gone.sqlite"
    with Database(path, create=True) as database:
        path.unlink()
        with pytest.raises(AutotuneError, match=r"gone\.sqlite was deleted or replaced while it was open"), database.write():
            pass
