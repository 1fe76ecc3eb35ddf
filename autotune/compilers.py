"""Compilers as child processes: many at once, each bounded in time, and none that outlives what it was started for.

Ctrl-C, an error elsewhere and even SIGKILL of this process end them, with everything that they have started (see `autotune.warden`).
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from io import FileIO
from pathlib import Path
from typing import NamedTuple, TypeVar

from autotune import warden
from autotune.errors import AutotuneError, CompileError

# A unit of instances takes seconds, with CUB half a minute, under a sanitizer on a busy machine perhaps one; a compiler that takes this
# long has met a fault of its own, or source that makes it loop.
TIMEOUT_S = 300.0

Unit = TypeVar("Unit")
Result = TypeVar("Result")


class Done(NamedTuple):
    """A program that has ended, and what it said."""

    status: int
    stdout: bytes
    stderr: bytes


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
    reader, writer = os.pipe()
    with open(writer, "wb", buffering=0) as lifeline:  # noqa: PTH123 (a descriptor, not a path)
        with open(reader, "rb", buffering=0) as other_end:  # noqa: PTH123
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", warden.__file__, str(folder or ""), *command],
                stdin=other_end,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=env,
                start_new_session=True,  # whoever kills our whole process group leaves one behind that clears up
            )
        others.add(lifeline)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            lifeline.close()
            process.communicate()
            raise CompileError(f"{Path(command[0]).name} was stopped after {timeout_s:g} s without an end") from None
        except BaseException:
            lifeline.close()
            process.communicate()
            raise
        finally:
            others.remove(lifeline)
    if others.stopped:
        raise StoppedError("the compiler was stopped")
    return Done(process.returncode, stdout, stderr)


def in_parallel(build: Callable[[Unit], Iterable[Result]], units: Iterable[Unit], jobs: int) -> Iterator[Result]:
    """The results of `build(unit)` for each of `units`, `jobs` of them at once, each as soon as it is there, in any order.

    When whoever asks does not go on to the end, by an exception for one, all that `run` has still running is stopped.
    """
    running = _Running()
    with ThreadPoolExecutor(jobs, initializer=_others.set, initargs=(running,)) as pool:
        futures = [pool.submit(build, unit) for unit in units]
        try:
            for future in as_completed(futures):
                yield from future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()


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
