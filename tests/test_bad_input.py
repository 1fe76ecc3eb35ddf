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
    "JSON of something else": (written(b'{"name": "x"}'), "is not a cache file of Kernel Tuner (KeyError: 'problem_size'); it must say"),
    "JSON that is not UTF-8": (written(b'{"caf\xe9": 1}'), "is not UTF-8 text"),
    "half a character": (written(cache(device_name="\ud800")), "is not a cache file of Kernel Tuner (UnicodeEncodeError"),
    "brackets without end": (written(b'{"a":' * 100_000), "is malformed JSON (maximum recursion depth"),
    "digits without end": (written(b'{"problem_size": ' + b"9" * 5000 + b"}"), "is malformed JSON"),
    "a value without end": (written(cache().replace(b'"b": 1', b'"b": 1e999')), "neither a finite number nor a text"),
    "gzip cut short": (written(gzip.compress(cache())[:40]), "cannot be read (Compressed file ended"),
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
