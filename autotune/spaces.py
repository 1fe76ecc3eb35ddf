"""Which configurations there are to try for a problem, and why a version has none."""

from collections.abc import Sequence

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem

MOST_NAMED = 3


def space(operation: Operation, backend: Backend, problem: Problem, versions: tuple[str, ...] = ()) -> list[Configuration]:
    """The configurations of `versions` (of every version when none is named) that can be tried on `problem`, in declared order."""
    possible = backend.known(problem)
    return [
        c
        for c in operation.configurations(versions)
        if operation.applicable(c, problem, backend.device) and (possible is None or c in possible)
    ]


def impossible(operation: Operation, backend: Backend, problem: Problem, versions: tuple[str, ...]) -> dict[str, str]:
    """Which of `versions` have nothing to try on `problem`, each with the reason that its first configuration gives."""
    return {name: why for name in versions if (why := _hindrance(operation, backend, problem, name))}


def require(operation: Operation, backend: Backend, problems: Sequence[Problem], versions: tuple[str, ...]) -> None:
    """Raises UsageError when `versions` are named and none of them has anything to try on any of `problems`."""
    if not versions or not problems:
        return
    first = problems[0]
    hindrances = impossible(operation, backend, first, versions)
    if len(hindrances) == len(versions) and not any(space(operation, backend, problem, versions) for problem in problems[1:]):
        others = len(problems) - 1
        further = f", nor at any of {others} other problems" if others > 1 else f", nor at {problems[1]}" if others else ""
        raise UsageError(f"{spoken(hindrances)} at {first}{further}; name another version or size")


def spoken(hindrances: dict[str, str]) -> str:
    """Why versions have nothing to try, as one clause."""
    said = [f"{name} has no applicable configuration ({why})" for name, why in hindrances.items()]
    more = len(said) - MOST_NAMED
    return ", ".join(said[:MOST_NAMED]) + (f", and {more} more versions have none" if more > 0 else "")


def _hindrance(operation: Operation, backend: Backend, problem: Problem, version: str) -> str:
    """The first reason against a version of which no configuration can be tried; "" when one can."""
    possible, why = backend.known(problem), ""
    for configuration in operation.configurations((version,)):
        verdict = operation.applicable(configuration, problem, backend.device)
        if verdict and (possible is None or configuration in possible):
            return ""
        why = why or verdict.why or f"{configuration} was not recorded"
    return why or "none is declared"
