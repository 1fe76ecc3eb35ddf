"""Which configuration comes next: what won elsewhere among a few that cover the space, then what the surrogate expects most of."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.search.forest import Forest
from autotune.search.pool import Pool, squares
from autotune.search.space import Floats, Indices, Space
from autotune.search.surrogate import Surrogate

COVERING = 6  # configurations measured before the surrogate is asked
CENTRAL = 20  # the first of each version is one of this many in its middle
TRIED_TO_COVER = 3  # drawn per configuration that covers; few, because the corners of a space are seldom any good
CLOSE, FAR = 4.0, 8.0  # distances up to which a neighbour's winner comes before a suggestion, and before what covers the space
HALF_AS_FAR = 16.0  # at this distance half of the first questions go by priors; the others are asked as if nothing were known
HALF_IF_NEW = 4.0  # the same where a version is possible that no prior knows and that is newer than what won there
AS_FAST = 1.25  # times the fastest of a neighbour: if all that is possible here is slower, its winner says nothing of this problem
WARY = 6  # measurements after which every third question forgets the priors, in case they mislead
HUMBLE = 4.0  # over the number of measurements: how much less sure than it says the surrogate is taken to be, so as not to settle early
GUESSED = 0.5  # of the weight of a measurement elsewhere, for what trees grown on those measurements agree about
DOUBTED = 0.1  # standard deviation of what the trees say, in logarithms, at which that weight is halved
AHEAD = 25  # one configuration is planned ahead per this many measured
PICKED_WITH_CARE = 64
ERFC = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277)
CAUTION = 1.5  # how much less sure than the surrogate one should be before one stops
GAIN_OVER, GAIN_DRAWS, GAIN_FROM = 16, 256, 8


class Proposer:
    """The search itself, on row numbers of a space; knows nothing of configurations or of Optuna.

    The first `count` rows may be proposed; the others are only there for what priors say of them. `suggested` are rows that somebody
    proposes without any measurement, the best first.
    """

    def __init__(
        self,
        space: Space,
        count: int,
        seed: int,
        priors: Sequence[Mapping[int, float | None]],
        distances: Sequence[float],
        suggested: Sequence[int] = (),
    ) -> None:
        self.told: dict[int, float | None] = {}
        self._space = space
        self._random = np.random.default_rng(seed)
        self._pool = Pool(space, count, self._random)
        self._times: dict[int, float] = {}
        self._expected = expectation(space, priors, distances, self._random)
        self._plain = Surrogate(space, self._pool, None, self._random)
        self._informed = self._plain if self._expected is None else Surrogate(space, self._pool, self._expected, self._random)
        self._queue: list[int] = []
        self._suggested = list(suggested)
        self._winners = [row for prior in priors if (row := _winner(prior, count)) is not None]
        nearest = min((far for far, prior in zip(distances, priors, strict=True) if prior), default=math.inf)
        self._by_priors = 1.0 / (1.0 + nearest / (HALF_IF_NEW if _new(space.order, priors, count) else HALF_AS_FAR))
        self._priors_lead = nearest <= (FAR if self._winners and not suggested else CLOSE)

    @property
    def remaining(self) -> int:
        """How many rows were neither proposed nor told."""
        return self._pool.remaining

    @property
    def best(self) -> tuple[int, float] | None:
        """The fastest row and its time; None before the first."""
        return min(self._times.items(), key=lambda item: item[1]) if self._times else None

    def tell(self, row: int, time_us: float | None) -> None:
        self.told[row] = time_us
        self._pool.unseen[row] = False
        self._times.pop(row, None)
        if time_us is not None:
            self._times[row] = time_us

    def propose(self, count: int) -> list[int]:
        """Up to `count` rows neither proposed nor told before; in no careful order when that is all of them."""
        picked: list[int] = []
        if count >= self.remaining:
            picked = np.flatnonzero(self._pool.unseen).tolist()
            self._pool.unseen[picked] = False
        while len(picked) < count and self.remaining:
            left = count - len(picked)
            forget = self._wary() and (left <= count // 3 if count > 2 else len(self.told) % 3 == 2)
            share = left - count // 3 if self._wary() and not forget and count > 2 else left
            self._queue = [row for row in self._queue if self._pool.unseen[row]] or self._plan(
                share, self._plain if forget else self._informed
            )
            taken, self._queue = self._queue[:share], self._queue[share:]
            self._pool.unseen[taken] = False
            picked += taken
        return picked

    def expected_gain(self) -> float:
        """The share of the best time that the next few measurements are expected to win, 0 … 1; 1 while too little is known."""
        best = self.best
        if not self.remaining:
            return 0.0
        if best is None or len(self._times) < min(GAIN_FROM, self._pool.size):
            return 1.0
        self._informed.learn(self._times)
        left = self._pool.unseen[self._informed.asked]
        mean, deviation = (said[left] for said in self._informed.predict())
        deviation = CAUTION * deviation
        most = np.argsort(-improvement(mean, deviation, math.log(best[1])), kind="stable")[:GAIN_OVER]
        draws = np.random.default_rng(0).standard_normal((GAIN_DRAWS, len(most))) * deviation[most] + mean[most]
        return float(np.maximum(1.0 - np.exp(draws.min(1) - math.log(best[1])), 0.0).mean())

    def _wary(self) -> bool:
        return self._expected is not None and len(self.told) >= WARY

    def _plan(self, count: int, surrogate: Surrogate) -> list[int]:
        by_priors = self._expected is not None and self._turn_of_priors()
        if len(self._times) < 2 or (not by_priors and len(self.told) < COVERING):
            return [self._first(by_priors)]
        surrogate.learn(self._times)
        left = self._pool.unseen[surrogate.asked]
        candidates = surrogate.asked[left]
        mean, deviation = (said[left] for said in surrogate.predict())
        if surrogate is self._plain:
            deviation = deviation * (1.0 + HUMBLE / len(self._times))
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

    def _first(self, by_priors: bool) -> int:
        """Before there is a surrogate: what priors expect to be fast, or what would be asked without them."""
        for row in self._winners if by_priors else self._suggested:
            if self._pool.unseen[row]:
                return row
        rows = np.flatnonzero(self._pool.unseen)
        return int(rows[np.argmin(self._expected[rows])]) if by_priors and self._expected is not None else self._covering(rows)

    def _turn_of_priors(self) -> bool:
        """Whether their share of the questions so far and this one is one more than they had."""
        asked = self._pool.size - self.remaining
        if not asked:
            return self._priors_lead
        asked += not self._priors_lead
        return math.ceil((asked + 1) * self._by_priors) > math.ceil(asked * self._by_priors)

    def _covering(self, rows: Indices) -> int:
        """One of each version, the newest first, then what is far from those; of the rows that are left."""
        seen, order, features = np.flatnonzero(~self._pool.unseen[: self._pool.size]), self._space.order, self._space.features
        tried = np.zeros(int(order.max()) + 1, dtype=bool)
        tried[order[seen]] = True
        fresh = rows[~tried[order[rows]]]
        if len(fresh):
            return self._central(fresh[order[fresh] == order[fresh].max()])
        some = self._random.choice(rows, min(TRIED_TO_COVER, len(rows)), replace=False)
        return int(some[np.argmax(squares(features[some], features[seen]).min(1))])

    def _central(self, rows: Indices) -> int:
        features = self._space.features[rows]
        outward = np.argsort(squares(features, features.mean(0)[None])[:, 0], kind="stable")
        return int(rows[self._random.choice(outward[: min(CENTRAL, 1 + len(rows) // 4)])])

    def _works(self, candidates: Indices) -> Floats:
        """How likely each candidate is to work, by what became of those near it."""
        failed = np.array([row for row, time in self.told.items() if time is None], dtype=np.int64)
        if not len(failed):
            return np.ones(len(candidates))
        features, timed = self._space.features, np.array(list(self._times), dtype=np.int64)
        bad, good = (np.exp(-4.0 * squares(features[candidates], features[rows])).sum(1) for rows in (failed, timed))
        return np.asarray((good + 0.5) / (good + bad + 0.5))


def improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The expected improvement below `best` of normal variables (Jones, Schonlau and Welch 1998, equation 15)."""
    z = (best - mean) / deviation
    return np.asarray((best - mean) * 0.5 * _erfc(-z / math.sqrt(2.0)) + deviation * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))


