"""What the dispatcher runs at the sizes that were tuned, and what of that a decision of a person changes."""

import os
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from autotune.cli.hints import hint
from autotune.cli.output import counted
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.knowledge import read
from autotune.dispatch.selection import Candidate, Selector
from autotune.dispatch.store import layers
from autotune.operation import Operation
from autotune.problem import Problem

MOST_SHOWN = 4  # kinds of changes; a block may change what runs at hundreds of sizes
MOST_NAMED = 3  # sizes of one kind

CERTAIN = ("pin", "exact", "safe")  # the tiers whose kernel is to run wherever it can, and not just as one of many


class Run(NamedTuple):
    """What runs at a size, by which tier of the decision, None where nothing does.

    `uncompiled` is what was pinned or measured best there, or what takes any input, passed over only for want of a compiled instance.
    """

    configuration: Configuration | None
    tier: str
    uncompiled: Configuration | None

    @property
    def kernel(self) -> tuple[Configuration | None, str]:
        return self.configuration, self.tier

    def __str__(self) -> str:
        return f"{self.configuration}, tier {self.tier}" if self.configuration else "no kernel: none is left that can run it"


Runs = dict[Problem, Run]


class Running:
    """The dispatcher's decisions for `dtype` on `device`, going by the databases as they are at this moment."""

    def __init__(self, operation: Operation, device: Device, dtype: str, db: str | os.PathLike[str]) -> None:
        with warnings.catch_warnings(action="ignore"):  # what cannot be read is another matter
            self._selector = Selector(operation, device, read(layers(db), operation, device))
        self._dtype = dtype

    def at_tuned_sizes(self, others: Iterable[Problem] = ()) -> Runs:
        """What runs at each size that was tuned, and at `others`."""
        tuned = (entry.problem(self._selector.operation) for entry in self._selector.knowledge.tuned if entry.dtype == self._dtype)
        return {problem: self._run(problem) for problem in dict.fromkeys((*tuned, *others))}

    def _run(self, problem: Problem) -> Run:
        uncompiled = None
        for candidate in self._selector.candidates(problem):
            if not candidate.rejected:
                return Run(candidate.configuration, candidate.tier, uncompiled)
            if candidate.tier in CERTAIN and self._only_uncompiled(candidate, problem):
                uncompiled = uncompiled or candidate.configuration
        return Run(None, "", uncompiled)

    def _only_uncompiled(self, candidate: Candidate, problem: Problem) -> bool:
        """Whether it is passed over for want of a compiled instance, so that compiling it would help."""
        instances = self._selector.knowledge.instances
        stored = instances is None or (candidate.configuration, problem.dtype) in instances
        return not stored and candidate.rejected.startswith("no compiled instance")


def told(before: Runs, now: Running, others: Iterable[Problem], device: Device) -> Iterator[str]:
    """What runs now where something else ran `before`, and at `others`; then what must be compiled, and the command that does it."""
    asked = tuple(others)
    after = now.at_tuned_sizes((*before, *asked))
    touched = [problem for problem, run in after.items() if problem in asked or run != before.get(problem)]
    kinds: dict[str, list[Problem]] = {}
    for problem in touched:
        if problem in asked or problem not in before or after[problem].kernel != before[problem].kernel:
            kinds.setdefault(str(after[problem]), []).append(problem)
    for what, problems in list(kinds.items())[:MOST_SHOWN]:
        yield f"{_sizes(problems)} now {'runs' if len(problems) == 1 else 'run'} {what}"
    if more := list(kinds.values())[MOST_SHOWN:]:
        yield f"other kernels now run {counted(sum(map(len, more)), 'more size')}; autotune explain OPERATION MxN says which"
    wanted = dict.fromkeys(run.uncompiled for run in map(after.__getitem__, touched) if run.uncompiled)
    if wanted:
        operation, dtype = touched[0].operation, touched[0].dtype
        named = [word for configuration in wanted for word in ("--configuration", str(configuration))]
        what, it, are = (f"{next(iter(wanted))}", "it", "it is") if len(wanted) == 1 else (f"{len(wanted)} others", "them", "they are")
        missing = f"no compiled instance of {it} for {device.arch} is stored yet, so {are} passed over"
        yield f"{what} would run there, but {missing}; this makes {it}:"
        yield hint("compile", operation, "--arch", device.arch, "--dtype", dtype, *named)


def _sizes(problems: list[Problem]) -> str:
    named = ", ".join(problem.size for problem in problems[:MOST_NAMED])
    left = len(problems) - MOST_NAMED
    return f"{named} and {counted(left, 'more size')}" if left > 0 else named
