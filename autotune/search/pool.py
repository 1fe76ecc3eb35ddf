"""Which of many configurations are worth a prediction: a random part, and what is near the best."""

from collections.abc import Mapping

import numpy as np

from autotune.search.space import Floats, Indices, Space

MOST, NEAR_EACH, BEST = 1500, 60, 8
REMEMBERED = 256  # neighbours kept of each row that was among the best; its nearest unseen ones are taken from these


class Pool:
    """The first `size` rows of a space: those that were neither proposed nor measured (`unseen`), and which of them are looked at."""

    def __init__(self, space: Space, size: int, random: np.random.Generator) -> None:
        self.size = size
        self.unseen = np.arange(len(space)) < size
        self._features = space.features
        self._random = random
        self._neighbours: dict[int, Indices] = {}

    @property
    def remaining(self) -> int:
        return int(np.count_nonzero(self.unseen))

    def draw(self, times: Mapping[int, float]) -> Indices:
        """All that is left, or of many: what is near the best, and as many others as make up the number."""
        rows = np.flatnonzero(self.unseen)
        if len(rows) <= MOST:
            return rows
        others = rows[self._random.integers(0, len(rows), MOST - NEAR_EACH * BEST)]
        return np.union1d(self.near_best(times), others)

    def near_best(self, times: Mapping[int, float]) -> Indices:
        best = sorted(times, key=lambda row: times[row])[:BEST]
        return np.unique(np.concatenate([self._near(row) for row in best]))

    def _near(self, row: int) -> Indices:
        if row not in self._neighbours:
            step = np.minimum(np.abs(self._features - self._features[row]), 0.3).sum(1)
            count = min(REMEMBERED, len(step) - 1)
            nearest = np.argpartition(step, count)[:count]
            self._neighbours[row] = nearest[np.argsort(step[nearest], kind="stable")]
        near = self._neighbours[row]
        return near[self.unseen[near]][:NEAR_EACH]


def squares(a: Floats, b: Floats) -> Floats:
    """Squared distances between the rows of `a` and of `b`."""
    return np.asarray(np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * a @ b.T, 0.0))
