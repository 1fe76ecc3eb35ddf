"""What follows from trials: which configuration is best, which are blocked, what a person pinned, what was missed."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.configuration import Configuration
from autotune.database.connection import Connection
from autotune.database.keys import (
    NOW,
    added,
    configuration_id,
    device_id,
    device_key,
    equal,
    found_or_added,
    insert,
    problem_id,
    problem_key,
    protocol_id,
    template_id,
)
from autotune.device import Device
from autotune.errors import AutotuneError, UsageError
from autotune.problem import Problem
from autotune.trial import TimingProtocol

State = Literal["provisional", "confirmed", "stale", "blocked"]


@dataclass(frozen=True, slots=True)
class Settled:
    """Which configuration a problem should use, by the evidence of `trial_id`, and how sure that is. Times are in microseconds.

    `spread` is relative to `time_us`; `gap` is the runner-up's time over the best's, less 1; `tried` counts the configurations tried;
    `space_sha` names the set they were drawn from; `bytes_moved` is what the operation must move at least. Without a runner-up
    `beyond_noise` is None.
    """

    configuration: Configuration
    trial_id: int
    time_us: float
    ci_low_us: float
    ci_high_us: float
    spread: float
    tried: int
    bytes_moved: int
    state: State = "provisional"
    runner_up: Configuration | None = None
    runner_up_us: float | None = None
    gap: float | None = None
    beyond_noise: bool | None = None
    copy_us: float | None = None
    space_sha: str = ""


class Decider(Connection):
    """The part of a database that stores decisions. All of them can be made again from trials, or by the person who made them."""

    def settle(self, run_id: int, device: Device, timing: TimingProtocol, problem: Problem, best: Settled) -> None:
        """Make `best` the one configuration for `problem` on `device` under `timing`; replaces what was settled before.

        A choice among replayed times never replaces one that was measured here.
        """
        with self.write() as connection:
            template, replayed, origin = _evidence(connection, best.trial_id, run_id)
            values = {
                "device": device_id(connection, device),
                "problem": problem_id(connection, problem),
                "protocol": protocol_id(connection, timing),
                "configuration": configuration_id(connection, problem.operation, best.configuration),
                "template": template,
                "trial": best.trial_id,
                "time_us": best.time_us,
                "ci_low_us": best.ci_low_us,
                "ci_high_us": best.ci_high_us,
                "spread": best.spread,
                "runner_up": configuration_id(connection, problem.operation, best.runner_up) if best.runner_up else None,
                "runner_up_us": best.runner_up_us,
                "gap": best.gap,
                "beyond_noise": int(bool(best.beyond_noise)),
                "copy_us": best.copy_us,
                "tried": best.tried,
                "space_sha": best.space_sha,
                "state": best.state,
                "origin": origin,
            }
            connection.execute("UPDATE problems SET bytes_moved = ? WHERE id = ?", (best.bytes_moved, values["problem"]))
            if not (replayed and _measured(connection, values)):
                replace_best(connection, values)

    def block(
        self,
        device: Device,
        operation: str,
        configuration: Configuration,
        template_sha: str,
        dtype: str,
        reason: str,
        problem: Problem | None = None,
    ) -> None:
        """Never select `configuration` again on `device` for `dtype`, as long as its template and definition are these.

        With `problem`, for that problem alone. Blocking it again does nothing. Where it was the best, that is marked as blocked. Raises
        UsageError where `reason` is blank or no text: a row of `blocked` without a reason is a block that was taken away.
        """
        require_text("reason", reason)
        with self.write() as connection:
            values = {
                "device": device_id(connection, device),
                "configuration": configuration_id(connection, operation, configuration),
                "dtype": dtype,
                "template": template_id(connection, operation, configuration.version, template_sha),
                "problem": problem_id(connection, problem) if problem else None,
                "reason": reason,
            }
            sql, parameters = insert("blocked", values)
            again = "SET reason = excluded.reason, created = max(created, excluded.created) WHERE reason = ''"
            connection.execute(f"{sql} ON CONFLICT DO UPDATE {again}", parameters)
            connection.execute(
                "UPDATE best SET state = 'blocked' WHERE device = ? AND configuration = ? AND template = ? "
                "AND problem IN (SELECT id FROM problems WHERE dtype = ?) AND (? IS NULL OR problem = ?)",
                (*(values[k] for k in ("device", "configuration", "template", "dtype")), values["problem"], values["problem"]),
            )

    def unblock(
        self, device: Device, operation: str, configuration: Configuration | None, dtype: str, problem: Problem | None = None
    ) -> int:
        """Let `configuration`, or every one where that is None, be tried and selected again, whatever its template; how many were blocked.

        With `problem`, only where it was blocked for that alone. What failed before counts no more (`Reader.forgiven`). The row stays,
        without its reason: wherever it is imported, it outranks the block, which is older.
        """
        where = [
            "reason <> ''",
            f"device = (SELECT id FROM devices WHERE {equal(device_key(device))})",
            "dtype = ?",
            "configuration IN (SELECT id FROM configurations WHERE operation = ?"
            + (" AND version = ? AND parameters = ?)" if configuration else ")"),
            *([f"problem = (SELECT id FROM problems WHERE {equal(problem_key(problem))})"] if problem else []),
        ]
        parameters = [
            *device_key(device).values(),
            *(dtype, operation),
            *((configuration.version, configuration.to_json()) if configuration else ()),
            *(problem_key(problem).values() if problem else ()),
        ]
        taken = f"UPDATE blocked SET reason = '', created = max(created, {NOW}) WHERE {' AND '.join(where)} RETURNING configuration"
        with self.write() as connection:
            return len(set(connection.execute(taken, parameters).fetchall()))

    def pin(
        self,
        device: Device,
        operation: str,
        dtype: str,
        rows: tuple[int, int],
        cols: tuple[int, int],
        configuration: Configuration,
        *,
        author: str,
        why: str,
    ) -> None:
        """A person's choice of `configuration` for all sizes in the ranges `rows` and `cols`, ends included; the newest stands.

        Raises UsageError where `why` or `author` is blank or no text.
        """
        require_text("reason", why)
        require_text("author", author)
        with self.write() as connection:
            values = {
                "device": device_id(connection, device),
                "operation": operation,
                "dtype": dtype,
                "least_rows": rows[0],
                "most_rows": rows[1],
                "least_cols": cols[0],
                "most_cols": cols[1],
                "configuration": configuration_id(connection, operation, configuration),
                "author": author,
                "why": why,
            }
            connection.execute(*insert("pins", values, "OR REPLACE"))

    def unpin(self, device: Device, operation: str, dtype: str, rows: tuple[int, int], cols: tuple[int, int]) -> bool:
        """Take a pin away; whether there was one."""
        with self.write() as connection:
            taken = connection.execute(
                "DELETE FROM pins WHERE device = ? AND operation = ? AND dtype = ? AND least_rows = ? AND most_rows = ? "
                "AND least_cols = ? AND most_cols = ?",
                (device_id(connection, device), operation, dtype, *rows, *cols),
            )
            return taken.rowcount > 0

    def add_misses(self, device: Device, misses: Iterable[tuple[Problem, str, Configuration | None, int]]) -> None:
        """Add to the log of problems that had no exact answer: (problem, tier that answered, what it chose, how often)."""
        with self.write() as connection:
            known = device_id(connection, device)
            for problem, tier, configuration, count in misses:
                chosen = configuration_id(connection, problem.operation, configuration) if configuration else None
                row = found_or_added(
                    connection, "misses", {"device": known, "problem": problem_id(connection, problem)}, {"tier": tier, "count": 0}
                )
                connection.execute(
                    f"UPDATE misses SET count = count + ?, tier = ?, configuration = ?, last = {NOW} WHERE id = ?",
                    (count, tier, chosen, row),
                )

    def store_selector(
        self, device: Device, operation: str, dtype: str, kind: str, body: str, train_sha: str, regret: tuple[float, float, float]
    ) -> None:
        """Store a trained selector (`body` is JSON) as the active one; `regret` on held-out sizes is (geomean, p95, worst)."""
        with self.write() as connection:
            values = {
                "device": device_id(connection, device),
                "operation": operation,
                "dtype": dtype,
                "kind": kind,
                "body": body,
                "train_sha": train_sha,
                "regret_geomean": regret[0],
                "regret_p95": regret[1],
                "regret_worst": regret[2],
            }
            connection.execute(*insert("selectors", values, "OR REPLACE"))


def replace_best(connection: sqlite3.Connection, values: Mapping[str, object]) -> None:
    """Store a row of `best`, in place of the one for the same problem, device and protocol; the very same row is left alone."""
    same = " AND ".join(f"{column} IS ?" for column in values)
    if connection.execute(f"SELECT 1 FROM best WHERE {same}", tuple(values.values())).fetchone():
        return
    key = (values["device"], values["problem"], values["protocol"])
    connection.execute("DELETE FROM best WHERE device = ? AND problem = ? AND protocol = ?", key)
    added(connection, "best", values)


def _evidence(connection: sqlite3.Connection, trial_id: int, run_id: int) -> tuple[int, bool, str]:
    row = connection.execute(
        "SELECT t.template, t.replayed, u.origin FROM trials t, runs u WHERE t.id = ? AND u.id = ?", (trial_id, run_id)
    ).fetchone()
    if not row:
        raise AutotuneError(f"trial {trial_id} or run {run_id} is not in the database, so nothing can be settled on it")
    return int(row[0]), bool(row[1]), str(row[2]) if row[2] in ("local", "imported", "shipped") else "imported"


def _measured(connection: sqlite3.Connection, values: Mapping[str, object]) -> bool:
    """Whether the best that `values` would replace was measured rather than replayed."""
    key = (values["device"], values["problem"], values["protocol"])
    row = connection.execute(
        "SELECT t.replayed FROM best b JOIN trials t ON t.id = b.trial WHERE b.device = ? AND b.problem = ? AND b.protocol = ?", key
    ).fetchone()
    return bool(row) and not row[0]


def require_text(what: str, text: str) -> None:
    """Raise UsageError unless `text` says something to whoever reads it later."""
    if not text.strip():
        raise UsageError(f"the {what} is blank; say it in a few words, for whoever finds this later")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # from an argument that was not UTF-8
        raise UsageError(f"the {what} {text!r} is not UTF-8 text; write it in UTF-8") from error
