"""Ways to choose a kernel for a size that was never tuned: ours, and those of others, made anew from their descriptions.

A rule is made from the times at tuned sizes and then asked for configurations, best first; the first that can run the size is taken.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import ceil, log2

import numpy as np

from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.selection import COLS_WEIGHT
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector.matrix import Family, Matrix, Times, default_choices
from autotune.selector.training import choose, fit

Rule = Callable[[Problem], Iterable[Configuration]]


@dataclass(frozen=True)
class Tuned:
    """The times in microseconds that rules are made from. `whole` is the matrix of these sizes and more, where there is one already."""

    operation: Operation
    device: Device
    times: Times
    whole: Matrix | None = None

    @cached_property
    def winners(self) -> dict[Problem, Configuration]:
        return {problem: min(times, key=times.__getitem__) for problem, times in self.times.items()}

    @cached_property
    def versions(self) -> set[str]:
        return {configuration.version for times in self.times.values() for configuration in times}

    @cached_property
    def matrix(self) -> Matrix:
        if self.whole is not None:
            return self.whole.only([row for row, problem in enumerate(self.whole.problems) if problem in self.times])
        return Matrix.of(self.operation, self.device, self.times, dict.fromkeys(self.versions, ""))


def analytic_default(tuned: Tuned) -> Rule:
    """What the operation proposes without any measurement."""
    versions = tuned.versions
    return lambda problem: default_choices(tuned.operation, tuned.device, problem, versions)


def one_for_all(tuned: Tuned) -> Rule:
    """The configuration that runs the most sizes and is then the fastest on average: a fixed default, as most libraries have."""
    runs = Counter(c for times in tuned.times.values() for c in times)
    best = {problem: min(times.values()) for problem, times in tuned.times.items()}
    most = max(runs.values())
    everywhere = [c for c, count in runs.items() if count == most]
    slowdown = {c: sum(np.log(times[c] / best[p]) for p, times in tuned.times.items() if c in times) for c in everywhere}
    chosen = sorted(everywhere, key=lambda c: (slowdown[c], c))
    return lambda problem: chosen


def _by_distance(tuned: Tuned, distance: Callable[[Problem, Problem], float]) -> Rule:
    winners = tuned.winners
    return lambda problem: (winners[p] for p in sorted(winners, key=lambda p: distance(p, problem)))


def product_distance(tuned: Tuned) -> Rule:
    """Kernel Launcher's: the tuned size whose number of elements is nearest."""
    return _by_distance(tuned, lambda a, b: abs(a.rows * a.cols - b.rows * b.cols))


def log_nearest(tuned: Tuned) -> Rule:
    """The tuned size next to it where rows and columns count alike, in doublings."""
    return _by_distance(tuned, lambda a, b: (log2(a.rows / b.rows)) ** 2 + (log2(a.cols / b.cols)) ** 2)


def nearest_fitted(tuned: Tuned) -> Rule:
    """Our tier below the selector: columns count more, and the winner is made anew for the row's length."""
    winners = tuned.winners

    def choose(problem: Problem) -> Iterator[Configuration]:
        near = sorted(winners, key=lambda p: log2(p.rows / problem.rows) ** 2 + (COLS_WEIGHT * log2(p.cols / problem.cols)) ** 2)
        for other in near:
            yield tuned.operation.fitted(winners[other], problem) or winners[other]

    return choose


def power_of_two_buckets(tuned: Tuned) -> Rule:
    """FlashInfer's: the size is rounded up to powers of two, and the tuned size nearest to that corner is used."""
    winners = tuned.winners

    def choose(problem: Problem) -> Iterator[Configuration]:
        corner = ceil(log2(problem.rows)), ceil(log2(problem.cols))
        for other in sorted(winners, key=lambda p: (log2(p.rows) - corner[0]) ** 2 + (log2(p.cols) - corner[1]) ** 2):
            yield winners[other]

    return choose


