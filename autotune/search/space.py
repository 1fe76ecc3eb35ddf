"""The enumerated set of configurations as numbers: what surrogates and distances are computed on."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from autotune.configuration import VERSION, Configuration, Value

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

ONE_HOT = 0.5  # distance that a difference of value alone makes, beside that of rank


class Space:
    """A set of configurations, seen in five ways; row i of each is the configuration i, duplicates left out.

    `order` (configurations,): the place of its version among the versions, the oldest first.
    `codes` (configurations, parameters): the rank of each value among those that occur, -1 where a version lacks the parameter.
    `features` (configurations, columns): distances. A parameter of numbers is one column, its rank scaled to 0 … 1, because authors list
    values that differ about equally; one of names is one column per name, so that two names are 1 apart.
    `process`, with `groups` the parameter of each column: `features`; then each value of a number as a name, since 96 threads may be odd
    among 64 and 128; then the products of each two numbers, such as threads per block.
    `forest`: ranks, logarithms, products and quotients of each two numbers; a tree picks what it needs.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self.configurations = list(dict.fromkeys(configurations))
        self.index = {configuration: i for i, configuration in enumerate(self.configurations)}
        self.values = _values(self.configurations)
        versions = sorted({configuration.version for configuration in self.configurations}, key=lambda name: (len(name), name))
        order = {name: i for i, name in enumerate(versions)}
        self.order: Indices = np.array([order[configuration.version] for configuration in self.configurations], dtype=np.int64)
        varying = [name for name, values in self.values.items() if len(values) > 1]
        rows = [parameters(configuration) for configuration in self.configurations]
        ranks = {name: {value: i for i, value in enumerate(self.values[name])} for name in varying}
        codes = [[ranks[name][row[name]] if name in row else -1 for name in varying] for row in rows]
        self.codes: Indices = np.array(codes, dtype=np.int64).reshape(len(rows), len(varying))
        columns = [_column(self.codes[:, i], self.values[name]) for i, name in enumerate(varying)]
        columns = columns or [np.zeros((len(rows), 1))]
        self.features: Floats = np.hstack(columns)
        logarithms = [_logarithms(self.codes[:, i], self.values[name]) for i, name in enumerate(varying) if _scale(self.values[name])]
        aligned = [_alignment(self.codes[:, i], self.values[name]) for i, name in enumerate(varying) if _uneven(self.values[name])]
        self.process, self.groups = _process(columns + aligned, self.codes, [self.values[name] for name in varying], logarithms)
        self.forest: Floats = np.hstack([self.features, *aligned, *_forest(logarithms)])

    def __len__(self) -> int:
        return len(self.configurations)


def parameters(configuration: Configuration) -> dict[str, Value]:
    """A configuration's parameters with its version as one of them, as a study shows them."""
    return {VERSION: configuration.version, **dict(configuration.parameters)}


def _values(configurations: Sequence[Configuration]) -> dict[str, tuple[Value, ...]]:
    found: dict[str, dict[Value, None]] = {}
    for configuration in configurations:
        for name, value in parameters(configuration).items():
            found.setdefault(name, {})[value] = None
    return {name: tuple(sorted(values, key=lambda value: (isinstance(value, str), value))) for name, values in found.items()}


def _column(codes: Indices, values: tuple[Value, ...]) -> Floats:
    if any(isinstance(value, str) for value in values):
        return _one_hot(codes, len(values), 1.0)
    return np.asarray(np.where(codes < 0, 0.5, codes / (len(values) - 1)))[:, None]


def _one_hot(codes: Indices, count: int, apart: float) -> Floats:
    return np.asarray((codes[:, None] == np.arange(count)) * (apart / np.sqrt(2.0)))


def _scale(values: tuple[Value, ...]) -> bool:
    """Whether values are a scale of numbers, of which products mean something, rather than a switch or names."""
    return len(values) > 2 and all(isinstance(value, int) and value >= 0 for value in values)


def _logarithms(codes: Indices, values: tuple[Value, ...]) -> Floats:
    scale = np.log2(np.maximum(np.array(values, dtype=np.float64), 0.5))
    return np.asarray(np.where(codes < 0, scale.mean(), scale[codes]))


def _uneven(values: tuple[Value, ...]) -> bool:
    """Whether some values are multiples of a higher power of two than larger ones are."""
    return _scale(values) and any(isinstance(value, int) and value & (value - 1) for value in values)


def _alignment(codes: Indices, values: tuple[Value, ...]) -> Floats:
    """The largest power of two that divides each value, as its logarithm scaled to 0 … 1: what memory is aligned to."""
    powers = np.array([math.log2(value & -value) if isinstance(value, int) and value else 10.0 for value in values])
    return _unit(np.where(codes < 0, powers.mean(), powers[codes]))


def _unit(column: Floats) -> Floats:
    return np.asarray((column - column.min()) / (np.ptp(column) or 1.0))[:, None]


def _process(columns: list[Floats], codes: Indices, values: list[tuple[Value, ...]], logarithms: list[Floats]) -> tuple[Floats, Indices]:
    numbers = [i for i, of in enumerate(values) if len(of) > 2 and not any(isinstance(value, str) for value in of)]
    named = [_one_hot(codes[:, i], len(values[i]), ONE_HOT) for i in numbers]
    products = [_unit(a + b) for a, b in combinations(logarithms, 2)]
    blocks = [*columns, *named, *([np.hstack(products)] if products else [])]
    return np.hstack(blocks), np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])


def _forest(logarithms: list[Floats]) -> list[Floats]:
    pairs = list(combinations(logarithms, 2))
    return [_unit(column) for column in [*logarithms, *(a + b for a, b in pairs), *(a - b for a, b in pairs)]]
