"""Kernel Tuner's files: its cache files come in as trials, and trials go out in the T4 format of its schema.

A cache file (Kernel Tuner 1.x, `store_cache`) is one JSON object that may lack its end: its header names device, kernel, problem size and
parameters, and each line of `cache` is one configuration with `times` in milliseconds, or with an error's name in place of a time.
T4 is described by results-schema.json and metadata-schema.json, version 1.0.0, of the same project.
"""

import gzip
import hashlib
import json
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, TypeGuard

from autotune.choice import Candidate, Choice, choose
from autotune.configuration import Configuration
from autotune.database.connection import Connection
from autotune.database.decide import replace_best
from autotune.database.keys import added, configuration_id, device_id, found_or_added, insert, problem_id
from autotune.device import Device
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.source import Source, identity
from autotune.statistics import median
from autotune.trial import Outcome

MOST_BYTES = 1 << 30  # of a cache once unpacked; those that are published have up to a hundred million

VERSION = "kernel_tuner"  # a cache does not say which source it is of, so all of a kernel's configurations are of one version
_TEXT = "// measured by Kernel Tuner, whose cache files hold no source"
TEMPLATE = Source(_TEXT, identity(_TEXT))
PROTOCOL = {"name": "kernel_tuner", "rule": 1}
_DESCRIPTION = "as Kernel Tuner takes times: launches one after the other, each between two events, data left in the L2 cache"

ERRORS = {
    "InvalidConfig": Outcome.NOT_APPLICABLE,
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
}

_TRIALS = """
SELECT t.id, c.parameters, r.samples_us, t.created
FROM trials t
JOIN runs u ON u.id = t.run
JOIN configurations c ON c.id = t.configuration
LEFT JOIN rounds r ON r.trial = t.id
WHERE u.device = ? AND u.protocol = ? AND t.problem = ?
ORDER BY u.uuid, t.number
"""
_LASTED = """
UPDATE runs SET (started, ended) = (SELECT coalesce(min(created), ''), coalesce(max(created), '') FROM trials WHERE run = :run)
WHERE id = :run
"""


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
    return head.startswith(b"\x1f\x8b") or head.lstrip().startswith(b"{")


def read_cache(path: Path, dtype: str = "float32") -> Cache:
    """The cache file at `path`; it does not say its dtype. A problem size (x, y, z) counts as x columns and y * z rows.

    Raises UsageError when the file is not one, or is of a size that is computed by a function.
    """
    document, cut = _parsed(path)
    try:
        json.dumps(document, ensure_ascii=False).encode()  # JSON can spell halves of characters, which no text of a database may hold
        sizes = document["problem_size"]
        x, *others = sizes if isinstance(sizes, list) else [sizes]
        rows, cols = prod(int(n) for n in others), int(x)
        if not (rows > 0 and cols > 0 and rows * cols < 2**40):
            raise ValueError(f"{rows} rows of {cols} columns")
        problem = Problem(str(document["kernel_name"]), rows, cols, dtype)
        names = tuple(str(name) for name in document["tune_params_keys"])
        entries = tuple(dict(entry) for entry in document["cache"].values())
        if any(not _is_value(entry[name]) for entry in entries for name in names):
            raise ValueError("a value of a parameter is neither a finite number nor a text")
        return Cache(str(document["device_name"]) or "unknown", problem, names, entries, cut)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{path} is not a cache file of Kernel Tuner ({type(error).__name__}: {error}); it must say device_name, kernel_name, "
            "problem_size in numbers of at least 1, tune_params_keys and cache"
        ) from error


def import_cache(database: Connection, cache: Cache) -> dict[str, int]:
    """Store what a cache says that is not stored yet, and settle its problem; returns how many rows of `trials` and `best` are new.

    Doing it again adds nothing, and a cache that has grown adds what is new in it.
    """
    with database.write() as connection:
        run = _run(connection, cache)
        (before,) = connection.execute("SELECT count(*) FROM best").fetchone()
        new = sum(_record(connection, run, cache, entry) for entry in cache.entries)
        connection.execute(_LASTED, {"run": run})
        _settle(connection, run, cache)
        (after,) = connection.execute("SELECT count(*) FROM best").fetchone()
    return {"trials": new, "best": after - before}


