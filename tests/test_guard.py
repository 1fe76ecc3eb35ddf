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


ASKED = {
    "sweep": ("--size", "5x7", "--device", "emulator", "--db", "x.sqlite"),
    "verify": ("--size", "5x7", "--device", "emulator"),
    "explain": ("5x7", "--device", "emulator", "--db", "x.sqlite"),
    "compile": ("--arch", "sm_90", "--db", "x.sqlite"),
}


def known(mine: Path) -> None:
    """The database of `ASKED`, with what a sweep measured."""
    words = [sys.executable, "-m", "autotune", "sweep", "halve", "--kernels", str(mine), *ASKED["sweep"], "--trials", "1"]
    subprocess.run(words, cwd=mine.parent, check=True, timeout=300)


def commanded(mine: Path, command: str, file: str, function: str, body: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """`command` on the documentation's example, at the start of whose `function` in `file` is `body`."""
    definition = mine / "halve" / file
    lines = definition.read_text(encoding="utf-8").split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith(f"def {function}("))
    definition.write_text("\n".join(["import os, sys", *lines[: place + 1], *body.strip("\n").split("\n"), *lines[place + 1 :]]))
    words = [sys.executable, "-m", "autotune", command, "halve", "--kernels", str(mine), *ASKED[command], *options]
    return subprocess.run(words, cwd=mine.parent, capture_output=True, text=True, timeout=300)


def swept(mine: Path, function: str, body: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return commanded(mine, "sweep", "v0.py", function, body, *options)


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


@pytest.mark.parametrize("command", ["sweep", "verify"])
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    while True: pass", "is not done after "),
        ("    os._exit(0)", "calls os._exit(0), which would end this process"),
        ("    sys.exit(3)", "fails for an array of 5x7 float64 (SystemExit: 3)"),
    ],
)
def test_a_reference_that_does_not_come_back_is_named(mine: Path, command: str, body: str, why: str) -> None:
    done = commanded(mine, command, "operation.py", "reference", body, "--hang-timeout", "2")
    (sentence,) = done.stderr.splitlines()
    assert f"reference of {mine / 'halve' / 'operation.py'}" in sentence
    assert why in sentence
    assert done.returncode in (1, 2)


def test_a_reference_that_hangs_where_python_cannot_reach_is_named_too(mine: Path) -> None:
    done = commanded(mine, "verify", "operation.py", "reference", "    import re; re.match('(a+)+b', 'a' * 60)", "--hang-timeout", "1")
    assert f"while inputs were made and reference of {mine / 'halve' / 'operation.py'} was asked" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_an_endless_function_ends_any_command_with_its_name(mine: Path, command: str) -> None:
    options = ("--hang-timeout", "2") if command == "verify" else ()
    known(mine)
    done = commanded(mine, command, "v0.py", "applicable", "    while True: pass", *options)
    assert f"applicable of {mine / 'halve' / 'v0.py'}" in done.stderr
    assert "is not done after" in done.stderr
    assert done.returncode == 2
    assert ("longer hang timeout" in done.stderr) is (command == "verify")


def test_a_guard_within_another_leaves_the_time_to_that_one() -> None:
    slow = declared.checked(Path("v0.py"), lambda seconds: time.sleep(seconds))
    with guarded(5.0), guarded(0.1):
        slow(0.5)
    with pytest.raises(UsageError, match=r"is not done after 0\.2 s"), guarded(0.2):
        declared.checked(Path("v0.py"), _spin)(0.05)


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
