"""`autotune sweep`: tune, and show what came of it."""

import shlex
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

from autotune.arguments import MOST_SEED
from autotune.backends import Backend
from autotune.backends.recorded import RecordedBackend
from autotune.backends.select import select
from autotune.choice import Choice
from autotune.cli import ending
from autotune.cli.hints import hint
from autotune.cli.options import (
    DEFAULT_DTYPE,
    NumberRange,
    db_option,
    device_option,
    hang_timeout_option,
    kernels_option,
    operation_of,
    problem_options,
    problems_of,
    repeatable,
)
from autotune.cli.output import Column, Row, emit, parameters, percent
from autotune.cli.progress import watcher
from autotune.cli.summary import half_width, measured
from autotune.database import Database, default_path
from autotune.database.rebuild import templates_here
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search import Budget
from autotune.selector.dense import missed
from autotune.sweeping import sweep
from autotune.watch import ProblemSummary, Summary

VERSION_COLUMNS = (
    Column("version", "version", right=False),
    Column("parameters", "configuration", parameters, right=False, long=True, phrases=True, named=False),
    Column(("time_us", "half"), "time us", measured),
    Column("gb_per_s", "GB/s", lambda value: f"{value:,.0f}", rank=2),
    Column("fraction_of_copy", "of copy", percent),
    Column("trials", "trials", rank=1),
    Column("mark", "", right=False),
    Column("recorded_on", "", lambda name: f"recorded on {name}", right=False),
)


@click.command("sweep", context_settings={"show_default": True})
@click.argument("operation")
@problem_options
@repeatable("--version", "versions", metavar="vK", help="Only this version; may be repeated.")
@device_option("auto")
@click.option("--trials", type=click.IntRange(min=1), help="Stop at this many configurations per problem, earlier runs counted in.")
@click.option(
    "--seconds",
    type=NumberRange(min=0, min_open=True),
    help="Stop the search of a problem after this many seconds, counted from where it begins to be set up; its final race comes on top.",
)
@click.option("--until-gain", type=NumberRange(0, 1, min_open=True), help="Stop once less than this share may be gained, such as 0.01.")
@click.option("--exhaustive", is_flag=True, help="Measure every configuration, however many there are.")
@click.option(
    "--protocol",
    type=click.Choice(["cold", "warm"]),
    help="Whether data lies in a GPU's L2 cache when a sample begins.  [default: cold, or what was recorded]",
)
@click.option(
    "--seed", type=click.IntRange(0, MOST_SEED), default=0, help="Decides inputs and the order of everything that has no other order."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: one per core]")
@hang_timeout_option
@click.option("--from-misses", is_flag=True, help="Also the sizes that the dispatcher noted it had no answer of its own for.")
@db_option
@kernels_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for every step.")
def sweep_command(
    operation: str,
    sizes: tuple[str, ...],
    sizes_file: Path | None,
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    device: str,
    trials: int | None,
    seconds: float | None,
    until_gain: float | None,
    exhaustive: bool,
    protocol: Literal["cold", "warm"] | None,
    seed: int,
    jobs: int | None,
    hang_timeout: float,
    from_misses: bool,
    db: Path | None,
    kernels: Path | None,
    as_json: bool,
) -> int:
    """Tune OPERATION: build every configuration, check it, time it, store it, and settle which is best for each size."""
    chosen_operation = operation_of(operation, kernels, versions)
    problems = [] if from_misses and not (sizes or sizes_file) else problems_of(chosen_operation, sizes, sizes_file, dtypes)
    limited = exhaustive or any(limit is not None for limit in (trials, seconds, until_gain))
    budget = Budget(trials=trials, seconds=seconds, until_gain=until_gain, exhaustive=exhaustive) if limited else None
    selected = select(device, protocol=protocol, hang_timeout_s=hang_timeout, jobs=jobs)
    if isinstance(selected.backend, RecordedBackend):
        selected.backend.require(problems, versions)
    path = db or default_path()
    with closing(selected.backend) as backend, Database(path, mode="write", create=True) as database:
        if from_misses:
            problems = _with_misses(problems, database, chosen_operation, backend.device.name, dtypes, path)
        note = f" (recorded on {backend.device.name})" if backend.replayed else ""
        if selected.why and not as_json:
            click.echo(f"{selected.why}{note}")
        if isinstance(backend, RecordedBackend) and not as_json and (stale := backend.stale(chosen_operation, problems)):
            click.echo(f"{stale} of these measurements are of templates or definitions that have changed since{note}")
        summary = sweep(
            chosen_operation,
            problems,
            backend,
            database,
            versions=versions,
            budget=budget,
            seed=seed,
            command=shlex.join(["autotune", *sys.argv[1:]]),
            hang_timeout_s=hang_timeout,
            watcher=watcher(as_json=as_json),
        )
        if not as_json:
            _show_versions(summary, database, backend, chosen_operation, note)
            click.echo(f"stored in {path}{note}")
            click.echo(f"{_next_step(summary)}{note}")
            if said := _blocked(summary, database, backend, chosen_operation):
                click.echo(f"{said}{note}")
    if summary.interrupted:
        return ending.status()
    return 0 if all(p.choice for p in summary.problems) else 1


