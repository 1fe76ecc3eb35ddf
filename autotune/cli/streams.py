"""Where the command line writes: a full disk, a closed descriptor and a reader that is gone end every command alike.

Libraries between us and the stream each have their own way with a write that fails, so it is given another name where it happens.
"""

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import click

READER_GONE = 128 + signal.SIGPIPE  # the exit status of a program that this signal ends, as 130 is that of Ctrl-C


class OutputError(Exception):
    """Standard output could not be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.reader_gone = error.errno == errno.EPIPE


class _Output(io.TextIOWrapper):
    """Fails as OutputError. All layers below are C: between a write and the note of it, Ctrl-C would have a line written twice."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputError(error) from error


def guard() -> None:
    """Let writes to standard output fail as OutputError, and take every character. Raises OutputError when it is closed already."""
    stream: Any = sys.stdout
    real: Any = sys.__stdout__
    if stream is None:
        raise OutputError(OSError(errno.EBADF, "it is closed"))
    if stream is real:  # not what a caller of ours put in its place
        raw = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
        sys.stdout = _Output(raw, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)


def tell(message: str) -> None:
    """Write a line to standard error, wherever it leads."""
    try:
        click.echo(printable(message), err=True)
    except OSError:
        _let_go(2)


def printable(text: str) -> str:
    """`text` with every character spelled out that moves a cursor or does worse to a terminal: names come from files of others."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text)


def status_of(error: OutputError) -> int:
    """The exit status when output failed; says so unless it is the reader who has had enough."""
    _let_go(1)
    if error.reader_gone:
        return READER_GONE
    tell(f"autotune: standard output cannot be written ({error}); redirect it to a file with room, or to /dev/null")
    return 1


def _let_go(descriptor: int) -> None:
    """Send what is still in a buffer nowhere, so that the interpreter does not stumble over it at its exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