def expectation(
    space: Space, priors: Sequence[Mapping[int, float | None]], distances: Sequence[float], random: np.random.Generator
) -> Floats | None:
    """The logarithm of the time over the best in each prior, averaged with weights that fall with distance; None without priors.

    Of what a prior does not know, a forest grown on what it knows is taken at half the weight or less: the kernel that wins at one length
    of row is often not possible at the next, where others of its kind win. The less the trees agree the less it counts: they take what they
    know nothing of for as slow as the average, which must not outweigh another prior that measured it to be fast.
    """
    total, weight = np.zeros(len(space)), np.zeros(len(space))
    for prior, distance in zip(priors, distances, strict=True):
        times = {row: time for row, time in prior.items() if time is not None}
        if times:
            rows, logarithms = np.array(list(times), dtype=np.int64), np.log(np.array(list(times.values())))
            logarithms -= logarithms.min()
            forest = Forest(space.forest[rows], logarithms, random)
            said, deviation = forest.predict(forest.leaves(space.forest[rows]), logarithms, forest.leaves(space.forest))
            trust = GUESSED / (1.0 + (deviation / DOUBTED) ** 2)
            said[rows], trust[rows] = logarithms, 1.0
            trust /= 0.1 + distance
            total, weight = total + trust * said, weight + trust
    return total / weight if weight.any() else None


def _winner(prior: Mapping[int, float | None], count: int) -> int | None:
    """The fastest of the first `count` rows that a prior knows; None where that is much slower than the fastest of all."""
    times = {row: time for row, time in prior.items() if time is not None}
    possible = {row: time for row, time in times.items() if row < count}
    if not possible or min(possible.values()) > AS_FAST * min(times.values()):
        return None
    return min(possible, key=lambda row: possible[row])


def _new(order: Indices, priors: Sequence[Mapping[int, float | None]], count: int) -> bool:
    """Whether a version of the first `count` rows is in no prior, and newer than the fastest of each."""
    known = [{row: time for row, time in prior.items() if time is not None} for prior in priors]
    won = max((int(order[min(times, key=lambda row: times[row])]) for times in known if times), default=-1)
    return any(at > won for at in set(np.unique(order[:count]).tolist()) - {int(order[row]) for times in known for row in times})


def _erfc(x: Floats) -> Floats:
    """The complementary error function to a relative 1.2e-7 everywhere (Press et al., Numerical Recipes, 6.2): NumPy has none."""
    t = 2.0 / (2.0 + np.abs(x))
    tail = t * np.exp(-x * x + np.polynomial.polynomial.polyval(t, ERFC))
    return np.asarray(np.where(x >= 0, tail, 2.0 - tail))
