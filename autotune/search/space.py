"""The enumerated set of configurations as numbers: what surrogates and distances are computed on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.configuration import Configuration, Value

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

VERSION = "version"


class Space:
    """A set of configurations, each a row of `features`.

    A parameter of numbers is one column: the rank of its value among the values that occur, scaled to 0 … 1. Block sizes and unroll
    factors are chosen by their author so that neighbours in the list matter about equally, whatever their distance. A parameter of names,
    and the version, is one column per value, of which one holds 1/sqrt(2), so that two different names are 1 apart. A parameter that a
    version lacks is in the middle.

    Shapes: `features` is (configurations, columns), `groups` numbers the parameter of each column; `configurations` keeps the
    caller's order.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self.configurations = list(dict.fromkeys(configurations))
        self.index = {configuration: i for i, configuration in enumerate(self.configurations)}
        self.values = _values(self.configurations)
        columns = [_column(self.configurations, name, values) for name, values in self.values.items() if len(values) > 1]
        columns = columns or [np.zeros((len(self.configurations), 1))]
        self.features: Floats = np.hstack(columns)
        self.groups: Indices = np.repeat(np.arange(len(columns)), [column.shape[1] for column in columns])

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


def _column(configurations: Sequence[Configuration], name: str, values: tuple[Value, ...]) -> Floats:
    rank = {value: i for i, value in enumerate(values)}
    places = np.array([rank.get(parameters(configuration).get(name, ""), -1) for configuration in configurations])
    if any(isinstance(value, str) for value in values):
        columns: Floats = (places[:, None] == np.arange(len(values))) / np.sqrt(2.0)
        return columns
    scaled = places / (len(values) - 1)
    return np.where(places < 0, 0.5, scaled)[:, None]