def label_tree(tuned: Tuned) -> Rule:
    """Helion's: at most ten configurations within 1.1 of the best, and a tree that learns which of them is the fastest one where."""
    cover = _helion_cover(tuned.times)
    labels = {p: min(range(len(cover)), key=lambda i: times.get(cover[i], np.inf)) for p, times in tuned.times.items()}
    problems = list(labels)
    seen = np.array([(p.rows, p.cols, p.alignment_bytes) for p in problems], dtype=np.float64)
    root = _gini_tree(seen, np.array([labels[p] for p in problems]), len(cover), 6)
    counts = Counter(labels.values())
    others = sorted(range(len(cover)), key=lambda i: -counts[i])

    def choose(problem: Problem) -> Iterator[Configuration]:
        node = root
        while isinstance(node, tuple):
            node = node[2] if (problem.rows, problem.cols, problem.alignment_bytes)[node[0]] < node[1] else node[3]
        assert isinstance(node, int)
        yield from (cover[i] for i in chain([node], others))

    return choose


def ours(tuned: Tuned) -> Rule:
    """The selector that training would make active; which one that is takes the longest to find out."""
    model, _ = choose(tuned.matrix, tuned.operation, tuned.device)
    return _of_families(tuned, lambda problem: (family for _, family in model.ranking(problem, tuned.device)))


def _ours_always(kind: str) -> Callable[[Tuned], Rule]:
    def make(tuned: Tuned) -> Rule:
        matrix = tuned.matrix
        members, predictors = fit(matrix, tuned.device)
        chosen = [matrix.families[column] for column in members]
        ranked = predictors[kind].ranking
        return _of_families(tuned, lambda problem: (chosen[i] for _, i in ranked(problem, tuned.device)))

    return make


def _of_families(tuned: Tuned, families: Callable[[Problem], Iterable[Family]]) -> Rule:
    versions = tuned.versions

    def choose(problem: Problem) -> Iterator[Configuration]:
        for family in families(problem):
            if family is None:
                yield from default_choices(tuned.operation, tuned.device, problem, versions)
            elif configuration := tuned.operation.fitted(family, problem):
                yield configuration

    return choose


RULES: Mapping[str, Callable[[Tuned], Rule]] = {
    "one configuration for all": one_for_all,
    "product distance (Kernel Launcher)": product_distance,
    "nearest, logarithmic": log_nearest,
    "power-of-two buckets (FlashInfer)": power_of_two_buckets,
    "label tree (Helion)": label_tree,
    "our tier `nearest`": nearest_fitted,
    "our analytic default": analytic_default,
    "our tree": _ours_always("tree"),
    "our neighbours": _ours_always("neighbours"),
    "our selector": ours,
}


def _helion_cover(times: Times) -> list[Configuration]:
    best = {problem: min(here.values()) for problem, here in times.items()}
    uncovered, chosen = set(times), list[Configuration]()
    everything = sorted({c for here in times.values() for c in here})
    while uncovered and len(chosen) < 10:
        serves = {c: [p for p in uncovered if times[p].get(c, np.inf) <= 1.1 * best[p]] for c in everything}
        most = max(everything, key=lambda c: len(serves[c]))
        if not serves[most]:
            break
        chosen.append(most)
        uncovered -= set(serves[most])
    return chosen


def _gini_tree(
    seen: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
    labels: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    classes: int,
    depth: int,
) -> object:
    counts = np.bincount(labels, minlength=classes)
    if not depth or (counts > 0).sum() == 1:
        return int(counts.argmax())
    best, split = _impurity(counts) * len(labels) - 1e-9, None
    for feature in range(seen.shape[1]):
        values = np.unique(seen[:, feature])
        for threshold in (values[1:] + values[:-1]) / 2:
            below = seen[:, feature] < threshold
            parts = labels[below], labels[~below]
            impurity = sum(_impurity(np.bincount(part, minlength=classes)) * len(part) for part in parts)
            if impurity < best:
                best, split = impurity, (feature, float(threshold), below)
    if split is None:
        return int(counts.argmax())
    feature, threshold, below = split
    return feature, threshold, *(_gini_tree(seen[side], labels[side], classes, depth - 1) for side in (below, ~below))


def _impurity(counts: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
    return float(1 - ((counts / counts.sum()) ** 2).sum())
