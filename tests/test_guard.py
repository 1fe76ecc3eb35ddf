"""A definition's function that does not come back, or would end the process, ends a sweep with a sentence that names it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autotune import declared
from autotune.errors import UsageError
from autotune.guard import guarded
from tests.test_own_kernels import mine

__all__ = ["mine"]  # a fixture

ENDLESS = """
    while configuration.integer("block") == 128:
        try:
            sum(range(100))
        except Exception:
            pass"""


def swept(mine: Path, function: str, body: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """A sweep of the documentation's example, at the start of whose `function` is `body`."""
    definition = mine / "halve" / "v0.py"
    lines = definition.read_text(encoding="utf-8").split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith(f"def {function}("))
    definition.write_text("\n".join(["import os, sys", *lines[: place + 1], *body.strip("\n").split("\n"), *lines[place + 1 :]]))
    command = [sys.executable, "-m", "autotune", "sweep", "halve", "--kernels", str(mine), "--size", "5x7", "--device", "emulator"]
    return subprocess.run([*command, "--db", str(mine.parent / "x.sqlite"), *options], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("function", ["launch", "applicable"])
def test_an_endless_function_ends_the_sweep_with_its_name_and_the_configuration(mine: Path, function: str) -> None:
    done = swept(mine, function, ENDLESS, "--hang-timeout", "2", "--version", "v0")
    definition = mine / "halve" / "v0.py"
    assert done.stderr.startswith(
        f"autotune: {function} of {definition} for v0 block 128, halve 5x7 float32, emulator is not done after 2 s"
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("ending", ["sys.exit(0)", "raise SystemExit", "os._exit(0)"])
def test_a_function_that_would_end_the_process_is_refused_with_a_sentence(mine: Path, ending: str) -> None:
    done = swept(mine, "launch", f"    {ending}")
    assert done.returncode == 2, done
    (sentence,) = done.stderr.splitlines()
    assert f"launch of {mine / 'halve' / 'v0.py'}" in sentence
    assert "for v0 block 64, halve 5x7 float32, emulator" in sentence
    assert ("calls os._exit(0)" if "os._exit" in ending else "SystemExit") in sentence


def test_calls_that_take_their_time_together_are_let_be() -> None:
    slow = declared.checked(Path("v0.py"), lambda seconds: time.sleep(seconds))
    with guarded(0.5):
        for _ in range(8):
            slow(0.1)
    with pytest.raises(UsageError, match=r"for 0\.05 is not done after 0\.5 s"), guarded(0.5):
        declared.checked(Path("v0.py"), _spin)(0.05)


def _spin(seconds: float) -> None:
    while True:
        time.sleep(seconds)


def test_one_that_catches_everything_once_is_interrupted_again() -> None:
    caught: list[str] = []

    def stubborn(count: int) -> None:
        for _ in range(count):
            try:
                _spin(0.01)
            except BaseException as error:
                caught.append(type(error).__name__)
        _spin(0.01)

    with pytest.raises(UsageError, match="for 2 is not done"), guarded(0.2):
        declared.checked(Path("v0.py"), stubborn)(2)
    assert len(caught) == 2


def test_what_is_not_of_a_definition_ends_the_process_as_it_likes() -> None:
    code = "import os; from autotune.guard import guarded\nwith guarded(60.0): os._exit(7)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 7


def test_nothing_of_the_guard_stays_behind() -> None:
    before, here = os._exit, set(threading.enumerate())
    with guarded(60.0):
        (watch,) = set(threading.enumerate()) - here
    watch.join(60.0)
    assert not watch.is_alive()
    assert os._exit is before
