"""The command line called in this process: a tenth of a second sooner than in one of its own."""

import contextlib
import io
import json
from typing import Any

import pytest

from autotune.cli import main


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of `autotune ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def said(*arguments: str) -> str:
    """What a command that is done has printed."""
    status, out, err = run(*arguments)
    assert (status, err) == (0, ""), (status, out, err)
    return out


def rows(*arguments: str) -> list[dict[str, Any]]:
    """What a reading command prints with --json."""
    found: list[dict[str, Any]] = json.loads(said(*arguments, "--json"))
    return found


def refused(*arguments: str) -> str:
    """The one sentence on standard error of a command that could not start."""
    status, out, err = run(*arguments)
    assert (status, out) == (2, ""), (status, out, err)
    (sentence,) = err.splitlines()
    assert sentence.startswith("autotune: ")
    return sentence
