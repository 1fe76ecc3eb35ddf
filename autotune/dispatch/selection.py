"""Which configuration runs a problem, and why: pure, so that the dispatcher, `explain` and the tests ask the same code.

The tiers, in the order in which they are asked. The first candidate that can run the real call is taken:

    pin               a person said so
    exact             this very size was tuned on this device
    selector          what was learnt from the sizes that were tuned on this device
    nearest           the tuned size next to it on this device, in log space
    similar device    the selector of the most similar GPU of the same generation, then its nearest size
    analytic default  what the operation proposes without any measurement
    safe              the one configuration that takes any input
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.knowledge import Knowledge, Tuned
from autotune.errors import AutotuneError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector.matrix import default_choices
from autotune.selector.model import Model

Logs = np.ndarray[Any, np.dtype[np.float64]]

TIERS = ("pin", "exact", "selector", "nearest", "similar device", "analytic default", "safe")

# A row's length decides which kernel is fast, the number of rows hardly: one step in columns counts as four in rows.
COLS_WEIGHT = 4.0

MOST_COST = 50.0  # log regret: what a damaged selector may claim beyond that is no float any more

FAR = COLS_WEIGHT  # from the nearest tuned size, in doublings of rows: from there on what was learnt says nothing of how good it is

EXPLAINED = 8  # how many tuned sizes an explanation names


Judge = Callable[[Configuration, Problem], str]  # why a configuration cannot run a problem, "" when it can

UNNAMED = "it cannot run this"  # the reason where nobody asks for one


class Candidate(NamedTuple):
    """A configuration that a tier proposes. `rejected` is why it cannot run the call, "" when it can.

    `tuned` is the tuned size that it comes from, and `distance` how far that is: 1 per doubling of rows, 4 per doubling of columns.
    `expected_regret` is how much slower than the best it should be, as a fraction; None where nothing says so. `path` is the database that
    the proposal comes from, None where it comes from none.
    """

    tier: str
    configuration: Configuration
    tuned: Tuned | None = None
    distance: float = 0.0
    rejected: str = ""
    note: str = ""
    expected_regret: float | None = None
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one decision: what was chosen, by which tier, and what was asked before and why it was passed over.

    `model` is the selector of this device and dtype, with its regret on sizes that it was not trained on. `beyond` is the tuned size
    nearest to a problem that lies beyond what was tuned, a doubling of columns or four of rows away: there nothing is expected of what was
    learnt.
    """

    problem: Problem
    device: Device
    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    nearest: tuple[Candidate, ...]
    model: Model | None = None
    beyond: Tuned | None = None

    @property
    def tier(self) -> str:
        return self.chosen.tier if self.chosen else "none"


