"""What `best` is derived from: making it again from the trials, and telling which of it no longer holds."""

import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune import catalogue, source
from autotune.configuration import Configuration
from autotune.database.connection import Row
from autotune.database.decide import Decider, Settled, State
from autotune.database.keys import KERNEL_TUNER, device_key, equal, problem_key
from autotune.database.read import StoredTrial, problem_of
from autotune.database.settling import APART, Order, decide
from autotune.database.sound import NONSENSE, sound
from autotune.database.usable import Judge
from autotune.device import Device
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Environment, TimingProtocol

OVERTAKEN = "a faster configuration that was refused before is offered again"

# Confirmed bests beside which another configuration raced and was faster: few, so that only these are looked at closely.
_FASTER = """
SELECT DISTINCT b.trial AS best, d.name AS device, q.name AS protocol, q.rule, p.operation, p.rows, p.cols, p.dtype, p.input_stride,
       p.output_stride, p.input_alignment, p.output_alignment, p.in_place
FROM best b
JOIN problems p ON p.id = b.problem AND p.operation = ?
JOIN devices d ON d.id = b.device
JOIN protocols q ON q.id = b.protocol
JOIN trials t ON t.problem = b.problem AND t.configuration <> b.configuration
JOIN runs u ON u.id = t.run AND u.device = b.device AND u.protocol = b.protocol
JOIN rounds r ON r.id = (SELECT id FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1)
WHERE b.state = 'confirmed' AND r.kind IN ('final', 'race') AND r.time_us * ? < b.time_us
"""

Touched = set[tuple[int, int]]  # devices and problems by their ids


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """How many problems have a best again, how many kept one that is stale, and how many are of operations that are not here."""

    settled: int
    stale: int
    unknown: int


