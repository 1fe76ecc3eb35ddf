"""Compiled instances on disk, so that what was compiled once is never compiled again.

A cubin holds several instances. Each instance has an entry, named by the hash of its own source, flags, architecture and compiler; it
names the cubin and holds the instance's resources. Both are written to a temporary name and renamed, and a cubin is stored under
its own hash: a file that was cut short, by whatever, is found out and compiled again.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import platformdirs

from autotune.trial import Resources


def default_folder() -> Path:
    """$AUTOTUNE_CACHE, else the user's cache folder for autotune."""
    named = os.environ.get("AUTOTUNE_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("autotune"))


def key(source: str, flags: str, arch: str, compiler: str) -> str:
    """The name of an instance whose translation unit, were it alone in it, is `source`."""
    return hashlib.sha256("\0".join((source, flags, arch, compiler)).encode()).hexdigest()


class Cubins:
    """A store of cubins in `folder`. Any number of processes may use it at once; a folder that cannot be written stores nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or default_folder()) / "cubins"
        self._read = lru_cache(maxsize=256)(self._read_cubin)

    def get(self, name: str) -> tuple[bytes, Resources | None] | None:
        """The cubin and the resources of the instance called `name`, or None when they are not here whole."""
        try:
            entry = json.loads((self._folder / f"{name}.json").read_text())
            binary = self._read(entry["cubin"])
            resources = Resources(**entry["resources"]) if entry["resources"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return binary, resources

    def put(self, binary: bytes, instances: Mapping[str, Resources | None]) -> None:
        """Store `binary`, in which the instances named by `instances` are."""
        digest = hashlib.sha256(binary).hexdigest()
        with suppress(OSError):  # a full or read-only disk costs the next run a compilation, not this one its result
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(f"{digest}.cubin", binary)
            for name, resources in instances.items():
                entry = {"cubin": digest, "resources": asdict(resources) if resources else None}
                self._write(f"{name}.json", json.dumps(entry).encode())

    def _read_cubin(self, digest: str) -> bytes:
        binary = (self._folder / f"{digest}.cubin").read_bytes()
        if hashlib.sha256(binary).hexdigest() != digest:
            raise ValueError(f"cubin {digest} is damaged")
        return binary

    def _write(self, name: str, content: bytes) -> None:
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).replace(self._folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
