"""Files, disks and rows that mean harm: nothing that is somebody's is destroyed, and one sentence says what is wrong."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune.database import Database
from autotune.database.placing import new_file, partial_of, place_beside, write_over
from autotune.errors import StorageError, UsageError
from autotune.problem import parse_size
from tests.command import refused, run, said
from tests.report_samples import measured
from tests.small_disk import on_a_small_disk
from tests.test_database_faults import LIMITED
from tests.test_sharing_faults import altered


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("hostile") / "mine.sqlite")


ROOT = Path(__file__).parent.parent


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_report_goes_through_a_pipe_and_the_pipe_stays(database: Path, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    said("report", "--html", str(pipe), "--db", str(database))
    reader.join(60)
    assert got[0].startswith(b"<!")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == {"pipe"}


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.open("wb").close()
    except OSError:  # only root may, and not on every file system: a link to it is followed to the same end
        device.unlink(missing_ok=True)
        device.symlink_to("/dev/null")
    write_over(device, b"x")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_bytes(b"old")
    for target in (there, missing):
        link = tmp_path / f"to-{target.name}"
        link.symlink_to(target.name)
        write_over(link, b"new")
        assert (link.is_symlink(), target.read_bytes()) == (True, b"new")
    assert names(tmp_path) == {"there", "missing", "to-there", "to-missing"}


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_a_link_that_leads_round_is_one_sentence(database: Path, tmp_path: Path, option: str) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    status, _, err = run("report", option, str(loop), "--db", str(database))
    assert (status, err.count("\n"), names(tmp_path)) == (1, 1, {"loop"})
    assert "Too many levels of symbolic links" in err


@pytest.mark.parametrize("other", ["x", "link", "./x"])
def test_page_and_picture_of_one_name_are_refused(database: Path, tmp_path: Path, other: str) -> None:
    (tmp_path / "link").symlink_to("x")
    assert "give each a file of its own" in refused(
        "report", "--html", f"{tmp_path}/x", "--png", f"{tmp_path}/{other}", "--db", str(database)
    )


@pytest.mark.parametrize("what", ["pipe", "link"])
@pytest.mark.parametrize("option", ["--t4", "--optuna", ""])
def test_an_export_replaces_nothing_of_any_kind(database: Path, tmp_path: Path, what: str, option: str) -> None:
    target = tmp_path / "x"
    os.mkfifo(target) if what == "pipe" else target.symlink_to("y")
    assert "x exists" in refused(*filter(None, ("export", option, str(target), "--db", str(database))))
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize("length", [100, 101, 240, 255])
def test_the_longest_names_can_be_written(tmp_path: Path, length: int) -> None:
    target = tmp_path / ("n" * length)
    write_over(target, b"one")
    write_over(target, b"two")
    with new_file(tmp_path / ("m" * length)) as partial:
        partial.write_bytes(b"m")
        partial.with_name(f"{partial.name}-journal").touch()
    assert (target.read_bytes(), names(tmp_path)) == (b"two", {target.name, "m" * length})


def test_what_dead_processes_left_of_a_report_goes_with_the_next(tmp_path: Path) -> None:
    for target in (tmp_path / "page", tmp_path / ("n" * 255)):
        left = partial_of(target)
        left.with_name(left.name.replace(str(os.getpid()), "4194305")).touch()  # Linux gives no process that number
        write_over(target, b"x")
        target.unlink()
    assert names(tmp_path) == set()


def test_a_full_disk_is_said_to_need_room() -> None:
    with pytest.raises(StorageError, match=r"/dev/full could not be written \(No space left on device\); make room"):
        write_over(Path("/dev/full"), b"x")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        write_over(tmp_path, b"x")


@pytest.mark.parametrize(("words", "place"), [(b"CREATE TABLE best", 4), (b"CREATE VIEW", 8), (b"SQLite format 3", 47)])
@pytest.mark.parametrize(
    "command", [("inspect", "best"), ("inspect", "trials", "--json"), ("rebuild",), ("export", "OUT")], ids=lambda c: c[0]
)
def test_a_flipped_bit_in_what_the_file_says_of_itself_is_one_sentence(
    database: Path, tmp_path: Path, words: bytes, place: int, command: tuple[str, ...]
) -> None:
    content = bytearray(database.read_bytes())
    content[content.index(words) + place] ^= 2 if place == 47 else 128
    spoilt = tmp_path / "x.sqlite"
    spoilt.write_bytes(content)
    named = [str(tmp_path / "out.sqlite") if word == "OUT" else word for word in command]
    assert "is damaged" in refused(*named, "--db", str(spoilt))


@pytest.mark.parametrize("in_place", ["NULL", "'text'", "2"])
def test_what_a_table_refuses_is_one_sentence(tmp_path: Path, in_place: str) -> None:
    said = r"x.sqlite cannot store what follows from it \(.*\), for a row that it has makes no sense"
    with Database(tmp_path / "x.sqlite", create=True) as db:
        with pytest.raises(UsageError, match=said), db.write() as connection:
            connection.execute(f"INSERT INTO problems VALUES (1, 'softmax', 1, 1, 'float32', 1, 1, 16, 16, {in_place}, 8)")
        assert db.select("SELECT * FROM problems") == []


def test_an_import_of_what_cannot_be_looked_at_is_one_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for name, why in (
        ("x" * 5000, "cannot be read (File name too long)"),
        (str(loop), "cannot be read (Too many levels of symbolic links)"),
    ):
        assert why in refused("import", name, "--db", str(tmp_path / "y.sqlite"))
    assert names(tmp_path) == {"loop"}


def test_where_problems_cannot_be_settled_again_nothing_is_pruned(database: Path, tmp_path: Path) -> None:
    path = altered(Path(shutil.copy(database, tmp_path / "x.sqlite")), "UPDATE problems SET operation = CAST(x'ff41' AS TEXT)")
    with sqlite3.connect(path) as connection:
        (before,) = connection.execute("SELECT count(*) FROM trials").fetchone()
    refused("prune", "--older-than", "0", "--yes", "--db", str(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM trials").fetchone() == (before,)


def test_what_a_disk_without_any_room_did_not_take_leaves_nothing_behind(database: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = f"dd if=/dev/zero of={disk}/fill bs=4k count=64 2>&1 | cat >/dev/null"
    done = on_a_small_disk(
        disk, "256k", f'{fill}; "$PYTHON" -m autotune import $1 --db {disk}/a/b/new.sqlite; ls {disk}', str(database), cwd=ROOT
    )
    assert done.stdout.split() == ["fill"], done.stderr
    assert "is full" in done.stderr


def test_a_copy_of_what_was_is_laid_over_nothing(tmp_path: Path) -> None:
    for content in (b"1", b"2", b"3"):
        (tmp_path / "partial").write_bytes(content)
        place_beside(tmp_path / "partial", tmp_path / "copy")
        (tmp_path / "partial").unlink(missing_ok=True)
    assert [(tmp_path / f"copy{end}").read_bytes() for end in ("", ".2", ".3")] == [b"1", b"2", b"3"]


def test_what_is_pruned_where_no_copy_fits_is_gone_and_its_space_comes_back_later(database: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copy(database, tmp_path / "mine.sqlite"))
    with Database(mine) as db, db.write() as connection:
        connection.execute("CREATE TABLE ballast (bytes)")
        connection.execute("INSERT INTO ballast VALUES (zeroblob(1 << 21))")
    pruning = ("prune", "--older-than", "0", "--yes", "--db", str(mine))
    command = [
        sys.executable,
        "-c",
        f"{LIMITED}\nfrom autotune.cli import main\nmain(sys.argv[1:])".replace("import resource", "import sys, resource"),
    ]
    done = subprocess.run([*command, *pruning], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "trials were deleted" in done.stdout
    assert "the next prune gives it back" in done.stderr
    assert "kept" not in done.stderr
    with Database(mine) as db, db.write() as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone()[0] > 0
        connection.execute("DROP TABLE ballast")
    size = mine.stat().st_size
    said(*pruning)
    assert mine.stat().st_size < size - (1 << 20)


# As large as the database and no larger, so that nothing can be made beside it. The log of a killed writer holds what the file lacks.
FULL = """
import os, shutil, sqlite3, sys
from pathlib import Path
from autotune.cli import main
disk, source, logged = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "logged"
shutil.copy(source, disk / "mine.sqlite")
if logged and not os.fork():
    with sqlite3.connect(disk / "mine.sqlite") as writer:
        writer.execute("UPDATE best SET tried = tried + 1")
    os.kill(os.getpid(), 9)
