"""What was measured of one operation, dtype and device: a time for every size and kernel, with holes."""

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from autotune import source
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import TimingProtocol

if TYPE_CHECKING:
    from autotune.database import Database

Array = np.ndarray[Any, np.dtype[np.float64]]
Times = Mapping[Problem, Mapping[Configuration, float]]
Family = Configuration | None  # None is the operation's analytic default, whatever it proposes

WORTH = 1.05  # over the best time of a size: what is never that near has no relatives worth trying
BEYOND = 4  # times the longest rows that were tuned
UNKNOWN = 0.25  # log regret to expect at least of what was not measured: a search leaves out what it has reason not to try


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Times in microseconds, sizes x families; NaN where a family has no member for a size or that was not measured.

    The first family is the analytic default, as it chooses among the versions that were measured. `templates` is the hash of each
    version's source that the times are of. `beyond_us` are times to go by for rows `BEYOND` times as long as the longest that were tuned:
    those of the families that can run them, at the tuned size.
    """

    problems: tuple[Problem, ...]
    families: tuple[Family, ...]
    times_us: Array
    templates: Mapping[str, str]
    beyond_us: Array | None = None

    @classmethod
    def of(cls, operation: Operation, device: Device, times: Times, templates: Mapping[str, str] | None = None) -> Self:
        """From the times of configurations; sizes for which there is none are left out.

        What was measured is applicable, so it is the member of its family that is made for the size.
        """
        problems = tuple(sorted((p for p in times if times[p]), key=lambda p: (p.cols, p.rows, str(p), repr(p))))
        existing = dict.fromkeys(map(operation.family, operation.configurations()))
        by_family = [{operation.family(c): time_us for c, time_us in times[p].items()} for p in problems]
        measured = {family for here in by_family for family in here}
        found = [family for family in existing if family in measured]
        good = {family for here in by_family for family, time_us in here.items() if time_us <= WORTH * min(here.values())}
        relatives = tuple(dict.fromkeys(relative for family in found if family in good for relative in operation.relatives(family)))
        versions = {family.version for family in found}
        matrix = np.full((len(problems), 1 + len(found) + len(relatives)), np.nan)
        for row, (problem, here) in enumerate(zip(problems, by_family, strict=True)):
            default = next(default_choices(operation, device, problem, versions), None)
            members = [default, *(operation.fitted(family, problem) for family in relatives)]
            first, *others = [times[problem].get(member, np.nan) if member else np.nan for member in members]
            matrix[row] = [first, *(here.get(family, np.nan) for family in found), *others]
        families: tuple[Family, ...] = (None, *found, *relatives)
        beyond = _beyond(operation, device, problems, families, matrix)
        kept = [0, *_distinct(np.vstack([matrix, beyond]))]
        return cls(problems, tuple(families[column] for column in kept), matrix[:, kept], templates or {}, beyond[:, kept])

    @property
    def costs(self) -> Array:
        """The natural logarithm of each time over the best one of its size."""
        return _log_regret(self.times_us)

    @property
    def costs_beyond(self) -> Array:
        """The same for the sizes beyond those that were tuned."""
        beyond_us = self.times_us[:0] if self.beyond_us is None else self.beyond_us
        return _log_regret(beyond_us[np.isfinite(beyond_us).any(axis=1)])

    def only(self, rows: Sequence[int]) -> "Matrix":
        """The same with these sizes alone."""
        beyond_us = None if self.beyond_us is None else self.beyond_us[list(rows)]
        return Matrix(tuple(self.problems[row] for row in rows), self.families, self.times_us[list(rows)], self.templates, beyond_us)

    def sha(self) -> str:
        """What names this evidence: the same measurements give the same."""
        text = repr((self.problems, [str(family) for family in self.families], sorted(self.templates.items())))
        return hashlib.sha256(text.encode() + self.times_us.tobytes()).hexdigest()


def _log_regret(times_us: Array) -> Array:
    logs = np.log(times_us)
    return np.asarray(logs - np.nanmin(logs, axis=1, keepdims=True)) if len(logs) else logs


def _beyond(operation: Operation, device: Device, problems: Sequence[Problem], families: Sequence[Family], times_us: Array) -> Array:
    """Rows of `times_us` as of longer rows; NaN where a family cannot run those, and throughout where they would not be the longest."""
    found = np.full_like(times_us, np.nan)
    versions = {family.version for family in families if family}
    columns = {family: column for column, family in enumerate(families)}
    longest = max((problem.cols for problem in problems), default=0)
    for row, problem in enumerate(problems):
        cols = BEYOND * problem.cols + problem.cols % 2  # as odd as it was
        if cols <= longest:
            continue
        longer = Problem(problem.operation, problem.rows, cols, problem.dtype)
        default = next(default_choices(operation, device, longer, versions), None)
        column = columns.get(operation.family(default)) if default else None
        found[row, 0] = np.nan if column is None else times_us[row, column]
        for column, family in enumerate(families[1:], 1):
            member = operation.fitted(family, longer) if family and np.isfinite(times_us[row, column]) else None
            if member is not None and operation.applicable(member, longer, device):
                found[row, column] = times_us[row, column]
    return found


def _distinct(matrix: Array) -> list[int]:
    """The columns that have a time at all, the first of each set of equal ones."""
    first: dict[bytes, int] = {}
    for column in range(1, matrix.shape[1]):
        if np.isfinite(matrix[:, column]).any():
            first.setdefault(matrix[:, column].tobytes(), column)
    return list(first.values())


def default_choices(operation: Operation, device: Device, problem: Problem, versions: Container[str]) -> Iterator[Configuration]:
    """What the analytic default proposes for `problem` of `versions` that can run it, best first, the safe kernel last."""
    for configuration in (*operation.defaults(problem, device, versions), operation.safe):
        if configuration.version in versions and operation.applicable(configuration, problem, device):
            yield configuration


def read(database: "Database", operation: Operation, device: Device, timing: TimingProtocol, dtype: str, *, stale: bool = False) -> Matrix:
    """The matrix of everything measured; with `stale`, of templates or definitions that have changed since too.

    Where a configuration was measured again, its most careful measurement counts, and the latest of those.
    """
    from autotune.database.read import problem_of
    from autotune.database.sound import sound

    templates = {name: template.sha for name, template in source.templates(operation)}
    rows = database.select(
        "SELECT trial, operation, rows, cols, dtype, input_stride, output_stride, input_alignment, output_alignment, in_place, version, "
        "parameters, time_us, template_sha FROM trial_results WHERE operation = ? AND dtype = ? AND device = ? AND protocol = ? "
        "AND protocol_rule = ? AND outcome IN ('ok', 'pruned') AND time_us > 0 ORDER BY evidence DESC, trial",
        (operation.name, dtype, device.name, timing.name, timing.rule),
    )
    configurations: dict[tuple[str, str], Configuration | None] = {}
    problems: dict[tuple[object, ...], dict[Configuration, float]] = {}
    times: dict[Problem, dict[Configuration, float]] = {}

    def add(row: dict[str, Any]) -> None:
        named = (row["version"], row["parameters"])
        if named not in configurations:
            configurations[named] = _declared(operation, *named)
        configuration = configurations[named]
        if configuration is None or not (stale or row["template_sha"] == templates.get(row["version"])):
            return
        size = tuple(row.values())[2:10]
        if size not in problems:
            problems[size] = times.setdefault(problem_of(row), {})
        problems[size][configuration] = row["time_us"]

    sound(database, "trials", rows, add, "trial")
    return Matrix.of(operation, device, times, templates)


def _declared(operation: Operation, version: str, parameters: str) -> Configuration | None:
    """The configuration that a row names, if its version declares those parameters."""
    configuration, known = Configuration.from_json(version, parameters), operation.versions.get(version)
    return configuration if known and tuple(name for name, _ in configuration.parameters) == tuple(known.parameters) else None


def pessimistic(costs: Array) -> Array:
    """What to expect of each family (column) where it was not measured: the upper quartile of its log regret where it was, or worse."""
    known = np.isfinite(costs)
    quartiles = [np.quantile(column[there], 0.75) if there.any() else UNKNOWN for column, there in zip(costs.T, known.T, strict=True)]
    return np.maximum(UNKNOWN, quartiles)
