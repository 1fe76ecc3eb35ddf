"""Reading trials back as the nouns they were recorded from."""

import hashlib
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from autotune.configuration import Configuration
from autotune.database.connection import Connection, Row
from autotune.database.keys import UNDER, device_key, equal, problem_key, under
from autotune.database.packing import unpack
from autotune.database.sound import require_problem, samples_of, sound
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.problem import Problem
from autotune.trial import Outcome, Round, RoundKind, TimingProtocol

# From the most careful evidence to the least: finalists were measured in pairs, against each other.
CARE: tuple[RoundKind, ...] = ("final", "race", "screen")


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One trial as the database holds it; `outcome` is how it ended, `created` the time in UTC.

    `driver` and `compiler` are those of its run, `flags` those of its instance ("" when there was none). `lost` says that rounds of it
    are stored which cannot be read.
    """

    trial_id: int
    run_id: int
    problem: Problem
    configuration: Configuration
    template_sha: str
    outcome: Outcome
    max_error: float | None
    first_us: float | None
    message: str
    replayed: bool
    created: str
    rounds: tuple[Round, ...] = field(repr=False)
    driver: str = ""
    compiler: str = ""
    flags: str = ""
    lost: bool = False

    @property
    def whole(self) -> bool:
        """Whether a trial that was timed has rounds, all of which can be read; one that failed has no need of any."""
        return not self.outcome.timed or bool(self.rounds and not self.lost)

    @property
    def evidence(self) -> tuple[Round, ...]:
        """The rounds of the most careful kind that the trial reached: final, else race, else screen."""
        for kind in CARE:
            if chosen := tuple(r for r in self.rounds if r.kind == kind):
                return chosen
        return ()

    @property
    def samples_us(self) -> tuple[float, ...]:
        """All samples of the evidence, in microseconds per launch."""
        return tuple(sample for taken in self.evidence for sample in taken.samples_us)

    @property
    def time_us(self) -> float | None:
        """The median of the medians of the evidence's rounds, so that a round with more samples weighs no more; None without rounds."""
        return statistics.median(statistics.median(r.samples_us) for r in self.evidence) if self.rounds else None


class Reader(Connection):
    """The part of a database that gives trials back."""

    def trials(
        self,
        device: Device,
        timing: TimingProtocol,
        problem: Problem | None = None,
        operation: str | None = None,
        template_shas: Collection[str] | None = None,
        replayed: bool | None = None,
    ) -> list[StoredTrial]:
        """The trials of `device` under `timing`, oldest first; of one problem, operation, set of templates or origin when given.

        A trial whose `template_sha` is not its version's present one is stale: a prior, not evidence.
        """
        where, parameters = [UNDER], under(device, timing)
        if problem:
            where.append(f"t.problem = (SELECT id FROM problems WHERE {equal(problem_key(problem))})")
            parameters += problem_key(problem).values()
        if operation:
            where.append("p.operation = ?")
            parameters.append(operation)
        if template_shas is not None:
            where.append("s.sha IN (SELECT value FROM json_each(?))")
            parameters.append(json.dumps(sorted(template_shas)))
        if replayed is not None:
            where.append("t.replayed = ?")
            parameters.append(int(replayed))
        rows = self.select(f"{_TRIALS} WHERE {' AND '.join(where)} ORDER BY t.id", parameters)
        rounds, lost = self._rounds([row["trial_id"] for row in rows])
        return sound(
            self, "trials", rows, lambda row: _trial(row, rounds.get(row["trial_id"], ()), lost=row["trial_id"] in lost), "trial_id"
        )

    def attempts(
        self, device: Device, timing: TimingProtocol, problem: Problem, template_shas: Collection[str] | None = None
    ) -> dict[Configuration, int]:
        """How often each configuration failed on `problem` (`not_applicable` aside); those that never did are absent.

        A failing configuration is tried at most twice and then blocked.
        """
        failures: dict[Configuration, int] = defaultdict(int)
        for trial in self.trials(device, timing, problem, template_shas=template_shas, replayed=False):
            if not trial.outcome.timed and trial.outcome is not Outcome.NOT_APPLICABLE:
                failures[trial.configuration] += 1
        return dict(failures)

    def blocked(
        self, device: Device, operation: str, dtype: str, problem: Problem | None = None, template_shas: Collection[str] | None = None
    ) -> dict[Configuration, str]:
        """The configurations that must not be selected, each with its reason: everywhere, and with `problem` also for that problem."""
        rows = self.select(
            "SELECT b.id, c.version, c.parameters, s.sha, b.reason FROM blocked b JOIN configurations c ON c.id = b.configuration "
            f"JOIN templates s ON s.id = b.template WHERE b.device = (SELECT id FROM devices WHERE {equal(device_key(device))}) "
            "AND b.reason <> '' AND c.operation = ? AND b.dtype = ? AND (b.problem IS NULL"
            + (f" OR b.problem = (SELECT id FROM problems WHERE {equal(problem_key(problem))}))" if problem else ")"),
            [*device_key(device).values(), operation, dtype, *(problem_key(problem).values() if problem else ())],
        )
        current = [row for row in rows if template_shas is None or row["sha"] in template_shas]
        return dict(
            sound(self, "blocked", current, lambda row: (Configuration.from_json(row["version"], row["parameters"]), row["reason"]))
        )

    def forgiven(self, device: Device, problem: Problem) -> set[int]:
        """The ids of the trials of `problem` whose configuration was unblocked since: where one failed, that counts no more."""
        rows = self.select(
            "SELECT t.id FROM trials t JOIN blocked b ON b.configuration = t.configuration AND b.template = t.template "
            "AND b.reason = '' AND (b.problem IS NULL OR b.problem = t.problem) LEFT JOIN endings e ON e.trial = t.id "
            f"WHERE t.problem = (SELECT id FROM problems WHERE {equal(problem_key(problem))}) AND b.dtype = ? "
            f"AND b.device = (SELECT id FROM devices WHERE {equal(device_key(device))}) AND coalesce(e.created, t.created) <= b.created",
            [*problem_key(problem).values(), problem.dtype, *device_key(device).values()],
        )
        return {row["id"] for row in rows}

    def load_binary(self, sha: str) -> bytes:
        """The cubin or PTX with this hash. Raises KeyError when there is none, AutotuneError when its bytes are not what was stored."""
        rows = self.select("SELECT packed FROM binaries WHERE sha = ?", (sha,))
        if not rows:
            raise KeyError(sha)
        binary = unpack(rows[0]["packed"])
        if hashlib.sha256(binary).hexdigest() != sha:
            raise AutotuneError(f"binary {sha[:12]} in {self.path} is damaged; tune again to replace it")
        return binary

    def _rounds(self, trials: Collection[int]) -> tuple[dict[int, list[Round]], set[int]]:
        """The rounds of each of these trials that can be read, and which of the trials have others."""
        rows = self.select(
            "SELECT id, trial, kind, samples_us, launches_per_sample, sm_clock_mhz, throttled FROM rounds "
            "WHERE trial IN (SELECT value FROM json_each(?)) ORDER BY trial, number",
            (json.dumps(list(trials)),),
        )
        rounds: dict[int, list[Round]] = defaultdict(list)
        for trial, taken in sound(self, "rounds", rows, _round):
            rounds[trial].append(taken)
        stored = Counter(row["trial"] for row in rows)
        return rounds, {trial for trial, count in stored.items() if count > len(rounds.get(trial, ()))}