class Rebuilder(Decider, Judge):
    """The part of a database that compares what was settled with the trials and with today's kernels."""

    def rebuild(
        self,
        operations: Mapping[str, Operation] | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        only: Touched | None = None,
    ) -> Rebuilt:
        """Make `best` again from all trials, problem by problem, or of those alone that are in `only`; doing it again changes nothing.

        `operations` are those to go by, by name; others are taken from the shipped ones. A problem whose trials are all of templates
        or definitions that have changed keeps its best, marked stale; one whose operation is not here keeps its best as it is.
        `progress` is told how many problems are done, of how many.
        """
        known = dict(operations or {})
        order: dict[str, Order] = {}
        counts = {"settled": 0, "stale": 0, "unknown": 0}
        measured = list(self._measured_problems(only))
        for done, (device, timing, problem) in enumerate(measured):
            progress(done, len(measured))
            operation = known.get(problem.operation) or _shipped(problem.operation)
            if operation is None:
                counts["unknown"] += 1
                continue
            known[operation.name] = operation
            if operation.name not in order:  # a space of thousands is listed once and not for every problem
                order[operation.name] = {c: place for place, c in enumerate(operation.configurations())}
            settled = self._rebuild(operation, order[operation.name], device, timing, problem)
            counts["settled" if settled else "stale"] += 1
        return Rebuilt(**counts)

    def stale(self, operation: Operation, environment: Environment | None = None) -> list[Row]:
        """The rows of `best` that should be settled again, each with `why`: another template, definition, compiler or driver, or a
        configuration that is no longer declared or applicable, or beside which a faster one is so again.

        The first two make a time a prior and no more. Compiler and driver leave it in use until it is confirmed or replaced.
        """
        current = templates_here(operation)
        devices = self.devices_measured()
        overtaken = self._overtaken(operation, devices)
        reasons = (
            (row, _why_stale(row, current, environment) or _why_refused(row, operation, devices) or overtaken.get(row["trial"], ""))
            for row in self.best(operation.name)
        )
        return [row | {"state": "stale", "why": why} for row, why in reasons if why]

    def _rebuild(self, operation: Operation, order: Order, device: Device, timing: TimingProtocol, problem: Problem) -> bool:
        """Settle one problem by its trials; False when none of them is of today's templates."""
        trials, blocked = self._present(operation, device, timing, problem)
        allowed = {c: order[c] for c in _offered(operation, trials, blocked, problem, device)}
        before = self.settled(device, timing, problem)
        found = decide(trials, allowed)
        if found is None:
            if before is None or before.configuration.version != KERNEL_TUNER:
                self._mark(before, "blocked" if before and before.configuration in blocked else "stale")
            return False
        choice, confirmed = found
        winner = _evidence(trials, choice.configuration)
        settled = Settled(
            configuration=choice.configuration,
            trial_id=winner.trial_id,
            time_us=choice.time_us,
            ci_low_us=choice.low_us,
            ci_high_us=choice.high_us,
            spread=choice.spread,
            tried=len({t.configuration for t in trials}),
            bytes_moved=operation.bytes_moved(problem),
            state="confirmed" if confirmed else "provisional",
            runner_up=choice.runner_up,
            runner_up_us=choice.runner_up_us,
            gap=choice.gap,
            beyond_noise=choice.beyond_noise,
            copy_us=self.copy_us(device, timing, problem),
            space_sha=before.space_sha if before else "",
        )
        self.settle(winner.run_id, device, timing, problem, settled)
        return True

    def _present(
        self, operation: Operation, device: Device, timing: TimingProtocol, problem: Problem
    ) -> tuple[list[StoredTrial], Container[Configuration]]:
        """The trials of a problem that are of today's templates, those that were measured rather than replayed; and what is blocked."""
        current = templates_here(operation)
        trials = [t for t in self.trials(device, timing, problem) if t.template_sha == current.get(t.configuration.version)]
        blocked = self.blocked(device, problem.operation, problem.dtype, problem, template_shas=set(current.values()))
        return [t for t in trials if not t.replayed] or trials, blocked

    def _overtaken(self, operation: Operation, devices: Sequence[Device]) -> dict[int, str]:
        """The trials of bests beside which a faster configuration can be used and raced, with why that is: it was refused in between.

        Only times that were taken with the driver and compiler of the best are compared with its own.
        """
        rows = self.select(_FASTER, (operation.name, 1 + APART))
        found: dict[int, str] = {}
        for row in rows:
            try:
                problem = problem_of(row)
            except NONSENSE:  # which reading the best itself has told
                continue
            for device in (d for d in devices if d.name == row["device"]):
                timing = next((t for t in self.protocols_measured(device) if (t.name, t.rule) == (row["protocol"], row["rule"])), None)
                settled = self.settled(device, timing, problem) if timing else None
                if timing is None or settled is None or settled.trial_id != row["best"]:
                    continue
                trials, blocked = self._present(operation, device, timing, problem)
                tools = next(((t.driver, t.compiler) for t in trials if t.trial_id == row["best"]), None)
                trials = [t for t in trials if (t.driver, t.compiler) == tools]
                allowed = _offered(operation, trials, blocked, problem, device)
                decided = decide(trials, {c: place for place, c in enumerate(allowed)})
                if decided and decided[0].configuration != settled.configuration and decided[0].time_us * (1 + APART) < settled.time_us:
                    found[row["best"]] = f"{OVERTAKEN}: {decided[0].configuration}"
        return found

    def touched(
        self, device: Device, operation: str, configuration: Configuration | None, dtype: str, problem: Problem | None = None
    ) -> Touched:
        """The problems at which `configuration` has trials on `device`, or with `problem` that one: what a block of it may change.

        Without `configuration`, those of every one that is or was blocked.
        """
        rows = self.select(
            f"SELECT DISTINCT u.device, t.problem FROM trials t JOIN runs u ON u.id = t.run JOIN problems p ON p.id = t.problem "
            "JOIN configurations c ON c.id = t.configuration "
            f"WHERE u.device = (SELECT id FROM devices WHERE {equal(device_key(device))}) "
            "AND (c.operation, p.dtype) = (?, ?)"
            + (" AND (c.version, c.parameters) = (?, ?)" if configuration else " AND c.id IN (SELECT configuration FROM blocked)")
            + (f" AND p.id = (SELECT id FROM problems WHERE {equal(problem_key(problem))})" if problem else ""),
            [
                *device_key(device).values(),
                *(operation, dtype),
                *((configuration.version, configuration.to_json()) if configuration else ()),
                *(problem_key(problem).values() if problem else ()),
            ],
        )
        return {(row["device"], row["problem"]) for row in rows}

    def blocked_though_timed(
        self,
        device: Device,
        operation: str,
        configuration: Configuration | None,
        dtype: str,
        problem: Problem | None = None,
        template_shas: Collection[str] | None = None,
    ) -> int:
        """Of the configurations that `unblock` would take these for, how many have a time wherever they were tried: no sweep tries those.

        A time counts that is of one of the templates `template_shas`, of any where that is None.
        """
        rows = self.select(
            "SELECT configuration FROM (SELECT b.configuration, max(coalesce(e.outcome, t.outcome) IN ('ok', 'pruned') "
            "AND (?1 IS NULL OR s.sha IN (SELECT value FROM json_each(?1)))) AS timed FROM blocked b "
            "JOIN configurations c ON c.id = b.configuration "
            "JOIN trials t ON t.configuration = b.configuration "
            "AND (b.problem IS NULL OR b.problem = t.problem) JOIN runs u ON u.id = t.run AND u.device = b.device "
            "JOIN problems p ON p.id = t.problem AND p.dtype = b.dtype JOIN templates s ON s.id = t.template "
            "LEFT JOIN endings e ON e.trial = t.id "
            f"WHERE b.reason <> '' AND b.device = (SELECT id FROM devices WHERE {equal(device_key(device))}) "
            "AND (c.operation, b.dtype) = (?, ?)"
            + (" AND (c.version, c.parameters) = (?, ?)" if configuration else "")
            + (f" AND b.problem = (SELECT id FROM problems WHERE {equal(problem_key(problem))})" if problem else "")
            + " GROUP BY b.configuration, t.problem, u.protocol) GROUP BY configuration HAVING min(timed)",
            [
                json.dumps(sorted(template_shas)) if template_shas is not None else None,
                *device_key(device).values(),
                *(operation, dtype),
                *((configuration.version, configuration.to_json()) if configuration else ()),
                *(problem_key(problem).values() if problem else ()),
            ],
        )
        return len(rows)

    def _measured_problems(self, only: Touched | None) -> Iterator[tuple[Device, TimingProtocol, Problem]]:
        for device in self.devices_measured():
            for timing in self.protocols_measured(device):
                rows = self.select(
                    "SELECT p.*, m.device AS device_id FROM problems p JOIN (SELECT DISTINCT t.problem, u.device FROM trials t "
                    "JOIN runs u ON u.id = t.run JOIN devices d ON d.id = u.device JOIN protocols q ON q.id = u.protocol "
                    "WHERE (d.name, d.sm_count, d.l2_bytes, d.bus_bits, q.name, q.rule) = (?, ?, ?, ?, ?, ?)) m ON m.problem = p.id "
                    "ORDER BY p.id",
                    (device.name, device.sm_count, device.l2_bytes, device.bus_bits, timing.name, timing.rule),
                )
                chosen = [row for row in rows if only is None or (row["device_id"], row["id"]) in only]
                for problem in sound(self, "problems", chosen, problem_of):
                    yield device, timing, problem

    def _mark(self, settled: Settled | None, state: State) -> None:
        if settled is not None and settled.state != state:
            with self.write() as connection:
                connection.execute("UPDATE best SET state = ? WHERE trial = ?", (state, settled.trial_id))


