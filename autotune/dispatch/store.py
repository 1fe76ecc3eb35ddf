"""The database files a dispatcher reads, and the compiled kernels in them: the standard library's SQLite, opened to read only."""

import hashlib
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from autotune.configuration import Configuration
from autotune.database.filesystem import default_path, shipped_databases
from autotune.database.packing import unpack
from autotune.device import Device
from autotune.errors import AutotuneError, UsageError


@dataclass(frozen=True, slots=True)
class Layer:
    """One database file. A shipped one is opened as immutable: it may lie in a folder that cannot be written."""

    path: Path
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """Where a compiled instance lies: the layer, the binary's hash and the instance's symbol in it."""

    configuration: Configuration
    dtype: str
    arch: str
    kind: str
    symbol: str
    binary_sha: str
    layer: Layer


def layers(db: str | os.PathLike[str] | None = None) -> tuple[Layer, ...]:
    """The databases that a dispatcher reads, first one first: `db` or $AUTOTUNE_DB or the user's own, then the shipped ones.

    Raises UsageError when `db` is given and is not a file.
    """
    if db is not None and not Path(db).is_file():
        raise UsageError(f"database {str(db)!r} does not exist; name one that autotune sweep made, or leave it out")
    named = Path(db) if db is not None else default_path()
    own = (Layer(named),) if named.is_file() else ()
    return own + tuple(Layer(path, immutable=True) for path in shipped_databases())


def connect(layer: Layer) -> sqlite3.Connection:
    """A connection that refuses to write. A file with a write-ahead log in a folder without write access is read as immutable.

    Another file is opened for writing where that is allowed, because only then the last to close it clears its log away.
    """
    uri = f"file:{quote(bytes(layer.path.resolve()))}"
    immutable = f"{uri}?mode=ro&immutable=1"
    if layer.immutable:
        return sqlite3.connect(immutable, uri=True)
    connection = sqlite3.connect(f"{uri}?mode=rw", uri=True)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        return sqlite3.connect(immutable, uri=True)
    return connection


def binary(instance: StoredInstance) -> bytes:
    """The cubin or PTX of `instance`. Raises AutotuneError when it is missing, damaged or not what its hash says."""
    try:
        with closing(connect(instance.layer)) as connection:
            row = connection.execute("SELECT * FROM binaries WHERE sha = ?", (instance.binary_sha,)).fetchone()
        if row is None:
            raise AutotuneError(f"binary {instance.binary_sha[:12]} of {instance.symbol} is not in {instance.layer.path}")
        code = unpack(row[-1])  # the last column, which older files name otherwise
    except (sqlite3.Error, AttributeError, TypeError) as error:
        raise AutotuneError(f"binary of {instance.symbol} in {instance.layer.path} cannot be read: {error}") from error
    if hashlib.sha256(code).hexdigest() != instance.binary_sha:
        raise AutotuneError(f"binary of {instance.symbol} in {instance.layer.path} is damaged: its hash is not {instance.binary_sha[:12]}")
    return code


def runs_on(kind: str, arch: str, device: Device) -> bool:
    """Whether code of this kind and architecture can run on `device`: a cubin on its own one, PTX on that and any later one.

    Architecture-specific PTX ("sm_90a") runs on that architecture alone.
    """
    if kind == "cubin":
        return arch == device.arch
    digits = arch.rpartition("_")[2]
    return digits.isdigit() and (int(digits[:-1]), int(digits[-1])) <= device.compute_capability
