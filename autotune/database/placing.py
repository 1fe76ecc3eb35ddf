"""New files that come into being whole: written beside their place under another name, and linked there when they are done."""

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.database.faults import no_room_to_work
from autotune.errors import StorageError, UsageError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_YESTERDAY_S = 86400.0  # processes of other containers, which are not seen from here, are done by then
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


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """A folder to work in, in the temporary folder, that goes when the block ends; those that killed processes left yesterday go too.

    Raises StorageError when there is no room for it.
    """
    try:
        place = Path(tempfile.gettempdir())
        for left in place.glob(f"autotune-{what}-*-*"):
            process = left.name.split("-")[2]
            with suppress(OSError):
                if process.isdecimal() and not _alive(int(process)) and time.time() - left.stat().st_mtime > _YESTERDAY_S:
                    shutil.rmtree(left)
        made = tempfile.mkdtemp(prefix=f"autotune-{what}-{os.getpid()}-", dir=place)
    except OSError as error:
        raise no_room_to_work(error) from error
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def no_room(target: Path, why: str) -> StorageError:
    """The error of a new file that there is no room for."""
    return StorageError(f"{target} could not be written ({why}), and nothing is left of it; make room or export to another folder")


def partial_of(target: Path) -> Path:
    """The name under which this process writes what is to become `target`."""
    return target.with_name(f".{target.name}.{os.getpid()}.partial")


def clear_leftovers(target: Path) -> None:
    """Remove what processes that are gone, or this one, have left of attempts to write `target`."""
    left = re.compile(rf"\.{re.escape(target.name)}\.([0-9]+)\.partial(-journal|-wal|-shm)?")
    for file in target.parent.iterdir():
        if (found := left.fullmatch(file.name)) and (int(found[1]) == os.getpid() or not _alive(int(found[1]))):
            with suppress(OSError):  # of somebody else: it is in nobody's way
                file.unlink()


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
