"""What records a device: which problems are left, who measures which, and one process per GPU that measures its share.

A folder holds what was measured: a database per process and run, `*.sqlite` while it is written and `*.sqlite.xz` once it is complete.
A problem is measured within one of them, so that a process which was killed costs the problem that it was at.
"""

import lzma
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import click

from autotune.backends.select import select
from autotune.catalogue import load
from autotune.cli.output import microseconds, percent
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.database.read import problem_of
from autotune.database.rebuild import templates_here
from autotune.definition import Verdict
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Instance
from autotune.watch import Attempt, ProblemSummary, Watcher

Space = tuple[Configuration, ...]
Spaces = Mapping[Problem, Space]

PACKING_S = 6.0  # what a process needs at its end to compress its database
SPACE_CHUNK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Prepared(Operation):
    """An operation that knows beforehand what is applicable to each of its problems: that takes a quarter of a second each to find out."""

    spaces: Mapping[Problem, Collection[Configuration]] = field(default_factory=dict)
    declared: Space = ()

    @classmethod
    def of(cls, operation: Operation, spaces: Spaces) -> "Prepared":
        wanted = {configuration for space in spaces.values() for configuration in space}
        declared = tuple(c for c in operation.configurations() if c in wanted)
        frozen = {problem: frozenset(space) for problem, space in spaces.items()}
        return cls(**{f.name: getattr(operation, f.name) for f in fields(Operation)}, spaces=frozen, declared=declared)

    @classmethod
    def tried(cls, operation: Operation, database: Database) -> "Prepared":
        """`operation` with those configurations alone that are in `database`."""
        rows = database.select("SELECT version, parameters FROM configurations WHERE operation = ?", (operation.name,))
        there = {Configuration.from_json(row["version"], row["parameters"]) for row in rows}
        declared = tuple(c for c in operation.configurations() if c in there)
        return cls(**{f.name: getattr(operation, f.name) for f in fields(Operation)}, declared=declared)

    def configurations(self, versions: tuple[str, ...] = ()) -> list[Configuration]:
        return [c for c in self.declared if not versions or c.version in versions]

    def applicable(self, configuration: Configuration, problem: Problem, device: Device) -> Verdict:
        if problem not in self.spaces:
            return Operation.applicable(self, configuration, problem, device)
        return Verdict() if configuration in self.spaces[problem] else Verdict("it is not in the problem's space")


class Measurements(Database):
    """A database without compiled kernels: the shipped one gets its own, and whole units would make this one ten times as large."""

    def store_binary(self, instance: Instance) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Share:
    """What one process measures: `problems` in this order on `device`, until the wall clock says `deadline`."""

    name: str
    path: Path
    operation: str
    device: str
    problems: tuple[Problem, ...]
    spaces: Spaces
    versions: tuple[str, ...]
    deadline: float


def spaces_of(operation: Operation, problems: Sequence[Problem], device: Device, versions: tuple[str, ...]) -> dict[Problem, Space]:
    """The configurations that apply to each problem, found with all cores."""
    chunks = [problems[i : i + SPACE_CHUNK] for i in range(0, len(problems), SPACE_CHUNK)]
    if len(chunks) < 2:
        return dict(zip(problems, _spaces(operation.name, problems, device, versions), strict=True))
    workers = min(len(chunks), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(_spaces, operation.name, chunk, device, versions) for chunk in chunks]
        return dict(zip(problems, [space for done in waiting for space in done.result()], strict=True))


def _spaces(name: str, problems: Sequence[Problem], device: Device, versions: tuple[str, ...]) -> list[Space]:
    operation = load(name)
    declared = operation.configurations(versions)
    return [tuple(c for c in declared if operation.applicable(c, problem, device)) for problem in problems]


def expected_s(problem: Problem, space: Space) -> float:
    """About how long a problem takes on an H200: setting it up, then checking, screening and racing each configuration."""
    gib = problem.rows * problem.bytes_per_row / 2**30
    return 0.12 + 0.4 * gib + len(space) * (0.015 + 0.004 * gib)


def shares(problems: Sequence[Problem], spaces: Spaces, count: int) -> list[list[Problem]]:
    """`problems` over `count` processes, in order, each to the one that is free first."""
    taken: list[list[Problem]] = [[] for _ in range(count)]
    busy_s = [0.0] * count
    for problem in problems:
        first = busy_s.index(min(busy_s))
        taken[first].append(problem)
        busy_s[first] += expected_s(problem, spaces[problem])
    return taken


