"""Sharing databases: export to one read-only file, import of such a file, and a hash of what a database says.

Nothing in a foreign file is executed. Its tables must be declared exactly as ours, so that no view or trigger takes their place, its
rows must meet our constraints, and its compiled kernels stay behind unless the caller names the templates that they may be of.
"""

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune import arguments
from autotune.database.connection import Connection, Row
from autotune.database.faults import is_full, no_room_to_work
from autotune.database.merge import TABLES, Table, clashing_pins, forget, merge, portable
from autotune.database.packing import unpack
from autotune.database.placing import new_file, no_room, scratch_folder
from autotune.database.schema import SCHEMA
from autotune.database.sound import sound, without_id
from autotune.database.vetting import vet
from autotune.errors import AutotuneError, UsageError
from autotune.source import identity


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought: how many rows of each table were new, and the pins that clash, in words."""

    added: dict[str, int]
    clashes: list[str]


@dataclass(frozen=True, slots=True)
class Vetted:
    """A foreign database, and a private copy of it that every check has passed."""

    source: Path
    copy: Path


class Transfer(Connection):
    """The part of a database that exchanges contents with other files."""

    def export(self, path: str | Path, note: str = "") -> Row:
        """Write a consistent snapshot to the new file `path`, for reading only; returns its manifest, which is also in the file.

        `note` is what the manifest is to say of it beside that.

        Raises UsageError when `path` exists or cannot be written.
        """
        target = arguments.path("path", path)
        with new_file(target) as partial:
            self._vacuum_into(partial, target)
            try:
                with _explained_as(target):
                    manifest = _seal(partial, note)
            except AutotuneError as error:  # what is wrong with the copy is wrong with what it is of
                raise type(error)(str(error).replace(str(partial), str(self.path))) from error
            with suppress(PermissionError):  # of a file system that knows no such bits
                partial.chmod(0o444)
        return manifest

    def _vacuum_into(self, path: Path, target: Path) -> None:
        """Copy to `path`. An older file is read through a copy in memory that refuses statements which write, and this counts as one."""
        refusing = self._connection.execute("PRAGMA query_only").fetchone()[0]
        self._connection.execute("PRAGMA query_only = OFF")
        try:
            with self._explained(), _explained_as(target):
                self._connection.execute("VACUUM INTO ?", (str(path),))
        finally:
            self._connection.execute(f"PRAGMA query_only = {refusing}")

    def manifest(self) -> Row:
        """What the database holds: schema, devices, templates, rows per table, and the hash of its content."""
        return {
            "schema": SCHEMA,
            "devices": sound(self, "devices", self.select("SELECT id, name FROM devices ORDER BY name, id"), lambda row: row["name"]),
            "templates": sound(
                self,
                "templates",
                self.select("SELECT id, operation, version, sha FROM templates ORDER BY operation, version, sha"),
                without_id,
            ),
            "rows": {table.name: self.select(f"SELECT count(*) AS n FROM {table.name}")[0]["n"] for table in TABLES},
            "content": self.content_hash(),
        }

    def content_hash(self) -> str:
        """A hash of all that was measured and decided. Databases with the same content have the same hash, whatever their ids.

        Left out is what is about one file alone: which rows were imported, how often problems were missed, and compiled kernels,
        which can be made again from the rest.
        """
        digest = hashlib.sha256()
        for table in TABLES:
            if table.name not in ("binaries", "misses"):
                digest.update(f"{table.name}\n".encode())
                for line in self._lines(table):
                    digest.update(f"{line}\n".encode())
        return digest.hexdigest()

    def _lines(self, table: Table) -> list[str]:
        """Every row of a table as one line, in an order that no id decides. Raises UsageError where one holds bytes, for JSON has none."""
        try:
            return sorted(json.dumps(row) for row in self.select(portable(table)))
        except (TypeError, sqlite3.OperationalError) as error:
            if isinstance(error, sqlite3.OperationalError) and "BLOB" not in str(error):
                raise
            raise UsageError(
                f"database {self.path} is damaged (a row of {table.name} holds bytes where a text or a number belongs); restore a copy, or "
                "name another with --db"
            ) from error

    def import_from(self, path: str | Path, *, kernels_of: Collection[str] = ()) -> Imported:
        """Add what the database at `path` says. Doing it again adds nothing, and the order of several imports does not matter.

        Local confirmed results are never replaced by foreign ones. Compiled kernels come along only for instances whose template's
        hash is in `kernels_of`. Raises UsageError, with nothing changed, when the file is damaged, was changed by hand, or is newer.
        """
        with vetted(arguments.path("path", path)) as foreign:
            return self.merge(foreign, kernels_of=kernels_of)

    def merge(self, foreign: Vetted, *, kernels_of: Collection[str] = ()) -> Imported:
        """Add what a vetted database says, as `import_from` does: all of it, or nothing where that fails."""
        self._connection.execute("ATTACH ? AS source", (str(foreign.copy),))
        try:
            with self.write() as connection:
                clashes = clashing_pins(connection)
                added = {table.name: merge(connection, table, kernels_of) for table in TABLES}
                forget(connection)
        except sqlite3.IntegrityError as error:
            raise UsageError(f"database {foreign.source} does not fit ({error}); nothing was imported") from error
        finally:
            self._connection.execute("DETACH source")
        return Imported({name: count for name, count in added.items() if count}, clashes)

    def _copy_to(self, path: Path) -> None:
        from autotune.database.migrations import remake_views

        found = " ".join(self.select("PRAGMA quick_check(1)")[0]["quick_check"].split())
        if found != "ok":
            raise UsageError(f"database {self.path} is damaged ({found}); nothing was imported")
        with self._explained(), closing(sqlite3.connect(path, isolation_level=None)) as copy:
            try:
                self._connection.backup(copy)
                copy.executescript("PRAGMA synchronous = OFF; BEGIN")  # nobody else sees it
                remake_views(copy)  # nothing of a foreign file is executed
                copy.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if is_full(error):
                    raise no_room_to_work(error) from error
                raise

    def _check_manifest(self, source: Path) -> None:
        """Raise UsageError where the file has a manifest that says something else than its tables."""
        tables = {row["name"]: row["sql"] for row in self.select("SELECT name, sql FROM sqlite_master WHERE type = 'table'")}
        if any(not tables.get(table.name, "").startswith("CREATE TABLE") for table in TABLES):
            raise UsageError(f"database {source} lacks tables that autotune makes; nothing was imported")
        if "manifest" in tables:
            schema, content = self._promised(source)
            if schema == SCHEMA and content != self.content_hash():
                raise UsageError(f"database {source} is not what its manifest says: it was changed after its export; nothing was imported")

    def _promised(self, source: Path) -> tuple[object, object]:
        """The schema and the hash of content in the manifest."""
        try:
            (row,) = self.select("SELECT manifest FROM manifest")
            manifest = json.loads(row["manifest"])
            return manifest["schema"], manifest["content"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"database {source} has a manifest that is not as autotune writes it; nothing was imported") from error

    def _check_hashes(self, source: Path) -> None:
        """Raise UsageError unless every hash in the file is that of what it names."""
        for row in self.select("SELECT operation, version, sha, text FROM templates"):
            if identity(row["text"]) != row["sha"]:
                raise UsageError(
                    f"template of {row['operation']} {row['version']} in {source} is not what its hash says; nothing was imported"
                )
        for row in self.select("SELECT sha, packed FROM binaries"):
            if hashlib.sha256(unpack(row["packed"])).hexdigest() != row["sha"]:
                raise UsageError(f"binary {row['sha'][:12]} in {source} is not what its hash says; nothing was imported")

    def _check_tables(self, source: Path) -> None:
        """Raise UsageError unless the file declares its tables exactly as a new one does."""
        if _declared(self._connection) != _declared_today():
            raise UsageError(f"database {source} does not declare its tables as autotune does; nothing was imported")


def _declared(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name IN (SELECT value FROM json_each(?)) ORDER BY name"
    return connection.execute(query, (json.dumps([table.name for table in TABLES]),)).fetchall()


@cache
def _declared_today() -> list[tuple[str, str]]:
    from autotune.database.migrations import migrate

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new)
        return _declared(new)


@contextmanager
def vetted(source: Path) -> Iterator[Vetted]:
    """A private copy of the database at `source`, of today's schema, every row of which can be believed; it goes when the block ends.

    Raises UsageError when the file is damaged, was changed by hand, or is newer, and StorageError when there is no room for the copy.
    """
    with scratch_folder("import") as folder:
        path = folder / "copy.sqlite"
        try:
            with Transfer(source, mode="read") as foreign:
                foreign._copy_to(path)
                foreign._check_manifest(source)
            with Transfer(path, mode="read") as copy:
                copy._check_tables(source)
                vet(copy._connection, source)
                copy._check_hashes(source)
        except sqlite3.Error as error:  # a step that meets tables it does not know
            raise UsageError(f"database {source} does not fit ({error}); nothing was imported") from error
        yield Vetted(source, path)


def _seal(path: Path, note: str) -> Row:
    """Make a snapshot an export: the manifest inside, and no write-ahead log, so that a read-only folder will do."""
    from autotune.database.migrations import remake_views

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")  # nobody has seen this file yet
        connection.execute("DROP TABLE IF EXISTS manifest")
        remake_views(connection)
        connection.execute("COMMIT")
        with Transfer(path, mode="read") as copy:
            manifest = copy.manifest() | ({"note": note} if note else {})
        connection.executescript("PRAGMA synchronous = FULL; BEGIN")
        connection.execute("CREATE TABLE manifest (manifest TEXT NOT NULL CHECK (json_valid(manifest))) STRICT")
        connection.execute("INSERT INTO manifest VALUES (?)", (json.dumps(manifest),))
        connection.execute("COMMIT")
    return manifest


@contextmanager
def _explained_as(target: Path) -> Iterator[None]:
    """Turns what SQLite says of a file that is full into a sentence on `target`, which is being written."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if is_full(error):
            raise no_room(target, str(error)) from error
        raise
