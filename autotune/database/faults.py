"""What SQLite says when a file cannot be used, as one sentence of ours that names what is at fault."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from autotune.errors import AutotuneError, StorageError, UsageError

_DAMAGED = ("unsupported file format", "malformed database schema")
_NOT_OURS = ("no such table", "no such column", "no such function", "no such view", "has no column named", "malformed JSON")
_READING = (
    *(sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_IOERR_DATA),
    *(sqlite3.SQLITE_IOERR_FSTAT, sqlite3.SQLITE_IOERR_SEEK, sqlite3.SQLITE_IOERR_ACCESS, sqlite3.SQLITE_IOERR_AUTH),
)
_DATATYPE = sqlite3.SQLITE_CONSTRAINT | 12 << 8  # SQLITE_CONSTRAINT_DATATYPE, which Python 3.11 has no name for
_UNFIT = (_DATATYPE, sqlite3.SQLITE_CONSTRAINT_NOTNULL, sqlite3.SQLITE_CONSTRAINT_CHECK)
_INDEX = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMLOCK)


def code_of(error: Exception) -> int:
    """SQLite's extended result code; 0 where Python's module made the error and gave it none."""
    return int(getattr(error, "sqlite_errorcode", 0))


def explanation(path: Path, error: Exception, minutes: float) -> AutotuneError | None:
    """What to tell a user about `error`, met at the database `path`; None when it is a fault of ours.

    `minutes` is how long a lock was waited for.
    """
    code = code_of(error)
    if code in _READING:
        return UsageError(f"database {path} cannot be read ({error}); its disk may be damaged: restore a copy, or name another with --db")
    if code in _INDEX:
        return no_index(path, error)
    match code & 0xFF:  # the low byte of an extended code is its primary one
        case sqlite3.SQLITE_NOTADB:
            return UsageError(f"database {path} is not an SQLite database; name another with --db")
        case sqlite3.SQLITE_CORRUPT:
            return UsageError(f"database {path} is damaged ({error}); restore a copy, or save what is left with sqlite3's .recover")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return UsageError(f"database {path} cannot be {_not_opened(path)}; name another with --db")
        case sqlite3.SQLITE_FULL:
            return StorageError(
                f"database {path} could not be written ({error}): {_room(path)}; all stored before is kept: make room and run again"
            )
        case sqlite3.SQLITE_IOERR:
            return StorageError(f"database {path} could not be written ({error}); all stored before is kept: make room and run again")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return AutotuneError(f"database {path} has been locked by another process for {minutes:.0f} minutes; end that process first")
        case sqlite3.SQLITE_CONSTRAINT if code in _UNFIT:
            return UsageError(
                f"database {path} cannot store what follows from it ({error}), for a row that it has makes no sense; restore a copy, or "
                "name another with --db"
            )
    said = str(error)
    if any(words in said for words in _DAMAGED):
        return UsageError(f"database {path} is damaged ({said}); restore a copy, or name another with --db")
    if isinstance(error, UnicodeError) or "UTF-8" in said:  # Python's, which gives no code
        return UsageError(f"database {path} is damaged (a text in it is not UTF-8); restore a copy, or name another with --db")
    if any(words in said for words in _NOT_OURS):
        return UsageError(f"database {path} is not as autotune made it ({said}); restore a copy, or name another with --db")
    return None


def no_index(path: Path, error: Exception) -> StorageError:
    """The error of a database whose write-ahead log cannot be used, for want of room for its index, by who reads as by who writes."""
    return StorageError(
        f"database {path} could not be used, for there is no room beside it for the index of its write-ahead log ({error}): {_room(path)}; "
        "all stored before is kept: make room and run again"
    )


def not_opened(path: Path, error: BaseException, mode: str, *, new: bool) -> UsageError | None:
    """What to tell a user where `error` was met before any work: the system's, or a want of room; None where it tells that itself.

    `new` says that the database was being made.
    """
    if isinstance(error, OSError):
        return UsageError(f"database {path} cannot be opened: {error.strerror}; name another with --db")
    if not isinstance(error, StorageError) or mode == "read":
        return None
    if not new:
        return UsageError(str(error))
    free = shutil.disk_usage(path.absolute().parent).free / 1e6
    return UsageError(
        f"database {path} could not be made ({error.__cause__}), and nothing of it stays: there are {free:.1f} MB of room; make some, or "
        "name another with --db"
    )


def is_full(error: sqlite3.Error) -> bool:
    """Whether a write failed for want of room, by the disk's limit or another."""
    code = code_of(error)
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) and code not in _READING


def temporary_folder() -> Path:
    """Where SQLite puts what does not fit into memory (https://sqlite.org/tempfiles.html, "Temporary File Storage Locations")."""
    named = (os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR"))
    for folder in (*named, "/var/tmp", "/usr/tmp", "/tmp"):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    return Path()


def no_room_to_work(error: Exception) -> StorageError:
    """The error of work on a copy in Python's temporary folder that there is no room for."""
    return StorageError(f"there is no room in {_temporary()} to work in ({error}); make room there, or name another folder by TMPDIR")


def _temporary() -> str:
    try:
        return f"the temporary folder {tempfile.gettempdir()}"
    except OSError:
        return "any temporary folder"


def _not_opened(path: Path) -> str:
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"opened ({error.strerror})"
    return "written because the file or its folder is read-only"


def _room(path: Path) -> str:
    """How much room is left where SQLite may have looked for some: beside the database, and where it sorts."""
    places = {folder.stat().st_dev: folder for folder in (temporary_folder(), path.absolute().parent)}
    return " and ".join(f"{folder} has {shutil.disk_usage(folder).free / 1e6:.1f} MB left" for folder in reversed(places.values()))