def sources(folder: Path) -> list[Path]:
    """The databases of a folder, complete ones and those that a process left behind."""
    return sorted([*folder.glob("*.sqlite"), *folder.glob("*.sqlite.xz")])


@contextmanager
def opened(source: Path) -> Iterator[Path]:
    """The database at `source`, which may be compressed, as a file that can be written."""
    with tempfile.TemporaryDirectory(prefix="autotune-recording-") as scratch:
        path = Path(scratch) / source.name.removesuffix(".xz")
        if source.suffix == ".xz":
            with lzma.open(source) as packed, path.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            for part in source.parent.glob(f"{source.name}*"):  # with its write-ahead log, which a killed process leaves
                shutil.copy(part, path.parent)
        yield path


def finished(folder: Path, operation: Operation, spaces: Spaces) -> set[Problem]:
    """The problems of `spaces` that one database of the folder has whole: every configuration tried, with today's template, and settled."""
    current = templates_here(operation)
    done: set[Problem] = set()
    for source in sources(folder):
        with opened(source) as path, Database(path, mode="read") as database:  # an export among them is never written
            tried: dict[Problem, set[Configuration]] = {}
            for row in database.select(_TRIED, (operation.name,)):
                if current.get(row["version"]) == row["sha"]:
                    tried.setdefault(problem_of(row), set()).add(Configuration.from_json(row["version"], row["parameters"]))
            blocked = database.select("SELECT DISTINCT version, parameters FROM blocked_configurations")
            refused = {Configuration.from_json(row["version"], row["parameters"]) for row in blocked}
            for problem, space in spaces.items():
                if problem in tried and set(space) - tried[problem] <= refused:
                    done.add(problem)
    return done


_TRIED = """
SELECT p.*, c.version, c.parameters, s.sha FROM trials t JOIN problems p ON p.id = t.problem JOIN configurations c ON c.id = t.configuration
JOIN templates s ON s.id = t.template WHERE p.operation = ? AND t.problem IN (SELECT problem FROM best WHERE state = 'confirmed')
"""


class Progress(Watcher):
    """A line for each problem; ends the sweep in time, and when whoever started it is gone."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._done = 0
        self._since = time.monotonic()

    def building(self, done: int, total: int, failed: Mapping[Configuration, str]) -> None:
        if done == total:
            self._say(f"{total - len(failed)} kernels are ready" + (f", {len(failed)} do not compile" if failed else ""))

    def problem(self, summary: ProblemSummary) -> None:
        self._since = time.monotonic()
        self._end_in_time()

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        if not attempt.outcome.timed:
            self._say(f"{summary.problem}: {attempt.configuration}: {attempt.outcome}: {attempt.message}")
        self._end_in_time()

    def settled(self, summary: ProblemSummary) -> None:
        self._done += 1
        choice = summary.choice
        found = "nothing ran" if choice is None else f"{choice.configuration}, {microseconds(choice.time_us)} us"
        if choice is not None and summary.copy_us is not None:
            found += f", {percent(summary.copy_us / choice.time_us)} of copy"
        self._say(f"{summary.problem}: {found}; {summary.new_trials} tried in {time.monotonic() - self._since:.2f} s")

    def _end_in_time(self) -> None:
        parent = multiprocessing.parent_process()
        if time.time() > self._share.deadline or (parent is not None and not parent.is_alive()):
            raise KeyboardInterrupt

    def _say(self, text: str) -> None:
        click.echo(f"{self._share.name} {self._done}/{len(self._share.problems)} {text}")


def measure(share: Share) -> None:
    """Measure a share, then compress its database; what runs in a process of its own."""
    operation = Prepared.of(load(share.operation), share.spaces)
    with closing(select(share.device).backend) as backend, Measurements(share.path, create=True) as database:
        sweep(
            operation,
            share.problems,
            backend,
            database,
            versions=share.versions,
            budget=Budget(exhaustive=True),
            command=f"record_device.py {share.operation}",
            watcher=Progress(share),
            learn=False,
        )
    compress(share.path)


def compress(path: Path) -> None:
    """Replace a database by its compressed form, which is there whole before the other goes."""
    with Database(path) as database:
        database.select("PRAGMA wal_checkpoint(TRUNCATE)")
    packed = path.with_name(f"{path.name}.xz")
    partial = path.with_name(f".{packed.name}.partial")
    with path.open("rb") as plain, lzma.open(partial, "wb", preset=3) as file:
        shutil.copyfileobj(plain, file, 1 << 20)
    partial.replace(packed)
    path.unlink()
