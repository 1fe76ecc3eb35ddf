"""Opening a database file, and the one way to write to it."""

import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shlex import quote as quoted
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from autotune import arguments
from autotune.database.faults import code_of, explanation, is_full, no_index, not_opened
from autotune.database.filesystem import network_filesystem
from autotune.database.placing import clear_leftovers, partial_of, place_beside
from autotune.database.schema import APPLICATION_ID, SCHEMA
from autotune.database.views import VIEWS
from autotune.errors import AutotuneError, UsageError

BUSY_TIMEOUT_S = 30.0
ATTEMPTS = 4  # two minutes in all: longer than any transaction of ours, so whoever still holds the lock is stuck

Row = dict[str, Any]
Mode = Literal["read", "write"]


class Connection:
    """One open database file. Use it as a context manager, in the thread that opened it.

    `mode` is "read" or "write"; with `create`, a missing or empty file is made into a database, and goes again where the block that it was
    made for fails before anything is stored. An older file is brought to today's schema: on writing for good, after a copy of it is laid
    beside it, and on reading in memory. Raises UsageError when `path` cannot be opened that way: missing, not a database, damaged, of a
    schema that is not known, an export that was to be written to, not writable, without room to write, or on a network file system.
    """

    def __init__(self, path: str | Path, mode: Mode = "write", create: bool = False) -> None:
        self.path, self.mode = arguments.path("path", path), arguments.one_of("mode", mode, ("read", "write"))
        self.complained = set[str]()  # the tables of which it was said that rows are left out
        self._file: tuple[int, int] | None = None  # which file was opened to be written
        self._made: list[Path] = []  # the file and folders that were made for it
        try:
            found = self._look(create and mode == "write")
            self._made = [] if found else [self.path, *(folder for folder in self.path.parents if not folder.exists())]
            with self._explained():
                self._connection = self._open_to_write(create) if mode == "write" else self._open_to_read()
            self._file = _identity(self.path) if mode == "write" else None
        except BaseException as error:
            refused = not_opened(self.path, error, mode, new=bool(self._made))
            self._unmake()
            if refused:
                raise refused from error
            raise

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is not None:
            self._unmake()

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

    def _look(self, may_be_missing: bool) -> bool:
        """Whether there is a file. Raises UsageError for one that is no regular file, and OSError where that cannot be told."""
        try:
            kind = self.path.stat().st_mode
        except FileNotFoundError:
            if may_be_missing:
                return self.path.is_symlink()  # one to a file that is still to be made is somebody's
            raise UsageError(
                f"database {self.path} does not exist; autotune sweep, import, compile, pin or block makes one, or name another with --db"
            ) from None
        if stat.S_ISDIR(kind):
            raise UsageError(f"database {self.path} is a folder; name a file in it, such as {self.path / 'autotune.sqlite'}")
        if not stat.S_ISREG(kind):
            raise UsageError(f"database {self.path} is not a regular file; name one with --db")
        return True

    def _unmake(self) -> None:
        """Remove what was made for this database, which must be closed, unless something is in it or another process has it open."""
        if not self._made:
            return
        with suppress(OSError, sqlite3.Error):
            if self.path.exists():
                _remove_empty(self.path)
            for folder in self._made[1:]:
                folder.rmdir()

    def _open_to_write(self, create: bool) -> sqlite3.Connection:
        folder = self.path.parent
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        if kind := network_filesystem(folder):
            raise UsageError(
                f"database {self.path} is on a network file system ({kind}), where SQLite's write-ahead log is unsafe; "
                "write to a local file and share it with autotune export"
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
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'manifest'").fetchone():
            raise UsageError(
                f"database {self.path} is an export, which stays as its manifest says; "
                f"take it into a database of your own with `autotune import {quoted(str(self.path))} --db mine.sqlite` and name that "
                "with --db"
            )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        _retry(connection, "PRAGMA journal_mode = WAL")
        if schema < SCHEMA or not _views_are_ours(connection):
            self._migrate(connection, schema)

    def _migrate(self, connection: sqlite3.Connection, schema: int) -> None:
        from autotune.database.migrations import migrate

        if 0 < schema < SCHEMA:
            clear_leftovers(self.path)
            partial = partial_of(self.path)
            connection.execute("VACUUM INTO ?", (str(partial),))
            place_beside(partial, self.path.with_name(f"{self.path.name}.schema{schema}"))
            partial.unlink(missing_ok=True)
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
            if is_full(error):
                self._clear_index(error)
            elif code_of(error) & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
        return self._open_checked(f"{uri}?mode=ro&immutable=1")

    def _clear_index(self, error: sqlite3.Error) -> None:
        """Remove what SQLite has begun beside the file and found no room for. Raises StorageError where the log may not be passed over."""
        log, index = (self.path.resolve().with_name(f"{self.path.resolve().name}{end}") for end in ("-wal", "-shm"))
        try:
            with closing(sqlite3.connect(f"file:{quote(bytes(self.path.resolve()))}?mode=rw", uri=True, timeout=0)) as connection:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # which needs no index, and is refused where another process reads
                connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
                if log.exists() and log.stat().st_size:
                    raise no_index(self.path, error) from error
                for begun in (log, index):
                    begun.unlink(missing_ok=True)
        except (OSError, sqlite3.Error):
            raise no_index(self.path, error) from error

    def _open_checked(self, uri: str) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=True)
        try:
            schema = self._schema(connection)
            if schema == SCHEMA and not _views_are_ours(connection):
                _shadow_views(connection)
            connection.execute("PRAGMA query_only = ON")
            return connection if schema == SCHEMA else _migrated_copy(connection)
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
            raise UsageError(f"database {self.path} is empty; autotune sweep or import fills it, or name another with --db")
        if application != APPLICATION_ID:
            raise UsageError(f"database {self.path} is an SQLite file of another program; name one that autotune made with --db")
        if schema > SCHEMA:
            raise UsageError(
                f"database {self.path} is of schema {schema} and this autotune knows up to {SCHEMA}; install the newer autotune"
            )
        if schema < 1 or not tables:
            raise UsageError(
                f"database {self.path} says that it is of schema {schema}, which no autotune has written; restore a copy, or name another "
                "with --db"
            )
        return schema

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what SQLite says into one sentence of ours."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where what SQLite says, or a name in the file, is no text
            if explained := explanation(self.path, error, ATTEMPTS * BUSY_TIMEOUT_S / 60):
                raise explained from error
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at `path`; None for none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _remove_empty(path: Path) -> None:
    """Remove a database without rows. Raises sqlite3.Error where it is in use, and leaves one with rows alone."""
    with closing(sqlite3.connect(f"file:{quote(bytes(path.resolve()))}?mode=rw", uri=True, timeout=0, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:  # it writes a first page where there is none
            if path.stat().st_size or not is_full(error):
                raise
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> '_sqlite_migrations'").fetchall()
        if not any(connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for (name,) in tables):
            for end in ("", "-wal", "-shm", "-journal"):
                path.with_name(path.name + end).unlink(missing_ok=True)


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


def _shadow_views(connection: sqlite3.Connection) -> None:
    """Ours before those of the file, which an older or a foreign autotune wrote: a copy with ours in it costs seconds where it is large."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for sql in VIEWS.values():
        connection.execute(sql.strip().replace("CREATE VIEW", "CREATE TEMP VIEW", 1))


def _retry(connection: sqlite3.Connection, sql: str) -> None:
    """Execute a statement that needs the write lock; SQLite waits for it up to the busy timeout each time."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            connection.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if code_of(error) & 0xFF != sqlite3.SQLITE_BUSY or attempt == ATTEMPTS:
                raise
