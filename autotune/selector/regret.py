"""How much slower the selected kernels are than the best ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


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
