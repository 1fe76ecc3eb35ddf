"""`autotune bench`: the kernel that would be chosen, timed now beside a device copy and the other versions."""

from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from autotune.backends import Backend
from autotune.benching import Contest, Contestant, best_of_versions, contest, failures_of_versions, faster
from autotune.cli.hints import hint
from autotune.cli.options import (
    db_option,
    hang_timeout_option,
    kernels_option,
    operation_of,
    problem_options,
    problems_of,
    repeatable,
    require_readable,
)
from autotune.cli.output import Column, Form, Row, emit, microseconds, parameters, percent, reading, say
from autotune.cli.summary import half_width, measured
from autotune.cli.verify import executing
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.dispatch.explain import explain
from autotune.dispatch.selection import Explanation
from autotune.dispatch.store import layers
from autotune.errors import AutotuneError, UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Failure
from autotune.workshop import Workshop

COLUMNS = (
    Column("version", "version", right=False),
    Column("parameters", "configuration", parameters, right=False, long=True, phrases=True, named=False),
    Column(("time_us", "half"), "time us", measured),
    Column("fraction_of_copy", "of copy", percent, rank=1),
    Column("behind", "behind", percent, rank=1, meaning="how much slower than the fastest"),
    Column("what", "", right=False, long=True),
)


@click.command("bench")
@click.argument("operation")
@problem_options
@repeatable("--version", "versions", metavar="vK", help="Beside what is chosen only this version; may be repeated.")
@click.option("--device", default="auto", show_default=True, metavar="DEVICE", help="auto (the first GPU), cuda, cuda:I or emulator.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: one per core]")
@hang_timeout_option
@db_option
@kernels_option
@reading
def bench_command(
    operation: str,
    sizes: tuple[str, ...],
    sizes_file: Path | None,
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    device: str,
    jobs: int | None,
    hang_timeout: float,
    db: Path | None,
    kernels: Path | None,
    form: Form,
) -> int:
    """Time what the dispatcher would launch for OPERATION, beside a device copy and the best known kernel of each other version.

    All are checked and then timed side by side, here and now; nothing is searched and nothing stored. Versions that were never tuned at a
    size, or failed whenever they were, are left out there and named: autotune sweep tunes them. Exit status 1 when what would be chosen
    fails.
    """
    loaded = operation_of(operation, kernels, versions)
    problems = problems_of(loaded, sizes, sizes_file, dtypes)
    require_readable(db)
    told = list[Row]()
    with closing(executing(device, jobs, hang_timeout)) as backend:
        stories = [explain(problem, backend.device, db=db, kernels=kernels.resolve() if kernels else None) for problem in problems]
        entrants = [_entrants(loaded, story, versions, db) for story in stories]
        workshop = Workshop(backend, loaded)
        for story, wanted in zip(stories, entrants, strict=True):
            found = _met(backend, loaded, workshop, story.problem, wanted)
            rows = [_row(one, found, story, wanted[0]) for one in found.contestants]
            told += rows
            if form == "table":
                emit(rows, COLUMNS, form, title=f"{story.problem} on {story.device.name}")
                _conclude(found, wanted, story)
                for said in _left_out(loaded, story, versions or tuple(loaded.versions), {c.version for c in wanted}, db):
                    say(said)
    if form != "table":
        emit([{key: value for key, value in row.items() if key != "half"} for row in told], COLUMNS, form)  # ci_us says more
    return 1 if any(row["chosen"] and row["time_us"] is None for row in told) else 0


def _entrants(operation: Operation, story: Explanation, versions: Sequence[str], db: Path | None) -> list[Configuration]:
    """What would be chosen, and then what is known to be best of the other versions. Raises UsageError where nothing would be."""
    if story.chosen is None:
        raise UsageError(
            f"no kernel for {story.problem} is stored for {story.device.name}, so nothing would be chosen; "
            f"`{_sweeping(story)}` tunes the size"
        )
    paths = [layer.path for layer in layers(db)]
    others = best_of_versions(paths, operation, story.problem, story.device, versions)
    others.pop(story.chosen.configuration.version, None)
    return [story.chosen.configuration, *sorted(others.values(), key=lambda c: (len(c.version), c.version))]


def _met(backend: Backend, operation: Operation, workshop: Workshop, problem: Problem, entrants: Sequence[Configuration]) -> Contest:
    try:
        return contest(backend, operation, workshop, problem, entrants)
    except Failure as failure:
        raise AutotuneError(f"{problem} cannot be set up on {backend.device.name}: {failure.message}") from failure


def _row(one: Contestant, found: Contest, story: Explanation, chosen: Configuration) -> Row:
    problem, interval = found.problem, one.interval_us
    half = half_width(one.time_us, *interval) if one.time_us and interval else None
    tier = story.tier if one.configuration == chosen else None
    return {
        "operation": problem.operation,
        "rows": problem.rows,
        "cols": problem.cols,
        "dtype": problem.dtype,
        "device": story.device.name,
        "version": one.configuration.version,
        "parameters": dict(one.configuration.parameters),
        "time_us": one.time_us,
        "ci_us": interval if half is not None else None,  # of a single sample, which says nothing of it
        "half": half,
        "copy_us": found.copy_us,
        "fraction_of_copy": found.copy_us / one.time_us if found.copy_us and one.time_us else None,
        "behind": one.time_us / found.fastest_us - 1 if one.time_us and found.fastest_us else None,
        "chosen": one.configuration == chosen,
        "tier": tier,
        "failure": one.failure or None,
        "what": "; ".join(part for part in (f"chosen, tier {tier}" if tier else "", one.failure) if part) or None,
    }


def _conclude(found: Contest, entrants: Sequence[Configuration], story: Explanation) -> None:
    """Below a table: the copy, and whether the choice stands."""
    if found.copy_us is not None:
        say(f"a device copy of the same bytes takes {microseconds(found.copy_us)} us")
    ahead = faster(entrants[0], found)
    if ahead:
        beyond = " and ".join(str(one.configuration) for one in ahead)
        say(f"faster than what would be chosen, beyond noise: {beyond}; `{_sweeping(story)}` settles which is best")


def _left_out(operation: Operation, story: Explanation, asked: Sequence[str], met: Container[str], db: Path | None) -> Iterator[str]:
    """Which of the versions `asked` for were not among those that `met` though they could run, and why."""
    left = [name for name in asked if name not in met and _runs(operation, name, story)]
    failed = failures_of_versions((layer.path for layer in layers(db)), operation, story.problem, story.device)
    for name in filter(failed.__contains__, left):
        yield f"{name} failed whenever it was tuned at {story.problem.size}, so it is left out; the last time {failed[name]}"
    if untuned := [name for name in left if name not in failed]:
        yield f"not tuned at {story.problem.size}, so left out: {', '.join(untuned)}"


def _sweeping(story: Explanation) -> str:
    problem, device = story.problem, ["--device", EMULATOR.name] if story.device.is_emulator else []
    return hint("sweep", problem.operation, "--size", problem.size, "--dtype", problem.dtype, *device)


def _runs(operation: Operation, version: str, story: Explanation) -> bool:
    return any(operation.applicable(c, story.problem, story.device) for c in operation.configurations((version,)))
