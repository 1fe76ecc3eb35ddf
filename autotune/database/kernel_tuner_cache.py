"""Reading Kernel Tuner's cache files, which other people and other programs have written: every word is checked before it is used.

A cache file (Kernel Tuner 1.x, `store_cache`) is one JSON object that may lack its end: its header names device, kernel, problem size and
parameters, and each line of `cache` is one configuration with `times` in milliseconds, or with an error's name in place of a time.
"""

import gzip
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite, prod
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from autotune.database.vetting import MOST_NAME_BYTES
from autotune.errors import UsageError, shortened
from autotune.problem import MOST_ELEMENTS, Problem
from autotune.trial import LEAST_TIME_US, MOST_TIME_US

Kind = TypeVar("Kind")

MOST_SAID = 100  # characters of what is wrong with a file
MOST_BYTES = 1 << 30  # of a cache once unpacked; those that are published have up to a hundred million


@dataclass(frozen=True, slots=True)
class Cache:
    """What a cache file says. `cut` tells that its last line was incomplete and is left out."""

    device: str
    problem: Problem
    parameters: tuple[str, ...]
    entries: tuple[Mapping[str, Any], ...]
    cut: bool


def is_cache(path: Path) -> bool:
    """Whether the file looks like JSON, gzipped or not, rather than like a database."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.startswith(b"\x1f\x8b") or head.removeprefix(BOM_UTF8).lstrip().startswith(b"{")


def read_cache(path: Path, dtype: str = "float32") -> Cache:
    """The cache file at `path`; it does not say its dtype. A problem size (x, y, z) counts as x columns and y * z rows.

    Raises UsageError when the file is not one, or is of a size that is computed by a function.
    """
    document, cut = _parsed(path)
    if isinstance(document, dict) and "schema_version" in document and "results" in document:
        raise UsageError(
            f"{path} is a T4 document, which is for export only, for it lacks the problems and samples that a database holds; import the "
            "database that it was made from"
        )
    try:
        json.dumps(document, ensure_ascii=False).encode()  # JSON can spell halves of characters, which no text of a database may hold
        problem = Problem(_name(document["kernel_name"], "kernel_name"), *_size(document["problem_size"]), dtype)
        names = tuple(_name(name, "a name in tune_params_keys") for name in _are(document["tune_params_keys"], list))
        if len(set(names)) < len(names):
            raise ValueError("a parameter is named twice")
        entries = tuple(_are(entry, dict) for entry in _are(document["cache"], dict).values())
        if any(not _is_value(entry[name]) for entry in entries for name in names):
            raise ValueError("a value of a parameter is neither a text nor a finite number of at most 64 bits")
        for entry in entries:
            written_at(entry)
        return Cache(_name(document["device_name"], "device_name"), problem, names, entries, cut)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        said = " ".join(str(error).split())[:MOST_SAID]
        raise UsageError(
            f"{path} is not a cache file of Kernel Tuner ({type(error).__name__}: {said}); it must say device_name, kernel_name, "
            "problem_size, tune_params_keys and cache"
        ) from error


def one_line(said: Any) -> str:
    """What a file says of anything, as one line no longer than a table holds."""
    return shortened(" ".join(str(said).split()), MOST_NAME_BYTES)


def _are(value: Any, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{one_line(value)} is not a {'list' if kind is list else 'object'}")
    return value


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value.encode()) > MOST_NAME_BYTES:
        raise ValueError(f"{what} is not a text of 1 to {MOST_NAME_BYTES} bytes")
    return value


def _size(value: Any) -> tuple[int, int]:
    """Rows and columns of a problem size: one number, or a list of them with the columns first."""
    x, *others = sizes = value if isinstance(value, list) else [value]
    if any(type(n) is not int or not 0 < n < MOST_ELEMENTS for n in sizes) or prod(sizes) >= MOST_ELEMENTS:
        raise ValueError(f"problem_size {one_line(value)} is not one or more whole numbers of at least 1 with a product below 2^40")
    return prod(others), x


def _is_value(value: Any) -> bool:
    return (
        isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63) or (isinstance(value, float) and isfinite(value))
    )


def is_time(value: Any) -> TypeGuard[float]:
    # In milliseconds. 1e20 is what old versions wrote for a failure; NaN fails both limits, and JSON's true is no time.
    return type(value) in (int, float) and LEAST_TIME_US / 1e3 <= value <= MOST_TIME_US / 1e3


def written_at(entry: Mapping[str, Any]) -> str:
    """When a line was written, in UTC as our tables have it; "" where it does not say. Raises ValueError for a time in the future."""
    said = entry.get("timestamp")
    try:
        written = datetime.fromisoformat(said)  # type: ignore[arg-type]  # what is no text is a TypeError
        written = (written if written.tzinfo else written.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return ""
    if written > datetime.now(UTC) + timedelta(days=1):  # a clock may be off by some hours
        raise ValueError(f"timestamp {said} lies in the future")
    return f"{written.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _parsed(path: Path) -> tuple[Any, bool]:
    text = _text(path).strip()
    said = ""
    for attempt, cut in _completions(text):
        try:
            return json.loads(attempt), cut
        except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError, brackets without end are the other
            said = said or one_line(error)[:MOST_SAID]
    raise UsageError(f"{path} is malformed JSON ({said}); give a cache file as Kernel Tuner's store_cache writes it")


def _completions(text: str) -> Iterator[tuple[str, bool]]:
    """The text as it is, with its missing end, and without its last line, which a killed process leaves incomplete."""
    yield text, False
    yield f"{text.rstrip(',')}}}}}", False
    head, _, _ = text.rpartition("\n")
    yield f"{head.rstrip().rstrip(',')}}}}}", True


def _text(path: Path) -> str:
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"{path} holds more than {MOST_BYTES >> 30} GiB, which no cache file does; give a smaller one")
        return bytes(data).decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); give a cache file as Kernel Tuner writes it"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read ({error}); give a whole cache file, as it is or gzipped") from error
