"""`autotune inspect`: what is in a database."""

from pathlib import Path
from typing import Any

import click

from autotune.catalogue import load, shipped
from autotune.choice import WHICH_IS_BEST
from autotune.cli.options import db_option, dtype_option, reading_database, size_option
from autotune.cli.output import SIZE, Column, Form, Row, counted, emit, in_bytes, microseconds, on_device, parameters, percent, reading, say
from autotune.database import Database
from autotune.database.rebuild import templates_here
from autotune.element import element
from autotune.problem import parse_size
from autotune.trial import Outcome

DEVICE = Column(("device", "replayed"), "device", on_device, right=False, shared=True)
DTYPE = Column("dtype", "dtype", right=False, shared=True)
OPERATION = Column("operation", "operation", right=False, shared=True)
VERSION = Column("version", "version", right=False)
CONFIGURATION = Column("parameters", "configuration", parameters, right=False, long=True, phrases=True, named=False)
TIME = Column("time_us", "time us", microseconds)
SPEED = Column("gb_per_s", "GB/s", lambda value: f"{value:,.1f}", rank=5)

BEST = (
    DEVICE,
    SIZE,
    DTYPE,
    VERSION,
    CONFIGURATION,
    TIME,
    SPEED,
    Column("spread", "spread", percent, rank=3),
    Column("fraction_of_copy", "of copy", percent),
    Column("trials", "tried", rank=4),
    Column("state", "state", right=False, rank=2),
)
RUNNER_UP = (
    Column(
        "runner_up",
        "runner-up",
        lambda value: f"{value['version']} {parameters(value['parameters'])}",
        right=False,
        long=True,
        phrases=True,
    ),
    Column("runner_up_us", "its time us", microseconds),
    Column("gap", "gap", percent),
    Column("beyond_noise", "beyond noise", lambda value: "yes" if value else "no", right=False),
)
TRIALS = (
    DEVICE,
    SIZE,
    DTYPE,
    VERSION,
    CONFIGURATION,
    Column("outcome", "outcome", right=False),
    TIME,
    SPEED,
    Column("max_error", "max error", lambda value: f"{value:.1e}", rank=4),
    Column("registers", "registers", rank=3),
    Column("evidence", "evidence", right=False, rank=2),
    Column("message", "message", right=False, long=True),
)
PROBLEMS = (OPERATION, SIZE, DTYPE, Column("bytes_moved", "moved", in_bytes), Column("trials", "trials"))
DEVICES = (
    Column("device", "device", right=False),
    Column("compute_capability", "compute capability"),
    Column("sm_count", "SMs"),
    Column("l2_bytes", "L2 MiB", lambda value: f"{value >> 20}"),
    Column("problems", "problems with a best"),
    Column("replayed", "of them replayed", lambda count: count or ""),
    Column("runs", "runs"),
)
VERSIONS = (
    OPERATION,
    VERSION,
    Column("template_sha", "template", lambda value: value[:12], right=False),
    Column("configurations", "configurations"),
    Column("trials", "trials"),
    Column("best_on", "best on problems"),
)
PINNED = Column(("least_rows", "most_rows", "least_cols", "most_cols"), "sizes", lambda *ends: _range(*ends), right=False)
PINS = (
    Column("device", "device", right=False, shared=True),
    OPERATION,
    DTYPE,
    PINNED,
    VERSION,
    CONFIGURATION,
    Column("author", "by", right=False),
    Column("why", "why", right=False, long=True),
)
BLOCKED = (
    Column("device", "device", right=False, shared=True),
    OPERATION,
    DTYPE,
    VERSION,
    CONFIGURATION,
    SIZE,
    Column("reason", "why", right=False, long=True),
)
MISSES = (
    Column("device", "device", right=False, shared=True),
    SIZE,
    DTYPE,
    Column("count", "asked"),
    Column("tier", "answered by", right=False),
    VERSION,
    CONFIGURATION,
    Column("last", "last", right=False, rank=1),
)


@click.group("inspect")
def inspect_command() -> None:
    """Show what a database holds: best, trials, problems, devices, versions, misses, pins, blocked."""


def _filtered(command: Any) -> Any:
    command = click.option("--device", metavar="NAME", help="Only this device, such as 'NVIDIA H200'.")(command)
    return size_option(dtype_option(db_option(reading(command))))


def _filters(size: str | None, dtype: str | None, device: str | None) -> dict[str, Any]:
    rows, cols = parse_size(size) if size else (None, None)
    return {"rows": rows, "cols": cols, "dtype": element(dtype).name if dtype else None, "device": device}


BEST_HELP = f"""The best configuration of each problem; with --size also the runner-up, the gap, and whether it is beyond noise.

{WHICH_IS_BEST}

"spread" is how far the middle half of the samples reaches, over their median; "of copy" the time of a device copy of the same bytes
over the kernel's; "tried" how many configurations were. "gap" is how much longer the runner-up takes: below 0 where it tied and was a
little faster. It is beyond noise when it is no tie and the 95 % confidence intervals of the two medians do not meet.
"""


@inspect_command.command("best", help=BEST_HELP)
@click.option("--version", metavar="vK", help="The best of this version rather than of all.")
@_filtered
def best(version: str | None, size: str | None, dtype: str | None, device: str | None, db: Path | None, form: Form) -> None:
    filters = _filters(size, dtype, device)
    with reading_database(db) as database:
        found = database.best_per_version(version=version, **filters) if version else _marked(database, database.best(**filters))
        empty = "" if found else _nothing(database, "tuned", {"version": version, **filters})
    columns = BEST + (RUNNER_UP if size and not version else ())
    emit(found, columns, form, empty=empty)
    if form == "table" and columns != BEST and any((row["gap"] or 0) < 0 for row in found):
        say(f"gap below 0: the runner-up tied and was a little faster. {WHICH_IS_BEST}")


