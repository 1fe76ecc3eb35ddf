"""Extremely randomised trees (Geurts, Ernst and Wehenkel 2006): a second opinion, which finds cliffs where a Gaussian process sees slopes.

All trees grow together, one level at a time, so that a fit is a few hundred NumPy calls however many points there are.
"""

from dataclasses import dataclass

import numpy as np

from autotune.search.space import Floats, Indices

TREES = 16
CUTS = 6  # random cuts tried per node
DEEPEST = 14
LEAST_DEVIATION = 0.02  # trees that agree on a point are not certain of it


@dataclass(frozen=True)
class _Level:
    """The nodes of one level of all trees: where each is cut, its first child (-1 for a leaf) and the mean of its targets."""

    column: Indices
    cut: Floats
    child: Indices
    mean: Floats


class Forest:
    """Fitted to `targets` (points,) at the rows of `features` (points, columns)."""

    def __init__(self, features: Floats, targets: Floats, random: np.random.Generator) -> None:
        points = np.tile(np.arange(len(features)), TREES)
        nodes, first, width = np.repeat(np.arange(TREES), len(features)), 0, TREES
        levels = []
        for depth in range(DEEPEST):
            level = _grow(features, targets, points, nodes - first, first + width, width, random, last=depth == DEEPEST - 1)
            levels.append(level)
            going = level.child[nodes - first] >= 0
            points, parents = points[going], (nodes - first)[going]
            if not len(points):
                break
            nodes = level.child[parents] + (features[points, level.column[parents]] > level.cut[parents])
            first, width = first + width, 2 * int((level.child >= 0).sum())
        self._levels = len(levels)
        self._column, self._cut, self._child, self._mean = (
            np.concatenate([getattr(level, name) for level in levels]) for name in ("column", "cut", "child", "mean")
        )

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the target at each row: of what the trees say."""
        nodes = np.repeat(np.arange(TREES), len(features))
        places = np.tile(np.arange(len(features)) * features.shape[1], TREES)
        flat, going = features.ravel(), np.arange(len(nodes))
        for _ in range(self._levels):
            at = nodes[going]
            inner = self._child[at] >= 0
            going, at = going[inner], at[inner]
            nodes[going] = self._child[at] + (flat[places[going] + self._column[at]] > self._cut[at])
        said = self._mean[nodes].reshape(TREES, len(features))
        return said.mean(0), np.hypot(said.std(0), LEAST_DEVIATION)


def _grow(
    features: Floats, targets: Floats, points: Indices, nodes: Indices, next_node: int, width: int, random: np.random.Generator, last: bool
) -> _Level:
    """Cuts each of `width` nodes where the best of a few random cuts reduces the squares most; `nodes` says in which each point is."""
    values = targets[points]
    count, total = np.bincount(nodes, minlength=width), np.bincount(nodes, values, minlength=width)
    squares = np.bincount(nodes, values * values, minlength=width) - total * total / np.maximum(count, 1)
    order = np.argsort(nodes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    gain, column, cut = np.full(width, -1.0), np.zeros(width, dtype=np.int64), np.zeros(width)
    for _ in range(CUTS):
        tried = random.integers(0, features.shape[1], width)
        seen = features[points, tried[nodes]]
        one, other = (seen[order[np.minimum(starts + (random.random(width) * count).astype(np.int64), len(order) - 1)]] for _ in range(2))
        at = np.minimum(one, other) + 0.999 * np.abs(one - other) * random.random(width)
        left = seen <= at[nodes]
        left_count, left_total = np.bincount(nodes, left, minlength=width), np.bincount(nodes, left * values, minlength=width)
        right_count, right_total = count - left_count, total - left_total
        reduced = left_total**2 / np.maximum(left_count, 1) + right_total**2 / np.maximum(right_count, 1) - total**2 / np.maximum(count, 1)
        better = (left_count > 0) & (right_count > 0) & (reduced > gain)
        gain, column, cut = np.where(better, reduced, gain), np.where(better, tried, column), np.where(better, at, cut)
    split = (gain >= 0) & (squares > 1e-10) & (not last)
    child = np.where(split, next_node + 2 * (np.cumsum(split) - 1), -1)
    return _Level(column, cut, child, total / np.maximum(count, 1))
