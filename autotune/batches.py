"""How many configurations are built and tried at once."""

from dataclasses import dataclass

from autotune.search import Budget
from autotune.search.budget import Searched

MOST = 16
EXPECTED_S = 0.5  # a configuration, compiling included, on a machine that nothing is known of yet
FIRST_SHARE = 0.5  # of the seconds there are, for a first batch of which nobody knows how long it takes


@dataclass(slots=True)
class Batches:
    """The batches of one search that began at `started`: all that is left where order does not matter, few where answers guide questions.

    With a budget of seconds as many as are expected to be done in time, going by the batch before, and at least one. Times are in seconds
    of one clock.
    """

    budget: Budget
    started: float
    _asked: int = 0
    _since: float = 0.0

    def size(self, study: Searched, now: float) -> int:
        """How many configurations to ask `study` for at `now`, when the batch before is done."""
        if self.budget.exhaustive:
            return study.remaining
        most = min(MOST, self.budget.trials - study.measured) if self.budget.trials else MOST
        if self.budget.seconds:
            left_s = self.started + self.budget.seconds - now
            each_s = max((now - self._since) / self._asked, 1e-6) if self._asked else EXPECTED_S / FIRST_SHARE
            most = max(1, int(min(most, left_s / each_s)))  # what is left may be more than any integer
        self._asked, self._since = most, now
        return most

    def late(self, now: float) -> bool:
        """Whether the seconds are over at `now`, so that even the rest of a batch is left out."""
        return self.budget.seconds is not None and now - self.started >= self.budget.seconds
