"""What the dispatcher runs at the sizes that were tuned, and what of that a decision of a person changes."""

import os
import warnings
from collections.abc import Iterable, Iterator

from autotune.cli.hints import hint
from autotune.cli.output import counted
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.dispatch.knowledge import read
from autotune.dispatch.selection import Candidate, Selector
from autotune.dispatch.store import layers
from autotune.errors import AutotuneError
from autotune.operation import Operation
from autotune.problem import Problem

MOST_SHOWN = 4  # kinds of changes; a block may change what runs at hundreds of sizes
MOST_NAMED = 3  # sizes of one kind

Runs = dict[Problem, tuple[Configuration, str] | None]  # the configuration and the tier of the decision, None where nothing runs


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

    def uncompiled(self, problem: Problem) -> Configuration | None:
        """What was pinned or measured best at this very size, where it is passed over only for want of a compiled instance."""
        candidates: Iterator[Candidate] = iter(self._selector.explain(problem).candidates)
        first = next((c for c in candidates if c.tier in ("pin", "exact") and not self._barred(c, problem)), None)
        return first.configuration if first and first.rejected else None

    def _barred(self, candidate: Candidate, problem: Problem) -> bool:
        """Whether compiling it would not help."""
        instances = self._selector.knowledge.instances
        stored = instances is None or (candidate.configuration, problem.dtype) in instances
        return bool(candidate.rejected) and (stored or not candidate.rejected.startswith("no compiled instance"))

    def _run(self, problem: Problem) -> tuple[Configuration, str] | None:
        try:
            found = self._selector.choose(problem)
        except AutotuneError:
            return None
        return found.configuration, found.tier


def told(before: Runs, now: Running, others: Iterable[Problem], device: Device) -> Iterator[str]:
    """What runs now where something else ran `before`, and at `others`; then what must be compiled, and the command that does it."""
    asked = tuple(others)
    after = now.at_tuned_sizes((*before, *asked))
    touched = [problem for problem, runs in after.items() if problem in asked or runs != before.get(problem)]
    kinds: dict[tuple[Configuration, str] | None, list[Problem]] = {}
    for problem in touched:
        kinds.setdefault(after[problem], []).append(problem)
    for runs, problems in list(kinds.items())[:MOST_SHOWN]:
        what = f"{runs[0]}, tier {runs[1]}" if runs else "no kernel: none is left that can run it"
        yield f"{_sizes(problems)} now {'runs' if len(problems) == 1 else 'run'} {what}"
    if more := list(kinds.values())[MOST_SHOWN:]:
        yield f"other kernels now run {counted(sum(map(len, more)), 'more size')}; autotune explain OPERATION MxN says which"
    wanted = dict.fromkeys(filter(None, map(now.uncompiled, touched)))
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
