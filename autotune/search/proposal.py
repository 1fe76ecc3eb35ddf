"""Which configuration comes next: what won elsewhere, then a set that covers the space, then what the surrogate expects most of."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.search.space import Floats, Indices
from autotune.search.surrogate import GaussianProcess, Hyperparameters

MOST_CANDIDATES = 8192
REFIT_EVERY = 5
COVERING = 10
BELIEVED = 32


class Proposer:
    """The search itself, on row numbers of `features`; knows nothing of configurations or of Optuna."""

    def __init__(
        self, features: Floats, groups: Indices, seed: int, priors: Sequence[Mapping[int, float | None]], distances: Sequence[float]
    ) -> None:
        self.told: dict[int, float | None] = {}
        self.pending: set[int] = set()
        self._features = features
        self._groups = groups
        self._random = np.random.default_rng(seed)
        self._unseen = np.ones(len(features), dtype=bool)
        self._expected = _expectation(len(features), priors, distances)
        self._winners = [min(ok, key=lambda i: ok[i]) for prior in priors if (ok := {i: t for i, t in prior.items() if t is not None})]
        self._hyperparameters: Hyperparameters | None = None
        self._model: tuple[int, GaussianProcess] | None = None
        self._fitted = 0

    @property
    def remaining(self) -> int:
        return int(self._unseen.sum())

    @property
    def best(self) -> tuple[int, float] | None:
        """The fastest row and its time."""
        times = {i: time for i, time in self.told.items() if time is not None}
        return min(times.items(), key=lambda item: item[1]) if times else None

    def tell(self, row: int, time_us: float | None) -> None:
        self.told[row] = time_us
        self.pending.discard(row)
        self._unseen[row] = False

    def propose(self, count: int) -> list[int]:
        """Up to `count` rows not seen before, which now count as seen."""
        picked: list[int] = []
        while len(picked) < count and self.remaining:
            rows = [self._next()] if len(picked) < BELIEVED else self._ranked(count - len(picked))
            for row in rows:
                self.pending.add(row)
                self._unseen[row] = False
            picked += rows
        return picked

    def expected_gain(self) -> float:
        """By which share of the best time going on may be expected to improve it: 0 … 1."""
        best = self.best
        if not self.remaining:
            return 0.0
        if best is None or len(self._timed()) < min(COVERING, len(self._features)):
            return 1.0
        mean, deviation = self._predict(np.flatnonzero(self._unseen))
        gain = improvement(mean, deviation, math.log(best[1]))
        return float(-np.expm1(-gain.max()))

    def _timed(self) -> dict[int, float]:
        return {i: time for i, time in self.told.items() if time is not None}

    def _next(self) -> int:
        while self._winners:
            row = self._winners.pop(0)
            if self._unseen[row]:
                return row
        candidates = self._candidates()
        if (self._expected is None and len(self.told) + len(self.pending) < COVERING) or len(self._timed()) < 2:
            return self._covering(candidates)
        return int(candidates[np.argmax(self._acquisition(candidates))])

    def _ranked(self, count: int) -> list[int]:
        candidates = np.flatnonzero(self._unseen)
        if len(self._timed()) < 2:
            return [int(i) for i in self._random.permutation(candidates)[:count]]
        order = np.argsort(-self._acquisition(candidates), kind="stable")
        return [int(i) for i in candidates[order[:count]]]

    def _candidates(self) -> Indices:
        rows = np.flatnonzero(self._unseen)
        if len(rows) <= MOST_CANDIDATES:
            return rows
        return np.sort(self._random.choice(rows, MOST_CANDIDATES, replace=False))

    def _covering(self, candidates: Indices) -> int:
        """The candidate farthest from everything seen (Kennard and Stone 1969); the first is random."""
        seen = np.array([*self.told, *self.pending], dtype=np.int64)
        if self._expected is not None:
            return int(candidates[np.argmin(self._expected[candidates])])
        some = self._random.choice(candidates, min(len(candidates), 256), replace=False)
        if not len(seen):
            return int(some[0])
        square = ((self._features[some][:, None, :] - self._features[seen][None, :, :]) ** 2).sum(2)
        return int(some[np.argmax(square.min(1))])

    def _acquisition(self, candidates: Indices) -> Floats:
        best = self.best
        assert best is not None
        mean, deviation = self._predict(candidates)
        return improvement(mean, deviation, math.log(best[1])) * self._works(candidates)

    def _works(self, candidates: Indices) -> Floats:
        """How likely each candidate is to work, by what became of those near it."""
        failed = np.array([row for row, time in self.told.items() if time is None], dtype=np.int64)
        if not len(failed):
            return np.ones(len(candidates))
        timed = np.array(list(self._timed()), dtype=np.int64)
        near_failed, near_timed = (
            np.exp(-4.0 * ((self._features[candidates][:, None] - self._features[rows][None]) ** 2).sum(2)).sum(1)
            for rows in (failed, timed)
        )
        return np.asarray((near_timed + 0.5) / (near_timed + near_failed + 0.5))

    def _predict(self, rows: Indices) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the logarithm of the time at `rows`; what is pending is believed to turn out as expected."""
        model = self._fit()
        mean, deviation = model.predict(self._features[rows])
        return mean + (0.0 if self._expected is None else self._expected[rows]), deviation

    def _fit(self) -> GaussianProcess:
        timed = self._timed()
        rows = np.array(list(timed), dtype=np.int64)
        targets = np.log(np.array(list(timed.values())))
        if self._expected is not None:
            targets = targets - self._expected[rows]
        if self._model is None or self._model[0] != len(rows) + 10**6 * len(self.pending):
            steps = 30 if len(rows) >= self._fitted + REFIT_EVERY or self._hyperparameters is None else 0
            self._fitted = len(rows) if steps else self._fitted
            model = GaussianProcess(self._features[rows], targets, self._groups, self._hyperparameters, steps)
            self._hyperparameters = model.hyperparameters
            if self.pending:
                believed = np.array(sorted(self.pending), dtype=np.int64)
                mean, _ = model.predict(self._features[believed])
                model = GaussianProcess(
                    self._features[np.concatenate([rows, believed])],
                    np.concatenate([targets, mean]),
                    self._groups,
                    self._hyperparameters,
                    0,
                )
            self._model = (len(rows) + 10**6 * len(self.pending), model)
        return self._model[1]


def improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The expected improvement below `best` of normal variables (Jones, Schonlau and Welch 1998, equation 15)."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.asarray((best - mean) * _normal(z) + deviation * density)


def _normal(z: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2.0))))


def _expectation(count: int, priors: Sequence[Mapping[int, float | None]], distances: Sequence[float]) -> Floats | None:
    """What the priors make one expect: the logarithm of the time over the best, weighted by nearness; None without priors."""
    total, weight = np.zeros(count), np.zeros(count)
    for prior, distance in zip(priors, distances, strict=True):
        timed = {row: time for row, time in prior.items() if time is not None}
        if not timed:
            continue
        rows = np.array(list(timed), dtype=np.int64)
        logs = np.log(np.array(list(timed.values())))
        total[rows] += (logs - logs.min()) / (0.1 + distance)
        weight[rows] += 1 / (0.1 + distance)
    if not weight.any():
        return None
    known = weight > 0
    return np.where(known, total / np.where(known, weight, 1.0), float(np.median(total[known] / weight[known])))
