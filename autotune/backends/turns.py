"""Sweeps that share a GPU take turns: what is timed while another kernel runs is slower than it is."""

import fcntl
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = Path(tempfile.gettempdir())  # of the machine, not of a user: whoever sweeps, it is the same GPU


class Turns:
    """The right to use one GPU, named by its PCI bus id, which one process of this machine has at a time.

    A lock on a file, which the kernel releases when its process dies, however it dies. Where there can be no such file or lock nobody
    waits.
    """

    def __init__(self, bus_id: str) -> None:
        self._path = FOLDER / f"autotune-gpu-{re.sub(r'[^0-9a-zA-Z]+', '-', bus_id)}.lock"
        self._file = _opened(self._path)
        self._told = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Has the GPU to itself, and waits for it if need be; says so the first time."""
        if self._file is None:
            yield
            return
        with suppress(OSError):  # a network's file system may have the file and no locks
            self._lock(self._file)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not self._told:
                self._told = True
                warnings.warn("another sweep uses this GPU; the two take turns, and both take longer", RuntimeWarning, stacklevel=4)
            fcntl.flock(file, fcntl.LOCK_EX)

    def close(self) -> None:
        """Give the file back; nobody waits any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> int | None:
    # In a sticky folder the kernel refuses to create what is there already and someone else's, so what is there is opened first.
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    return None