class Selector:
    """Decides for one operation on one device from what is known about it.

    >>> from autotune.catalogue import load
    >>> from autotune.device import EMULATOR
    >>> Selector(load("softmax"), EMULATOR, Knowledge()).choose(Problem("softmax", 3, 5)).tier
    'safe'
    """

    def __init__(self, operation: Operation, device: Device, knowledge: Knowledge) -> None:
        self.operation = operation
        self.device = device
        self.knowledge = knowledge
        self._exact: dict[tuple[str, int, int], list[Tuned]] = {}
        for entry in knowledge.tuned:
            self._exact.setdefault((entry.dtype, entry.rows, entry.cols), []).append(entry)
        self._near = _Map(knowledge.tuned)
        relatives = [(likeness(device, other), other, entries) for other, entries in knowledge.similar]
        related = [(unlike, other, entries) for unlike, other, entries in relatives if unlike is not None]
        self._relative: Device | None
        _, self._relative, entries = min(related, key=lambda known: known[0]) if related else (0.0, None, ())
        self._similar = _Map(entries)

    def choose(self, problem: Problem) -> Candidate:
        """The first candidate that can run `problem`. Raises AutotuneError when not even the safe kernel can."""
        return next(self.choices(problem))

    def choices(self, problem: Problem) -> Iterator[Candidate]:
        """The candidates that can run `problem`, best first, and at their end an AutotuneError that says why there is none left."""
        last = None
        for candidate in self._proposals(problem, self._refused):
            if not candidate.rejected:
                yield candidate
            last = candidate
        assert last is not None
        why = self._why_not(last.configuration, problem) or "it could not be loaded"
        raise AutotuneError(f"no kernel is left for {problem} on {self.device.name}: {last.configuration} is the last resort, and {why}")

    def explain(self, problem: Problem) -> Explanation:
        """Everything that led to the choice for `problem`, in the order in which it was looked at."""
        seen = []
        chosen = None
        beyond = {"selector": self._near.beyond(problem), "similar device": self._similar.beyond(problem)}
        beyond["nearest"] = beyond["selector"]
        for candidate in self.candidates(problem):
            if beyond.get(candidate.tier):
                candidate = candidate._replace(expected_regret=None)
            seen.append(candidate)
            if not candidate.rejected:
                chosen = candidate
                break
        if chosen and chosen.tier == "safe":
            chosen = seen[-1] = chosen._replace(note=self._last_resort(problem, len(seen) > 1))
        near = (self._judged(problem, self._why_not, "nearest", entry, far) for entry, far in self._near.around(problem, EXPLAINED))
        model = self.knowledge.models.get((self.device.name, problem.dtype))
        return Explanation(problem, self.device, chosen, tuple(seen), tuple(near), model, beyond.get(chosen.tier) if chosen else None)

    def _last_resort(self, problem: Problem, others: bool) -> str:
        """Why no tier before the last one has an answer."""
        if problem.empty:
            return "nothing is to be computed"
        why = [] if next(self._near.around(problem, 1), None) else [f"no {problem.dtype} size was tuned on it"]
        if why and self._relative is None:
            why.append("the emulator stands for no GPU" if self.device.is_emulator else "no GPU of its generation was tuned")
        if not self.device.is_emulator and not others:
            why.append("the operation proposes no default here")
        return "; ".join(["nothing of what was proposed can run" if others else "nothing nearer is known", *why])

    def candidates(self, problem: Problem) -> Iterator[Candidate]:
        """Every candidate in the order of the tiers, judged; a configuration that was rejected once is not proposed again."""
        rejected: set[Configuration] = set()
        for candidate in self._proposals(problem, self._why_not):
            if rejected and candidate.configuration in rejected:
                continue
            if candidate.rejected:
                rejected.add(candidate.configuration)
            yield candidate

    def _proposals(self, problem: Problem, judge: Judge) -> Iterator[Candidate]:
        for pin in self.knowledge.pins:
            if pin.covers(problem.dtype, problem.rows, problem.cols):
                rejected = judge(pin.configuration, problem)
                yield Candidate("pin", pin.configuration, rejected=rejected, note=f"pinned by {pin.author}: {pin.why}", path=pin.path)
        exact = self._exact.get((problem.dtype, problem.rows, problem.cols))
        for entry in sorted(exact, key=lambda e: (_unlike_layout(e, problem), e.time_us)) if exact else ():
            for one in (entry, *entry.others):
                yield Candidate("exact", one.configuration, one, 0.0, judge(one.configuration, problem), "", _behind(entry, one), one.path)
        yield from self._learnt(problem, judge, "selector", self.device)
        for entry, distance in self._near.around(problem):
            for one in (entry, *entry.others):
                yield self._judged(problem, judge, "nearest", one, distance)
        if self._relative is not None:
            yield from self._learnt(problem, judge, "similar device", self._relative)
            for entry, distance in self._similar.around(problem):
                yield self._judged(problem, judge, "similar device", entry, distance)
        if not self.device.is_emulator:  # where nothing is fast, the simplest kernel is the best one
            for configuration in self.operation.defaults(problem, self.device):
                yield Candidate("analytic default", configuration, rejected=judge(configuration, problem))
        safe = self.operation.safe
        yield Candidate("safe", safe, rejected=judge(safe, problem))

    def _learnt(self, problem: Problem, judge: Judge, tier: str, whose: Device) -> Iterator[Candidate]:
        model = self.knowledge.models.get((whose.name, problem.dtype))
        if model is None or problem.empty:
            return
        path = self.knowledge.sources.get((whose.name, problem.dtype))
        for cost, family in model.ranking(problem, self.device):
            expected = max(0.0, math.expm1(min(cost, MOST_COST)))
            if family is None:  # what was learnt is about the first that can run: what the default proposes next may be far slower
                first = next(default_choices(self.operation, self.device, problem, model.versions), None)
                if first is not None:
                    yield Candidate(tier, first, None, 0.0, judge(first, problem), "the analytic default", expected, path)
                continue
            fitted = self.operation.fitted(family, problem)
            rejected = f"no instance of it holds a row of {problem.cols}" if fitted is None else judge(fitted, problem)
            yield Candidate(tier, fitted or family, None, 0.0, rejected, "", expected, path)

    def _judged(self, problem: Problem, judge: Judge, tier: str, entry: Tuned, distance: float) -> Candidate:
        """What was best at another size, as the member of its family that is made for this one."""
        configuration = self.operation.fitted(entry.configuration, problem) or entry.configuration
        return Candidate(tier, configuration, entry, distance, judge(configuration, problem), path=entry.path)

    def _refused(self, configuration: Configuration, problem: Problem) -> str:
        """What `_why_not` says, without its reason: what costs least is asked first, for a call waits."""
        knowledge = self.knowledge
        if knowledge.instances is not None and (configuration, problem.dtype) not in knowledge.instances:
            return UNNAMED
        if knowledge.blocked and self._block(configuration, problem):
            return UNNAMED
        return "" if self.operation.applicable(configuration, problem, self.device) else UNNAMED

    def _why_not(self, configuration: Configuration, problem: Problem) -> str:
        verdict = self.operation.applicable(configuration, problem, self.device)
        if not verdict:
            return verdict.why
        knowledge = self.knowledge
        if knowledge.blocked and (reason := self._block(configuration, problem)):
            return f"it is blocked: {reason}"
        if knowledge.instances is not None and (configuration, problem.dtype) not in knowledge.instances:
            return f"no compiled instance of it for {self.device.arch} is stored"
        return ""

    def _block(self, configuration: Configuration, problem: Problem) -> str:
        """Why `configuration` is blocked, for every size or for this one; "" when it is not."""
        sizes = ((None, None), (problem.rows, problem.cols))
        reasons = (self.knowledge.blocked.get((configuration, problem.dtype, *size)) for size in sizes)
        return next((reason or "no reason is given" for reason in reasons if reason is not None), "")


