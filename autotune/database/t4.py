"""Trials as a T4 document, the format in which auto-tuners publish results (results-schema.json and metadata-schema.json, 1.0.0).

Times are in milliseconds, as Kernel Tuner writes them. T4 has no word for the problem, so every result says it in `problem`, beside the
properties that the schema names; the version is part of its configuration.
"""

import json
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from autotune.configuration import VERSION
from autotune.database.connection import Connection, Row
from autotune.database.sound import samples_of, sound, without_id
from autotune.finite import finite
from autotune.trial import Outcome

INVALIDITY = {
    Outcome.OK: "correct",
    Outcome.PRUNED: "correct",
    Outcome.WRONG_RESULT: "correctness",
    Outcome.COMPILE_ERROR: "compile",
    Outcome.LAUNCH_ERROR: "runtime",
    Outcome.OUT_OF_MEMORY: "runtime",
    Outcome.CRASHED: "runtime",
    Outcome.TIMEOUT: "timeout",
    Outcome.NOT_APPLICABLE: "constraints",
}


def document(database: Connection, trials: Iterable[Row]) -> Row:
    """The T4 document of trials as `Database.trial_rows` gives them, in the order in which they were made."""
    rows = sorted(trials, key=lambda row: row["trial"])
    samples = _samples(database, [row["trial"] for row in rows])
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds", **_metadata(database, {row["run"] for row in rows})},
        "results": [_result(row, samples.get(row["trial"], [])) for row in rows],
    }


def _result(row: Row, runtimes_ms: list[float]) -> Row:
    outcome = Outcome(row["outcome"])
    return {
        "timestamp": row["created"],
        "configuration": {VERSION: row["version"], **row["parameters"]},
        "problem": {key: row[key] for key in ("operation", "rows", "cols", "dtype", "input_stride", "output_stride", "in_place")},
        "objectives": ["time"],
        "times": {"runtimes": runtimes_ms},
        "invalidity": INVALIDITY[outcome],
        "correctness": int(outcome.timed),
        "measurements": list(_measurements(row, runtimes_ms)),
    }


def _measurements(row: Row, runtimes_ms: list[float]) -> Iterator[Row]:
    if finite(row["time_us"]) is not None and runtimes_ms:
        yield {"name": "time", "value": row["time_us"] / 1e3, "unit": "ms"}
        yield {"name": "mean of runtimes", "value": statistics.fmean(runtimes_ms), "unit": "ms"}
    for column, name, unit in (
        ("gb_per_s", "GB/s", "GB/s"),
        ("max_error", "largest relative error", ""),
        ("registers", "registers", "registers per thread"),
        ("spill_bytes", "spills", "bytes per thread"),
        ("static_shared_bytes", "static shared memory", "bytes per block"),
        ("message", "message", ""),
    ):
        if finite(row[column]) not in (None, ""):
            yield {"name": name, "value": row[column], "unit": unit}


def _samples(database: Connection, trials: list[int]) -> dict[int, list[float]]:
    """The samples behind each trial's time, in milliseconds: those of the most careful kind that it reached."""
    rows = database.select(
        "SELECT id, trial, samples_us FROM rounds r WHERE trial IN (SELECT value FROM json_each(?)) "
        "AND kind = (SELECT min(kind) FROM rounds WHERE trial = r.trial) ORDER BY trial, number",
        (json.dumps(trials),),
    )
    found: dict[int, list[float]] = {}
    for trial, samples_us in sound(database, "rounds", rows, lambda row: (row["trial"], samples_of(row["samples_us"]))):
        found.setdefault(trial, []).extend(us / 1e3 for us in samples_us)
    return found


def _metadata(database: Connection, runs: set[int]) -> dict[str, Any]:
    chosen = json.dumps(sorted(runs))
    ran = {"devices": "device", "environments": "environment", "protocols": "protocol"}
    devices, environments, protocols = (
        sound(
            database,
            table,
            database.select(
                f"SELECT * FROM {table} WHERE id IN (SELECT {column} FROM runs WHERE id IN (SELECT value FROM json_each(?))) ORDER BY id",
                (chosen,),
            ),
            without_id,
        )
        for table, column in ran.items()
    )
    packages = {f"pycuda-autotune=={row['package']}" for row in environments} | {
        f"pycuda=={row['pycuda']}" for row in environments if row["pycuda"]
    }
    return {
        "hardware": {
            "hardware_description": devices,
            "operating_system": ", ".join(dict.fromkeys(row["os"] for row in environments)),
        },
        "environment": {
            "device_query": {"environments": environments},
            "requirements": sorted(packages),
        },
        "protocols": protocols,
    }
