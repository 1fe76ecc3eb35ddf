"""`autotune explain` and `autotune source`: why a kernel is chosen, and the CUDA source that would run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from autotune import source
from autotune.choice import WHICH_IS_BEST
from autotune.cli.hints import hint
from autotune.cli.inspected import explained
from autotune.cli.options import db_option, dtype_of, dtype_option, kernels_option, operation_of, require_readable
from autotune.cli.output import Column, Form, Row, emit, microseconds, on_device, percent, reading, say
from autotune.database import Database, shipped_databases
from autotune.database.rebuild import OVERTAKEN
from autotune.dispatch.explain import explain
from autotune.dispatch.selection import Candidate, Explanation
from autotune.errors import UsageError
from autotune.problem import Problem, parse_size
from autotune.selector.model import Model

TIERS = (
    "pin, a person said so; exact, this very size was tuned on this device; selector, learnt from the sizes that were; nearest, what was "
    "best at the tuned size next to it; similar device, the same of a GPU of its generation; analytic default, proposed without any "
    "measurement; safe, what takes any input"
)
CONFIGURATION = Column("configuration", "configuration", right=False, long=True, phrases=True, named=False)
TUNED_AT = Column("tuned_at", "tuned at", right=False, meaning="the tuned size that it comes from")
SAID_BY = Column(
    ("database", "replayed"),
    "said by",
    lambda path, replayed: on_device(_named(Path(path)), replayed),
    right=False,
    rank=3,
    meaning="the database that it comes from",
)
TIME = Column("time_us", "time us there", microseconds, rank=1, meaning="what was measured at that size")
TIMED = Column(
    "timed",
    "timed there",
    right=False,
    long=True,
    phrases=True,
    meaning="the configuration that had this time, where it is not this one but another of its family, made for that size",
)

CANDIDATES = (
    Column("tier", "tier", right=False, meaning=f"why it is proposed: {TIERS}"),
    CONFIGURATION,
    TUNED_AT,
    SAID_BY,
    TIME,
    TIMED,
    Column(
        "expected_regret",
        "expected behind",
        percent,
        rank=2,
        meaning="how much slower than the best it should be here, empty where the size lies beyond what was tuned",
    ),
    Column("verdict", "verdict", right=False, long=True, meaning="chosen, or why not"),
)

NEAREST = (
    TUNED_AT,
    Column("best_there", "best there", right=False, long=True, phrases=True, named=False, meaning="the configuration that was timed"),
    TIME,
    SAID_BY,
    Column("fitted", "would run here as", right=False, long=True, phrases=True, meaning="the one of its family that is made for this size"),
)


def _chosen(command: Any) -> Any:
    helped = "A device of the database, or emulator.  [default: the first GPU with tuned sizes]"
    command = click.option("--device", metavar="NAME", help=helped)(command)
    command = click.argument("size", metavar="MxN")(command)
    return click.argument("operation")(db_option(kernels_option(dtype_option(command))))


def _explanation(operation: str, size: str, dtype: str | None, device: str | None, db: Path | None, kernels: Path | None) -> Explanation:
    loaded = operation_of(operation, kernels)
    require_readable(db)
    rows, cols = parse_size(size)
    problem = Problem(operation, rows, cols, dtype_of(loaded, dtype))
    return explain(problem, device, db=db, kernels=kernels.resolve() if kernels else None)


EXPLAIN_HELP = f"""Say why OPERATION at MxN gets its kernel: tier, candidates, what was rejected and why, the nearest tuned sizes.

