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

UNKNOWN = 0.25  # log regret to expect at least of what was not measured: a search leaves out what it has reason not to try


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Times in microseconds, sizes x families; NaN where a family has no member for a size or that was not measured.

    The first family is the analytic default, as it chooses among the versions that were measured. `templates` is the hash of each
    version's source that the times are of.
    """

    problems: tuple[Problem, ...]
    families: tuple[Family, ...]
    times_us: Array
    templates: Mapping[str, str]

    @classmethod
    def of(cls, operation: Operation, device: Device, times: Times, templates: Mapping[str, str] | None = None) -> Self:
        """From the times of configurations; sizes for which there is none are left out."""
        problems = tuple(sorted((p for p in times if times[p]), key=lambda p: (p.cols, p.rows, str(p), repr(p))))
        existing = dict.fromkeys(map(operation.family, operation.configurations()))
        measured = {family for p in problems for family in map(operation.family, times[p])}
        found = [family for family in existing if family in measured]
        relatives = dict.fromkeys(relative for family in found for relative in operation.relatives(family))
        families: tuple[Family, ...] = (None, *found, *relatives)
        versions = {family.version for family in found}
        matrix = np.full((len(problems), len(families)), np.nan)
        for row, problem in enumerate(problems):
            default = next(default_choices(operation, device, problem, versions), None)
            members = [default, *(operation.fitted(family, problem) for family in (*found, *relatives))]
            matrix[row] = [times[problem].get(member, np.nan) if member else np.nan for member in members]
        kept = [0, *_distinct(matrix)]
        families, matrix = tuple(families[column] for column in kept), matrix[:, kept]
        return cls(problems, families, matrix, templates or {})

    @property
    def costs(self) -> Array:
        """The natural logarithm of each time over the best one of its size."""
        logs = np.log(self.times_us)
        return np.asarray(logs - np.nanmin(logs, axis=1, keepdims=True))

    def only(self, rows: Sequence[int]) -> "Matrix":
        """The same with these sizes alone."""
        return Matrix(tuple(self.problems[row] for row in rows), self.families, self.times_us[list(rows)], self.templates)

    def sha(self) -> str:
        """What names this evidence: the same measurements give the same."""
        text = repr((self.problems, [str(family) for family in self.families], sorted(self.templates.items())))
        return hashlib.sha256(text.encode() + self.times_us.tobytes()).hexdigest()


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
    """The matrix of everything measured; with `stale`, of templates that have changed since too.

    Where a configuration was measured again, its most careful measurement counts, and the latest of those.
    """
    from autotune.database.read import problem_of

    templates = {name: template.sha for name, template in source.templates(operation)}
    rows = database.select(
        "SELECT operation, rows, cols, dtype, input_stride, output_stride, input_alignment, output_alignment, in_place, version, "
        "parameters, time_us, template_sha FROM trial_results WHERE operation = ? AND dtype = ? AND device = ? AND protocol = ? "
        "AND protocol_rule = ? AND outcome IN ('ok', 'pruned') AND time_us > 0 ORDER BY evidence DESC, trial",
        (operation.name, dtype, device.name, timing.name, timing.rule),
    )
    times: dict[Problem, dict[Configuration, float]] = {}
    for row in rows:
        known = operation.versions.get(row["version"])
        if known is None or not (stale or row["template_sha"] == templates.get(row["version"])):
            continue
        configuration = Configuration.from_json(row["version"], row["parameters"])
        if tuple(name for name, _ in configuration.parameters) == tuple(known.parameters):
            times.setdefault(problem_of(row), {})[configuration] = row["time_us"]
    return Matrix.of(operation, device, times, templates)


def pessimistic(costs: Array) -> Array:
    """What to expect of each family (column) where it was not measured: the upper quartile of its log regret where it was, or worse."""
    known = np.isfinite(costs)
    quartiles = [np.quantile(column[there], 0.75) if there.any() else UNKNOWN for column, there in zip(costs.T, known.T, strict=True)]
    return np.maximum(UNKNOWN, quartiles)
