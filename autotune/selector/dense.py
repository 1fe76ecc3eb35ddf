"""What should be there for a selector to serve well: measurements of its kernels at every tuned size, and their compiled instances."""

from collections.abc import Collection, Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING

from autotune import source
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector.cover import cover
from autotune.selector.matrix import Family, Matrix, default_choices
from autotune.selector.model import Model

if TYPE_CHECKING:
    from autotune.database import Database

ROWS = (1, 8, 64, 512, 4096, 32768, 1 << 20)
MORE_ROWS = tuple(1 << power for power in range(21))
MOST_BYTES = 4 << 30  # of a matrix that is asked for here
STEPS_PER_DOUBLING = 8  # of the columns: instances hold up to a quarter more than a row
DOUBLINGS = 20  # of the columns: beyond, only what reads a row again can run it, or many blocks


def unmeasured(
    matrix: Matrix, operation: Operation, device: Device, families: Iterable[Family] = ()
) -> list[tuple[Problem, Configuration]]:
    """The (size, configuration) pairs of a cover that nobody has measured yet: with them, every size can be compared with every other.

    `families` is the cover, a new one for `matrix` when left out.
    """
    chosen = tuple(families) or tuple(matrix.families[column] for column in cover(matrix))
    columns = {family: column for column, family in enumerate(matrix.families)}
    versions = {family.version for family in matrix.families if family}
    found: dict[tuple[Problem, Configuration], None] = {}
    for row, problem in enumerate(matrix.problems):
        for family in chosen:
            column = columns.get(family)
            if column is not None and matrix.times_us[row, column] > 0:
                continue
            configuration = _member(operation, device, problem, family, versions)
            if configuration is not None:
                found[problem, configuration] = None
    return list(found)


def reachable(model: Model, operation: Operation, device: Device, dtype: str) -> list[Configuration]:
    """Every configuration that `model` may choose for packed matrices of any size: those that must be compiled for it to serve."""
    members: list[Family] = list(model.members) if model.predictor else [None]
    found = {operation.safe: None} if dtype in operation.version(operation.safe.version).dtypes else {}
    for problem in _sizes(operation.name, dtype, ROWS):
        able = (_member(operation, device, problem, family, model.versions) for family in members)
        found |= dict.fromkeys(configuration for configuration in able if configuration is not None)
    return list(found)


def sorely_missed(
    model: Model, operation: Operation, device: Device, dtype: str, compiled: Collection[Configuration], worse: float
) -> list[Configuration]:
    """First choices without which some size would get a kernel expected to be exp(`worse`) times as slow, or none of the selector's."""
    have, found = set(compiled), []
    for problem in _sizes(operation.name, dtype, (*MORE_ROWS, 1 << 21, 1 << 22)):
        first: tuple[float, Configuration] | None = None
        for cost, family in model.ranking(problem, device):
            configuration = _member(operation, device, problem, family, model.versions)
            if configuration is None:
                continue
            first = first or (cost, configuration)
            if configuration in have or cost > first[0] + worse:
                break
        if first is not None and first[1] not in have and not (configuration in have and cost <= first[0] + worse):
            have.add(first[1])
            found.append(first[1])
    return found


def uncompiled(
    database: "Database", operation: Operation, device: Device, dtype: str, configurations: Iterable[Configuration]
) -> list[Configuration]:
    """Those of `configurations` whose instance for `device`, of today's template, is not stored."""
    templates = {name: template.sha for name, template in source.templates(operation)}
    rows = database.select(
        "SELECT version, parameters, template_sha FROM stored_instances WHERE operation = ? AND dtype = ? AND arch = ? AND kind = 'cubin'",
        (operation.name, dtype, device.arch),
    )
    stored = {(row["version"], row["parameters"]) for row in rows if row["template_sha"] == templates.get(row["version"])}
    return [c for c in configurations if (c.version, c.to_json()) not in stored]


def missed(database: "Database", operation: Operation, device: str, dtypes: Collection[str] = ()) -> list[Problem]:
    """The sizes that a dispatcher on `device` had no answer of its own for, most wanted first, as packed matrices; tuned ones left out."""
    rows = database.misses(operation.name, device)
    tuned = {(row["rows"], row["cols"], row["dtype"]) for row in database.best(operation.name, device=device)}
    wanted = (row for row in rows if (row["rows"], row["cols"], row["dtype"]) not in tuned and (not dtypes or row["dtype"] in dtypes))
    return list(dict.fromkeys(Problem(operation.name, row["rows"], row["cols"], row["dtype"]) for row in wanted))


def _member(operation: Operation, device: Device, problem: Problem, family: Family, versions: Collection[str]) -> Configuration | None:
    """What runs `problem` for `family`, if anything does."""
    if family is None:
        return next(default_choices(operation, device, problem, versions), None)
    if family.version not in versions:
        return None
    configuration = operation.fitted(family, problem)
    return configuration if configuration is not None and operation.applicable(configuration, problem, device) else None


def _sizes(operation: str, dtype: str, some_rows: Iterable[int]) -> Iterator[Problem]:
    """Sizes close enough to each other that no instance is passed over: aligned rows and rows that no vector divides."""
    columns = {max(1, round(2 ** (step / STEPS_PER_DOUBLING))) for step in range(DOUBLINGS * STEPS_PER_DOUBLING + 1)}
    for cols, rows in product(
        sorted({cols for c in columns for cols in (c | 1, -(-c // 2) * 2, -(-c // 4) * 4, -(-c // 8) * 8)}), tuple(some_rows)
    ):
        problem = Problem(operation, rows, cols, dtype)
        if rows * problem.bytes_per_row <= MOST_BYTES:
            yield problem
