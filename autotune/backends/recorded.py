"""The `recorded` backend: a database's measurements, replayed as if they were taken now.

It has no kernels and no GPU. A configuration that was never measured on a problem is not in its space; samples come back in the
order in which they were taken, again from the start when more are asked for than there are.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autotune import source
from autotune.configuration import Configuration
from autotune.database import Database, StoredTrial
from autotune.definition import Version
from autotune.device import Device
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Check, Environment, Failure, Instance, Round, RoundKind, TimingProtocol

NO_BINARY = b""
MOST_NAMED = 5  # sizes in a sentence


class RecordedBackend:
    """Replays one device of the database at `path`: the only one in it, or the one called `device`.

    Of the protocols under which it was timed it takes the one called `protocol`; when that is None, cold or else the first that there is.
    """

    replayed = True
    flags = ""

    def __init__(self, path: Path, *, device: str | None = None, protocol: str | None = None) -> None:
        self._database = Database(path, mode="read")
        try:
            self.device: Device = self._one_device(device)
            self.timing: TimingProtocol = self._one_protocol(protocol)
            self.environment: Environment = self._database.environment_of(self.device, self.timing) or Environment("", "", "")
        except BaseException:
            self._database.close()
            raise
        self._trials: dict[Problem, dict[Configuration, StoredTrial]] = {}
        self._open: dict[Configuration, StoredTrial] = {}

    def problems(self, operation: str) -> list[Problem]:
        """The problems of `operation` that were measured, in the order in which they first were."""
        return self._database.problems_measured(operation, self.device, self.timing)

    def require(self, problems: Iterable[Problem], versions: Iterable[str] = ()) -> None:
        """Raises UsageError unless every one of `problems` was recorded, with one of `versions` where any is named."""
        wanted = set(versions)
        for problem in problems:
            recorded = {c.version for c in self._recorded(problem)}
            if wanted and recorded and not wanted & recorded:
                named = ", ".join(sorted(wanted))
                there = ", ".join(sorted(recorded, key=lambda v: (len(v), v)))
                raise UsageError(f"{named} of {problem} was not recorded on {self.device.name}; recorded are {there}")
            if not recorded:
                raise UsageError(
                    f"{problem} was not recorded on {self.device.name}{self._recorded_near(problem)}; --device emulator runs any size"
                )

    def known(self, problem: Problem) -> frozenset[Configuration]:
        return frozenset(self._recorded(problem))

    def templates(self, operation: Operation) -> list[tuple[str, source.Source]]:
        return self._database.templates_tried(operation.name)

    def stale(self, operation: Operation, problems: Iterable[Problem]) -> int:
        """How many of the recorded trials of `problems` are of templates or definitions that have changed since."""
        current = {name: present.sha for name, present in source.templates(operation)}
        recorded = [(c, trial) for problem in problems for c, trial in self._recorded(problem).items()]
        return sum(trial.template_sha != current.get(c.version) for c, trial in recorded)

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        """Instances without code, of the sources that were recorded: at the problem that is open, or while none is, anywhere."""
        for configuration in configurations:
            anywhere = (trials[configuration] for trials in (self._open, *self._trials.values()) if configuration in trials)
            trial = next(anywhere, None)
            if trial is None:
                raise UsageError(
                    f"{configuration} was not recorded on {self.device.name}, where nothing else can be run; use --device emulator"
                )
            symbol = source.symbol(version, configuration, dtype)
            yield configuration, Instance(configuration, dtype, self.device.arch, symbol, trial.template_sha, "", "", NO_BINARY, None)

    @contextmanager
    def open(self, operation: Operation, problem: Problem, *, seed: int = 0) -> Iterator["RecordedBench"]:
        self._open = self._recorded(problem)
        yield RecordedBench(self._open, self._database.copy_us(self.device, self.timing, problem))

    def close(self) -> None:
        self._database.close()

    def _recorded(self, problem: Problem) -> dict[Configuration, StoredTrial]:
        if problem not in self._trials:
            trials = self._database.trials(self.device, self.timing, problem=problem)
            told = (trial for trial in trials if trial.rounds or not trial.outcome.timed)
            best_evidence = sorted(told, key=lambda trial: (trial.outcome.timed, len(trial.rounds)))
            self._trials[problem] = {trial.configuration: trial for trial in best_evidence}
        return self._trials[problem]

    def _recorded_near(self, problem: Problem) -> str:
        """What was recorded instead of `problem`: the sizes nearest to it, and how many there are."""
        like = {p.size: p for p in self.problems(problem.operation) if p.dtype == problem.dtype}
        if not like:
            return f", and nothing else was in {problem.dtype}"
        near = sorted(like, key=lambda size: _doublings(problem, like[size]))[:MOST_NAMED]
        if len(near) == len(like):
            return f"; in {problem.dtype} there is {', '.join(near)}"
        return f"; the nearest of the {len(like)} sizes in {problem.dtype} are {', '.join(near)}"

    def _one_device(self, name: str | None) -> Device:
        devices = self._database.devices_measured()
        found = [d for d in devices if d.name == name] if name else devices
        if len(found) != 1:
            names = ", ".join(d.name for d in devices) or "none"
            raise UsageError(f"the database has recorded {names}; name exactly one of its devices with --device recorded:PATH#NAME")
        return found[0]

    def _one_protocol(self, name: str | None) -> TimingProtocol:
        protocols = self._database.protocols_measured(self.device)
        names = sorted({p.name for p in protocols}, key=lambda known: (known != "cold", known))
        found = [p for p in protocols if p.name == name or (name is None and p.name == names[0])]
        if not found:
            there = ", ".join(names) or "none"
            raise UsageError(f"nothing of {self.device.name} is recorded under protocol {name!r}; leave it out, for recorded is {there}")
        return max(found, key=lambda p: p.rule)


@dataclass(slots=True)
class RecordedBench:
    """One recorded problem."""

    trials: dict[Configuration, StoredTrial]
    copy_us: float | None
    _taken: dict[Configuration, int] = field(default_factory=dict)

    def check(self, instance: Instance) -> Check:
        trial = self.trials[instance.configuration]
        if not trial.outcome.timed:
            raise Failure(trial.outcome, trial.message)
        samples = [us for taken in trial.rounds for us in taken.samples_us]
        return Check(max_error=math.nan if trial.max_error is None else trial.max_error, first_us=samples[0])

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool = False) -> Round:
        rounds = self.trials[instance.configuration].rounds
        recorded = [(us, taken) for taken in rounds for us in taken.samples_us]
        first = self._taken.get(instance.configuration, 0)
        self._taken[instance.configuration] = first + samples
        replayed = [recorded[(first + i) % len(recorded)] for i in range(samples)]
        last = replayed[-1][1]
        return Round(kind, tuple(us for us, _ in replayed), last.launches_per_sample, last.sm_clock_mhz, None)


def _doublings(a: Problem, b: Problem) -> float:
    """How far two sizes are apart as a person sees it: doublings of rows and of columns."""
    return sum(abs(math.log2(max(one, 1) / max(other, 1))) for one, other in ((a.rows, b.rows), (a.cols, b.cols)))
