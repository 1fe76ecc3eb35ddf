"""How configurations of one problem are timed against each other.

Screening gives each configuration one sample as soon as its result is known to be right. Those near the fastest then race: rounds
in which every configuration still in the race takes its samples, in shuffled order, so that a drift of the clocks hits all alike.
Whoever is clearly behind leaves. The last few meet again in more rounds, and only those decide.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from autotune.backends import Bench
from autotune.configuration import Configuration
from autotune.statistics import median
from autotune.trial import Check, Failure, Instance, ProblemFailure, Round, RoundKind

FAR_BEHIND = 20.0  # a first launch this many times slower than the best so far is timed once and leaves
KEEP_AFTER_SCREEN = 1.5
KEEP_AFTER_ROUND = (1.25, 1.12, 1.06, 1.03)  # what a round's best sample may be behind the leader's median; tightens as samples grow
RACE_SAMPLES = 2
FINALISTS = 6
FINAL_ROUNDS = 5
FINAL_SAMPLES = 2
LOWEST_CLOCK_RATIO = 0.9  # a round whose SM clock fell below this share of the highest seen is taken again
RETAKES = 2


Samples = dict[Configuration, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Screened:
    """A configuration whose result was right: its check, its first samples, and whether it is too far behind to race."""

    check: Check
    round: Round
    far_behind: bool


def screen(bench: Bench, instance: Instance, best_us: float | None) -> Screened:
    """Check `instance`, then take its first sample. `best_us` is the fastest time so far.

    Raises Failure when the configuration fails.
    """
    check = bench.check(instance)
    limit_us = FAR_BEHIND * best_us if best_us is not None else math.inf
    if check.first_us > limit_us:
        taken = bench.sample(instance, "screen", 1, single=True)
        if median(taken.samples_us) > limit_us:
            return Screened(check, taken, far_behind=True)
        # It was the host that kept the first launch waiting: a few microseconds are 20 times the best of a small problem.
    return Screened(check, bench.sample(instance, "screen", 1), far_behind=False)


class Race:
    """Rounds over the configurations of one problem that screening found near the fastest.

    `save` is called at the end of each round with that round of every configuration, and `failed` with each that fails on the way.
    """

    def __init__(
        self,
        bench: Bench,
        instances: Mapping[Configuration, Instance],
        *,
        seed: int,
        save: Callable[[Mapping[Configuration, Round]], None],
        failed: Callable[[Configuration, Failure], None],
    ) -> None:
        self._bench = bench
        self.instances = instances
        self._random = Random(seed)
        self._save = save
        self._failed = failed
        self._highest_clock_mhz = 0

    @staticmethod
    def contenders(screened_us: Mapping[Configuration, float]) -> dict[Configuration, float]:
        """The configurations whose screening time is near enough to the fastest to race, with that time."""
        limit_us = min(screened_us.values(), default=0.0) * KEEP_AFTER_SCREEN
        return {c: us for c, us in screened_us.items() if us <= limit_us}

    def run(self, screened_us: Mapping[Configuration, float]) -> Samples:
        """Race the configurations with these screening times; returns the deciding samples of the finalists."""
        samples: Samples = dict.fromkeys(screened_us, ())
        for behind in KEEP_AFTER_ROUND:
            if len(samples) <= 1:
                break
            samples = self._round(samples, "race", RACE_SAMPLES)
            leader_us = min((median(times) for times in samples.values()), default=0.0)
            samples = {c: times for c, times in samples.items() if min(times) <= leader_us * behind}
        by_time = sorted(samples, key=lambda c: (median(samples[c]) if samples[c] else screened_us[c], c))
        return self.meet(by_time[:FINALISTS], "final", FINAL_ROUNDS)

    def meet(self, configurations: Iterable[Configuration], kind: RoundKind, rounds: int) -> Samples:
        """The samples of `configurations` from this many rounds against each other, without those that failed."""
        samples: Samples = dict.fromkeys(configurations, ())
        for _ in range(rounds):
            samples = self._round(samples, kind, FINAL_SAMPLES)
        return samples

    def _round(self, samples: Samples, kind: RoundKind, count: int) -> Samples:
        order = sorted(samples)
        self._random.shuffle(order)
        taken: dict[Configuration, Round] = {}
        for configuration in order:
            try:
                taken[configuration] = self._sample(configuration, kind, count)
            except ProblemFailure:
                raise
            except Failure as failure:
                self._failed(configuration, failure)
        self._save(taken)
        return {c: samples[c] + taken[c].samples_us for c in samples if c in taken}

    def _sample(self, configuration: Configuration, kind: RoundKind, count: int) -> Round:
        for _ in range(RETAKES):
            taken = self._bench.sample(self.instances[configuration], kind, count)
            clock_mhz = taken.sm_clock_mhz or 0
            self._highest_clock_mhz = max(self._highest_clock_mhz, clock_mhz)
            if not taken.throttled and clock_mhz >= self._highest_clock_mhz * LOWEST_CLOCK_RATIO:
                return taken
        return self._bench.sample(self.instances[configuration], kind, count)
