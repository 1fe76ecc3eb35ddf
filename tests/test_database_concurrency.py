"""Many processes on one file: writers wait for one another, readers for nobody, and no transaction begins without the write lock."""

import ast
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.database import Database, connection
from autotune.errors import AutotuneError
from tests.database_samples import COLD, DEVICE, FAST, PROBLEM, begin, record, screen

REPOSITORY = Path(__file__).parent.parent
WRITERS, TRIALS = 8, 40

WRITER = """
import sys
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.trial import Round
from tests.database_samples import begin, record, screen, settle
with Database(sys.argv[1], create=True) as db:
    run = begin(db)
    for number in range(int(sys.argv[3])):
        chosen = Configuration.of("v3", block=int(sys.argv[2]) * 1000 + number)
        trial = record(db, run, chosen, [screen(40.0 + number)])
        db.add_rounds({trial: Round("final", (40.0,), 1)})
        settle(db, run, trial, chosen, 40.0)
    db.end_run(run, "done")
"""
READER = """
import sys
from autotune.database import Database
from tests.database_samples import COLD, DEVICE
seen = 0
while seen < int(sys.argv[2]):
    with Database(sys.argv[1], mode="read") as db:
        trials = db.trials(DEVICE, COLD)
        assert len(trials) >= seen, "a trial was seen and is gone"
        assert all(trial.rounds for trial in trials), "half a trial was seen"
        assert len(db.best()) <= 1
        seen = len(trials)
"""


def start(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], cwd=REPOSITORY, text=True, stderr=subprocess.PIPE)


def test_eight_writing_processes_and_two_readers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    Database(path, create=True).close()
    processes = [start(READER, path, WRITERS * TRIALS) for _ in range(2)]
    processes += [start(WRITER, path, writer, TRIALS) for writer in range(WRITERS)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), errors
    with Database(path, mode="read") as db:
        blocks = {trial.configuration.integer("block") for trial in db.trials(DEVICE, COLD)}
        assert blocks == {writer * 1000 + number for writer in range(WRITERS) for number in range(TRIALS)}
        assert all(len(trial.rounds) == 2 for trial in db.trials(DEVICE, COLD))
        assert len(db.best()) == 1
        assert db.select("SELECT state, count(*) AS runs FROM runs GROUP BY state") == [{"state": "done", "runs": WRITERS}]
        assert db.select("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_processes_that_create_the_same_database_at_once_agree(tmp_path: Path) -> None:
    processes = [start(WRITER, tmp_path / "new.sqlite", writer, 1) for writer in range(6)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), errors
    with Database(tmp_path / "new.sqlite") as db:
        assert len(db.trials(DEVICE, COLD)) == 6


def test_a_writer_waits_for_another_and_says_so_when_it_waited_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "held.sqlite"
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.1)
    with Database(path, create=True) as db, Database(path) as other:
        run = begin(db)
        with other.write():
            started = time.monotonic()
            with pytest.raises(AutotuneError, match="locked by another process"):
                db.record_copy(run, PROBLEM, 36.0)
            assert time.monotonic() - started > connection.ATTEMPTS * 0.1
            with Database(path, mode="read") as reader:
                assert reader.best() == []
        db.record_copy(run, PROBLEM, 36.0)
        assert db.copy_us(DEVICE, COLD, PROBLEM) == 36.0


def test_a_writer_waits_for_a_transaction_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "busy.sqlite"
    with Database(path, create=True) as db:
        run = begin(db)
        code = (
            "import sys, time\nfrom autotune.database import Database\n"
            "with Database(sys.argv[1]) as db, db.write():\n    print(flush=True)\n    time.sleep(0.5)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        record(db, run, FAST, [screen(40.0)])
        process.communicate(timeout=60)
        assert len(db.trials(DEVICE, COLD)) == 1


def test_connections_have_a_write_ahead_log_foreign_keys_and_a_busy_timeout(tmp_path: Path) -> None:
    with Database(tmp_path / "settings.sqlite", create=True) as db:
        settings = [db.select(f"PRAGMA {name}")[0] for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")]
        assert [next(iter(row.values())) for row in settings] == ["wal", 1, 1, 30000]
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), db.write() as inside:
            inside.execute("INSERT INTO copies (run, number, problem, copy_us) VALUES (99, 1, 99, 1.0)")


def transactions(tree: ast.AST) -> list[str]:
    """The calls and SQL in a module that begin a transaction on their own."""
    nodes = list(ast.walk(tree))
    calls = [f"{node.func.attr}()" for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    texts = [node.value.strip().upper() for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    begun = [text for text in texts if text.startswith(("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT"))]
    return [call for call in calls if call in ("atomic()", "begin()")] + begun


def test_no_module_begins_a_transaction_but_the_one_write_helper() -> None:
    modules = {path.relative_to(REPOSITORY / "autotune"): path for path in (REPOSITORY / "autotune").rglob("*.py")}
    begun = {str(name): found for name, path in modules.items() if (found := transactions(ast.parse(path.read_text(encoding="utf-8"))))}
    # An empty file is removed only while nobody else can have it open, for which its lock is taken; nothing is written then.
    assert {name: sorted(found) for name, found in begun.items()} == {"database/connection.py": ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"]}
    assert transactions(ast.parse("with db.atomic():\n    pass")) == ["atomic()"]
