"""Compilers as child processes: many at once, each bounded in time, and none that outlives what it was started for.

Ctrl-C, an error elsewhere and even SIGKILL of this process end them, with everything that they have started (see `autotune.warden`).
"""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from contextvars import ContextVar
from io import FileIO
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple, TypeVar

from autotune import warden
from autotune.errors import AutotuneError, CompileError
from autotune.patience import comes

# A unit of instances takes seconds, with CUB half a minute, under a sanitizer on a busy machine perhaps one; a compiler that takes this
# long has met a fault of its own, or source that makes it loop.
TIMEOUT_S = 300.0

# What names a place in the source (kernels.cu:3:10: by g++, kernels.cu(3): by nvcc) is about that, unless it is about what is written.
_LOCATED = re.compile(r"[^\s:()]+(?::\d+|\(\d+\))(?!.*: (?:fatal )?error: error (?:writing|closing))")
_ROOM = "|".join((*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)), "File size limit exceeded", r"\bsignal 25\b"))
_PROCESSES = r"Resource temporarily unavailable|Too many open files"
_MEMORY = (
    r"\b(?:Killed|Terminated|Bus error)\b|\bsignal (?:7|9|15|24)\b|CPU time limit exceeded|[Oo]ut of memory|[Mm]emory exhausted"
    r"|Cannot allocate memory|[Mm]emory allocation failure|bad_alloc"
)
_PROGRAM = (
    r"could not be started: |[Cc]annot execute |[Cc]annot find (?:compiler )?['‘]|\bld: cannot find "
    r"|: (?:command )?not found$|Exec format error|^g(?:cc|\+\+): No such file or directory$|Failed to preprocess host compiler properties"
)
_DISK = r"Read-only file system|Input/output error|Stale file handle"
_ENDLESS = r" was stopped after \S+ s without an end$"
_FAULTS = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (_ROOM, "make room in {folder}, or name another folder by TMPDIR"),
        (_PROCESSES, "end other processes, or allow more of them (ulimit -u) and of open files (ulimit -n)"),
        (_MEMORY, "give this machine more memory, or compile fewer at once with --jobs"),
        (_PROGRAM, "install what the compiler lacks, or put another first on PATH (or in CXX)"),
        (_DISK, "see to the disk"),
        (_ENDLESS, "let this machine do less besides; if it comes again, correct the template, or name other versions with --version"),
    )
)

Unit = TypeVar("Unit")
Result = TypeVar("Result")


class Done(NamedTuple):
    """A program that has ended, and what it said."""

    status: int
    stdout: bytes
    stderr: bytes


class MachineError(AutotuneError):
    """A compiler failed for want of what the machine gives, which says nothing of what it compiled."""


class StoppedError(AutotuneError):
    """A compiler was stopped because nobody waits for its result any more."""


def run(
    command: Sequence[str],
    *,
    timeout_s: float | None = None,
    folder: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run a compiler to its end. `folder`, where it writes, is removed when this process is killed meanwhile.

    Raises CompileError when it takes more than `timeout_s` (TIMEOUT_S by default) seconds, StoppedError as `in_parallel` says.
    """
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    others = _others.get()
    said: list[bytes] = []
    reader, writer = os.pipe()
    with open(writer, "wb", buffering=0) as lifeline:  # noqa: PTH123 (a descriptor, not a path)
        with open(reader, "rb", buffering=0) as other_end:  # noqa: PTH123
            process = _start([sys.executable, "-I", "-S", warden.__file__, str(folder or ""), *command], other_end, cwd, env)
        others.add(lifeline)

        def ends(within_s: float) -> bool:
            with suppress(subprocess.TimeoutExpired):
                said[:] = process.communicate(timeout=within_s)
            return bool(said)

        try:
            if not comes(ends, timeout_s):
                raise CompileError(f"{Path(command[0]).name} was stopped after {timeout_s:g} s without an end")
        except BaseException:
            lifeline.close()
            process.communicate()
            raise
        finally:
            others.remove(lifeline)
    if others.stopped:
        raise StoppedError("the compiler was stopped")
    stdout, stderr = said
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode  # the warden itself may have been killed
    if status > 128:
        stderr += f"\n{Path(command[0]).name} was ended by signal {status - 128} ({signal.strsignal(status - 128)})\n".encode()
    return Done(status, stdout, stderr)


def machine_fault(line: str) -> str | None:
    """What to do about `line` of a compiler, if it tells a want of the machine's: of memory, of room, of a program; else None.

    >>> machine_fault("g++: fatal error: Killed signal terminated program cc1plus")
    'give this machine more memory, or compile fewer at once with --jobs'
    >>> machine_fault("kernels.cu:3:10: fatal error: mine.h: No such file or directory")
    """
    if _LOCATED.match(line):
        return None
    what = next((what for pattern, what in _FAULTS if pattern.search(line)), None)
    return what and what.format(folder=gettempdir())


def wants(said: str) -> list[str]:
    """Those lines of what a compiler `said` that tell a want of the machine's, which may be told after errors that it leads to."""
    return [line for line in said.splitlines() if not line[:1].isspace() and machine_fault(line)]  # what is indented quotes the source


def in_parallel(build: Callable[[Unit], Iterable[Result]], units: Iterable[Unit], jobs: int) -> Iterator[Result]:
    """The results of `build(unit)` for each of `units`, `jobs` of them at once, each as soon as it is there, in any order.

    When whoever asks does not go on to the end, by an exception for one, all that `run` has still running is stopped.
    """
    running = _Running()
    with ThreadPoolExecutor(jobs, initializer=_others.set, initargs=(running,)) as pool:
        try:
            futures = [pool.submit(build, unit) for unit in units]
            for future in as_completed(futures):
                yield from future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()


def _start(command: list[str], stdin: FileIO, cwd: Path | None, env: Mapping[str, str] | None) -> "subprocess.Popen[bytes]":
    pipe, alone = subprocess.PIPE, True  # whoever kills our whole process group leaves one behind that clears up
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, cwd=cwd, env=env, start_new_session=alone)
    except OSError as error:
        raise CompileError(f"a compiler could not be started: {error.strerror}") from error


class _Running:
    """The lifelines of the compilers that were started together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lifelines: set[FileIO] = set()
        self.stopped = False

    def add(self, lifeline: FileIO) -> None:
        with self._lock:
            self._lifelines.add(lifeline)
            if self.stopped:
                lifeline.close()

    def remove(self, lifeline: FileIO) -> None:
        with self._lock:
            self._lifelines.discard(lifeline)

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for lifeline in self._lifelines:
                lifeline.close()


_others: ContextVar[_Running] = ContextVar("_others", default=_Running())  # noqa: B039 (never stopped: those started outside of any pool)
