"""Kernel Tuner's measurements: what its cache files say comes in as trials of a version and a protocol of its own."""

import hashlib
import json
import sqlite3
import uuid
from collections.abc import Mapping
from typing import Any

from autotune.choice import Candidate, Choice, choose
from autotune.configuration import Configuration
from autotune.database.connection import Connection, Row
from autotune.database.decide import replace_best
from autotune.database.kernel_tuner_cache import Cache, is_time, one_line, written_at
from autotune.database.keys import KERNEL_TUNER, added, configuration_id, device_id, found_or_added, insert, problem_id
from autotune.database.sound import samples_of, sound
from autotune.device import Device
from autotune.source import Source, identity
from autotune.statistics import median
from autotune.trial import Outcome

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
SELECT t.id AS trial, t.created, c.parameters, r.id, r.samples_us
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


def import_cache(database: Connection, cache: Cache) -> dict[str, int]:
    """Store what a cache says that is not stored yet, and settle its problem; returns how many rows of `trials` and `best` are new.

    Doing it again adds nothing, and a cache that has grown adds what is new in it.
    """
    with database.write() as connection:
        run = _run(connection, cache)
        (before,) = connection.execute("SELECT count(*) FROM best").fetchone()
        new = sum(_record(connection, run, cache, entry) for entry in cache.entries)
        connection.execute(_LASTED, {"run": run})
        _settle(database, connection, run, cache)
        (after,) = connection.execute("SELECT count(*) FROM best").fetchone()
    return {"trials": new, "best": after - before}


def _run(connection: sqlite3.Connection, cache: Cache) -> int:
    # A cache knows its device by name alone; what it does not say is 0, so it never passes for a device that was asked.
    device = Device(cache.device, (0, 0), 0, 0, 0, 0, 0, 0, 0, 0)
    template = {"operation": cache.problem.operation, "version": KERNEL_TUNER, "sha": TEMPLATE.sha, "text": TEMPLATE.text}
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
        "created": written_at(entry),
    }
    trial = added(connection, "trials", values)
    if samples_us:
        _store_round(connection, trial, samples_us, written_at(entry))
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
    return Configuration(KERNEL_TUNER, tuple((name, entry[name]) for name in cache.parameters))


def _outcome(entry: Mapping[str, Any]) -> tuple[Outcome, tuple[float, ...], str]:
    said = entry.get("__error__", entry.get("time"))
    times = entry.get("times") or [said]
    if not is_time(said):
        return ERRORS.get(str(said), Outcome.LAUNCH_ERROR), (), f"Kernel Tuner says {one_line(said)}"
    if not (isinstance(times, list) and all(map(is_time, times))):
        return (
            Outcome.LAUNCH_ERROR,
            (),
            f"Kernel Tuner says {one_line(said)}, but its times are not all such as a kernel takes: {one_line(times)}",
        )
    return Outcome.OK, tuple(1e3 * float(ms) for ms in times), ""


def _settle(database: Connection, connection: sqlite3.Connection, run: int, cache: Cache) -> None:
    """Make the fastest configuration the best of the problem, by all that is stored of it, whichever file it came from."""
    device, protocol = connection.execute("SELECT device, protocol FROM runs WHERE id = ?", (run,)).fetchone()
    operation, problem = cache.problem.operation, problem_id(connection, cache.problem)
    trials = database.select(_TRIALS, (device, protocol, problem))
    evidence: dict[Configuration, int] = {}
    rounds: dict[Configuration, tuple[tuple[float, ...], ...]] = {}
    for timed, trial, samples_us in sound(database, "rounds", (row for row in trials if row["samples_us"] is not None), _timed):
        evidence[timed] = trial
        rounds[timed] = (*rounds.get(timed, ()), samples_us)
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
        "beyond_noise": int(bool(choice.beyond_noise)),
        "tried": len(trials),
        "space_sha": "",
        "state": "provisional",
        "origin": "imported",
        "updated": max(str(row["created"]) for row in trials),
    }
    replace_best(connection, values)


def _timed(row: Row) -> tuple[Configuration, int, tuple[float, ...]]:
    return Configuration.from_json(KERNEL_TUNER, row["parameters"]), row["trial"], samples_of(row["samples_us"])


def _place(configuration: Configuration) -> tuple[object, ...]:
    """What ties are decided by: a file's own order would make the best depend on which file came first."""
    return tuple((name, isinstance(value, str), value) for name, value in configuration.parameters)


def _template(connection: sqlite3.Connection, operation: str) -> int:
    found = connection.execute("SELECT id FROM templates WHERE operation = ? AND version = ?", (operation, KERNEL_TUNER)).fetchone()
    return int(found[0])
