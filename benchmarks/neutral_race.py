"""Times configurations of one operation against each other, whoever chose them: for benchmarks that compare tuners or sweeps."""

from collections.abc import Iterable, Mapping

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.race import Race
from autotune.trial import Failure, Instance, Round


def race(
    backend: Backend, operation: Operation, problem: Problem, chosen: Iterable[Configuration], *, rounds: int, seed: int = 0
) -> dict[Configuration, tuple[float, ...]]:
    """The samples of each configuration in microseconds, taken in shuffled rounds. Raises Failure when one fails."""
    configurations = list(dict.fromkeys(chosen))

    def failed(configuration: Configuration, failure: Failure) -> None:
        raise Failure(failure.outcome, f"{configuration} at {problem}: {failure.message}")

    def save(taken: Mapping[Configuration, Round]) -> None:
        """Nothing is kept but what is returned."""

    instances: dict[Configuration, Instance] = {}
    for name in dict.fromkeys(c.version for c in configurations):
        for configuration, built in backend.compile(
            operation.version(name), [c for c in configurations if c.version == name], problem.dtype
        ):
            if isinstance(built, Failure):
                failed(configuration, built)
            else:
                instances[configuration] = built
    with backend.open(operation, problem) as bench:
        for instance in instances.values():
            bench.check(instance)
        return Race(bench, instances, seed=seed, save=save, failed=failed).meet(configurations, "final", rounds)