def _run(connection: sqlite3.Connection, cache: Cache) -> int:
    # A cache knows its device by name alone; what it does not say is 0, so it never passes for a device that was asked.
    device = Device(cache.device, (0, 0), 0, 0, 0, 0, 0, 0, 0, 0)
    template = {"operation": cache.problem.operation, "version": VERSION, "sha": TEMPLATE.sha, "text": TEMPLATE.text}
    connection.execute(*insert("templates", template, "OR IGNORE"))
    environment = dict.fromkeys(("python", "os", "driver", "cuda", "compiler", "pycuda"), "") | {"package": "Kernel Tuner"}
    told = json.dumps([cache.device, str(cache.problem), cache.parameters])
    values = {
        "device": device_id(connection, device),
        "environment": found_or_added(connection, "environments", environment),
        "protocol": found_or_added(connection, "protocols", PROTOCOL, {"description": _DESCRIPTION}),
        "command": "",
        "seed": 0,
        "state": "done",
        "origin": "imported",
        "started": "",
        "ended": "",
    }
    return found_or_added(connection, "runs", {"uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"kernel_tuner:{told}"))}, values)


def _record(connection: sqlite3.Connection, run: int, cache: Cache, entry: Mapping[str, Any]) -> bool:
    """Store one line of a cache as a trial; False when it is stored already. Its number is what it says, so that files may merge."""
    number = int.from_bytes(hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).digest()[:6])
    if connection.execute("SELECT 1 FROM trials WHERE run = ? AND number = ?", (run, number)).fetchone():
        return False
    outcome, samples_us, message = _outcome(entry)
    operation = cache.problem.operation
    values = {
        "run": run,
        "number": number,
        "problem": problem_id(connection, cache.problem),
        "configuration": configuration_id(connection, operation, configuration(cache, entry)),
        "template": _template(connection, operation),
        "outcome": outcome.value,
        "message": message,
        "replayed": 0,
        "created": _timestamp(entry),
    }
    trial = added(connection, "trials", values)
    if samples_us:
        _store_round(connection, trial, samples_us, _timestamp(entry))
    return True


def _store_round(connection: sqlite3.Connection, trial: int, samples_us: tuple[float, ...], taken_at: str) -> None:
    time_us = median(samples_us)
    values = {
        "trial": trial,
        "number": 1,
        "kind": "screen",
        "median_us": time_us,
        "time_us": time_us,
        "samples_us": json.dumps(samples_us),
        "launches_per_sample": 1,
        "taken_at": taken_at,
    }
    added(connection, "rounds", values)


def configuration(cache: Cache, entry: Mapping[str, Any]) -> Configuration:
    """The configuration that a line of a cache is of."""
    return Configuration(VERSION, tuple((name, entry[name]) for name in cache.parameters))


def _outcome(entry: Mapping[str, Any]) -> tuple[Outcome, tuple[float, ...], str]:
    said = entry.get("__error__", entry.get("time"))
    if _is_time(said):
        times = entry.get("times")
        kept = [ms for ms in times if _is_time(ms)] if isinstance(times, list) else []
        return Outcome.OK, tuple(1e3 * float(ms) for ms in kept or [said]), ""
    return ERRORS.get(str(said), Outcome.LAUNCH_ERROR), (), f"Kernel Tuner says {said}"


def _is_value(value: Any) -> bool:
    return isinstance(value, int | str) or (isinstance(value, float) and isfinite(value))


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and 0 < value < 1e20  # 1e20 is what old versions wrote for a failure; NaN fails both


def _settle(connection: sqlite3.Connection, run: int, cache: Cache) -> None:
    """Make the fastest configuration the best of the problem, by all that is stored of it, whichever file it came from."""
    device, protocol = connection.execute("SELECT device, protocol FROM runs WHERE id = ?", (run,)).fetchone()
    operation, problem = cache.problem.operation, problem_id(connection, cache.problem)
    trials = connection.execute(_TRIALS, (device, protocol, problem)).fetchall()
    evidence: dict[Configuration, int] = {}
    rounds: dict[Configuration, tuple[tuple[float, ...], ...]] = {}
    for trial, parameters, samples_us, _ in trials:
        if samples_us is not None:
            timed = Configuration.from_json(VERSION, parameters)
            evidence[timed] = trial
            rounds[timed] = (*rounds.get(timed, ()), tuple(json.loads(samples_us)))
    if not rounds:
        return
    choice: Choice = choose([Candidate(c, place, rounds[c]) for place, c in enumerate(sorted(rounds, key=_place))])
    values = {
        "device": device,
        "problem": problem,
        "protocol": protocol,
        "configuration": configuration_id(connection, operation, choice.configuration),
        "template": _template(connection, operation),
        "trial": evidence[choice.configuration],
        "time_us": choice.time_us,
        "ci_low_us": choice.low_us,
        "ci_high_us": choice.high_us,
        "spread": choice.spread,
        "runner_up": configuration_id(connection, operation, choice.runner_up) if choice.runner_up else None,
        "runner_up_us": choice.runner_up_us,
        "gap": choice.gap,
        "beyond_noise": int(choice.beyond_noise),
        "tried": len(trials),
        "space_sha": "",
        "state": "provisional",
        "origin": "imported",
        "updated": max(created for *_, created in trials),
    }
    replace_best(connection, values)


def _place(configuration: Configuration) -> tuple[object, ...]:
    """What ties are decided by: a file's own order would make the best depend on which file came first."""
    return tuple((name, isinstance(value, str), value) for name, value in configuration.parameters)


def _template(connection: sqlite3.Connection, operation: str) -> int:
    found = connection.execute("SELECT id FROM templates WHERE operation = ? AND version = ?", (operation, VERSION)).fetchone()
    return int(found[0])


def _timestamp(entry: Mapping[str, Any]) -> str:
    """When a line was written, in UTC as our tables have it; its own text where that is no such time."""
    text = str(entry.get("timestamp", ""))
    return f"{text[:10]}T{text[11:23]}Z" if text.endswith("+00:00") and len(text) > 23 else text


def _parsed(path: Path) -> tuple[Any, bool]:
    text = _text(path).strip()
    said = ""
    for attempt, cut in _completions(text):
        try:
            return json.loads(attempt), cut
        except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError, brackets without end are the other
            said = said or " ".join(str(error).split())
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
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); give a cache file as Kernel Tuner writes it"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read ({error}); give a whole cache file, as it is or gzipped") from error
