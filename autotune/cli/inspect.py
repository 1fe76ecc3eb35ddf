"""`autotune inspect`: what is in a database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from autotune.catalogue import operation_names
from autotune.choice import WHICH_IS_BEST
from autotune.cli.hints import hint
from autotune.cli.inspected import BEST, BLOCKED, DEVICES, MISSES, PINS, PROBLEMS, RUNNER_UP, TRIALS, VERSIONS, explained
from autotune.cli.options import (
    db_option,
    dtype_option,
    kernels_option,
    operation_of,
    reading_database,
    require_known,
    size_option,
)
from autotune.cli.output import Column, Form, Row, counted, emit, reading, say
from autotune.database import Database
from autotune.database.rebuild import OVERTAKEN, templates_here
from autotune.device import EMULATOR
from autotune.element import element
from autotune.operation import Operation
from autotune.problem import parse_size
from autotune.trial import Outcome

_OPERATIONS = "SELECT DISTINCT operation FROM templates"


@click.group("inspect")
def inspect_command() -> None:
    """Show what a database holds: best, trials, problems, devices, versions, misses, pins, blocked."""


def _help(said: str, columns: Sequence[Column]) -> str:
    return f"{said}\n\n{explained(columns)}"


def _of_operation(command: Any) -> Any:
    return click.option("--operation", metavar="NAME", help="Only this operation, such as softmax.")(db_option(reading(command)))


def _filtered(command: Any) -> Any:
    command = click.option("--device", metavar="NAME", help="Only this device, such as 'NVIDIA H200'.")(command)
    return size_option(dtype_option(_of_operation(command)))


def _filters(operation: str | None, size: str | None, dtype: str | None, device: str | None) -> dict[str, Any]:
    rows, cols = parse_size(size) if size is not None else (None, None)
    known = element(dtype).name if dtype is not None else None
    return {"operation": operation, "rows": rows, "cols": cols, "dtype": known, "device": device}


@contextmanager
def _opened(path: Path | None, operation: str | None = None, device: str | None = None) -> Iterator[Database]:
    """The database, in which the operation and the device that are asked for are known; UsageError otherwise."""
    with reading_database(path) as database:
        require_known(database, "operation", operation)
        require_known(database, "device", device)
        yield database


BEST_HELP = f"""The best configuration of each problem; with --size also the runner-up, the gap, and whether it is beyond noise.

{WHICH_IS_BEST}