def _with_misses(
    problems: list[Problem], database: Database, operation: Operation, device: str, dtypes: tuple[str, ...], path: Path
) -> list[Problem]:
    """`problems` and what a dispatcher noted it had no answer for. Raises UsageError when that is nothing."""
    asked = missed(database, operation, device, dtypes)
    found = problems + [problem for problem in asked if problem not in problems]
    if not found:
        raise UsageError(f"no miss is noted in {path} for {device}; name sizes, or call `note_misses` of a dispatcher")
    return found


def _show_versions(summary: Summary, database: Database, backend: Backend, operation: Operation, note: str) -> None:
    """A table per problem: the best of each version."""
    columns = VERSION_COLUMNS if backend.replayed else VERSION_COLUMNS[:-1]
    templates: dict[str, set[str]] = {}
    for version, template in backend.templates(operation):  # of a recording, those that it is of
        templates.setdefault(version, set()).add(template.sha)
    for done in summary.problems:
        problem = done.problem
        asked = (problem.operation, problem.rows, problem.cols, problem.dtype, backend.device.name)
        found = database.usable_per_version({operation.name: (operation, templates)}, *asked)
        same = [row for row in found if (row["protocol"], row["protocol_rule"]) == (backend.timing.name, backend.timing.rule)]
        if rows := _per_version(same, done, backend):
            emit(rows, columns, "table", title=f"{problem}{note or f' on {backend.device.name}'}")


def _next_step(summary: Summary) -> str:
    """Which commands show what was stored."""
    if not any(p.choice for p in summary.problems):
        if summary.nowhere:
            return "no configuration is applicable, so nothing was tried"
        if all(p.untouched for p in summary.problems):
            return "nothing was tried yet"
        return f"nothing that was tried can be used; `{hint('inspect', 'trials')}` says why"
    drawn = f", `{hint('report', '--html', 'report.html')}` draws it" if find_spec("vl_convert") else ""  # an extra
    barred = f", `{hint('inspect', 'blocked')}` what is blocked and why" if any(p.barred for p in summary.problems) else ""
    return f"`{hint('inspect', 'best')}` shows what was chosen{barred}{drawn}"


def _blocked(summary: Summary, database: Database, backend: Backend, operation: Operation) -> str:
    """What keeps problems without a best from being tried again, and the commands that let them be; "" where that is no block."""
    left = [p.problem for p in summary.problems if p.choice is None]
    shas = set(templates_here(operation).values())
    found = [(p.dtype, c) for p in left for c in database.blocked(backend.device, operation.name, p.dtype, p, template_shas=shas)]
    if not found:
        return ""
    commands = (
        hint("unblock", operation.name, "--all", *(["--dtype", dtype] if dtype != DEFAULT_DTYPE else []), "--device", backend.device.name)
        for dtype in dict.fromkeys(dtype for dtype, _ in found)
    )
    count = len(set(found))
    blocked, them = ("configuration is blocked", "it") if count == 1 else ("configurations are blocked", "them")
    again = " and ".join(f"`{command}`" for command in commands)
    why = f"{count:,} {blocked}, and no sweep tries {them}: `{hint('inspect', 'blocked')}` says why"
    return f"{why}; a kernel that is edited is tried again by itself, one that is left as it is after {again}"


def _per_version(found: list[Row], done: ProblemSummary, backend: Backend) -> list[Row]:
    """The fastest configuration of each version, in the order of versions, with its share of copy; what was chosen is marked."""
    shown = []
    for stored in found:
        choice = done.choice if done.choice and done.choice.configuration.version == stored["version"] else None
        row = _chosen(stored, choice) if choice else stored
        shown.append(
            {
                **row,
                "half": half_width(choice.time_us, choice.low_us, choice.high_us) if choice else None,
                "mark": _mark(choice) if choice else None,
                "gb_per_s": None if backend.device.is_emulator else row["gb_per_s"],  # the emulator's times say nothing about a memory
                "fraction_of_copy": done.copy_us / row["time_us"] if done.copy_us else None,
                "recorded_on": backend.device.name if row["replayed"] else None,
            }
        )
    return sorted(shown, key=lambda row: (len(row["version"]), row["version"]))


def _chosen(row: Row, choice: Choice) -> Row:
    """A row of the version that was chosen, as it was chosen."""
    speed = row["gb_per_s"] and row["gb_per_s"] * row["time_us"] / choice.time_us
    return row | {"parameters": dict(choice.configuration.parameters), "time_us": choice.time_us, "gb_per_s": speed}


def _mark(choice: Choice) -> str:
    if choice.beyond_noise or choice.runner_up is None:
        return "best"
    return "best, in a tie" if choice.tied else "best, not beyond noise"
