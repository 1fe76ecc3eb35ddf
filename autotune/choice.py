"""Which of the timed configurations a problem should use. Pure: the same samples give the same choice, in any order."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.configuration import Configuration
from autotune.statistics import LEAST_SURE, confidence_interval, median, spread
from autotune.trial import Outcome, Round

# Two kernels closer than this are equally fast: repeated runs on one H200 agree within 1 %, paired rounds within half of that.
TIE = 0.003

# The rule in words, wherever a best kernel is shown.
WHICH_IS_BEST = (
    f"Best is what was fastest in the final race; of kernels within {100 * TIE:.1f} % of it, which tie, the one declared first. A file "
    "that is shipped may count 1 % as a tie, and take the kernel that other sizes need too."
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with its comparable samples in microseconds, by round. `order` is its place in declared order: lower is simpler."""

    configuration: Configuration
    order: int
    rounds_us: tuple[tuple[float, ...], ...]

    @property
    def samples_us(self) -> tuple[float, ...]:
        return tuple(us for taken in self.rounds_us for us in taken)

    @property
    def time_us(self) -> float:
        """The median of the rounds' medians, so that a round with more samples weighs no more than another."""
        return median([median(taken) for taken in self.rounds_us])


class Tried(Protocol):
    """What a choice needs to know of a trial."""

    @property
    def configuration(self) -> Configuration: ...

    @property
    def outcome(self) -> Outcome: ...

    @property
    def rounds(self) -> Sequence[Round]: ...


def candidates(trials: Iterable[Tried], order: Mapping[Configuration, int]) -> list[Candidate]:
    """The comparable candidates among the trials of one problem: the finalists where there are any, else all that were timed.

    Final samples were taken side by side; a sample from another round may owe its time to the clocks of that moment. `order` gives
    each configuration's place in declared order; those without one no longer exist and are left out.
    """
    timed = [t for t in trials if t.outcome.timed and t.configuration in order]
    finals = in_a_final(timed, order)
    rounds: dict[Configuration, tuple[tuple[float, ...], ...]] = {}
    for trial in timed:
        taken = tuple(r.samples_us for r in trial.rounds if not finals or r.kind == "final")
        rounds[trial.configuration] = rounds.get(trial.configuration, ()) + taken
    return [Candidate(c, order[c], taken) for c, taken in rounds.items() if taken]


def in_a_final(trials: Iterable[Tried], order: Container[Configuration]) -> bool:
    """Whether one of the `candidates` of the same trials and `order` was in a final race, so that the choice of them is confirmed."""
    return any(r.kind == "final" for t in trials if t.outcome.timed and t.configuration in order for r in t.rounds)


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen configuration, how sure its time is, and how far the best of the others is behind (negative: ahead, in a tie).

    `beyond_noise` says that the 95 % confidence intervals of the two do not meet and that the gap is more than a tie, which too few
    samples for such an interval, as of a first look, cannot show; None where there is no other to compare with.
    """

    configuration: Configuration
    time_us: float
    low_us: float
    high_us: float
    spread: float
    runner_up: Configuration | None
    runner_up_us: float | None
    beyond_noise: bool | None

    @property
    def gap(self) -> float | None:
        """How much slower the runner-up is, as a fraction of the chosen time."""
        return None if self.runner_up_us is None else self.runner_up_us / self.time_us - 1

    @property
    def tied(self) -> bool:
        """Whether the runner-up counts as equally fast, so that declared order decided between the two."""
        return self.gap is not None and self.gap <= TIE


def choose(candidates: Sequence[Candidate]) -> Choice:
    """The fastest candidate, or among those that tie with it the first in declared order.

    A tie is a median within 0.3 % of the fastest. The fixed rule makes two sweeps of the same device choose the same kernel where
    only noise would decide. Raises ValueError when there is no candidate.
    """
    ranked = sorted(candidates, key=lambda c: (c.time_us, c.order))
    if not ranked:
        raise ValueError("there is no candidate to choose from")
    tied = [c for c in ranked if c.time_us <= ranked[0].time_us * (1 + TIE)]
    chosen = min(tied, key=lambda c: c.order)
    others = [c for c in ranked if c is not chosen]
    runner_up = others[0] if others else None
    low, high = confidence_interval(chosen.samples_us)
    apart = None
    if runner_up is not None:
        clear = len(tied) == 1 and runner_up.time_us > chosen.time_us * (1 + TIE)
        sure = min(len(chosen.samples_us), len(runner_up.samples_us)) >= LEAST_SURE
        apart = sure and clear and confidence_interval(runner_up.samples_us)[0] > high
    return Choice(
        configuration=chosen.configuration,
        time_us=chosen.time_us,
        low_us=low,
        high_us=high,
        spread=spread(chosen.samples_us),
        runner_up=runner_up.configuration if runner_up else None,
        runner_up_us=runner_up.time_us if runner_up else None,
        beyond_noise=apart,
    )
