"""Writing down what was measured: runs, templates, trials, rounds, copies, binaries. Nothing here changes a stored row of those."""

import hashlib
import json
import math
import platform
import sqlite3
import statistics
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from autotune.configuration import Configuration
from autotune.database.connection import Connection
from autotune.database.keys import (
    added,
    configuration_id,
    device_id,
    found_or_added,
    insert,
    instance_id,
    operation_of,
    problem_id,
    protocol_id,
    template_id,
)
from autotune.database.packing import pack
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import Source
from autotune.trial import Check, Environment, Instance, Outcome, Round, TimingProtocol


class Recorder(Connection):
    """The part of a database that records. Every method is one transaction, and all can be joined inside one `write()`."""

    def begin_run(
        self, device: Device, environment: Environment, timing: TimingProtocol, *, command: str = "", seed: int = 0, card: str = ""
    ) -> int:
        """Note that a run begins, what on and how it will time; returns its id. `card` tells the GPU from others of its kind (its UUID)."""
        with self.write() as connection:
            values = {
                "uuid": str(uuid.uuid4()),
                "device": device_id(connection, device),
                "environment": found_or_added(connection, "environments", asdict(environment)),
                "protocol": protocol_id(connection, timing),
                "command": command.encode(errors="backslashreplace").decode(),  # a path in it may be any bytes
                "seed": seed,
                "card": card,
            }
            return added(connection, "runs", values)

    def end_run(self, run_id: int, state: str) -> None:
        """Note that a run is over; `state` is "done", "interrupted" or "failed"."""
        with self.write() as connection:
            connection.execute("UPDATE runs SET state = ?, ended = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = ?", (state, run_id))

    def add_template(self, operation: str, version: str, source: Source) -> None:
        """Keep the text of a template; trials refer to it by its hash. Adding it again does nothing."""
        with self.write() as connection:
            values = {"operation": operation, "version": version, "sha": source.sha, "text": source.text}
            connection.execute(*insert("templates", values, "OR IGNORE"))

    def record(
        self,
        run_id: int,
        problem: Problem,
        configuration: Configuration,
        template_sha: str,
        outcome: Outcome,
        *,
        instance: Instance | None = None,
        check: Check | None = None,
        rounds: Iterable[Round] = (),
        message: str = "",
        replayed: bool = False,
    ) -> int:
        """Store one trial and the rounds it has so far; returns its id.

        Its template must have been added before. A trial that goes on racing is recorded as `ok`, gets its rounds from `add_rounds`,
        and when it drops out, from `finish`, an ending that outranks this outcome.
        """
        with self.write() as connection:
            operation = problem.operation
            template = template_id(connection, operation, configuration.version, template_sha)
            values = {
                "run": run_id,
                "number": _next_number(connection, "trials", run_id),
                "problem": problem_id(connection, problem),
                "configuration": configuration_id(connection, operation, configuration),
                "template": template,
                "instance": instance_id(connection, operation, template, instance) if instance else None,
                "outcome": outcome.value,
                "max_error": check.max_error if check and not math.isnan(check.max_error) else None,
                "first_us": check.first_us if check else None,
                "message": message,
                "replayed": int(replayed),
            }
            trial = added(connection, "trials", values)
            store_rounds(connection, trial, rounds)
            return trial

    def add_rounds(self, rounds: Mapping[int, Round]) -> None:
        """Store one round for each of several trials, by trial id: all of them or, when the process dies, none."""
        with self.write() as connection:
            for trial, taken in rounds.items():
                store_rounds(connection, trial, (taken,))

    def finish(self, trial_id: int, outcome: Outcome, message: str = "") -> None:
        """Note how a trial that was recorded as `ok` left the race; the first ending of a trial stands, `ok` is none."""
        if outcome is Outcome.OK:
            return
        with self.write() as connection:
            values = {"trial": trial_id, "outcome": outcome.value, "message": message}
            # IGNORE would also swallow a violated CHECK or foreign key.
            sql, parameters = insert("endings", values)
            connection.execute(f"{sql} ON CONFLICT (trial) DO NOTHING", parameters)

    def record_copy(self, run_id: int, problem: Problem, copy_us: float) -> None:
        """Store the time of a device copy of the problem's bytes, in microseconds, taken by the run's protocol."""
        with self.write() as connection:
            values = {
                "run": run_id,
                "number": _next_number(connection, "copies", run_id),
                "problem": problem_id(connection, problem),
                "copy_us": copy_us,
            }
            added(connection, "copies", values)

    def store_binary(self, instance: Instance) -> str:
        """Keep the cubin or PTX of an instance, so that a machine without a compiler can run it; returns its hash.

        Raises ValueError for a binary that no GPU driver loads (the emulator's shared libraries are not kept).
        """
        kind = _binary_kind(instance)
        sha = hashlib.sha256(instance.binary).hexdigest()
        with self.write() as connection:
            values = {"sha": sha, "kind": kind, "arch": instance.arch, "bytes": len(instance.binary), "packed": pack(instance.binary)}
            connection.execute(*insert("binaries", values, "OR IGNORE"))
            operation = operation_of(connection, instance.configuration.version, instance.template_sha)
            template = template_id(connection, operation, instance.configuration.version, instance.template_sha)
            found = instance_id(connection, operation, template, instance)
            connection.execute("UPDATE instances SET binary_sha = ?, symbol = ? WHERE id = ?", (sha, instance.symbol, found))
        return sha


def _binary_kind(instance: Instance) -> str:
    if instance.arch.startswith("sm_") and instance.binary.startswith(b"\x7fELF"):
        return "cubin"
    if instance.arch.startswith("compute_") and instance.binary:
        return "ptx"
    raise ValueError(f"the binary of {instance.configuration} for {instance.arch} on {platform.machine()} is neither a cubin nor PTX")


def _next_number(connection: sqlite3.Connection, table: str, run_id: int) -> int:
    return int(connection.execute(f"SELECT coalesce(max(number), 0) + 1 FROM {table} WHERE run = ?", (run_id,)).fetchone()[0])


def store_rounds(connection: sqlite3.Connection, trial: int, rounds: Iterable[Round]) -> None:
    """Store rounds of one trial after those that it has, each with the time of the trial as of that round."""
    earlier = connection.execute("SELECT kind, median_us FROM rounds WHERE trial = ?", (trial,)).fetchall()
    for number, taken in enumerate(rounds, start=len(earlier) + 1):
        median_us = statistics.median(taken.samples_us)
        earlier.append((taken.kind, median_us))
        values = {
            "trial": trial,
            "number": number,
            "kind": taken.kind,
            "median_us": median_us,
            "time_us": statistics.median(us for kind, us in earlier if kind == taken.kind),
            "samples_us": json.dumps(taken.samples_us),
            "launches_per_sample": taken.launches_per_sample,
            "sm_clock_mhz": taken.sm_clock_mhz,
            "throttled": taken.throttled,
        }
        connection.execute(*insert("rounds", values))