{explained((*BEST, *RUNNER_UP))}
"""


@inspect_command.command("best", help=BEST_HELP)
@click.option("--version", metavar="vK", help="The best of this version rather than of all, of what can be used today.")
@_filtered
@kernels_option
def best(
    version: str | None,
    size: str | None,
    dtype: str | None,
    device: str | None,
    operation: str | None,
    db: Path | None,
    kernels: Path | None,
    form: Form,
) -> None:
    filters = _filters(operation, size, dtype, device)
    with _opened(db, operation, device) as database:
        found, again = (_of_version(database, version, filters, kernels), []) if version else _marked(database, filters, kernels)
        empty = "" if found else _nothing(database, "tuned", {"version": version, **filters})
    columns = BEST + (RUNNER_UP if size and not version else ())
    emit(found, columns, form, empty=empty)
    if form == "table" and columns != BEST and any((row["gap"] or 0) < 0 for row in found):
        say(f"gap below 0: the runner-up tied and was a little faster. {WHICH_IS_BEST}")
    if form == "table":
        for why in again:
            say(f"stale at {why}; `{hint('rebuild')}`, or the next sweep, settles that")


def _marked(database: Database, filters: dict[str, Any], kernels: Path | None) -> tuple[list[Row], list[str]]:
    """The rows of `best`, those that do not hold by the templates and definitions of today marked as stale; where a faster one is known."""
    found = database.best(**filters)
    stale = {row["trial"]: row["why"] for operation in _known(found, kernels) for row in database.stale(operation)}
    rows = [row | {"state": "stale"} if row["trial"] in stale and row["state"] != "blocked" else row for row in found]
    whys = [(row, stale.get(row["trial"], "")) for row in rows]
    return rows, [f"{row['rows']}x{row['cols']} {row['dtype']}: {why}" for row, why in whys if why.startswith(OVERTAKEN)]


def _of_version(database: Database, version: str, filters: dict[str, Any], kernels: Path | None) -> list[Row]:
    """The best of a version at each problem, of what can be used by the templates and definitions of today."""
    there = operation_names(kernels)
    names = sorted({row["operation"] for row in database.versions(filters["operation"])}.intersection(there))
    operations = [operation_of(name, kernels) for name in names]
    present = {o.name: (o, {v: (sha,) for v, sha in templates_here(o).items()}) for o in operations}
    return database.usable_per_version(present, version=version, **filters)


def _known(found: list[Row], kernels: Path | None) -> list[Operation]:
    """The operations of rows that are in the folder `kernels`, or come with the package."""
    there = operation_names(kernels)
    return [operation_of(name, kernels) for name in sorted({row["operation"] for row in found}) if name in there]


@inspect_command.command("trials", help=_help("Every trial: what was tried, how it ended, its time.", TRIALS))
@click.option("--version", metavar="vK", help="Only this version.")
@click.option("--outcome", type=click.Choice([str(outcome) for outcome in Outcome]), help="Only trials that ended so.")
@click.option("--limit", type=click.IntRange(1, 2**31), help="At most this many, the newest first.  [default: 50 in a table, else all]")
@_filtered
def trials(
    version: str | None,
    outcome: str | None,
    limit: int | None,
    size: str | None,
    dtype: str | None,
    device: str | None,
    operation: str | None,
    db: Path | None,
    form: Form,
) -> None:
    count = limit or (50 if form == "table" else -1)
    filters = _filters(operation, size, dtype, device)
    with _opened(db, operation, device) as database:
        found = database.trial_rows(version=version, outcome=outcome, limit=count, **filters)
        empty = "" if found else _nothing(database, "tried", {"version": version, "outcome": outcome, **filters})
    emit(found, TRIALS, form, empty=empty)


@inspect_command.command("problems", help=_help("The problems that were tried.", PROBLEMS))
@_of_operation
def problems(operation: str | None, db: Path | None, form: Form) -> None:
    with _opened(db, operation) as database:
        emit(database.problems(operation), PROBLEMS, form)


@inspect_command.command("devices", help=_help("The devices that were measured.", DEVICES))
@_of_operation
def devices(operation: str | None, db: Path | None, form: Form) -> None:
    with _opened(db, operation) as database:
        emit(database.devices(operation), DEVICES, form)


@inspect_command.command(
    "versions", help=_help("The versions that were tried or can be, by template, and on how many problems each is best.", VERSIONS)
)
@_of_operation
@kernels_option
def versions(operation: str | None, db: Path | None, kernels: Path | None, form: Form) -> None:
    with _opened(db, operation) as database:
        found: list[Row] = database.versions(operation)
    known = _known(found, kernels)
    here = {sha for loaded in known for sha in templates_here(loaded).values()}
    unknown = {row["operation"] for row in found} - {loaded.name for loaded in known}
    kept = [row for row in found if row["trials"] or row["template_sha"] in here or row["operation"] in unknown]
    emit(sorted(kept, key=lambda row: (row["operation"], len(row["version"]), row["version"])), VERSIONS, form)


@inspect_command.command("misses", help=_help("The sizes that the dispatcher was asked for and that nobody had tuned.", MISSES))
@_of_operation
def misses(operation: str | None, db: Path | None, form: Form) -> None:
    with _opened(db, operation) as database:
        found: list[Row] = database.misses(operation)
    emit(found, MISSES, form, empty="no miss is noted; a dispatcher's note_misses() notes them")


@inspect_command.command("pins")
@_of_operation
def pins(operation: str | None, db: Path | None, form: Form) -> None:
    """What was pinned by hand, by whom and why."""
    with _opened(db, operation) as database:
        emit(database.pins(operation), PINS, form, empty="nothing is pinned; autotune pin does that")


@inspect_command.command("blocked")
@_of_operation
@kernels_option
def blocked(operation: str | None, db: Path | None, kernels: Path | None, form: Form) -> None:
    """The configurations that are neither tried nor selected, and why; for one size alone where rows and cols are given.

    A block stays until autotune unblock takes it away, whatever trials are pruned. It is stale, and holds nothing back, once the kernel or
    its definition has changed.
    """
    with _opened(db, operation) as database:
        found = database.blocked_rows(operation)
        present = {loaded.name: set(templates_here(loaded).values()) for loaded in _known(found, kernels)}
        held = [row["template_sha"] in present.get(row["operation"], (row["template_sha"],)) for row in found]
        told = [row | {"state": "blocked" if holds else "stale"} for row, holds in zip(found, held, strict=True)]
        emit(told, BLOCKED, form, empty="nothing is blocked")


def _nothing(database: Database, done: str, filters: dict[str, Any]) -> str:
    """Why there is nothing to show: the first filter that leaves no trial, and what there is to choose from in its place."""
    size = f"{filters['rows']}x{filters['cols']}" if filters["rows"] is not None else None
    sweep = f"`{_sweeping(database, size, filters)}` does that" if size else ""
    chosen: dict[str, Any] = {}
    for names in (("operation",), ("device",), ("dtype",), ("rows", "cols"), ("version",), ("outcome",)):
        wanted = {name: filters[name] for name in names if filters.get(name) is not None}
        there = _counted(database, names, chosen)
        if not there:
            break
        if wanted and tuple(wanted.values()) not in there:
            if size and "rows" in wanted:
                return f"nothing was {done} at {_worded(wanted | chosen)}; {sweep}"
            among = ", ".join(f"{value} ({count:,})" for (value,), count in there.items())
            of = f" of {_worded(chosen)}" if chosen else ""
            return f"no trial{of} has {names[0]} {wanted[names[0]]}; there are {among}"
        chosen |= wanted
    if not there:
        return f"nothing was {done} at {size}; {sweep}" if size else f"nothing has been {done} yet"
    right = _counted(database, ("time_us IS NOT NULL",), chosen).get((1,), 0)
    if right and filters.get("version"):
        return (
            f"{counted(right, 'trial')} of what was asked for ran right, but all of another template, or blocked, or refused by the "
            f"definition; `{hint('inspect', 'trials')}` lists them"
        )
    if right:
        return (
            f"{counted(right, 'trial')} of what was asked for ran right, but which is best was not settled; `{hint('rebuild')}` does that"
        )
    gave = f"{counted(sum(there.values()), 'trial')} of what was asked for gave no best kernel"
    return f"{gave}; `{hint('inspect', 'trials')}` shows how they ended"


def _sweeping(database: Database, size: str, filters: dict[str, Any]) -> str:
    """The command that would tune `size` as it was asked for."""
    operations = [filters["operation"]] if filters["operation"] else [row["operation"] for row in database.select(_OPERATIONS)]
    more = [word for name in ("dtype", "version") if filters.get(name) for word in (f"--{name}", filters[name])]
    on = ["--device", EMULATOR.name] if filters["device"] == EMULATOR.name else []
    return hint("sweep", operations[0] if len(operations) == 1 else "OPERATION", "--size", size, *more, *on)


def _counted(database: Database, names: tuple[str, ...], chosen: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """How many trials there are with each value of the columns `names`, of those that are as `chosen`; the most first."""
    where = " AND ".join(f"{name} = ?" for name in chosen) or "true"
    columns = ", ".join(names)
    found = f"SELECT {columns}, count(*) AS trials FROM trial_results WHERE {where} GROUP BY {columns} ORDER BY trials DESC, {columns}"
    return {tuple(row[name] for name in names): row["trials"] for row in database.select(found, list(chosen.values()))}


def _worded(chosen: dict[str, Any]) -> str:
    """The filters as words of a sentence: 5x5 float16 on NVIDIA H200."""
    size = [f"{chosen['rows']}x{chosen['cols']}"] if "rows" in chosen else []
    device = [f"on {chosen['device']}"] if "device" in chosen else []
    return " ".join(size + [value for name, value in chosen.items() if name not in ("rows", "cols", "device")] + device)