def likeness(device: Device, other: Device) -> float | None:
    """How unlike two GPUs are: the sum of |log2| ratios of SMs, bus width and L2; None when one cannot stand for the other."""
    if device.is_emulator or other.is_emulator or device.compute_capability[0] != other.compute_capability[0]:
        return None
    pairs = ((device.sm_count, other.sm_count), (device.bus_bits, other.bus_bits), (device.l2_bytes, other.l2_bytes))
    return sum(abs(math.log2(max(mine, 1) / max(theirs, 1))) for mine, theirs in pairs)


def _unlike_layout(entry: Tuned, problem: Problem) -> int:
    """How many features of the layout differ: an exact size may have been tuned in several layouts."""
    mine = (problem.in_place, problem.input_stride, problem.output_stride, problem.input_alignment, problem.output_alignment)
    theirs = (entry.in_place, entry.input_stride, entry.output_stride, entry.input_alignment, entry.output_alignment)
    return sum(a != b for a, b in zip(mine, theirs, strict=True))


def _behind(entry: Tuned, one: Tuned) -> float | None:
    """How much slower `one` is than the fastest at its size that can be used there; None where that has changed since it was measured."""
    if entry.state == "stale":
        return None
    return max(0.0, one.time_us / entry.others[0].time_us - 1) if entry.others else 0.0


class _Map:
    """Tuned sizes as points (log2 rows, log2 cols), one set per dtype."""

    def __init__(self, entries: tuple[Tuned, ...]) -> None:
        self._entries: dict[str, list[Tuned]] = {}
        for entry in entries:
            if entry.rows and entry.cols:
                self._entries.setdefault(entry.dtype, []).append(entry)
        for some in self._entries.values():
            some.sort(key=lambda e: e.time_us)
        self._points: dict[str, tuple[Logs, Logs]] = {
            dtype: (np.log2([e.rows for e in some]), COLS_WEIGHT * np.log2([e.cols for e in some])) for dtype, some in self._entries.items()
        }

    def around(self, problem: Problem, most: int | None = None) -> Iterator[tuple[Tuned, float]]:
        """The tuned sizes of the problem's dtype with their distances, nearest first; among equals, the faster one first."""
        if problem.dtype not in self._entries or problem.empty:
            return
        entries = self._entries[problem.dtype]
        rows, cols = self._points[problem.dtype]
        along, across = rows - math.log2(problem.rows), cols - COLS_WEIGHT * math.log2(problem.cols)
        squares = along * along + across * across
        nearest = int(squares.argmin())  # nearly always the only one that is asked for, and far cheaper than sorting
        yield entries[nearest], math.sqrt(squares[nearest])
        for index in squares.argsort(kind="stable")[1:most].tolist():
            yield entries[index], math.sqrt(squares[index])

    def beyond(self, problem: Problem) -> Tuned | None:
        """The tuned size nearest to a problem that is FAR from all of them; None where one is near, and where there is none."""
        nearest, distance = next(self.around(problem, 1), (None, 0.0))
        return nearest if distance >= FAR else None