def _marked(database: Database, found: list[Row]) -> list[Row]:
    """The rows of `best`, those of templates that have changed since marked as stale."""
    stale = {row["trial"] for name in _known(found) for row in database.stale(load(name))}
    return [row | {"state": "stale"} if row["trial"] in stale and row["state"] != "blocked" else row for row in found]


def _known(found: list[Row]) -> list[str]:
    """The operations of rows that come with the package."""
    return [name for name in sorted({row["operation"] for row in found}) if (shipped("kernels") / name).is_dir()]


@inspect_command.command("trials")
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
    db: Path | None,
    form: Form,
) -> None:
    """Every trial: what was tried, how it ended, its time."""
    count = limit or (50 if form == "table" else -1)
    filters = _filters(size, dtype, device)
    with reading_database(db) as database:
        found = database.trial_rows(version=version, outcome=outcome, limit=count, **filters)
        empty = "" if found else _nothing(database, "tried", {"version": version, "outcome": outcome, **filters})
    emit(found, TRIALS, form, empty=empty)


@inspect_command.command("problems")
@db_option
@reading
def problems(db: Path | None, form: Form) -> None:
    """The problems that were tried."""
    with reading_database(db) as database:
        emit(database.problems(), PROBLEMS, form)


@inspect_command.command("devices")
@db_option
@reading
def devices(db: Path | None, form: Form) -> None:
    """The devices that were measured."""
    with reading_database(db) as database:
        emit(database.devices(), DEVICES, form)


@inspect_command.command("versions")
@db_option
@reading
def versions(db: Path | None, form: Form) -> None:
    """The versions that were tried or can be, by template, and on how many problems each is best."""
    with reading_database(db) as database:
        found: list[Row] = database.versions()
    here = {sha for name in _known(found) for sha in templates_here(load(name)).values()}
    unknown = {row["operation"] for row in found} - set(_known(found))
    kept = [row for row in found if row["trials"] or row["template_sha"] in here or row["operation"] in unknown]
    emit(sorted(kept, key=lambda row: (row["operation"], len(row["version"]), row["version"])), VERSIONS, form)


@inspect_command.command("misses")
@db_option
@reading
def misses(db: Path | None, form: Form) -> None:
    """The sizes that the dispatcher was asked for and that nobody had tuned."""
    with reading_database(db) as database:
        found: list[Row] = database.misses()
    emit(found, MISSES, form, empty="no size was missed")


@inspect_command.command("pins")
@db_option
@reading
def pins(db: Path | None, form: Form) -> None:
    """What was pinned by hand, by whom and why."""
    with reading_database(db) as database:
        emit(database.pins(), PINS, form, empty="nothing is pinned; autotune pin does that")


@inspect_command.command("blocked")
@db_option
@reading
def blocked(db: Path | None, form: Form) -> None:
    """The configurations that are never selected, and why; for one size where rows and cols are given."""
    with reading_database(db) as database:
        emit(database.blocked_rows(), BLOCKED, form, empty="nothing is blocked")


def _nothing(database: Database, done: str, filters: dict[str, Any]) -> str:
    """Why there is nothing to show: the first filter that leaves no trial, and what there is to choose from in its place."""
    size = f"{filters['rows']}x{filters['cols']}" if filters["rows"] is not None else None
    sweep = f"autotune sweep OPERATION --size {size}" + (f" --dtype {filters['dtype']}" if filters["dtype"] else "")
    chosen: dict[str, Any] = {}
    for names in (("device",), ("dtype",), ("rows", "cols"), ("version",), ("outcome",)):
        wanted = {name: filters[name] for name in names if filters.get(name) is not None}
        there = _counted(database, names, chosen)
        if not there:
            break
        if wanted and tuple(wanted.values()) not in there:
            if size and "rows" in wanted:
                return f"nothing was {done} at {_worded(wanted | chosen)}; {sweep} does that"
            among = ", ".join(f"{value} ({count:,})" for (value,), count in there.items())
            of = f" of {_worded(chosen)}" if chosen else ""
            return f"no trial{of} has {names[0]} {wanted[names[0]]}; there are {among}"
        chosen |= wanted
    if not there:
        return f"nothing was {done}" + (f" at {size}; {sweep} does that" if size else " yet")
    right = _counted(database, ("time_us IS NOT NULL",), chosen).get((1,), 0)
    if right:
        return f"{counted(right, 'trial')} of what was asked for ran right, but which is best was not settled; autotune rebuild does that"
    return (
        f"{counted(sum(there.values()), 'trial')} of what was asked for gave no best kernel; autotune inspect trials shows how they ended"
    )


def _counted(database: Database, names: tuple[str, ...], chosen: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """How many trials there are with each value of the columns `names`, of those that are as `chosen`; the most first."""
    where = " AND ".join(f"{name} = ?" for name in chosen) or "true"
    columns = ", ".join(names)
    found = f"SELECT {columns}, count(*) AS trials FROM trial_results WHERE {where} GROUP BY {columns} ORDER BY trials DESC, {columns}"
    return {tuple(row[name] for name in names): row["trials"] for row in database.select(found, list(chosen.values()))}


def _worded(chosen: dict[str, Any]) -> str:
    """The filters as words of a sentence, a size as one."""
    size = [f"{chosen['rows']}x{chosen['cols']}"] if "rows" in chosen else []
    return " ".join(size + [value for name, value in chosen.items() if name not in ("rows", "cols")])


def _range(least_rows: int, most_rows: int, least_cols: int, most_cols: int) -> str:
    """As `autotune pin` takes it."""
    first, last = f"{least_rows}x{least_cols}", f"{most_rows}x{most_cols}"
    return first if first == last else f"{first}..{last}"
