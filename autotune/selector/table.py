"""A table of the plane of sizes: in each cell the few kernels that a forest of regression trees expects to be the fastest there.

The forest sees how each kernel fills the GPU and a row the kernel, which decides where kernels change places. A dispatcher has no time to
ask it, so it is asked beforehand, for every cell.
"""

import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector.cells import Cells
from autotune.selector.cover import cover
from autotune.selector.forest import Forest
from autotune.selector.matrix import Array, Family, Matrix, default_choices
from autotune.selector.traits import Sight, Traits

SLOWEST = 0.3  # log regret: what is slower than that is out of the question, and trees need not tell how much slower
LISTED = 4  # members that a cell names, best first
MOST_MEMBERS = 64  # a look-up does not take longer for more of them
LEAST_GAIN = 0.00001  # for another member, as in `cover`
GOOD = 0.02  # log regret within which a family was at some tuned size, to be a member at all
SAMPLE = 16  # one cell of so many is asked which members are wanted there
TIE = 0.003  # of expected log regret: within it the member that most cells name is preferred, so that fewer kernels serve
UNLIKELY = 0.25  # the least log regret to expect of a member that a cell does not name
MOST_BYTES = 4 << 30  # of a matrix; cells beyond are filled from those of fewer rows

Entry = tuple[tuple[float, int], ...]  # (expected log regret, member), best first


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """What a forest that was fitted to every measurement of a matrix expects of `members` (families), the analytic default first."""

    operation: Operation
    device: Device
    members: tuple[Family, ...]
    versions: frozenset[str]
    forest: Forest

    @classmethod
    def fit(cls, matrix: Matrix, operation: Operation, device: Device, cells: Cells | None = None) -> tuple["Regression", list[int]]:
        """From `matrix`, with those of its columns that are members: the cover of what was measured and of what is expected elsewhere."""
        sight = Sight(operation, device)
        seen: list[Traits] = []
        costs: list[float] = []
        own = [(column, family) for column, family in enumerate(matrix.families) if family and operation.family(family) == family]
        for problem, here in zip(matrix.problems, matrix.costs, strict=True):
            for column, family in own:
                if np.isfinite(here[column]) and (configuration := operation.fitted(family, problem)):
                    seen.append(sight.traits(configuration, problem))
                    costs.append(min(here[column], SLOWEST))
        versions = frozenset(family.version for family in matrix.families if family)
        forest = Forest.fit(np.array(seen), np.array(costs))
        good = [0, *(column for column in range(1, len(matrix.families)) if (matrix.costs[:, column] <= GOOD).any())]
        every = cls(operation, device, tuple(matrix.families[column] for column in good), versions, forest)
        like = matrix.problems[0]
        sample = _cells(cells or Cells.of(device, like.element_bytes), like)[::SAMPLE]
        asked = every.expected([problem for _, _, problem in sample])
        asked = asked[np.isfinite(asked).any(axis=1)]
        foretold = np.full((len(asked), len(matrix.families)), np.nan)
        foretold[:, good] = asked - np.nanmin(asked, axis=1, keepdims=True)
        members = cover(matrix, MOST_MEMBERS, foretold, LEAST_GAIN)
        return replace(every, members=tuple(matrix.families[column] for column in members)), members

    def expected(self, problems: Sequence[Problem]) -> Array:
        """Log regrets, problems x members; NaN for a member that cannot run a problem."""
        sight = Sight(self.operation, self.device)
        seen: list[Traits] = []
        places: list[tuple[int, int, int]] = []
        for row, problem in enumerate(problems):
            asked: dict[Any, int] = {}
            for column, family in enumerate(self.members):
                configuration = self.operation.fitted(family, problem) if family else self._default(problem)
                if configuration is None:
                    continue
                if configuration not in asked:
                    able = family is None or self.operation.applicable(configuration, problem, self.device)
                    asked[configuration] = len(seen) if able else -1
                    if able:
                        seen.append(sight.traits(configuration, problem))
                if asked[configuration] >= 0:
                    places.append((row, column, asked[configuration]))
        rows, columns, which = np.array(places, dtype=np.int64).reshape(-1, 3).T
        found = np.full((len(problems), len(self.members)), np.nan)
        found[rows, columns] = self.forest.predict(np.array(seen))[which]
        return found

    def _default(self, problem: Problem) -> Any:
        return next(default_choices(self.operation, self.device, problem, self.versions), None)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """For each cell the number of its entry in `entries`; `others` is the order in which all members follow."""

    cells: Cells
    numbers: "np.ndarray[Any, np.dtype[np.uint16]]"
    entries: tuple[Entry, ...]
    others: Entry

    kind = "table"

    @classmethod
    def fit(cls, regression: Regression, tuned: Sequence[Problem], cells: Cells | None = None) -> "Table":
        """Every cell of the operation and dtype of `tuned`, the problems that the regression was fitted to."""
        like, longest = tuned[0], max(problem.cols for problem in tuned)
        cells = cells or Cells.of(regression.device, like.element_bytes)
        asked = _cells(cells, like)
        expected = regression.expected([problem for _, _, problem in asked])
        known: dict[tuple[int, ...], list[float]] = {}
        beyond = np.array([problem.cols > longest for _, _, problem in asked])
        chosen = {(x, y): named for (x, y, _), named in zip(asked, _named(expected, beyond), strict=True)}
        for named, here in zip(chosen.values(), expected, strict=True):
            sums = known.setdefault(named, [0.0] * (1 + len(named)))
            known[named] = [sums[0] + 1, *(total + float(here[member]) for total, member in zip(sums[1:], named, strict=True))]
        numbers = np.zeros(cells.shape, dtype=np.uint16)
        order = {named: number for number, named in enumerate(known)}
        for x in range(cells.shape[0]):
            last = 0
            for y in range(cells.shape[1]):
                last = order[chosen[x, y]] if (x, y) in chosen else last
                numbers[x, y] = last
        entries = tuple(_entry(named, [total / count for total in totals]) for named, (count, *totals) in known.items())
        return cls(cells, numbers, entries, _others(expected))

    def ranking(self, problem: Problem, device: Device) -> Iterator[tuple[float, int]]:
        """All members, the one that is expected to be the fastest first. The cells are those of one device, which is not looked at."""
        entry = self.entries[self.numbers.item(self.cells.place(problem))]
        yield from entry
        named = {member for _, member in entry}
        for cost, member in self.others:
            if member not in named:
                yield cost, member

    def to_json(self) -> Any:
        return {
            "element_bytes": self.cells.element_bytes,
            "rows": self.cells.rows,
            "packs": self.cells.packs,
            "entries": self.entries,
            "others": self.others,
            "numbers": b64encode(zlib.compress(self.numbers.astype("<u2").tobytes(), 9)).decode("ascii"),
        }

    @classmethod
    def from_json(cls, body: Any, members: int) -> "Table":
        """Raises ValueError, TypeError, KeyError or IndexError for a body that is none."""
        cells = Cells(int(body["element_bytes"]), tuple(map(int, body["rows"])), tuple(map(int, body["packs"])))
        if cells.element_bytes not in (1, 2, 4, 8, 16) or any(
            not ends or list(ends) != sorted({*ends}) for ends in (cells.rows, cells.packs)
        ):
            raise ValueError("cells are not in order")
        entries = tuple(_checked(entry, members) for entry in body["entries"])
        others = _checked(body["others"], members)
        if len(others) != members:
            raise ValueError("not every member has its place among the others")
        try:
            raw = zlib.decompressobj().decompress(b64decode(body["numbers"], validate=True), 2 * cells.shape[0] * cells.shape[1] + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        numbers = np.frombuffer(raw, dtype="<u2").astype(np.uint16).reshape(cells.shape)
        if int(numbers.max()) >= len(entries):
            raise ValueError("a cell has no entry")
        return cls(cells, numbers, entries, others)


def _cells(cells: Cells, like: Problem) -> list[tuple[int, int, Problem]]:
    """The cells of the operation and dtype of `like` that a GPU can be asked for, with the problems that stand for them."""
    every = ((x, y, cells.middle(x, y, like)) for x in range(cells.shape[0]) for y in range(cells.shape[1]))
    return [(x, y, problem) for x, y, problem in every if problem.rows * problem.bytes_per_row <= MOST_BYTES]


def order_at(expected: Array) -> list[int]:
    """The members that can run a size by what is expected of them, best first."""
    return [int(member) for member in expected.argsort(kind="stable") if np.isfinite(expected[member])]


def cell_problems(problems: Sequence[Problem], device: Device) -> list[Problem]:
    """The problems that stand for the cells in which `problems` are."""
    cells = Cells.of(device, problems[0].element_bytes)
    return [cells.middle(*cells.place(problem), problem) for problem in problems]


def _named(expected: Array, beyond: Any) -> list[tuple[int, ...]]:
    """The members that each cell names; of those that tie, the one that is the best in most cells comes first.

    Where rows are longer than any tuned one (`beyond`) it is the analytic default: which kernels hold them at all is known without a time.
    A cell that no member can run names none.
    """
    orders = [order_at(here) for here in expected]
    wins = Counter(order[0] for order in orders if order)
    found: list[tuple[int, ...]] = []
    for order, here, default in zip(orders, expected, beyond, strict=True):
        if not order:
            found.append(())
            continue
        tied = [0] if default and np.isfinite(here[0]) else [member for member in order if here[member] <= here[order[0]] + TIE]
        first = max(tied, key=lambda member: wins[member])
        found.append((first, *(member for member in order if member != first))[:LISTED])
    return found


def _entry(named: tuple[int, ...], costs: list[float]) -> Entry:
    return tuple((round(max(0.0, *costs[: place + 1]), 4) if place else round(costs[0], 4), member) for place, member in enumerate(named))


def _others(expected: Array) -> Entry:
    """All members by what they cost on average where they can run; those that never can at the end, by their number."""
    known = np.isfinite(expected)
    means = np.where(known, expected, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    means = np.maximum(UNLIKELY, np.where(known.any(axis=0), means, SLOWEST))
    return tuple((round(float(means[member]), 4), int(member)) for member in means.argsort(kind="stable"))


def _checked(entry: Any, members: int) -> Entry:
    found = tuple((float(cost), int(member)) for cost, member in entry)
    named = [member for _, member in found]
    if len(set(named)) != len(named) or not all(0 <= member < members for member in named) or not all(isfinite(c) for c, _ in found):
        raise ValueError("an entry names a member twice, or one that there is not, or no number")
    return found
