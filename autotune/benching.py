"""Timing, side by side and right now, what the dispatcher would launch and the best known kernel of every other version.

The check on a decision: nothing is searched and nothing is stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.backends import Backend, Bench
from autotune.choice import TIE
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.race import FINAL_ROUNDS, Race, screen
from autotune.source import read
from autotune.statistics import confidence_interval, median
from autotune.trial import Failure, ProblemFailure
from autotune.workshop import Workshop


@dataclass(frozen=True, slots=True)
class Contestant:
    """A configuration with its time in microseconds and the 95 % confidence interval of that; `failure` says why it has none."""

    configuration: Configuration
    time_us: float | None = None
    interval_us: tuple[float, float] | None = None
    failure: str = ""

    def beats(self, other: "Contestant") -> bool:
        """Whether it is faster by more than a tie, and its interval does not meet the other's."""
        if self.time_us is None or self.interval_us is None or other.time_us is None or other.interval_us is None:
            return False
        return self.time_us * (1 + TIE) < other.time_us and self.interval_us[1] < other.interval_us[0]


@dataclass(frozen=True, slots=True)
class Contest:
    """One problem: the time of a device copy of its bytes in microseconds, None off a GPU, and who met, fastest first."""

    problem: Problem
    copy_us: float | None
    contestants: tuple[Contestant, ...]

    @property
    def fastest_us(self) -> float | None:
        return self.contestants[0].time_us if self.contestants else None


def best_of_versions(
    paths: Iterable[Path], operation: Operation, problem: Problem, device: Device, versions: Sequence[str] = ()
) -> dict[str, Configuration]:
    """The best known configuration of each version that can run `problem` on `device`; of several files the first is believed."""
    space = {c for c in operation.configurations(tuple(versions)) if operation.applicable(c, problem, device)}
    found: dict[str, Configuration] = {}
    for path in paths:
        with Database(path, mode="read") as database:
            rows = database.best_per_version(operation.name, problem.rows, problem.cols, problem.dtype, device.name)
        for row in rows:
            known = Configuration.of(row["version"], **row["parameters"])
            if known in space:
                found.setdefault(known.version, known)
    return found


def failures_of_versions(paths: Iterable[Path], operation: Operation, problem: Problem, device: Device) -> dict[str, str]:
    """Of each version that failed at `problem` on `device` as it is now, what it failed of last; of several files the first is believed."""
    found: dict[str, str] = {}
    for path in paths:
        with Database(path, mode="read") as database:
            rows = database.select(
                "SELECT version, outcome, message, template_sha FROM failures "
                "WHERE operation = ? AND rows = ? AND cols = ? AND dtype = ? AND device = ? "
                "ORDER BY trial DESC",
                (problem.operation, problem.rows, problem.cols, problem.dtype, device.name),
            )
        for row in rows:
            version = operation.versions.get(row["version"])
            if version is None or row["template_sha"] != read(version).sha:
                continue
            found.setdefault(version.name, f"{row['outcome'].replace('_', ' ')}: {row['message']}".partition("\n")[0])
    return found


def contest(
    backend: Backend, operation: Operation, workshop: Workshop, problem: Problem, entrants: Iterable[Configuration], *, seed: int = 0
) -> Contest:
    """Check and time `entrants` in rounds against each other, in shuffled order. One that is far behind the first is timed once.

    Raises Failure when the problem itself cannot be set up.
    """
    wanted = list(dict.fromkeys(entrants))
    workshop.build(wanted, problem.dtype)
    with backend.open(operation, problem, seed=seed) as bench:
        samples, failures = _screened(bench, workshop, wanted, problem.dtype)
        racing = {c: workshop.instance(c, problem.dtype) for c, taken in samples.items() if not taken}
        race = Race(bench, racing, seed=seed, save=lambda taken: None, failed=lambda c, failure: failures.update({c: str(failure)}))
        samples |= race.meet(racing, "final", FINAL_ROUNDS)
        met = [_contestant(c, samples.get(c, ()), failures.get(c, "")) for c in wanted]
        return Contest(problem, bench.copy_us, tuple(sorted(met, key=lambda one: (one.time_us is None, one.time_us or 0.0))))


def _screened(
    bench: Bench, workshop: Workshop, wanted: Sequence[Configuration], dtype: str
) -> tuple[dict[Configuration, tuple[float, ...]], dict[Configuration, str]]:
    """The samples of who is too far behind to race and of everyone else none, and why the others failed."""
    samples: dict[Configuration, tuple[float, ...]] = {}
    failures: dict[Configuration, str] = {}
    best_us: float | None = None
    for configuration in wanted:
        try:
            screened = screen(bench, workshop.instance(configuration, dtype), best_us)
        except ProblemFailure:
            raise
        except Failure as failure:
            failures[configuration] = f"{failure.outcome.replace('_', ' ')}: {failure.message}"
            continue
        taken = screened.round.samples_us
        best_us = min(filter(None, (best_us, median(taken))))
        samples[configuration] = taken if screened.far_behind else ()
    return samples, failures


def _contestant(configuration: Configuration, samples_us: tuple[float, ...], failure: str) -> Contestant:
    if not samples_us:
        return Contestant(configuration, failure=failure)
    return Contestant(configuration, median(samples_us), confidence_interval(samples_us))


def faster(chosen: Configuration, found: Contest) -> list[Contestant]:
    """Who beat `chosen` beyond noise."""
    one: Mapping[Configuration, Contestant] = {c.configuration: c for c in found.contestants}
    return [other for other in found.contestants if other.beats(one[chosen])]
