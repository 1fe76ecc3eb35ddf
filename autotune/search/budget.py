"""When a search ends."""

from dataclasses import dataclass
from math import isinf
from typing import Protocol

from autotune import arguments
from autotune.definition import MOST
from autotune.errors import UsageError

NEGLIGIBLE_GAIN = 0.01  # a search without any limit ends when going on is worth less than this


class Searched(Protocol):
    """What a budget asks of a study."""

    @property
    def measured(self) -> int: ...

    @property
    def remaining(self) -> int: ...

    def expected_gain(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one search; it ends at the first one reached, and always when no configuration is left.

    `trials` counts every configuration of the study that was measured or failed, earlier runs included, so that a sweep which was
    interrupted and started again ends where it would have ended. `seconds` counts this run alone, from where
    the problem begins to be set up. `until_gain` is the relative improvement
    that is still worth the wait: 0.01 stops once less than 1 % may be expected. `exhaustive` measures everything and excludes the
    others. A budget without any limit stops at an expected gain of 1 %.

    Raises UsageError for a limit that is not positive and finite or is of another kind, for a gain above 1, and for limits beside
    `exhaustive`.
    """

    trials: int | None = None
    seconds: float | None = None
    until_gain: float | None = None
    exhaustive: bool = False

    def __post_init__(self) -> None:
        limits = {"trials": self.trials, "seconds": self.seconds, "until_gain": self.until_gain}
        given = {name: arguments.number(name, limit) for name, limit in limits.items() if limit is not None}
        for name, limit in given.items():
            if not limit > 0:
                raise UsageError(f"{name} {limit:g} leaves nothing to do; give a number above 0")
        if self.trials is not None:
            object.__setattr__(self, "trials", arguments.whole("trials", self.trials, 1, MOST))
        if self.seconds is not None and isinf(self.seconds):
            raise UsageError("seconds inf is no limit; give a finite number, or leave it out")
        if self.until_gain is not None and self.until_gain > 1:
            raise UsageError(f"until_gain {self.until_gain:g} is more than all there is to gain; give a share up to 1, such as 0.01")
        arguments.flag("exhaustive", self.exhaustive)
        if self.exhaustive and given:
            raise UsageError(f"an exhaustive search has no other limit; leave out {' and '.join(given)}, or leave out exhaustive")
        if not self.exhaustive and not given:
            object.__setattr__(self, "until_gain", NEGLIGIBLE_GAIN)

    def done(self, study: Searched, started: float, now: float) -> bool:
        """Whether the search that began at `started` is over at `now`, both in seconds of one clock."""
        return self.spent(study, started, now) or self.enough(study)

    def spent(self, study: Searched, started: float, now: float) -> bool:
        """Whether it is over whatever is still to be gained."""
        return study.remaining == 0 or bool(self.reached(study, started, now))

    def reached(self, study: Searched, started: float, now: float) -> str:
        """Which limit is reached whatever is still to be gained, in words; "" when none is."""
        if self.trials is not None and study.measured >= self.trials:
            return f"{self.trials} trials were the limit"
        if self.seconds is not None and now - started >= self.seconds:
            return f"{self.seconds:g} s were the limit"
        return ""

    @property
    def little(self) -> str:
        """In words, that too little is still to be gained."""
        return f"less than {100 * (self.until_gain or 0):.3g} % was to be gained"

    def enough(self, study: Searched) -> bool:
        """Whether it is over because too little is still to be gained."""
        return self.until_gain is not None and study.expected_gain() < self.until_gain
