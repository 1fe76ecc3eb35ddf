"""Slowdowns interpolated between the tuned sizes in log space, the nearer the size the more it counts."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.features import Features, features, place
from autotune.selector.matrix import Array, pessimistic
from autotune.selector.regret import Ranking, hurt, ranked

NEAREST = 0.25  # added to squared distances: a size next to a tuned one is not ruled by its noise alone
DOUBT = 8.0  # the distance at which what was measured counts as much as the pessimistic guess for a member
HANDICAP = 0.05  # of the analytic default: it is a kernel here and another one there, so what it costs at one size says less of the next
COMMITTEE = 4  # metrics that are asked together: which of the good ones is best is mostly chance

# How much a doubling of the rows beyond several per SM counts, one of the columns, one of the alignment, and the place of the columns
# between two powers of two; one of few rows counts 1.
TALL, COLS, ALIGNMENT, MANTISSA = (0.25, 1.0), (2.0, 4.0, 8.0), (1.0, 4.0, 16.0), (0.0, 2.0)
POWERS = (2, 4)  # powers of two, of the squared distance

Metric = tuple[float, float, float, float]
METRICS: tuple[Metric, ...] = tuple(product(TALL, COLS, ALIGNMENT, MANTISSA))


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Tuned sizes as places, the log regret of each member there (0 where unknown), and whether it is known (1 or 0).

    `sums` is how much each regret hurts and whether it is known, side by side, so that one product weighs them all, and in 4 bytes, for
    fetching what is in no cache takes longer than multiplying it; `doubts` is what the guess adds to that product; `squares` are the
    squared weights of each metric. `coordinates` are the places with all that is summed along side by side.
    """

    metrics: tuple[Metric, ...]
    power: int
    places: Array
    costs: Array
    known: Array
    guess: Array
    sums: "np.ndarray[Any, np.dtype[np.float32]]" = field(init=False)
    doubts: Array = field(init=False)
    squares: Array = field(init=False)
    coordinates: Array = field(init=False)

    kind = "neighbours"

    def __post_init__(self) -> None:
        doubt = _doubt(self.power)
        object.__setattr__(self, "sums", np.hstack([hurt(self.costs), self.known]).astype(np.float32))
        object.__setattr__(self, "doubts", np.concatenate([doubt * hurt(self.guess), np.full(len(self.guess), doubt)]))
        weights = [(1.0, tall, cols, alignment, mantissa, mantissa) for tall, cols, alignment, mantissa in self.metrics]
        object.__setattr__(self, "squares", np.array(weights) ** 2)
        object.__setattr__(self, "coordinates", np.ascontiguousarray(self.places.T))

    @classmethod
    def fit(cls, problems: tuple[Problem, ...], costs: Array, device: Device) -> "Neighbours":
        """From the log regret of each size (row) with each member (column), NaN where unknown.

        Power and metrics are those whose choices for each size, made from the other sizes, hurt least. Numbers are rounded as stored.
        """
        places = np.array([place(features(problem, device)) for problem in problems]).round(4)
        known = np.isfinite(costs)
        filled, guess = np.where(known, costs, 0.0).round(3), pessimistic(costs).round(3)
        best = min((_committee(power, places, filled, known, guess) for power in POWERS), key=lambda found: found[0])
        _, power, metrics = best
        return cls(metrics, power, places, filled, known.astype(np.float64), guess)

    def ranking(self, problem: Problem, device: Device) -> Ranking:
        """All members, the one that is expected to hurt least first."""
        return ranked(self.expected(features(problem, device)))

    def expected(self, seen: Features) -> Array:
        """How much each member is expected to hurt, on average of the metrics."""
        apart = self.coordinates - np.array(place(seen))[:, None]
        apart *= apart
        sums = _weights(self.squares @ apart, self.power).astype(np.float32) @ self.sums + self.doubts
        count = len(self.guess)
        expected: Array = np.add.reduce(sums[:, :count] / sums[:, count:], axis=0) / len(sums)  # a third of what `mean` costs
        expected[0] += HANDICAP
        return expected

    def to_json(self) -> Any:
        rows = zip(self.costs.tolist(), self.known.tolist(), strict=True)
        return {
            "metrics": [list(metric) for metric in self.metrics],
            "power": self.power,
            "places": self.places.tolist(),
            "costs": [[cost if known else None for cost, known in zip(*row, strict=True)] for row in rows],
            "guess": self.guess.tolist(),
        }

    @classmethod
    def from_json(cls, body: Any, members: int) -> "Neighbours":
        """Raises ValueError, TypeError, KeyError or IndexError for a body that is none."""
        costs = np.array([[np.nan if cost is None else float(cost) for cost in row] for row in body["costs"]])
        places, guess = np.array(body["places"], dtype=np.float64), np.array(body["guess"], dtype=np.float64)
        if costs.shape != (len(places), members) or places.shape[1:] != (6,) or guess.shape != (members,) or np.isinf(costs).any():
            raise ValueError("the shapes of places, costs and guess do not agree")
        if not np.isfinite(places).all() or not np.isfinite(guess).all():
            raise ValueError("a place or a guess is no number")
        if body["power"] not in POWERS or not body["metrics"]:
            raise ValueError(f"power {body['power']} is none of {POWERS}, or there is no metric")
        metrics = tuple(
            (float(tall), float(cols), float(alignment), float(mantissa)) for tall, cols, alignment, mantissa in body["metrics"]
        )
        if not np.isfinite(metrics).all():
            raise ValueError("a weight is no number")
        known = np.isfinite(costs)
        return cls(metrics, int(body["power"]), places, np.where(known, costs, 0.0), known.astype(np.float64), guess)


def _weights(squared: Array, power: int) -> Array:
    weights: Array = squared + NEAREST
    np.reciprocal(weights, weights)
    for _ in range(power.bit_length() - 1):  # several times as fast as `**`
        weights *= weights
    return weights


def _doubt(power: int) -> float:
    """The weight of the guess."""
    return float((DOUBT**2 + NEAREST) ** -power)


def _committee(power: int, places: Array, costs: Array, known: Any, guess: Array) -> tuple[float, int, tuple[Metric, ...]]:
    """How much the choices hurt that the best metrics of a power make together, for each size by what is known of the others."""
    apart = (places[:, None, :] - places[None, :, :]) ** 2
    rows, tall, cols, alignment = (np.ascontiguousarray(apart[:, :, axis]) for axis in range(4))
    mantissa = apart[:, :, 4] + apart[:, :, 5]
    hurting, doubt, count = np.where(known, hurt(costs), 0.0), _doubt(power), len(guess)
    sums = np.hstack([hurting, known])

    def expected(metric: Metric) -> Array:
        t, c, a, m = metric
        weights = _weights(rows + t * t * tall + c * c * cols + a * a * alignment + m * m * mantissa, power)
        np.fill_diagonal(weights, 0.0)
        weighed = weights @ sums
        return np.asarray((weighed[:, :count] + doubt * hurt(guess)) / (weighed[:, count:] + doubt))

    def hurts(found: Array) -> float:
        found = np.where(known, found, np.inf)
        found[:, 0] += HANDICAP
        chosen = found.argmin(axis=1)
        return float(hurting[np.arange(len(places)), chosen].sum())

    best = sorted(METRICS, key=lambda metric: hurts(expected(metric)))[:COMMITTEE]
    return hurts(np.mean([expected(metric) for metric in best], axis=0)), power, tuple(best)
