"""Functions of a definition that do not come back: an endless one is interrupted, and `os._exit` is refused.

They are asked in the process that stores results, thousands of times and for microseconds, so nothing is added to a call. A thread
looks a few times in the allowed time at what the watched thread is doing, and raises an exception there once that is still the very same
call. That reaches Python code alone: what never comes back from C cannot be ended without the process.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from autotune.declared import call_in, spoken_call
from autotune.errors import UsageError

LOOKS = 8  # at the watched thread while one call takes as long as is allowed
ALLOWED_S = 10.0  # where nobody says
_watched_threads: set[int] = set()


class _Endless(BaseException):
    """Raised in the watched thread; no `except Exception` of a definition takes it for its own."""


@contextmanager
def guarded(allowed_s: float, *, may_be_longer: bool = True) -> Iterator[None]:
    """Raises UsageError when a function of a definition takes longer than `allowed_s` seconds in this thread, or calls `os._exit`.

    Within another one in the same thread it does nothing: that one's time counts. The error advises a longer hang timeout if that may be.
    """
    thread = threading.get_ident()
    if thread in _watched_threads:
        yield
        return
    watch, really_exit = _Watch(allowed_s), os._exit
    _watched_threads.add(thread)
    try:
        watch.start()
        os._exit = _refusing(really_exit)  # type: ignore[assignment]  # its parameter has no name of its own there
        try:
            yield
        finally:
            os._exit = really_exit
            watch.end()
    except _Endless as endless:
        longer = ", or give a longer hang timeout" if may_be_longer else ""
        raise UsageError(f"{watch.said} is not done after {allowed_s:g} s; correct it there{longer}") from endless
    finally:
        _watched_threads.discard(thread)


def _refusing(really_exit: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """`os._exit` for whoever is no function of a definition in this very process: the process would end without a word."""
    here = os.getpid()

    def leave(status: int) -> NoReturn:
        asked = call_in(sys._getframe())
        if asked is None or os.getpid() != here:
            really_exit(status)
        raise UsageError(f"{spoken_call(asked)} calls os._exit({status}), which would end this process; raise an exception there instead")

    return leave


class _Watch(threading.Thread):
    """Looks at the thread that made it. `said` is the call that took too long."""

    def __init__(self, allowed_s: float) -> None:
        super().__init__(name="autotune guard", daemon=True)
        self.said = ""
        self._every_s = min(allowed_s / LOOKS, threading.TIMEOUT_MAX)
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        before, looks = self._asked(), 0
        while not self._over.wait(self._every_s):
            asked = self._asked()
            looks = looks + 1 if asked is not None and asked is before else 0
            before = asked
            if looks >= LOOKS:
                self._interrupt(asked)
                looks = 0  # a definition may have caught the exception, and is interrupted again

    def end(self) -> None:
        """Ends the watch: once this has returned nothing is raised any more."""
        with self._lock:
            self._over.set()

    def _asked(self) -> FrameType | None:
        return call_in(sys._current_frames().get(self._watched))

    def _interrupt(self, call: FrameType | None) -> None:
        with self._lock:
            if call is not None and call is self._asked() and not self._over.is_set():
                self.said = spoken_call(call)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), ctypes.py_object(_Endless))
