"""Files that come into being whole: written beside their place under another name, and put there when they are done."""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from autotune.database.faults import no_room_to_work
from autotune.errors import AutotuneError, StorageError, UsageError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_KEPT_BYTES = 100  # of a target's name within that of its partial, which no file system must find too long
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # what file systems without hard links say


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A file beside `target` to write to. It becomes `target` when the block ends well, over no file that is there, and goes otherwise.

    What killed processes have left of earlier attempts goes first. Raises UsageError when `target` exists or its folder cannot be
    written, StorageError when there is no room.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} exists; export to a new file")
    try:
        clear_leftovers(target)
        partial = partial_of(target)
        partial.touch()
        try:
            yield partial
            _place(partial, target)
        finally:
            _remove(partial)
    except FileExistsError as error:
        raise UsageError(f"{target} exists; export to a new file") from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(target, str(error.strerror)) from error
        raise UsageError(f"{target} cannot be written: {error.strerror}; export to another folder") from error


def write_over(target: Path, data: bytes) -> None:
    """Make `data` the content of `target`: a regular file is replaced whole, a link followed, a device or a pipe written to as a stream.

    Raises UsageError for a folder or a disk, StorageError when there is no room, AutotuneError when it cannot be written otherwise.
    """
    try:
        there = _what_is_at(target)
        if there is None or (stat.S_ISREG(there.st_mode) and not _is_our_output(there)):
            _replace(Path(os.path.realpath(target)), data)
        elif stat.S_ISBLK(there.st_mode) or stat.S_ISDIR(there.st_mode):
            raise UsageError(f"{target} is a {'folder' if stat.S_ISDIR(there.st_mode) else 'whole disk'}; name a file")
        elif stat.S_ISREG(there.st_mode):
            sys.stdout.flush()
            with open(1, "wb", closefd=False) as stream:
                stream.write(data)
        else:
            with target.open("wb") as stream:
                stream.write(data)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageError(f"{target} could not be written ({error.strerror}); make room or name a file elsewhere") from error
        raise AutotuneError(f"{target} cannot be written: {error.strerror}; name another file") from error


def same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, be it there or not. Names of a device or a pipe never clash: it takes one after the other."""
    there = _what_is_at(one)
    if there is not None and not stat.S_ISREG(there.st_mode):
        return False
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """A folder to work in, in the temporary folder, that goes when the block ends, also by SIGTERM; those of dead processes go too.

    Raises StorageError when there is no room for it.
    """
    try:
        place = Path(tempfile.gettempdir())
        for left in place.glob(f"autotune-{what}-*-*"):
            _clear_abandoned(left)
        made, lock = _owned_folder(place, what)
    except OSError as error:
        raise no_room_to_work(error) from error
    try:
        with _terminated_as_exception():
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def no_room(target: Path, why: str) -> StorageError:
    """The error of a new file that there is no room for."""
    return StorageError(f"{target} could not be written ({why}), and nothing is left of it; make room or name a file elsewhere")


def partial_of(target: Path) -> Path:
    """The name under which this process writes what is to become `target`."""
    return target.with_name(f".{_stem(target)}.{os.getpid()}.partial")


def clear_leftovers(target: Path) -> None:
    """Remove what processes that are gone, or this one, have left of attempts to write `target`."""
    left = re.compile(rf"\.{re.escape(_stem(target))}\.([0-9]+)\.partial(-journal|-wal|-shm)?")
    for file in target.parent.iterdir():
        if (found := left.fullmatch(file.name)) and (int(found[1]) == os.getpid() or not _alive(int(found[1]))):
            with suppress(OSError):  # of somebody else: it is in nobody's way
                file.unlink()


def place_beside(partial: Path, target: Path) -> None:
    """Put a finished file at `target`, or where that is taken under the first number after it that is free."""
    for number in count(1):
        with suppress(FileExistsError):
            _place(partial, target if number == 1 else target.with_name(f"{target.name}.{number}"))
            break


def _stem(target: Path) -> str:
    name = os.fsencode(target.name)
    return target.name if len(name) <= MOST_KEPT_BYTES else hashlib.sha256(name).hexdigest()[:32]


def _what_is_at(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        return None


def _is_our_output(there: os.stat_result) -> bool:
    """Whether that is the file which our standard output goes to: what is still to be printed would be lost with it."""
    try:
        return os.path.samestat(there, os.fstat(1))
    except OSError:
        return False


def _owned_folder(place: Path, what: str) -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is locked as long as this process lives: a process's number is given again."""
    hidden = Path(tempfile.mkdtemp(prefix=f".autotune-{what}-", dir=place))  # nobody looks for it before it is locked
    lock = os.open(hidden, os.O_RDONLY)
    with suppress(OSError):  # of a file system without locks, on which nobody clears a folder either
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return hidden.rename(place / f"autotune-{what}-{os.getpid()}-{hidden.name.rpartition('-')[2]}"), lock


def _clear_abandoned(folder: Path) -> None:
    """Remove a folder whose process is gone, and with it its lock."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(lock)


@contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, unless a caller of ours has a way of its own."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _replace(target: Path, data: bytes) -> None:
    clear_leftovers(target)
    partial = partial_of(target)
    try:
        partial.write_bytes(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _place(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # unlike a rename, never over a file that came into being meanwhile
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        target.touch(exist_ok=False)
        partial.replace(target)


def _remove(partial: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        partial.with_name(partial.name + end).unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
