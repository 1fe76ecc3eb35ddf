"""What is expected of configurations not measured yet, from those that were: a Gaussian process and a forest, averaged."""

from collections.abc import Mapping

import numpy as np

from autotune.search.forest import Forest
from autotune.search.process import GaussianProcess
from autotune.search.space import Floats, Indices, Space

FIRST_STEPS, LATER_STEPS = 30, 12
REFIT = 1.1  # the process's parameters are fitted anew when there are this many times more points
TRUST = 4.0  # measurements it takes to outweigh the assumption that expectations from elsewhere hold


class Surrogate:
    """The logarithm of the time as `scale` times what is expected from elsewhere, plus what measurements here add to it.

    `expected` (configurations,) is the logarithm of the time over the best, as far as one knows beforehand; None when nothing is known.
    """

    def __init__(self, space: Space, expected: Floats | None, random: np.random.Generator) -> None:
        self._space = space
        self._expected = expected
        self._random = random
        self._theta: Floats | None = None
        self._fitted = 0

    def fit(self, times: Mapping[int, float]) -> None:
        """Learns from the times in microseconds, by row; at least two."""
        rows = np.array(list(times), dtype=np.int64)
        logarithms = np.log(np.array(list(times.values())))
        self._scale = self._transfer(rows, logarithms)
        rest = _compressed(logarithms) if self._expected is None else logarithms - self._scale * self._expected[rows]
        self._mean, self._deviation = float(rest.mean()), float(rest.std()) or 1.0
        targets = (rest - self._mean) / self._deviation
        steps = 0
        if self._theta is None or len(rows) >= REFIT * self._fitted:
            steps, self._fitted = FIRST_STEPS if self._theta is None else LATER_STEPS, len(rows)
        space = self._space
        self.process = GaussianProcess(space.process[rows], space.codes[rows], space.groups, targets, self._theta, steps)
        self._theta = self.process.theta
        self._forest = Forest(space.forest[rows], targets, self._random)

    def predict(self, rows: Indices) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the logarithm of the time at each row; slow times are compressed, good ones are not."""
        space = self._space
        one, one_deviation = self.process.predict(space.process[rows], space.codes[rows])
        other, other_deviation = self._forest.predict(space.forest[rows])
        mean = 0.5 * (one + other)
        variance = 0.5 * (one_deviation**2 + other_deviation**2) + 0.25 * (one - other) ** 2
        beforehand = 0.0 if self._expected is None else self._scale * self._expected[rows]
        return mean * self._deviation + self._mean + beforehand, np.sqrt(variance) * self._deviation

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
