"""Which configuration comes next: what won elsewhere, then a few that cover the space, then what the surrogate expects most of."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.search.space import Floats, Indices, Space
from autotune.search.surrogate import Surrogate

COVERING = 6  # configurations measured before the surrogate is asked
CENTRAL = 20  # the first of them is one of this many in the middle
TRIED_TO_COVER = 3  # drawn per configuration that covers; few, because the corners of a space are seldom any good
MOST_CANDIDATES, NEAR_EACH, BEST = 1500, 60, 8
WARY = 6  # measurements after which every third question forgets the priors, in case they mislead
AHEAD = 25  # one configuration is planned ahead per this many measured
PICKED_WITH_CARE = 64
GAIN_OVER, GAIN_DRAWS, GAIN_FROM = 16, 256, 8


class Proposer:
    """The search itself, on row numbers of a space; knows nothing of configurations or of Optuna."""

    def __init__(self, space: Space, seed: int, priors: Sequence[Mapping[int, float | None]], distances: Sequence[float]) -> None:
        self.told: dict[int, float | None] = {}
        self._space = space
        self._random = np.random.default_rng(seed)
        self._unseen = np.ones(len(space), dtype=bool)
        self._times: dict[int, float] = {}
        self._expected = expectation(len(space), priors, distances)
        self._plain = Surrogate(space, None, self._random)
        self._informed = self._plain if self._expected is None else Surrogate(space, self._expected, self._random)
        self._queue = [row for prior in priors if (row := _winner(prior)) is not None]

    @property
    def remaining(self) -> int:
        """How many rows were neither proposed nor told."""
        return int(self._unseen.sum())

    @property
    def best(self) -> tuple[int, float] | None:
        """The fastest row and its time; None before the first."""
        return min(self._times.items(), key=lambda item: item[1]) if self._times else None

    def tell(self, row: int, time_us: float | None) -> None:
        self.told[row] = time_us
        self._unseen[row] = False
        self._times.pop(row, None)
        if time_us is not None:
            self._times[row] = time_us

    def propose(self, count: int) -> list[int]:
        """Up to `count` rows neither proposed nor told before."""
        picked: list[int] = []
        while len(picked) < count and self.remaining:
            left = count - len(picked)
            forget = self._wary() and (left <= count // 3 if count > 2 else len(self.told) % 3 == 2)
            share = left - count // 3 if self._wary() and not forget and count > 2 else left
            self._queue = [row for row in self._queue if self._unseen[row]] or self._plan(share, self._plain if forget else self._informed)
            taken, self._queue = self._queue[:share], self._queue[share:]
            self._unseen[taken] = False
            picked += taken
        return picked

    def expected_gain(self) -> float:
        """The share of the best time that the next few measurements are expected to win, 0 … 1; 1 while too little is known."""
        best = self.best
        if not self.remaining:
            return 0.0
        if best is None or len(self._times) < min(GAIN_FROM, len(self._space)):
            return 1.0
        candidates = self._candidates()
        self._informed.fit(self._times)
        mean, deviation = self._informed.predict(candidates)
        most = np.argsort(-improvement(mean, deviation, math.log(best[1])), kind="stable")[:GAIN_OVER]
        draws = np.random.default_rng(0).standard_normal((GAIN_DRAWS, len(most))) * deviation[most] + mean[most]
        return float(np.maximum(1.0 - np.exp(draws.min(1) - math.log(best[1])), 0.0).mean())

    def _wary(self) -> bool:
        return self._expected is not None and len(self.told) >= WARY

    def _plan(self, count: int, surrogate: Surrogate) -> list[int]:
        if len(self._times) < 2 or (self._expected is None and len(self.told) < COVERING):
            return [self._first()]
        surrogate.fit(self._times)
        candidates = self._candidates() if count <= PICKED_WITH_CARE else np.flatnonzero(self._unseen)
        mean, deviation = surrogate.predict(candidates)
        promise = improvement(mean, deviation, math.log(min(self._times.values()))) * self._works(candidates)
        wanted = max(count, len(self._times) // AHEAD if self._expected is None else 1)
        if wanted > PICKED_WITH_CARE:
            return [int(row) for row in candidates[np.argsort(-promise, kind="stable")[:wanted]]]
        return self._apart(candidates, promise, wanted, surrogate)

    def _apart(self, candidates: Indices, promise: Floats, count: int, surrogate: Surrogate) -> list[int]:
        """The most promising ones, each discounted by its likeness to those picked before it, which it would only confirm."""
        order = np.argsort(-promise, kind="stable")[: 16 * count]
        candidates, promise = candidates[order], promise[order].copy()
        features = self._space.process[candidates]
        picked: list[int] = []
        for _ in range(min(count, len(candidates))):
            most = int(np.argmax(promise))
            picked.append(int(candidates[most]))
            if len(picked) < count:
                promise = promise * (1.0 - surrogate.process.likeness(features, features[[most]])[:, 0] ** 2)
                promise[np.isin(candidates, picked)] = -1.0
        return picked

    def _first(self) -> int:
        """Before there is a surrogate: what is expected to be fast, or else the middle of the space and then far from it."""
        rows, features = np.flatnonzero(self._unseen), self._space.features
        if self._expected is not None:
            return int(rows[np.argmin(self._expected[rows])])
        seen = np.flatnonzero(~self._unseen)
        if not len(seen):
            return int(self._random.choice(rows[np.argsort(_squares(features[rows], features.mean(0)[None])[:, 0])[:CENTRAL]]))
        some = self._random.choice(rows, min(TRIED_TO_COVER, len(rows)), replace=False)
        return int(some[np.argmax(_squares(features[some], features[seen]).min(1))])

    def _candidates(self) -> Indices:
        """All that is left, or of many: a random part, and what is near the best."""
        rows = np.flatnonzero(self._unseen)
        if len(rows) <= MOST_CANDIDATES:
            return rows
        best = sorted(self._times, key=lambda row: self._times[row])[:BEST]
        steps = [np.minimum(np.abs(self._space.features[rows] - self._space.features[row]), 0.3).sum(1) for row in best]
        near = [rows[np.argpartition(step, NEAR_EACH)[:NEAR_EACH]] for step in steps]
        return np.unique(np.concatenate([*near, self._random.choice(rows, MOST_CANDIDATES - NEAR_EACH * BEST, replace=False)]))

    def _works(self, candidates: Indices) -> Floats:
        """How likely each candidate is to work, by what became of those near it."""
        failed = np.array([row for row, time in self.told.items() if time is None], dtype=np.int64)
        if not len(failed):
            return np.ones(len(candidates))
        features, timed = self._space.features, np.array(list(self._times), dtype=np.int64)
        bad, good = (np.exp(-4.0 * _squares(features[candidates], features[rows])).sum(1) for rows in (failed, timed))
        return np.asarray((good + 0.5) / (good + bad + 0.5))


def improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The expected improvement below `best` of normal variables (Jones, Schonlau and Welch 1998, equation 15)."""
    z = (best - mean) / deviation
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z])
    return np.asarray((best - mean) * below + deviation * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))


def expectation(count: int, priors: Sequence[Mapping[int, float | None]], distances: Sequence[float]) -> Floats | None:
    """The logarithm of the time over the best in each prior, averaged with weights that fall with distance; None without priors.

    What no prior knows is expected to be as fast as the median of what they know.
    """
    total, weight = np.zeros(count), np.zeros(count)
    for prior, distance in zip(priors, distances, strict=True):
        times = {row: time for row, time in prior.items() if time is not None}
        if times:
            rows, logarithms = np.array(list(times), dtype=np.int64), np.log(np.array(list(times.values())))
            total[rows] += (logarithms - logarithms.min()) / (0.1 + distance)
            weight[rows] += 1.0 / (0.1 + distance)
    if not weight.any():
        return None
    known = weight > 0
    mean = total / np.where(known, weight, 1.0)
    return np.where(known, mean, float(np.median(mean[known])))


def _winner(prior: Mapping[int, float | None]) -> int | None:
    times = {row: time for row, time in prior.items() if time is not None}
    return min(times, key=lambda row: times[row]) if times else None


def _squares(a: Floats, b: Floats) -> Floats:
    """Squared distances between the rows of `a` and of `b`."""
    return np.asarray(np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * a @ b.T, 0.0))
