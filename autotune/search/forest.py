"""Extremely randomised trees (Geurts, Ernst and Wehenkel 2006): a second opinion, which finds cliffs where a Gaussian process sees slopes.

All trees grow together, one level and all the cuts that are tried at a time, so that a fit is a few hundred NumPy calls however many
points there are.
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
    """The nodes of one level of all trees: where each is cut, and its first child (-1 for a leaf)."""

    column: Indices
    cut: Floats
    child: Indices


class Forest:
    """Trees grown for `targets` (points,) at the rows of `features` (points, columns). What their leaves say is worked out when asked."""

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
        self._column, self._cut, self._child = (
            np.concatenate([getattr(level, name) for level in levels]) for name in ("column", "cut", "child")
        )

    def leaves(self, features: Floats) -> Indices:
        """The leaf in which each row ends, (trees, rows)."""
        nodes = np.repeat(np.arange(TREES), len(features))
        places = np.tile(np.arange(len(features)) * features.shape[1], TREES)
        flat, going = features.ravel(), np.arange(len(nodes))
        for _ in range(self._levels):
            at = nodes[going]
            inner = self._child[at] >= 0
            going, at = going[inner], at[inner]
            nodes[going] = self._child[at] + (flat[places[going] + self._column[at]] > self._cut[at])
        return nodes.reshape(TREES, len(features))

    def predict(self, measured: Indices, targets: Floats, asked: Indices) -> tuple[Floats, Floats]:
        """Mean and standard deviation of what the trees say in the leaves `asked`, given `targets` in the leaves `measured`."""
        where = measured.ravel()
        count = np.bincount(where, minlength=len(self._child))
        total = np.bincount(where, np.tile(targets, TREES), minlength=len(self._child))
        said = (total / np.maximum(count, 1))[asked]
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
    column = random.integers(0, features.shape[1], (CUTS, width))
    drawn = np.minimum(starts + (random.random((2, CUTS, width)) * count).astype(np.int64), len(order) - 1)
    one, other = features[points[order[drawn]], column]
    cut = np.minimum(one, other) + 0.999 * np.abs(one - other) * random.random((CUTS, width))
    left = features[points, column[:, nodes]] <= cut[:, nodes]
    where = (nodes + width * np.arange(CUTS)[:, None])[left]
    left_count = np.bincount(where, minlength=CUTS * width).reshape(CUTS, width)
    left_total = np.bincount(where, np.broadcast_to(values, left.shape)[left], minlength=CUTS * width).reshape(CUTS, width)
    right_count, right_total = count - left_count, total - left_total
    reduced = left_total**2 / np.maximum(left_count, 1) + right_total**2 / np.maximum(right_count, 1) - total**2 / np.maximum(count, 1)
    gain = np.where((left_count > 0) & (right_count > 0), reduced, -1.0)
    best, node = gain.argmax(0), np.arange(width)
    split = (gain[best, node] >= 0) & (squares > 1e-10) & (not last)
    child = np.where(split, next_node + 2 * (np.cumsum(split) - 1), -1)
    return _Level(column[best, node], cut[best, node], child)