def _offered(
    operation: Operation, trials: Iterable[StoredTrial], blocked: Container[Configuration], problem: Problem, device: Device
) -> list[Configuration]:
    return list(operation.offered(dict.fromkeys(t.configuration for t in trials if t.configuration not in blocked), problem, device))


def templates_here(operation: Operation) -> dict[str, str]:
    """The hash of each version's template and definition as they are today, by the version's name."""
    return {version: template.sha for version, template in source.templates(operation)}


def _shipped(operation: str) -> Operation | None:
    try:
        return catalogue.load(operation)
    except UsageError:
        return None


def _evidence(trials: Sequence[StoredTrial], configuration: Configuration) -> StoredTrial:
    """The trial of `configuration` that its choice rests on: the latest that raced furthest."""
    timed = [t for t in trials if t.configuration == configuration and t.outcome.timed]
    return max(timed, key=lambda t: (any(r.kind == "final" for r in t.rounds), t.trial_id))


def _why_stale(row: Row, current: Mapping[str, str], environment: Environment | None) -> str:
    if row["version"] == KERNEL_TUNER:
        return ""
    if row["template_sha"] != current.get(row["version"]):
        return "the template or its definition has changed since"
    if environment is not None:
        for name in ("compiler", "driver"):
            then, now = row[name], getattr(environment, name)
            if then != now:
                return f"{name} {now or 'unknown'} is in use and it was measured with {then or 'an unknown one'}"
    return ""


def _why_refused(row: Row, operation: Operation, devices: Sequence[Device]) -> str:
    """Why the configuration of a row of `best` is no longer to be used for its problem by its definition; "" where it is."""
    if row["version"] == KERNEL_TUNER:
        return ""
    configuration, problem = Configuration(row["version"], tuple(row["parameters"].items())), problem_of(row)
    if not operation.version(row["version"]).declares(configuration):
        return "its definition no longer declares it"
    verdicts = [operation.applicable(configuration, problem, device).why for device in devices if device.name == row["device"]]
    return f"its definition refuses it: {verdicts[0]}" if verdicts and all(verdicts) else ""
