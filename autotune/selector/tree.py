"""A decision tree whose splits lower the summed regret, not the disorder of labels: kernels that tie cost nothing either way."""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.features import NAMES, features
from autotune.selector.matrix import Array, pessimistic
from autotune.selector.regret import cost_of, hurt

MOST_DEPTH = 8
LEAST_SIZES = 2  # of a leaf: one size alone is as likely an oddity as a rule
LEAST_GAIN = 0.01  # of what all regrets together hurt, that a split must spare

Leaf = tuple[tuple[float, int], ...]  # (expected log regret, member), best first
Node = tuple[Any, ...]  # (feature, threshold, below, above), or (None, leaf)


@dataclass(frozen=True, slots=True)
class Tree:
    """A fitted tree. A threshold sends smaller values to the left."""

    root: Node

    kind = "tree"

    @classmethod
    def fit(cls, problems: tuple[Problem, ...], costs: Array, device: Device) -> "Tree":
        """From the log regret of each size (row) with each member (column), NaN where unknown."""
        seen = np.array([features(problem, device) for problem in problems])
        known = hurt(_filled(costs))
        overall = known.mean(axis=0)
        return cls(_grow(seen, known, np.isnan(costs), overall, MOST_DEPTH))

    def ranking(self, problem: Problem, device: Device) -> Leaf:
        """All members, the one that is expected to hurt least first."""
        seen = features(problem, device)
        node = self.root
        while node[0] is not None:
            node = node[2] if seen[node[0]] < node[1] else node[3]
        leaf: Leaf = node[1]
        return leaf

    def to_json(self) -> Any:
        return self.root

    @classmethod
    def from_json(cls, body: Any, members: int) -> "Tree":
        """Raises ValueError, TypeError, KeyError or IndexError for a body that is none."""
        return cls(_node(body, members, MOST_DEPTH))


def _filled(costs: Array) -> Array:
    """The costs with a pessimistic guess in each hole, and never less than what the default, which would run instead, costs there."""
    guess = pessimistic(costs)
    default = np.where(np.isnan(costs[:, :1]), guess[0], costs[:, :1])
    return np.where(np.isnan(costs), np.maximum(guess[None, :], default), costs)


def _grow(seen: Array, costs: Array, holes: Any, overall: Array, depth: int) -> Node:
    split = _best_split(seen, costs) if depth else None
    if split is None:
        order = np.lexsort((overall, np.where(holes.all(axis=0), np.inf, costs.mean(axis=0))))
        mean = costs.mean(axis=0)
        return None, tuple((round(cost_of(float(mean[member])), 4), int(member)) for member in order)
    feature, threshold = split
    below = seen[:, feature] < threshold
    left, right = (_grow(seen[side], costs[side], holes[side], overall, depth - 1) for side in (below, ~below))
    return feature, threshold, left, right


def _best_split(seen: Array, costs: Array) -> tuple[int, float] | None:
    count = len(costs)
    best_gain, best = LEAST_GAIN, None
    undivided = costs.sum(axis=0).min()
    for feature in range(len(NAMES)):
        order = seen[:, feature].argsort(kind="stable")
        values = seen[order, feature]
        sums = costs[order].cumsum(axis=0)
        lefts, rights = sums[:-1].min(axis=1), (sums[-1] - sums[:-1]).min(axis=1)
        gains = undivided - lefts - rights
        sizes = np.arange(1, count)
        gains[(values[1:] == values[:-1]) | (sizes < LEAST_SIZES) | (count - sizes < LEAST_SIZES)] = -np.inf
        if gains.size and gains.max() > best_gain + 1e-12:
            place = int(gains.argmax())
            below, above = float(values[place]), float(values[place + 1])
            middle = (below + above) / 2  # of neighbouring floats it is one of them, and the lower one would divide nothing
            best_gain, best = float(gains[place]), (feature, middle if middle > below else above)
    return best


def _node(body: Any, members: int, depth: int) -> Node:
    if body[0] is None:
        ranking = tuple((float(cost), int(member)) for cost, member in body[1])
        if sorted(member for _, member in ranking) != list(range(members)) or not all(isfinite(cost) for cost, _ in ranking):
            raise ValueError("a leaf does not rank every member once by a number")
        return None, ranking
    feature, threshold, below, above = body
    if not depth or not 0 <= feature < len(NAMES):
        raise ValueError("a split is too deep or of no known feature")
    return int(feature), float(threshold), _node(below, members, depth - 1), _node(above, members, depth - 1)
