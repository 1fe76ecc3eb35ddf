"""How much slower the selected kernels are than the best ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

TAIL = 4.0  # how much more a large regret hurts: one of 0.25 as much as three of 0.11
MOST_COST = 1.0  # log regret: what is slower than that is out of the question, and how much slower of no interest


def hurt(costs: Array) -> Array:
    """What log regrets count where a kernel is chosen by the mean of several: more than in proportion, so that it is that of a risk.

    >>> hurt(np.array([0.0, 0.01, 0.25]))
    array([0.    , 0.0104, 0.5   ])
    """
    capped = np.minimum(costs, MOST_COST)
    return np.asarray(capped * (1.0 + TAIL * capped))


def cost_of(hurting: float) -> float:
    """The log regret that counts so much.

    >>> cost_of(0.5)
    0.25
    """
    return (sqrt(1.0 + 4.0 * TAIL * max(hurting, 0.0)) - 1.0) / (2.0 * TAIL)


Ranking = Iterable[tuple[float, int]]  # (expected log regret, member), best first


def ranked(hurting: Array) -> Iterator[tuple[float, int]]:
    """Members by how much each is expected to hurt, the first of equals first. Rarely more than one is asked for."""
    for member in hurting.argsort(kind="stable").tolist():
        yield cost_of(float(hurting[member])), member


@dataclass(frozen=True, slots=True)
class Regret:
    """Times over the best times of several sizes: 1.0 is the best. `p95` is the least of them that 95 % of all do not exceed.

    >>> Regret.of([0.0, 0.0, 0.0, 0.1]).worst
    1.1051709180756477
    """

    geomean: float
    p95: float
    worst: float

    @classmethod
    def of(cls, costs: Sequence[float] | Array) -> "Regret":
        """From natural logarithms of the ratios, one per size; there must be one at least."""
        ratios = np.exp(np.asarray(costs, dtype=np.float64))
        return cls(float(np.exp(np.mean(costs))), float(np.quantile(ratios, 0.95, method="higher")), float(ratios.max()))

    def __str__(self) -> str:
        return f"geometric mean {self.geomean:.3f}, 95 % of sizes up to {self.p95:.3f}, worst {self.worst:.3f}"
