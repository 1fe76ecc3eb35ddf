"""Sweeps on one GPU take turns, whoever starts them and however they end."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from autotune.backends import turns
from autotune.backends.turns import Turns

HOLDER = """
import sys, time
from pathlib import Path
from autotune.backends import turns
turns.FOLDER = Path(sys.argv[1])
with turns.Turns("0000:1B:00.0").taken():
    print("taken", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(turns, "FOLDER", tmp_path)
    return tmp_path


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that has its turn."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def test_a_process_waits_for_another_and_says_so_once_until_that_one_is_killed(folder: Path) -> None:
    mine, began = Turns("0000:1B:00.0"), threading.Event()

    def end(process: subprocess.Popen[str]) -> None:
        began.wait()
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)

    with holder(folder) as other:
        killer = threading.Thread(target=end, args=(other,))
        killer.start()
        began.set()
        with pytest.warns(RuntimeWarning, match="another sweep uses this GPU"), mine.taken():
            assert other.wait(10) == -signal.SIGKILL  # it had to end first
        killer.join()
    with holder(folder) as other:
        threading.Timer(0.2, other.kill).start()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with mine.taken():  # waits, and has been told
                assert other.wait(10) == -signal.SIGKILL
    mine.close()


def test_other_gpus_and_who_came_back_do_not_wait(folder: Path) -> None:
    with holder(folder) as other, warnings.catch_warnings():
        warnings.simplefilter("error")
        with Turns("0000:1C:00.0").taken():
            assert other.poll() is None
        other.kill()
    mine = Turns("0000:1C:00.0")
    for _ in range(3):
        with mine.taken():
            pass
    mine.close()


def test_where_no_file_can_be_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(turns, "FOLDER", tmp_path / "file")  # a folder that cannot have files
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who waits says so first
        with Turns("a").taken(), Turns("a").taken():
            assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_where_files_have_no_locks_nobody_waits(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def refused(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Turns("a").taken(), Turns("a").taken():
            assert len(list(folder.iterdir())) == 1
