"""Opening a database file, and the one way to write to it."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from autotune.database.filesystem import network_filesystem
from autotune.database.schema import APPLICATION_ID, SCHEMA
from autotune.database.views import VIEWS
from autotune.errors import AutotuneError, StorageError, UsageError

BUSY_TIMEOUT_S = 30.0
ATTEMPTS = 4  # two minutes in all: longer than any transaction of ours, so whoever still holds the lock is stuck

Row = dict[str, Any]
Mode = Literal["read", "write"]


class Connection:
    """One open database file. Use it as a context manager, in the thread that opened it.

    `mode` is "read" or "write"; with `create`, a missing or empty file is made into a database. An older file is brought to today's
    schema: on writing for good, after a copy of it is laid beside it, and on reading in memory. Raises UsageError when `path` cannot be
    opened that way: missing, not a database, damaged, of a newer schema, not writable, or on a network file system.
    """

    def __init__(self, path: str | Path, mode: Mode = "write", create: bool = False) -> None:
        self.path = Path(path)
        self.mode = mode
        self._file: tuple[int, int] | None = None  # which file was opened to be written
        if self.path.is_dir():
            raise UsageError(f"database {self.path} is a folder; name a file in it, such as {self.path / 'autotune.sqlite'}")
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"database {self.path} is not a regular file; name one with --db")
        if not self.path.exists() and not (create and mode == "write"):
            raise UsageError(
                f"database {self.path} does not exist; `autotune sweep` or `autotune import` creates one, or name another with --db"
            )
        try:
            with self._explained():
                self._connection = self._open_to_write(create) if mode == "write" else self._open_to_read()
            self._file = _identity(self.path) if mode == "write" else None
        except OSError as error:
            raise UsageError(f"database {self.path} cannot be opened: {error.strerror}; name another with --db") from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its start, so that it never fails half way because another process wrote.

        Committed when the block ends, rolled back when it raises; a block inside another joins it. Keep blocks short: no compile, no
        GPU work. Raises AutotuneError when the disk is full or the lock stays taken; what was committed before is kept.
        """
        connection = self._connection
        if connection.in_transaction:
            yield connection
            return
        if self._file is not None and _identity(self.path) != self._file:
            raise AutotuneError(
                f"database {self.path} was deleted or replaced while it was open, and what was written to it is lost; run the command again"
            )
        with self._explained():
            _retry(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back already, and the error that led here is the one to report
                    connection.execute("ROLLBACK")
                raise

    def select(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """The rows that `sql` finds, as dicts from column name to value."""
        with self._explained():
            cursor = self._connection.execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _open_to_write(self, create: bool) -> sqlite3.Connection:
        folder = self.path.parent
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        if kind := network_filesystem(folder):
            raise UsageError(
                f"database {self.path} is on a network file system ({kind}), where SQLite's write-ahead log is unsafe; "
                "write to a local file and share it with `autotune export`"
            )
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            self._prepare(connection, create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, create: bool) -> None:
        schema = self._schema(connection, empty_is_fine=create)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        _retry(connection, "PRAGMA journal_mode = WAL")
        if schema < SCHEMA or not _views_are_ours(connection):
            self._migrate(connection, schema)

    def _migrate(self, connection: sqlite3.Connection, schema: int) -> None:
        from autotune.database.migrations import migrate

        if 0 < schema < SCHEMA:
            partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
            partial.unlink(missing_ok=True)
            connection.execute("VACUUM INTO ?", (str(partial),))
            partial.replace(self.path.with_name(f"{self.path.name}.schema{schema}"))
        self._connection = connection
        with self.write():
            migrate(connection)  # takes only the steps that are missing, so it does not matter if another process was faster

    def _open_to_read(self) -> sqlite3.Connection:
        """A connection that refuses to write. Where not even the write-ahead log's index can be made, the file is read as it stands.

        The file is opened for writing where that is allowed, because only then the last to close it clears the log and its index away.
        """
        uri = f"file:{quote(bytes(self.path.resolve()))}"
        try:
            return self._open_checked(f"{uri}?mode=rw")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
        return self._open_checked(f"{uri}?mode=ro&immutable=1")

    def _open_checked(self, uri: str) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            schema = self._schema(connection)
            return connection if schema == SCHEMA and _views_are_ours(connection) else _migrated_copy(connection)
        except BaseException:
            connection.close()
            raise

    def _schema(self, connection: sqlite3.Connection, empty_is_fine: bool = False) -> int:
        """The schema number of the file: 0 when it is empty. Raises UsageError when it is not ours or newer than we are."""
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if not tables and not application:
            if empty_is_fine:
                return 0
            raise UsageError(f"database {self.path} is empty; `autotune sweep` or `autotune import` fills it, or name another with --db")
        if application != APPLICATION_ID:
            raise UsageError(f"database {self.path} is an SQLite file of another program; name one that autotune made with --db")
        if schema > SCHEMA:
            raise UsageError(
                f"database {self.path} is of schema {schema} and this autotune knows up to {SCHEMA}; install the newer autotune"
            )
        return schema

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what SQLite says into one sentence of ours."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if explained := _explanation(self.path, error):
                raise explained from error
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at `path`; None for none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of an older database, in memory and of today's schema; closes `connection`."""
    from autotune.database.migrations import migrate

    copy = sqlite3.connect(":memory:", isolation_level=None)
    connection.backup(copy)
    connection.close()
    migrate(copy)  # nobody else sees this copy, so it needs no transaction
    copy.execute("PRAGMA query_only = ON")
    return copy


def _views_are_ours(connection: sqlite3.Connection) -> bool:
    views = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'view'"))
    return all(views.get(name) == sql.strip() for name, sql in VIEWS.items())


def _retry(connection: sqlite3.Connection, sql: str) -> None:
    """Execute a statement that needs the write lock; SQLite waits for it up to the busy timeout each time."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            connection.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == ATTEMPTS:
                raise


def _explanation(path: Path, error: sqlite3.DatabaseError) -> AutotuneError | None:
    """What to tell a user about `error`; None when it is a fault of ours."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the low byte of an extended code is its primary one
        case sqlite3.SQLITE_NOTADB:
            return UsageError(f"database {path} is not an SQLite database; name another with --db")
        case sqlite3.SQLITE_CORRUPT:
            return UsageError(f"database {path} is damaged ({error}); restore a copy, or save what is left with sqlite3's .recover")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return UsageError(f"database {path} cannot be written because the file or its folder is read-only; name another with --db")
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return StorageError(f"database {path} could not be written ({error}); all stored before is kept: make room and run again")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            minutes = ATTEMPTS * BUSY_TIMEOUT_S / 60
            return AutotuneError(f"database {path} has been locked by another process for {minutes:.0f} minutes; end that process first")
    return None
