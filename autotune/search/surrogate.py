"""What is expected of configurations not measured yet, from those that were: a Gaussian process and a forest, averaged."""

from collections.abc import Mapping

import numpy as np

from autotune.search.forest import Forest
from autotune.search.pool import Pool
from autotune.search.process import GaussianProcess
from autotune.search.space import Floats, Indices, Space

FIRST_STEPS, LATER_STEPS = 30, 12
REFIT = 1.25  # everything is fitted anew when there are this many times more points; until then points are added to the fit
MOST_FITTED = 200  # points that the process's parameters are fitted to; their number hardly depends on more
TRUST = 4.0  # measurements it takes to outweigh the assumption that expectations from elsewhere hold


class Surrogate:
    """The logarithm of the time as `scale` times what is expected from elsewhere, plus what measurements here add to it.

    `expected` (configurations,) is the logarithm of the time over the best, as far as one knows beforehand; None when nothing is known.
    It speaks of the rows in `asked`, drawn from `pool` at each fit.
    """

    def __init__(self, space: Space, pool: Pool, expected: Floats | None, random: np.random.Generator) -> None:
        self.process = GaussianProcess(space.groups)
        self.asked: Indices = np.empty(0, dtype=np.int64)
        self._space = space
        self._pool = pool
        self._expected = expected
        self._random = random
        self._rows: Indices = np.empty(0, dtype=np.int64)
        self._fitted = 0

    def learn(self, times: Mapping[int, float]) -> None:
        """Takes in the times in microseconds, by row; at least two."""
        known = set(self._rows.tolist())
        new = np.array([row for row in times if row not in known], dtype=np.int64)
        rows = np.append(self._rows, new)
        anew = not self._fitted or len(rows) != len(times) or len(rows) >= REFIT * self._fitted or not self._pool.unseen[self.asked].any()
        self._rows = np.array(list(times), dtype=np.int64) if anew else rows
        self._targets = self._standardised(np.log([times[row] for row in self._rows.tolist()]))
        if anew:
            self._fit()
            self._ask(self._pool.draw(times))
        else:
            self._add(new)
            self._ask(np.setdiff1d(self._pool.near_best(times), self.asked))

    def predict(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the logarithm of the time at each asked row; slow times are compressed, good ones are not."""
        one, one_deviation = self.process.predict(self._targets)
        other, other_deviation = self._forest.predict(self._leaves, self._targets, self._asked_leaves)
        mean = 0.5 * (one + other)
        variance = 0.5 * (one_deviation**2 + other_deviation**2) + 0.25 * (one - other) ** 2
        beforehand = 0.0 if self._expected is None else self._scale * self._expected[self.asked]
        return mean * self._deviation + self._mean + beforehand, np.sqrt(variance) * self._deviation

    def _fit(self) -> None:
        space, rows = self._space, self._rows
        some = np.arange(len(rows)) if len(rows) <= MOST_FITTED else self._random.permutation(len(rows))[:MOST_FITTED]
        steps = LATER_STEPS if self._fitted else FIRST_STEPS
        self.process.fit(space.process[rows[some]], space.codes[rows[some]], self._targets[some], steps)
        self.process.condition(space.process[rows], space.codes[rows])
        self._forest = Forest(space.forest[rows], self._targets, self._random)
        self._leaves = self._forest.leaves(space.forest[rows])
        self._fitted = len(rows)
        self.asked, self._asked_leaves = rows[:0], self._leaves[:, :0]

    def _add(self, rows: Indices) -> None:
        self.process.add(self._space.process[rows], self._space.codes[rows])
        self._leaves = np.hstack([self._leaves, self._forest.leaves(self._space.forest[rows])])

    def _ask(self, rows: Indices) -> None:
        if len(rows):
            self.process.widen(self._space.process[rows], self._space.codes[rows])
            self._asked_leaves = np.hstack([self._asked_leaves, self._forest.leaves(self._space.forest[rows])])
            self.asked = np.append(self.asked, rows)

    def _standardised(self, logarithms: Floats) -> Floats:
        rows = self._rows
        self._scale = self._transfer(rows, logarithms)
        rest = _compressed(logarithms) if self._expected is None else logarithms - self._scale * self._expected[rows]
        self._mean, self._deviation = float(rest.mean()), float(rest.std()) or 1.0
        return np.asarray((rest - self._mean) / self._deviation)

    def _transfer(self, rows: Indices, logarithms: Floats) -> float:
        """How far measurements here follow what was expected: 1 if they do, 0 if they have nothing to do with it."""
        if self._expected is None:
            return 0.0
        centred = self._expected[rows] - self._expected[rows].mean()
        belief = TRUST * float(self._expected.var()) + 1e-12
        return float(np.clip((centred @ logarithms + belief) / (centred @ centred + belief), 0.0, 1.0))


def _compressed(logarithms: Floats) -> Floats:
    """Times far above the best drawn together: how slow the slow ones are says little about the fast ones, and would dominate a fit."""
    best = logarithms.min()
    unit = float(np.median(logarithms) - best) or 1.0
    return np.asarray(best + unit * np.log1p((logarithms - best) / unit))