logged and os.wait()
(disk / "mine.sqlite-shm").unlink(missing_ok=True)
with suppress(OSError), open(disk / "fill", "wb", buffering=0) as fill:
    while True:
        fill.write(bytes(512))
try:
    main(["inspect", "best", "--csv", "--db", str(disk / "mine.sqlite")])
finally:
    print(sorted(os.listdir(disk)), file=sys.stderr)
"""


@pytest.mark.parametrize("log", ["clean", "logged"])
def test_a_full_disk_is_read_from_unless_the_log_holds_more_than_the_file(database: Path, tmp_path: Path, log: str) -> None:
    script = f'exec "$PYTHON" -c "$1" "{tmp_path}" "{database}" {log}'
    code = f"from contextlib import suppress\n{FULL}"
    done = on_a_small_disk(tmp_path, "1m", script, code, cwd=ROOT)
    *told, left = done.stderr.splitlines()
    if log == "clean":
        assert (done.returncode, told, left) == (0, [], "['fill', 'mine.sqlite']")
        assert len(done.stdout.splitlines()) > 2
    else:
        assert (done.returncode, len(told), done.stdout) == (1, 1, "")
        assert "no room beside it for the index" in told[0]
        assert "written" not in told[0]


@pytest.mark.parametrize("command", [("inspect", "best"), ("inspect", "trials"), ("export", "--t4", "/no/such")])
@pytest.mark.parametrize("empty", ["--size", "--dtype"])
def test_a_filter_that_is_empty_is_refused(database: Path, command: tuple[str, ...], empty: str) -> None:
    assert "''" in refused(*command, empty, "", "--db", str(database))


@pytest.mark.parametrize("size", ["9" * 5000 + "x1", "1x" + "9" * 5000, "1x" + "0" * 5000, "9" * 14 + "x1", "x" * 5000])
def test_a_size_of_any_length_is_one_short_sentence(size: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_size(size)
    assert len(str(error.value)) < 200
    assert parse_size("0" * 5000 + "7x8") == (7, 8)


@settings(max_examples=8, deadline=None)
@given(
    values=st.lists(
        st.one_of(
            st.sampled_from([-(2**63), 2**63 - 1, -1e308, 5e-324, -0.0, True]), st.integers(-(2**63), 2**63 - 1), st.text(max_size=4)
        ),
        min_size=1,
        max_size=3,
    )
)
@example(values=[-(2**63)])
def test_whatever_cache_is_imported_can_be_exported_and_imported_again(
    tmp_path_factory: pytest.TempPathFactory, values: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("caches")
    entries = {str(n): {"p": value, "time": 1.0, "times": [1.0]} for n, value in enumerate(values)}
    head = {"device_name": "d", "kernel_name": "k", "problem_size": 8, "tune_params_keys": ["p"], "cache": entries}
    (folder / "c.json").write_bytes(BOM_UTF8 + json.dumps(head).encode())
    status, _, err = run("import", str(folder / "c.json"), "--db", str(folder / "one.sqlite"))
    if status == 2:  # text may hold what no database may
        assert "nothing was imported" in err
        return
    run("export", str(folder / "export.sqlite"), "--db", str(folder / "one.sqlite"))
    status, _, err = run("import", str(folder / "export.sqlite"), "--db", str(folder / "two.sqlite"))
    assert (status, err) == (0, "")


def test_what_is_wrong_with_a_cache_is_said_shortly(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"device_name": "d" * 10000, "x": ["y" * 10000]}))
    assert len(refused("import", str(tmp_path / "c.json"), "--db", str(tmp_path / "x.sqlite")).replace(str(tmp_path), "")) < 250
