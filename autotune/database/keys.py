"""From the nouns to rows and back: the portable key of each noun, and the id that it has in this file."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields

from autotune.configuration import Configuration
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.problem import Problem
from autotune.trial import Instance, TimingProtocol

# The version that Kernel Tuner's measurements are of: its caches do not say which source, so no template of theirs can have changed.
KERNEL_TUNER = "kernel_tuner"
NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"  # in UTC, to the millisecond, as the tables' defaults are


def insert(table: str, values: Mapping[str, object], conflict: str = "") -> tuple[str, tuple[object, ...]]:
    """The statement that inserts one row, and its parameters."""
    marks = ", ".join("?" * len(values))
    return f"INSERT {conflict} INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())


def added(connection: sqlite3.Connection, table: str, values: Mapping[str, object]) -> int:
    """Insert a row; returns its id."""
    return int(connection.execute(*insert(table, values)).lastrowid or 0)


def found_or_added(connection: sqlite3.Connection, table: str, key: Mapping[str, object], other: Mapping[str, object] | None = None) -> int:
    """The id of the row whose columns are `key`, inserted together with `other` when it is not there yet."""
    row = connection.execute(f"SELECT id FROM {table} WHERE {equal(key)}", tuple(key.values())).fetchone()
    return int(row[0]) if row else added(connection, table, {**key, **(other or {})})


def device_key(device: Device) -> dict[str, object]:
    """The columns of `devices` that tell one kind of device from another."""
    values = asdict(device)
    major, minor = device.compute_capability
    return values | {"compute_capability": f"{major}.{minor}"}


def equal(columns: Iterable[str]) -> str:
    """The condition that each of `columns` equals its parameter."""
    return " AND ".join(f"{column} = ?" for column in columns)


# The condition that run `u` was on a device and timed by a protocol; its parameters are `under(device, timing)`.
UNDER = (
    f"u.device = (SELECT id FROM devices WHERE {equal(name.name for name in fields(Device))}) "
    "AND u.protocol = (SELECT id FROM protocols WHERE name = ? AND rule = ?)"
)


def under(device: Device, timing: TimingProtocol) -> list[object]:
    return [*device_key(device).values(), timing.name, timing.rule]


def device_id(connection: sqlite3.Connection, device: Device) -> int:
    return found_or_added(connection, "devices", device_key(device), {"arch": device.arch})


def protocol_id(connection: sqlite3.Connection, timing: TimingProtocol) -> int:
    return found_or_added(connection, "protocols", {"name": timing.name, "rule": timing.rule}, {"description": timing.description})


def problem_key(problem: Problem) -> dict[str, object]:
    """A problem as columns of `problems`."""
    return asdict(problem) | {"in_place": int(problem.in_place)}


def problem_id(connection: sqlite3.Connection, problem: Problem) -> int:
    return found_or_added(connection, "problems", problem_key(problem))


def configuration_id(connection: sqlite3.Connection, operation: str, configuration: Configuration) -> int:
    key = {"operation": operation, "version": configuration.version, "parameters": configuration.to_json()}
    return found_or_added(connection, "configurations", key)


def template_id(connection: sqlite3.Connection, operation: str, version: str, sha: str) -> int:
    """The id of a template that was added before; AutotuneError when it was not."""
    row = connection.execute(
        "SELECT id FROM templates WHERE operation = ? AND version = ? AND sha = ?", (operation, version, sha)
    ).fetchone()
    if not row:
        raise AutotuneError(
            f"template {sha[:12]} of {operation} {version} is not in the database; call add_template before recording its trials"
        )
    return int(row[0])


def operation_of(connection: sqlite3.Connection, version: str, template_sha: str) -> str:
    """The operation whose `version` has the template `template_sha`; AutotuneError when that was not added before."""
    row = connection.execute("SELECT operation FROM templates WHERE version = ? AND sha = ?", (version, template_sha)).fetchone()
    if not row:
        raise AutotuneError(
            f"template {template_sha[:12]} of {version} is not in the database; call add_template before storing its binaries"
        )
    return str(row[0])


def instance_id(connection: sqlite3.Connection, operation: str, template: int, instance: Instance) -> int:
    resources = asdict(instance.resources) if instance.resources else {}
    key = {
        "configuration": configuration_id(connection, operation, instance.configuration),
        "dtype": instance.dtype,
        "arch": instance.arch,
        "template": template,
        "flags": instance.flags,
        "compiler": instance.compiler,
    }
    return found_or_added(connection, "instances", key, {"symbol": instance.symbol, **resources})
