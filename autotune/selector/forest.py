"""Extremely randomised trees (Geurts, Ernst and Wehenkel 2006) whose mean foretells how much slower a kernel is than the best one.

Trees grow a level at a time, all nodes of several trees together, so that a fit is a few thousand NumPy calls however many points there
are. Unlike the forest of the search, which finds cliffs between the kernels of one size, this one is asked for a mean, over all sizes: it
has more trees, which try more cuts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.selector.matrix import Array

Indices = np.ndarray[Any, np.dtype[np.int64]]

TREES = 32
TOGETHER = 8  # trees that grow at a time: what they look at then fits in a cache
CUTS = 12  # random cuts tried per node
DEEPEST = 18
AT_A_TIME = 512  # rows that are asked for: what all trees then look at fits in a cache
LEAST_DEVIATION = 0.005  # of the targets in a node: where they differ less, they differ by noise
SEED = 20261130


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Nodes of all trees: where each is cut, its first child, and the mean of its points. A leaf is its own child, whatever it is asked.

    Tree t begins at node `roots[t]`, and no leaf is more than `depth` levels below it.
    """

    column: Indices
    cut: Array
    child: Indices
    mean: Array
    roots: Indices
    depth: int

    @classmethod
    def fit(cls, features: Array, targets: Array) -> "Forest":
        """For `targets` (points,) at the rows of `features` (points, columns). The same points give the same forest."""
        random = np.random.default_rng(SEED)
        parts = [_grown(features, targets, random) for _ in range(TREES // TOGETHER)]
        starts = np.cumsum([0, *(len(column) for column, *_ in parts)])
        column, cut, child, mean = (np.concatenate([part[place] for part in parts]) for place in range(4))
        child = np.where(child < 0, np.arange(len(child)), child + np.repeat(starts[:-1], np.diff(starts)))
        roots = (starts[:-1, None] + np.arange(TOGETHER)).ravel()
        return cls(column, cut, child, mean, roots, DEEPEST)

    def predict(self, features: Array) -> Array:
        """The mean over all trees for each row of `features`."""
        found = []
        for start in range(0, len(features), AT_A_TIME):
            some = features[start : start + AT_A_TIME]
            flat, rows = some.ravel(), np.tile(np.arange(len(some)) * some.shape[1], len(self.roots))
            nodes = np.repeat(self.roots, len(some))
            for _ in range(self.depth):
                nodes = self.child[nodes] + (flat[rows + self.column[nodes]] > self.cut[nodes])
            found.append(self.mean[nodes].reshape(len(self.roots), len(some)).mean(axis=0))
        return np.concatenate(found) if found else np.zeros(0)


def _grown(features: Array, targets: Array, random: "np.random.Generator") -> tuple[Indices, Array, Indices, Array]:
    """`TOGETHER` trees: (column, cut, child, mean) of their nodes, the roots first."""
    points, nodes = np.tile(np.arange(len(features)), TOGETHER), np.repeat(np.arange(TOGETHER), len(features))
    width, made = TOGETHER, TOGETHER
    levels: list[tuple[Indices, Array, Indices, Array]] = []
    for depth in range(DEEPEST):
        column, cut, split, mean = _cuts(features, targets, points, nodes, width, random)
        if depth == DEEPEST - 1:
            split, cut = np.zeros_like(split), np.full_like(cut, np.inf)
        child = np.where(split, made + 2 * (np.cumsum(split) - 1), -1)
        levels.append((column, cut, child, mean))
        going = child[nodes] >= 0
        points, parents = points[going], nodes[going]
        if not len(points):
            break
        nodes = child[parents] + (features[points, column[parents]] > cut[parents]) - made
        width = 2 * int(split.sum())
        made += width
    columns, cuts, children, means = zip(*levels, strict=True)
    return np.concatenate(columns), np.concatenate(cuts), np.concatenate(children), np.concatenate(means)


def _cuts(
    features: Array, targets: Array, points: Indices, nodes: Indices, width: int, random: "np.random.Generator"
) -> tuple[Indices, Array, Any, Array]:
    """For each of `width` nodes the best of a few random cuts, whether it is worth making, and the mean of the node's points."""
    values = targets[points]
    count, total = np.bincount(nodes, minlength=width), np.bincount(nodes, values, minlength=width)
    squares = np.bincount(nodes, values * values, minlength=width) - total * total / count
    order = np.argsort(nodes, kind="stable")
    starts = np.cumsum(count) - count
    best = np.zeros(width)
    chosen, where = np.zeros(width, dtype=np.int64), np.zeros(width)
    for _ in range(CUTS):
        column = random.integers(0, features.shape[1], width)
        drawn = order[starts + (random.random((2, width)) * count).astype(np.int64)]
        one, other = features[points[drawn], column]
        cut = np.minimum(one, other) + 0.999 * np.abs(one - other) * random.random(width)
        left = features[points, column[nodes]] <= cut[nodes]
        left_count = np.bincount(nodes[left], minlength=width)
        left_total = np.bincount(nodes[left], values[left], minlength=width)
        right_count, right_total = count - left_count, total - left_total
        gain = left_total**2 / np.maximum(left_count, 1) + right_total**2 / np.maximum(right_count, 1) - total**2 / count
        better = (left_count > 0) & (right_count > 0) & (gain > best)
        best, chosen, where = np.where(better, gain, best), np.where(better, column, chosen), np.where(better, cut, where)
    split = (best > 0) & (squares > LEAST_DEVIATION**2 * count)
    return chosen, np.where(split, where, np.inf), split, total / count