{WHICH_IS_BEST} {explained(CANDIDATES)} Of the nearest tuned sizes, {explained(NEAREST[1:2] + NEAREST[4:], "")} With --json and
--csv the first row tells the selector of this device and dtype.
"""


@click.command("explain", help=EXPLAIN_HELP)
@_chosen
@reading
def explain_command(
    operation: str, size: str, dtype: str | None, device: str | None, db: Path | None, kernels: Path | None, form: Form
) -> None:
    story = _explanation(operation, size, dtype, device, db, kernels)
    rows = [_row(candidate, story) for candidate in story.candidates]
    for row in rows[1:]:
        row["selector"] = None  # told once: its kernels are many
    if form == "table":
        say(f"{story.problem} on {story.device.name}: {story.chosen.configuration if story.chosen else 'no kernel'}, tier {story.tier}")
        if story.model and any(candidate.tier == "selector" for candidate in story.candidates):
            say(f"selector: {story.model}")
        if story.beyond:
            nearest = f"the nearest size is {story.beyond.rows}x{story.beyond.cols}"
            say(f"{story.problem.size} lies beyond what was tuned ({nearest}), so how far this is behind the best is not known")
    emit(rows, CANDIDATES, form)
    if form == "table" and (why := _overtaken(story, kernels)):
        say(f"{why}; `{hint('rebuild')}`, or the next sweep, settles that")
    if form == "table" and story.nearest:
        emit([_row(candidate, story) for candidate in story.nearest], NEAREST, "table", title="nearest tuned sizes")


@click.command("source")
@_chosen
def source_command(operation: str, size: str, dtype: str | None, device: str | None, db: Path | None, kernels: Path | None) -> None:
    """Print the CUDA source, instantiated, that would run OPERATION at MxN."""
    story = _explanation(operation, size, dtype, device, db, kernels)
    if story.chosen is None:
        made = hint("compile", operation, "--safe", "--dtype", story.problem.dtype, "--arch", story.device.arch)
        raise UsageError(f"no kernel for {story.problem} is stored for {story.device.name}; `{made}` stores one")
    version = operation_of(operation, kernels).version(story.chosen.configuration.version)
    click.echo(f"// {story.problem} on {story.device.name}: {story.chosen.configuration}, tier {story.tier}")
    click.echo(source.render(version, [story.chosen.configuration], story.problem.dtype) + source.defined(version), nl=False)


def _overtaken(story: Explanation, kernels: Path | None) -> str:
    """Why what runs is not the fastest that was measured at this very size, as far as the user's own database tells; "" where it is."""
    tuned = story.chosen.tuned if story.chosen and story.chosen.tier == "exact" else None
    if tuned is None or any(tuned.path.samefile(other) for other in shipped_databases()):
        return ""
    with Database(tuned.path, mode="read") as database:
        stale = database.stale(operation_of(story.problem.operation, kernels))
    size = (tuned.device, tuned.dtype, tuned.rows, tuned.cols)
    same = (row["why"] for row in stale if (row["device"], row["dtype"], row["rows"], row["cols"]) == size)
    return next((why for why in same if why.startswith(OVERTAKEN)), "")


def _named(path: Path) -> str:
    """A database in a table: its name, and of one that comes with the package that it does."""
    shipped = any(path.samefile(other) for other in shipped_databases() if path.exists())
    return f"shipped {path.name}" if shipped else path.name


def _row(candidate: Candidate, story: Explanation) -> Row:
    tuned = candidate.tuned
    said = "chosen" if candidate == story.chosen else candidate.rejected or "not needed"
    verdict = f"{said} ({candidate.note})" if candidate.note else said
    return {
        "tier": candidate.tier,
        "configuration": str(candidate.configuration),
        "version": candidate.configuration.version,
        "parameters": dict(candidate.configuration.parameters),
        "tuned_at": f"{tuned.rows}x{tuned.cols}" if tuned else None,
        "database": str(candidate.path) if candidate.path else None,
        "replayed": bool(tuned and tuned.replayed),
        "time_us": tuned.time_us if tuned else None,
        "best_there": str(tuned.configuration) if tuned else None,
        "timed": str(tuned.configuration) if tuned and tuned.configuration != candidate.configuration else None,
        "fitted": str(candidate.configuration) if tuned and tuned.configuration != candidate.configuration else None,
        "distance": candidate.distance,
        "expected_regret": candidate.expected_regret,
        "verdict": verdict,
        "problem": asdict(story.problem),
        "device": story.device.name,
        "beyond": f"{story.beyond.rows}x{story.beyond.cols}" if story.beyond else None,
        "selector": _selector(story.model) if story.model else None,
    }


def _selector(model: Model) -> Row:
    regret, default = model.regret, model.default_regret
    return {
        "kind": model.kind,
        "sizes": model.sizes,
        "kernels": ["the analytic default" if family is None else str(family) for family in model.members],
        "regret_geomean": regret.geomean,
        "regret_p95": regret.p95,
        "regret_worst": regret.worst,
        "default_regret_geomean": default.geomean if default else None,
    }
