"""What was measured at one size: the best configuration, and where that cannot be used there any more, which others can."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from autotune.configuration import Configuration
from autotune.database.credible import time_of_a_kernel
from autotune.device import Device
from autotune.dispatch.questions import NONSENSE, RUNNERS_UP, fetched
from autotune.operation import Operation
from autotune.problem import Problem

MOST_OTHERS = 4  # of a size: a decision asks each of them, and is to take microseconds

Block = tuple[Configuration, str, int | None, int | None]  # with the rows and columns of one size, or for all of them


class Tuned(NamedTuple):
    """The best configuration for one size on one device, with its time in microseconds and the file that says so.

    `others` are what was measured beside it, fastest first, where that best is no longer applicable there; else there are none.
    `replayed` is whether it was chosen among times that were replayed from another database, which may have been few of them.
    """

    device: str
    dtype: str
    rows: int
    cols: int
    input_stride: int
    output_stride: int
    input_alignment: int
    output_alignment: int
    in_place: bool
    configuration: Configuration
    template_sha: str
    time_us: float
    state: str
    origin: str
    path: Path
    others: tuple["Tuned", ...] = ()
    replayed: bool = False

    def problem(self, operation: Operation) -> Problem:
        """The problem of `operation` that was tuned."""
        layout = (self.input_stride, self.output_stride, self.input_alignment, self.output_alignment, self.in_place)
        return Problem(operation.name, self.rows, self.cols, self.dtype, *layout)

    def led_by_others(self) -> "Tuned | None":
        """The same without the best, the first of the others in its place; None where there is none.

        It is stale unless the best is blocked: how fast that kernel is by now nobody knows.
        """
        state = self.state if self.state == "blocked" else "stale"
        return self.others[0]._replace(others=self.others[1:], state=state) if self.others else None


def with_others(
    connection: sqlite3.Connection,
    best: Mapping[int, Tuned],
    current: Callable[[str], str],
    configuration: Callable[[str, str], Configuration | None],
) -> dict[int, Tuned]:
    """`best`, by the ids of the rows, each with what else was measured for it: the most careful rounds first, then the fastest.

    Those alone that are of a present template and declared; none in files of before schema 3, whose rounds have no such time.
    """
    found: dict[int, dict[Configuration, Tuned]] = {row: {} for row in best}
    try:
        rows = fetched(connection, RUNNERS_UP, str(list(best))) if best else []
    except sqlite3.Error:
        rows = []
    for row, version, parameters, sha, time_us in rows:
        try:
            time_of_a_kernel(time_us)
            other = configuration(version, parameters) if current(version) == sha else None
        except NONSENSE:  # a trial that says nothing sensible stands for nothing
            continue
        if other is not None and other != best[row].configuration:
            found[row].setdefault(other, best[row]._replace(configuration=other, template_sha=sha, time_us=time_us))
    return {row: entry._replace(others=tuple(found[row].values())) for row, entry in best.items()}


def usable(
    entry: Tuned, operation: Operation, device: Device, blocked: Mapping[Block, str], stored: Collection[tuple[Configuration, str]] | None
) -> Iterator[Tuned]:
    """Those of `entry.others` that can run its problem: applicable, not blocked, and with code in `stored` where that is not None."""
    problem = entry.problem(operation)
    for other in entry.others:
        key = (other.configuration, entry.dtype)
        held = (*key, None, None) in blocked or (*key, entry.rows, entry.cols) in blocked
        if not held and (stored is None or key in stored) and operation.applicable(other.configuration, problem, device):
            yield other
