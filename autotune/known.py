"""What a sweep knows of one problem before it measures, and learns while it does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.evidence import Evidence, weigh
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search import Budget
from autotune.trial import Outcome

TRIES = {Outcome.COMPILE_ERROR: 1}  # the same source fails to compile the same way again; anything else may have been bad luck
DEFAULT_TRIES = 2


@dataclass(slots=True)
class Known:
    """Each configuration's time in microseconds, None once it is not to be tried again; its latest timed trial; how often it failed.

    `blocked` are the configurations that must not be used for the problem, of whatever version.
    """

    evidence: Evidence
    times: dict[Configuration, float | None]
    ids: dict[Configuration, int]
    failed: Counter[Configuration]
    blocked: frozenset[Configuration]

    def best_us(self) -> float | None:
        return min((us for us in self.times.values() if us is not None), default=None)


def look(
    database: Database,
    backend: Backend,
    operation: Operation,
    problem: Problem,
    space: Sequence[Configuration],
    template_shas: Mapping[str, str],
) -> Known:
    """What `database` knows of `problem` at this moment: of the configurations of `space`, with the templates of these hashes.

    What was tried of configurations that `operation` no longer declares, or that are not applicable any more, is no evidence.
    """
    shas = set(template_shas.values())
    blocked = frozenset(database.blocked(backend.device, problem.operation, problem.dtype, problem, template_shas=shas))
    evidence = _weighed(database, backend, operation, problem, template_shas, blocked)
    forgiven = database.forgiven(backend.device, problem)
    failed = Counter(t.configuration for t in evidence.trials if not t.outcome.timed and t.trial_id not in forgiven)
    times: dict[Configuration, float | None] = {}
    ids: dict[Configuration, int] = {}
    for trial in evidence.trials:
        if trial.outcome.timed:
            times[trial.configuration] = trial.time_us
            ids[trial.configuration] = trial.trial_id
        elif trial.trial_id not in forgiven and failed[trial.configuration] >= tries(trial.outcome):
            times.setdefault(trial.configuration, None)
    times.update(dict.fromkeys(blocked))
    return Known(evidence, {c: times[c] for c in space if c in times}, ids, failed, blocked)


def tries(outcome: Outcome) -> int:
    """How often a configuration may fail like this before it is left alone."""
    return TRIES.get(outcome, DEFAULT_TRIES)


def planned(budget: Budget, space: int, known: int) -> int | None:
    """How many of `space` configurations are known once `budget` is spent, where that can be said."""
    if budget.exhaustive:
        return space
    return max(known, min(space, budget.trials)) if budget.trials else None


def _weighed(
    database: Database,
    backend: Backend,
    operation: Operation,
    problem: Problem,
    template_shas: Mapping[str, str],
    blocked: frozenset[Configuration],
) -> Evidence:
    stored = database.trials(backend.device, backend.timing, problem=problem, replayed=backend.replayed)
    whole = [trial for trial in stored if trial.whole]  # what has lost its times is measured again, as if it had not been before
    offered = set(operation.offered(dict.fromkeys(trial.configuration for trial in whole), problem, backend.device))
    trials = [trial for trial in whole if trial.configuration in offered]
    if backend.replayed:  # a recording is as good as it was, whatever became of its templates
        return Evidence(trials)
    settled = database.settled(backend.device, backend.timing, problem)
    best = settled.configuration if settled else None
    return weigh(trials, template_shas, backend.flags, backend.environment, best, blocked)
