"""What a search starts from: what was measured that only hints at a problem's times, and what its operation proposes."""

from collections.abc import Mapping, Sequence

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.database import Database, StoredTrial
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search.neighbours import carried, distance, nearest

Times = Mapping[Configuration, float]


def priors(
    database: Database,
    backend: Backend,
    operation: Operation,
    problem: Problem,
    space: Sequence[Configuration],
    stale: Sequence[StoredTrial],
) -> list[tuple[float, Times]]:
    """Times in microseconds with how far they are: the `stale` ones of `problem` itself, then those of the nearest measured problems."""
    possible, near = set(space), nearest(problem, database.problems_measured(problem.operation, backend.device, backend.timing))
    evidence: dict[Problem, Sequence[StoredTrial]] = {problem: stale}
    evidence |= {there: database.trials(backend.device, backend.timing, problem=there, replayed=backend.replayed) for there in near}
    return [
        (distance(problem, there), carried(times, there, problem, operation, possible))
        for there, trials in evidence.items()
        if (times := {t.configuration: t.time_us for t in trials if t.outcome.timed and t.time_us})
    ]


def suggested(operation: Operation, problem: Problem, backend: Backend, space: Sequence[Configuration]) -> list[Configuration]:
    """What `operation` proposes first of what is in `space`, without any measurement; one, for its next ones are mostly of that kind."""
    possible = set(space)
    return [c for c in operation.defaults(problem, backend.device) if c in possible][:1]
