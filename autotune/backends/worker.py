"""A child process in which kernels run, so that a kernel can crash, hang or poison its context and cost only one trial.

The child is a plain subprocess, not a `multiprocessing` one: it never imports the caller's `__main__`, so a script without an
`if __name__ == "__main__"` guard can sweep. It is spawned and never forked, since CUDA does not survive a fork.
"""

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from autotune.errors import AutotuneError
from autotune.guard import ALLOWED_S
from autotune.operation import Operation
from autotune.patience import comes
from autotune.trial import Failure, Outcome

# Of the time that the child is given to set a problem up: what a definition may take there, so that the child can still say that it did.
OF_SET_UP = 0.8
START_TIMEOUT_S = 120.0  # importing PyCUDA and making a context takes a second or two; a cold network disk can take far longer
CLOSE_TIMEOUT_S = 5.0

Value = TypeVar("Value")


class Worker:
    """Hosts one object of class `engine` ("module:Class", made with `arguments`) in a child process and calls its methods there.

    `generation` counts the children spawned so far: a caller that set something up in one child sees from it that the child is gone.
    Not thread-safe; one thread owns a worker.
    """

    def __init__(
        self,
        engine: str,
        arguments: Mapping[str, Any],
        *,
        hang_timeout_s: float = ALLOWED_S,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._arguments = dict(arguments)
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._lifeline: int | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        self.hang_timeout_s = hang_timeout_s
        self.generation = 0

    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """The value of `engine.method(*args, **kwargs)`, computed in the child, which is spawned when there is none.

        Raises Failure(TIMEOUT) when no answer comes within `timeout_s` (else `hang_timeout_s`) seconds and Failure(CRASHED) when
        the child dies; either way the child is gone and the next call spawns another. What the engine raises is raised here.
        """
        self._spawn()
        return self._ask((method, args, kwargs), self.hang_timeout_s if timeout_s is None else timeout_s)

    @property
    def alive(self) -> bool:
        """Whether there is a child that can be called; one that was killed while it was idle is none."""
        return self._process is not None and self._process.poll() is None

    def discard(self) -> None:
        """Kill the child, if there is one: its device context can no longer be trusted."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def close(self) -> None:
        """End the child for good, giving it a moment to put its device in order."""
        if self._process is not None:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.send(None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_TIMEOUT_S)
        self.discard()
        self._said.close()

    def _spawn(self) -> None:
        if self.alive:
            return
        self.discard()
        ours, theirs = Pipe()
        lifeline, held = os.pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from autotune.backends.worker import serve; serve({theirs.fileno()}, {lifeline})"
        )
        self._said.seek(0)
        self._said.truncate()
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **self._env},
            pass_fds=(theirs.fileno(), lifeline),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
        )
        theirs.close()
        os.close(lifeline)
        self._connection, self._lifeline = ours, held
        self.generation += 1
        try:
            self._ask((self._engine, (), self._arguments), START_TIMEOUT_S)
        except Exception:
            self.discard()  # a child without an engine would take the next call for its making
            raise

    def _ask(self, request: tuple[str, tuple[Any, ...], dict[str, Any]], timeout_s: float) -> Any:
        assert self._connection is not None
        said_before = os.fstat(self._said.fileno()).st_size
        try:
            self._connection.send(request)
            if not comes(self._connection.poll, timeout_s):
                self.discard()
                raise Failure(Outcome.TIMEOUT, f"no answer within {timeout_s:.3g} s, so its process was killed")
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise Failure(Outcome.CRASHED, self._epitaph(said_before)) from None
        except KeyboardInterrupt:
            self.discard()  # its answer, if it ever came, would be taken for the next one's
            raise
        if kind == "raised":
            raise value
        return value

    def _epitaph(self, said_before: int) -> str:
        """How the child ended, and the last line it wrote since its last call began: what it said earlier is of something else."""
        assert self._process is not None
        try:
            status = self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = 0
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self._said.seek(said_before)
        last = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()][-1:]
        self.discard()
        return f"the process that ran it {how}" + (f" and said: {last[0].strip()[:300]}" if last else "")

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
        self._process = self._connection = self._lifeline = None


def set_up_again_if_killed(step: Callable[[], None], operation: Operation) -> None:
    """Does `step`, which makes inputs and their reference in the child; who kills the child means no step, so a second time if one died.

    Raises Failure, which names the definition whose `reference` was asked: code that is not Python's cannot be interrupted there.
    """
    try:
        again_if_killed(step)
    except Failure as failure:
        if failure.outcome not in (Outcome.TIMEOUT, Outcome.CRASHED):
            raise
        where = operation.folder / "operation.py"
        raise Failure(failure.outcome, f"{failure.message}, while inputs were made and reference of {where} was asked") from failure


def again_if_killed(step: Callable[[], Value]) -> Value:
    """What `step` returns, done a second time in a new child when the first one died at it: whoever kills a child means no step."""
    try:
        return step()
    except Failure as failure:
        if failure.outcome is not Outcome.CRASHED:
            raise
    try:
        return step()
    except Failure as failure:
        if failure.outcome is not Outcome.CRASHED:
            raise
        raise Failure(failure.outcome, f"{failure.message}, as the one before it did") from failure


def serve(requests: int, lifeline: int) -> None:
    """The child's side: make the engine, then answer calls until the parent says so or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they reach the whole group; the parent decides what becomes of us
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    connection: Connection[Any, Any] = Connection(requests)
    engine: Any = None
    while (request := connection.recv()) is not None:
        method, args, kwargs = request
        try:
            if engine is None:
                module, name = method.split(":")
                engine, value = getattr(importlib.import_module(module), name)(**kwargs), None
            else:
                value = getattr(engine, method)(*args, **kwargs)
            connection.send(("value", value))
        except Exception as error:
            connection.send(("raised", _sendable(error)))
    if hasattr(engine, "close"):
        engine.close()


def _die_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns only when the parent's end is closed
    os.kill(os.getpid(), signal.SIGKILL)


def _sendable(error: Exception) -> Exception:
    """`error` itself when it is one of ours and survives the journey; else a Failure that quotes it."""
    if isinstance(error, Failure | AutotuneError):
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return error
    if isinstance(error, MemoryError):
        return Failure(Outcome.OUT_OF_MEMORY, str(error) or "the process that runs kernels has no memory left")
    return Failure(Outcome.LAUNCH_ERROR, f"{type(error).__name__}: {error}")
