"""Slowdowns interpolated between the tuned sizes in log space, the nearer the size the more it counts."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.features import Features, features, point
from autotune.selector.matrix import Array, pessimistic
from autotune.selector.regret import Ranking, hurt, ranked

NEAREST = 0.25  # added to squared distances: a size next to a tuned one is not ruled by its noise alone
DOUBT = 8.0  # the distance at which what was measured counts as much as the pessimistic guess for a member

# What is tried of a metric, one parameter after the other while the rest stands, so many times over.
TRIED: dict[str, tuple[float, ...]] = {
    "cols_weight": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0),
    "power": (1, 2, 4, 8),
    "alignment_weight": (1.0, 4.0, 16.0),
    "tall_weight": (0.25, 0.5, 1.0),
}
ROUNDS = 2
MARGINS = (0.0, 0.01, 0.03)


@dataclass(frozen=True, slots=True)
class Metric:
    """How far sizes are from each other (`features.point`), and by which power of that, a power of two, they count less.

    Another member is chosen over the analytic default only if it is expected to be better by `margin`.
    """

    cols_weight: float = 4.0
    alignment_weight: float = 4.0
    tall_weight: float = 0.5
    power: int = 2
    margin: float = 0.0

    def points(self, seen: list[Features]) -> Array:
        return np.array([point(one, self.cols_weight, self.alignment_weight, self.tall_weight) for one in seen])

    def weights(self, squared_distances: Array) -> Array:
        """Of squared distances to which `NEAREST` was added."""
        weights = 1.0 / squared_distances
        for _ in range(self.power.bit_length() - 1):  # several times as fast as `**`
            weights = weights * weights
        return weights

    @property
    def doubt(self) -> float:
        """The weight of the guess."""
        return float((DOUBT**2 + NEAREST) ** -self.power)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Tuned sizes as points, the log regret of each member there (0 where unknown), and whether it is known (1 or 0).

    `sums` is how much each regret hurts and whether it is known, side by side, so that one product weighs them all, and in 4 bytes, for
    fetching what is in no cache takes longer than multiplying it; `doubts` is what the guess adds to that product; `squares` is what the
    squared distance |p - q|^2 takes of p.
    """

    metric: Metric
    points: Array
    costs: Array
    known: Array
    guess: Array
    sums: "np.ndarray[Any, np.dtype[np.float32]]" = field(init=False)
    doubts: Array = field(init=False)
    squares: Array = field(init=False)

    kind = "neighbours"

    def __post_init__(self) -> None:
        doubt = self.metric.doubt
        object.__setattr__(self, "sums", np.hstack([hurt(self.costs), self.known]).astype(np.float32))
        object.__setattr__(self, "doubts", np.concatenate([doubt * hurt(self.guess), np.full(len(self.guess), doubt)]))
        squared = (self.points**2).sum(axis=1) + NEAREST
        object.__setattr__(self, "squares", np.column_stack([-2 * self.points, squared, np.ones_like(squared)]))

    @classmethod
    def fit(cls, problems: tuple[Problem, ...], costs: Array, device: Device) -> "Neighbours":
        """From the log regret of each size (row) with each member (column), NaN where unknown.

        The metric is the one whose choices for each size, made from the other sizes, hurt least. Numbers are rounded as they are stored.
        """
        seen = [features(problem, device) for problem in problems]
        known = np.isfinite(costs)
        filled, guess = np.where(known, costs, 0.0).round(4), pessimistic(costs).round(4)
        first = cls(Metric(), Metric().points(seen), filled, known.astype(np.float64), guess)
        metric = _best_metric(first, seen)
        return cls(metric, metric.points(seen).round(6), filled, first.known, guess)

    def ranking(self, seen: Features) -> Ranking:
        """All members, the one that is expected to hurt least first."""
        return ranked(self.expected(seen))

    def expected(self, seen: Features) -> Array:
        """How much each member is expected to hurt."""
        metric, count = self.metric, len(self.guess)
        rows, cols, alignment = point(seen, metric.cols_weight, metric.alignment_weight, metric.tall_weight)
        asked = np.array((rows, cols, alignment, 1.0, rows * rows + cols * cols + alignment * alignment))
        sums = metric.weights(self.squares @ asked).astype(np.float32) @ self.sums + self.doubts
        expected: Array = sums[:count] / sums[count:]
        expected[0] -= metric.margin
        return expected

    def to_json(self) -> Any:
        metric = self.metric
        return {
            "metric": [metric.cols_weight, metric.alignment_weight, metric.tall_weight, metric.power, metric.margin],
            "points": self.points.tolist(),
            "costs": [[cost if known else None for cost, known in zip(*rows, strict=True)] for rows in self._rows()],
            "guess": self.guess.tolist(),
        }

    @classmethod
    def from_json(cls, body: Any, members: int) -> "Neighbours":
        """Raises ValueError, TypeError, KeyError or IndexError for a body that is none."""
        costs = np.array([[np.nan if cost is None else float(cost) for cost in row] for row in body["costs"]])
        points, guess = np.array(body["points"], dtype=np.float64), np.array(body["guess"], dtype=np.float64)
        if costs.shape != (len(points), members) or points.shape[1:] != (3,) or guess.shape != (members,) or np.isinf(costs).any():
            raise ValueError("the shapes of points, costs and guess do not agree")
        if not np.isfinite(points).all() or not np.isfinite(guess).all():
            raise ValueError("a point or a guess is no number")
        cols, alignment, tall, power, margin = map(float, body["metric"])
        if power not in TRIED["power"]:
            raise ValueError(f"power {power} is none of {TRIED['power']}")
        known = np.isfinite(costs)
        metric = Metric(cols, alignment, tall, int(power), margin)
        return cls(metric, points, np.where(known, costs, 0.0), known.astype(np.float64), guess)

    def _rows(self) -> list[tuple[list[float], list[float]]]:
        return list(zip(self.costs.tolist(), self.known.tolist(), strict=True))


def _best_metric(first: Neighbours, seen: list[Features]) -> Metric:
    tried: dict[Metric, tuple[float, float]] = {}
    best = first.metric
    for name, values in list(TRIED.items()) * ROUNDS:
        metrics = [replace(best, **{name: value}) for value in values]  # type: ignore[arg-type]
        for metric in metrics:
            if metric not in tried:
                tried[metric] = _best_margin(metric, first, seen)
        best = min(metrics, key=lambda metric: tried[metric][0])
    return replace(best, margin=tried[best][1])


def _best_margin(metric: Metric, first: Neighbours, seen: list[Features]) -> tuple[float, float]:
    """How much the choices for each size by what was measured at the others hurt in sum, and the margin with which it is that."""
    points, count = metric.points(seen), len(first.guess)
    lengths = (points**2).sum(axis=1)
    weights = metric.weights(np.maximum(lengths[:, None] + lengths[None, :] - 2 * points @ points.T, 0.0) + NEAREST)
    np.fill_diagonal(weights, 0.0)
    sums = weights @ first.sums
    sums[:, :count] += metric.doubt * hurt(first.guess)
    expected = np.where(first.known > 0, sums[:, :count] / (sums[:, count:] + metric.doubt), np.inf)
    hurting, rows = np.where(first.known > 0, first.sums[:, :count], 0.0), np.arange(len(seen))
    found = []
    for margin in MARGINS:
        expected[:, 0] -= margin
        found.append((float(hurting[rows, expected.argmin(axis=1)].sum()), margin))
        expected[:, 0] += margin
    return min(found)