_TRIALS = """
SELECT t.id AS trial_id, t.run AS run_id, p.operation, p.rows, p.cols, p.dtype, p.input_stride, p.output_stride, p.input_alignment,
       p.output_alignment, p.in_place, c.version, c.parameters, s.sha, coalesce(e.outcome, t.outcome) AS outcome,
       t.max_error, t.first_us, CASE WHEN e.message <> '' THEN e.message ELSE t.message END AS message, t.replayed, t.created,
       v.driver, v.compiler, coalesce(i.flags, '') AS flags
FROM trials t
JOIN runs u ON u.id = t.run
JOIN environments v ON v.id = u.environment
JOIN problems p ON p.id = t.problem
JOIN configurations c ON c.id = t.configuration
JOIN templates s ON s.id = t.template
LEFT JOIN endings e ON e.trial = t.id
LEFT JOIN instances i ON i.id = t.instance
"""


def problem_of(row: Row) -> Problem:
    """The problem that a row's columns describe. Raises ValueError where none can be so."""
    require_problem(row)
    return Problem(
        row["operation"],
        row["rows"],
        row["cols"],
        row["dtype"],
        row["input_stride"],
        row["output_stride"],
        row["input_alignment"],
        row["output_alignment"],
        bool(row["in_place"]),
    )


def _round(row: Row) -> tuple[int, Round]:
    if row["kind"] not in CARE:
        raise ValueError(f"{row['kind']!r} is no kind of round")
    samples_us = samples_of(row["samples_us"])
    return row["trial"], Round(row["kind"], samples_us, row["launches_per_sample"], row["sm_clock_mhz"], row["throttled"])


def _trial(row: Row, rounds: Iterable[Round], *, lost: bool) -> StoredTrial:
    return StoredTrial(
        trial_id=row["trial_id"],
        run_id=row["run_id"],
        problem=problem_of(row),
        configuration=Configuration.from_json(row["version"], row["parameters"]),
        template_sha=row["sha"],
        outcome=Outcome(row["outcome"]),
        max_error=row["max_error"],
        first_us=row["first_us"],
        message=row["message"],
        replayed=bool(row["replayed"]),
        created=row["created"],
        rounds=tuple(rounds),
        driver=row["driver"],
        compiler=row["compiler"],
        flags=row["flags"],
        lost=lost,
    )
