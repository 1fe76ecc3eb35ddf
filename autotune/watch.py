"""What a sweep tells whoever watches it: the command line's progress bar, its plain lines or JSON, a test."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.choice import Choice
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.training import Trained
from autotune.trial import Outcome


@dataclass(slots=True)
class ProblemSummary:
    """What a sweep did for one problem. `copy_us` is the device copy of the same bytes, None off a GPU.

    Of `space` configurations, `known` had been measured, failed or blocked before, `blocked` among them, and `done` were since; those that
    failed too often since are `given_up`, and blocked from now on. It ends
    at `planned` of them, or None when that depends on what is found. Of `stale` configurations nothing that was measured earlier counts,
    because the template, its definition, the flags, the compiler or the driver has changed since. `failures` counts what was said of
    failures, and `culprits` are the configurations that each was said of. `impossible` says of versions that were asked for why they have
    nothing to try. `limit` says which limit ended the search before all was tried. `late_s` is how long it took to set the problem up,
    if by then the seconds of its search were over and nothing was tried for that.
    """

    problem: Problem
    space: int
    known: int
    blocked: int = 0
    stale: int = 0
    planned: int | None = None
    done: int = 0
    given_up: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    culprits: dict[str, dict[Configuration, None]] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    choice: Choice | None = None
    confirmed: bool = False
    copy_us: float | None = None
    limit: str = ""
    late_s: float | None = None

    @property
    def new_trials(self) -> int:
        return self.outcomes.total()

    @property
    def barred(self) -> int:
        """How many configurations are blocked by now."""
        return self.blocked + self.given_up

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever tried."""
        return not (self.known or self.done or self.new_trials)

    @property
    def whole(self) -> bool:
        """Whether every configuration of the space is known."""
        return self.known + self.done >= self.space


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a configuration did: its outcome, and its time in microseconds or what is said of its failure.

    `best_us` is the problem's fastest time by then, None while there is none.
    """

    configuration: Configuration
    outcome: Outcome
    time_us: float | None
    best_us: float | None
    message: str = ""


@dataclass(slots=True)
class Summary:
    """What a whole sweep did. `recorded_on` is the device that was replayed, None where times were taken.

    `versions` are those that it was about, none for all. `raced_again` counts the trials that were added to `new_trials`' for the final
    races: one for each configuration that an earlier sweep had tried.
    """

    device: str = ""
    recorded_on: str | None = None
    versions: tuple[str, ...] = ()
    raced_again: int = 0
    problems: list[ProblemSummary] = field(default_factory=list)
    interrupted: bool = False
    interrupted_in: str = ""  # the function of a definition that was running then

    @property
    def new_trials(self) -> int:
        return sum(p.new_trials for p in self.problems)

    @property
    def outcomes(self) -> Counter[Outcome]:
        return sum((p.outcomes for p in self.problems), Counter())

    @property
    def confirmed(self) -> int:
        """How many problems have a best that won its race."""
        return sum(p.confirmed for p in self.problems)

    @property
    def nowhere(self) -> bool:
        """Whether there were problems, and no configuration to try at any."""
        return bool(self.problems) and not any(p.space for p in self.problems)

    @property
    def whole(self) -> int:
        """How many problems have no configuration left to try."""
        return sum(p.whole for p in self.problems)


class Watcher:
    """Hears of each step as it happens; every method does nothing here, and a watcher overrides what it shows."""

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        """A sweep over `problems` problems begins."""

    def building(self, done: int, total: int, failed: Mapping[Configuration, str]) -> None:
        """`done` of `total` instances are built or `failed`, which says why."""

    def problem(self, summary: ProblemSummary) -> None:
        """The next problem is set up."""

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        """A configuration was tried, and its outcome is stored."""

    def racing(self, summary: ProblemSummary, contenders: int) -> None:
        """The configurations near the fastest race."""

    def waiting(self, why: str, seconds: float) -> None:
        """Nothing can be stored; the sweep waits up to `seconds` for that to change."""

    def settled(self, summary: ProblemSummary) -> None:
        """A problem has its best."""

    def learnt(self, trained: Trained) -> None:
        """A selector was trained anew on all that is stored."""

    def ended(self, summary: Summary) -> None:
        """The sweep is over, or was interrupted."""

    def aborted(self) -> None:
        """The sweep ends with an error, which is told elsewhere."""
