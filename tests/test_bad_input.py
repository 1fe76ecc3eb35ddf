"""Whatever is given to import, pin and block: one sentence that says what came and what is accepted, and nothing is lost."""

import gzip
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.database import Database
from tests.command import refused, rows, run
from tests.report_samples import measured

CACHE = {
    "device_name": "X",
    "kernel_name": "k",
    "problem_size": [4, 4],
    "tune_params_keys": ["b"],
    "cache": {"1": {"b": 1, "time": 1.0}},
}


def cache(**changed: object) -> bytes:
    return json.dumps(CACHE | changed).encode()


def written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


def damaged(path: Path) -> None:
    measured(path)
    path.write_bytes(path.read_bytes()[:20_000])


def edited(*statements: str) -> Callable[[Path], None]:
    """A database in which somebody changed rows, past all constraints and triggers."""

    def make(path: Path) -> None:
        connection = sqlite3.connect(measured(path), isolation_level=None)
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return make


def promising(manifest: str) -> Callable[[Path], None]:
    return edited("CREATE TABLE manifest (manifest TEXT)", f"INSERT INTO manifest VALUES {manifest}")


def pinned(author: str = "'me'", why: str = "'so'", created: str = "'2024-01-01'") -> Callable[[Path], None]:
    row = f"device, 'softmax', 'float32', 1, 9, 1, 9, configuration, {author}, {why}, {created}"
    return edited(f"INSERT INTO pins SELECT 99, {row} FROM best LIMIT 1")


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a block of no problem": (
        edited("INSERT INTO blocked SELECT 99, device, configuration, 'float32', template, 777, 'so', '2024-01-01' FROM best LIMIT 1"),
        "does not fit (a row of blocked names one of problems that is missing)",
    ),
    "parameters in a list": (edited("UPDATE configurations SET parameters = '[' || id || ']'"), "parameters are not an object"),
    "nested parameters": (edited("UPDATE configurations SET parameters = '{\"a\":[' || id || ']}'"), "parameters are not an object"),
    "a worded capability": (edited("UPDATE devices SET compute_capability = '9.x.1'"), "compute capability is not like 9.0"),
    "bytes for a text": (edited("UPDATE environments SET os = CAST(x'fffe41' AS TEXT)"), "of environments whose text is not UTF-8"),
    "a long name": (edited("UPDATE devices SET name = hex(zeroblob(101))"), "of devices whose name is not 1 to 200 bytes long"),
    "no name": (edited("UPDATE protocols SET name = '', rule = id"), "of protocols whose name is not 1 to 200 bytes long"),
    "samples in an object": (edited("UPDATE rounds SET samples_us = '{}'"), "samples are not a list of times that a kernel takes"),
    "no samples": (edited("UPDATE rounds SET samples_us = '[]'"), "samples are not a list of times that a kernel takes"),
    "samples in words": (edited("UPDATE rounds SET samples_us = '[\"x\"]'"), "samples are not a list of times that a kernel takes"),
    "endless samples": (edited("UPDATE rounds SET samples_us = '[1, 1e999]'"), "samples are not a list of times that a kernel takes"),
    "a negative time": (edited("UPDATE rounds SET median_us = -5"), "of rounds with a time that no kernel takes"),
    "an endless time": (edited("UPDATE best SET time_us = 9e999"), "of best with a time that no kernel takes"),
    "negative rows": (edited("UPDATE problems SET rows = -rows"), "of a size or layout that no matrix has"),
    "endless columns": (edited("UPDATE problems SET cols = 9223372036854775807"), "of a size or layout that no matrix has"),
    "an unknown dtype": (edited("UPDATE problems SET dtype = dtype || '9'"), "of problems of an unknown dtype"),
    "a pin of nobody": (pinned(author="' '"), "of pins whose author or reason is blank"),
    "a pin without reason": (pinned(why="''"), "of pins whose author or reason is blank"),
    "a pin of no day": (pinned(created="'zzz'"), "of pins whose date is malformed or in the future"),
    "a pin of the future": (pinned(created="'9999-01-01'"), "of pins whose date is malformed or in the future"),
    **{f"manifest {said}": (promising(f"({said})"), "has a manifest that is not as") for said in ("'[]'", "'{}'", "'nope'", "NULL")},
    "a manifest without row": (edited("CREATE TABLE manifest (manifest TEXT)"), "has a manifest that is not as autotune writes it"),
}
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "does not exist; import takes databases"),
    "a folder": (Path.mkdir, "is a folder; import takes databases"),
    "a pipe": (os.mkfifo, "is not a regular file; import takes databases"),
    "an empty file": (written(b""), "is empty; import takes databases"),
    "text": (written(b"milk, eggs"), "is neither an SQLite database nor JSON; import takes databases"),
    "no text at all": (written(b"\xff\xfe\x00\x01"), "is neither an SQLite database nor JSON; import takes databases"),
    "a list": (written(b"[1, 2]"), "is neither an SQLite database nor JSON; import takes databases"),
    "another program's": (of_another_program, "is an SQLite file of another program; nothing was imported"),
    "a damaged database": (damaged, "is damaged"),
    "malformed JSON": (written(b'{"cache": [1, 2'), "is malformed JSON (Expecting"),
    "JSON of something else": (written(b'{"name": "x"}'), "is not a cache file of Kernel Tuner (KeyError: 'kernel_name'); it must say"),
    "JSON that is not UTF-8": (written(b'{"caf\xe9": 1}'), "is not UTF-8 text"),
    "half a character": (written(cache(device_name="\ud800")), "is not a cache file of Kernel Tuner (UnicodeEncodeError"),
    "brackets without end": (written(b'{"a":' * 100_000), "is malformed JSON (maximum recursion depth"),
    "digits without end": (written(b'{"problem_size": ' + b"9" * 5000 + b"}"), "is malformed JSON"),
    "a value without end": (written(cache().replace(b'"b": 1', b'"b": 1e999')), "neither a text nor a finite number of at most 64 bits"),
    "gzip cut short": (written(gzip.compress(cache())[:40]), "cannot be read (Compressed file ended"),
    **FOREIGN,
    "gzip of nothing": (written(b"\x1f\x8bnothing"), "give a whole cache file"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_cannot_be_imported_is_refused_in_a_sentence_and_changes_nothing(name: str, tmp_path: Path) -> None:
    make, said = FILES[name]
    path, mine = tmp_path / "given", measured(tmp_path / "mine.sqlite")
    make(path)
    with Database(mine, mode="read") as db:
        before = db.content_hash()
    assert said in refused("import", str(path), "--db", str(mine))
    with Database(mine, mode="read") as db:
        assert db.content_hash() == before
    assert {file.name for file in tmp_path.iterdir()} <= {"given", "mine.sqlite"}


@pytest.mark.parametrize("command", [("pin", "softmax", "4096x4096"), ("block", "softmax")])
@pytest.mark.parametrize(
    ("configuration", "why", "said"),
    [
        ("v3 block 384, vector 4, unroll 4", "  ", "the reason is blank"),
        ("v3 block 384, vector 4, unroll 4", "be\udcffcause", "is not UTF-8 text"),
        ("v3 \udcff 384", "because", "does not name each parameter of v3 once; write 'v3 block"),
        ("", "because", "has no version ''"),
    ],
)
def test_a_decision_in_bad_text_is_refused_in_a_sentence(
    command: tuple[str, ...], configuration: str, why: str, said: str, tmp_path: Path
) -> None:
    db = ("--db", str(measured(tmp_path / "x.sqlite")))
    assert said in refused(*command, configuration, "--why", why, "--device", "NVIDIA H200", *db)
    assert rows("inspect", "pins", *db) == rows("inspect", "blocked", *db) == []


def test_a_sweep_into_a_file_whose_name_is_no_text_works(tmp_path: Path) -> None:
    path = str(tmp_path / "x\udcff.sqlite")
    status, _, err = run("sweep", "softmax", "--size", "4096x4096", "--version", "v0", "--device", "recorded", "--json", "--db", path)
    assert (status, err) == (0, "")
    with Database(path, mode="read") as db:
        assert db.trial_rows()
