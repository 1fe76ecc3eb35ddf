"""Slowdowns interpolated between the tuned sizes in log space, the nearer the size the more it counts."""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.features import Features, features, point
from autotune.selector.matrix import Array, pessimistic
from autotune.selector.tree import Ranking

NEAREST = 0.25  # added to squared distances: a size next to a tuned one is not ruled by its noise alone
DOUBT = 8.0  # the distance at which what was measured counts as much as the pessimistic guess for a member

COLS_WEIGHTS = (1.0, 2.0, 4.0, 8.0)
ALIGNMENT_WEIGHTS = (1.0, 4.0)
TALL_WEIGHTS = (0.25, 1.0)
POWERS = (1.0, 2.0, 4.0)
MARGINS = (0.0, 0.01, 0.03)


@dataclass(frozen=True, slots=True)
class Metric:
    """How far sizes are from each other (`features.point`), and by which power of that they count less.

    Another member is chosen over the analytic default only if it is expected to be faster by `margin`.
    """

    cols_weight: float
    alignment_weight: float
    tall_weight: float
    power: float
    margin: float = 0.0

    def points(self, seen: list[Features]) -> Array:
        return np.array([point(one, self.cols_weight, self.alignment_weight, self.tall_weight) for one in seen])

    def weights(self, squared_distances: Array) -> Array:
        return np.asarray((squared_distances + NEAREST) ** -self.power)

    @property
    def doubt(self) -> float:
        """The weight of the guess."""
        return float((DOUBT**2 + NEAREST) ** -self.power)


METRICS = tuple(Metric(*chosen) for chosen in product(COLS_WEIGHTS, ALIGNMENT_WEIGHTS, TALL_WEIGHTS, POWERS))


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Tuned sizes as points, the log regret of each member there (0 where unknown), and whether it is known (1 or 0).

    `sums` is both side by side, so that one product weighs them all, and `squares` what the squared distance |p - q|^2 takes of p.
    """

    metric: Metric
    points: Array
    costs: Array
    known: Array
    guess: Array
    sums: Array = field(init=False)
    squares: Array = field(init=False)

    kind = "neighbours"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", np.hstack([self.costs, self.known]))
        object.__setattr__(self, "squares", np.column_stack([-2 * self.points, (self.points**2).sum(axis=1)]))

    @classmethod
    def fit(cls, problems: tuple[Problem, ...], costs: Array, device: Device) -> "Neighbours":
        """From the log regret of each size (row) with each member (column), NaN where unknown.

        The metric is the one whose choices for each size, made from the other sizes, have the lowest summed regret.
        """
        seen = [features(problem, device) for problem in problems]
        known = np.isfinite(costs).astype(np.float64)
        filled = np.where(known > 0, costs, 0.0)
        guess = pessimistic(costs)
        tried = ((metric, _expected_without(metric, seen, filled, known, guess)) for metric in METRICS)
        regrets = {
            replace(metric, margin=margin): _regret(np.where(known > 0, expected, np.inf), costs, margin)
            for metric, expected in tried
            for margin in MARGINS
        }
        metric = min(regrets, key=regrets.__getitem__)
        return cls(metric, metric.points(seen), filled, known, guess)

    def ranking(self, seen: Features) -> Ranking:
        """All members, the one with the lowest expected regret first."""
        metric = self.metric
        rows, cols, alignment = point(seen, metric.cols_weight, metric.alignment_weight, metric.tall_weight)
        squares = self.squares @ (rows, cols, alignment, 1.0) + (rows * rows + cols * cols + alignment * alignment)
        sums, doubt, count = (metric.weights(squares) @ self.sums).tolist(), metric.doubt, len(self.guess)
        guesses = self.guess.tolist()
        expected = [(sums[i] + doubt * guesses[i]) / (sums[count + i] + doubt) for i in range(count)]
        order = sorted(range(len(expected)), key=[expected[0] - metric.margin, *expected[1:]].__getitem__)
        return tuple((expected[member], member) for member in order)

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
        known = np.isfinite(costs)
        return cls(Metric(*map(float, body["metric"])), points, np.where(known, costs, 0.0), known.astype(np.float64), guess)

    def _rows(self) -> list[tuple[list[float], list[float]]]:
        return list(zip(self.costs.tolist(), self.known.tolist(), strict=True))


def _expected_without(metric: Metric, seen: list[Features], filled: Array, known: Array, guess: Array) -> Array:
    """The log regret that is expected of each member at each size by what was measured at the other ones."""
    points = metric.points(seen)
    lengths = (points**2).sum(axis=1)
    weights = metric.weights(np.maximum(lengths[:, None] + lengths[None, :] - 2 * points @ points.T, 0.0))
    np.fill_diagonal(weights, 0.0)
    return np.asarray((weights @ filled + metric.doubt * guess) / (weights @ known + metric.doubt))


def _regret(expected: Array, costs: Array, margin: float) -> float:
    """The summed regret of what is chosen by `expected`."""
    chosen = np.column_stack([expected[:, :1] - margin, expected[:, 1:]]).argmin(axis=1)
    return float(np.nansum(costs[np.arange(len(costs)), chosen]))
