"""`autotune prune`: let measurements go, by stated rules."""

from pathlib import Path

import click

from autotune.catalogue import load, operation_names
from autotune.cli.hints import hint
from autotune.cli.options import NumberRange, db_option, kernels_option
from autotune.cli.output import Column, Form, Row, counted, emit, reading, say
from autotune.database import Database, default_path
from autotune.database.prune import FAILED, OLDER, REPLAYED, STALE, SUPERSEDED, Rule, present_templates
from autotune.database.rebuild import templates_here
from autotune.errors import UsageError

COLUMNS = (
    Column("rule", "rule", right=False),
    Column("trials", "trials"),
    Column("why", "trials that were", right=False, long=True, named=False),
)


@click.command("prune")
@click.option("--older-than", type=NumberRange(min=0), metavar="DAYS", help="Trials made more than this many days ago.")
@click.option("--stale", is_flag=True, help="Trials of a template or definition that is not the present one.")
@click.option("--superseded", is_flag=True, help="Trials that were repeated later with at least the same care on the same device.")
@click.option("--replayed", is_flag=True, help="Trials that were replayed from another database.")
@click.option("--failed", is_flag=True, help="Trials that failed.")
@click.option("--yes", is_flag=True, help="Delete them; without this it only says what would go.")
@db_option
@kernels_option
@reading
def prune_command(
    older_than: float | None,
    stale: bool,
    superseded: bool,
    replayed: bool,
    failed: bool,
    yes: bool,
    db: Path | None,
    kernels: Path | None,
    form: Form,
) -> None:
    """Delete the trials that any of the named rules lets go. A trial that a best kernel rests on always stays.

    A sweep tries again what has no trial left, but not what is blocked: with or without its trials, that takes autotune unblock. Importing
    a database that still has the trials brings them back.
    """
    rules: list[tuple[Rule, tuple[object, ...]]] = [
        *([(OLDER, (older_than,))] if older_than is not None else []),
        *([(STALE, (_present(kernels),))] if stale else []),
        *([(SUPERSEDED, ())] if superseded else []),
        *([(REPLAYED, ())] if replayed else []),
        *([(FAILED, ())] if failed else []),
    ]
    if not rules:
        raise UsageError("no rule was given; name what may go: --older-than DAYS, --stale, --superseded, --replayed or --failed")
    with Database(db or default_path(), mode="write" if yes else "read") as database:
        found = [(rule, database.to_prune(rule, *parameters)) for rule, parameters in rules]
        blocked = database.still_blocked(set[int]().union(*(trials for rule, trials in found if rule is FAILED)))
        every = set[int]().union(*(trials for _, trials in found))
        settled = _pruned(database, every, kernels) if yes else 0
    rows: list[Row] = [{"rule": rule.name, "trials": len(trials), "why": rule.why, "deleted": yes} for rule, trials in found]
    emit(rows, COLUMNS, form)
    if form == "table":
        were, settled_were = ("was" if count == 1 else "were" for count in (len(every), settled))
        by = "by what is left, which is all that inspect best counts as tried now"
        again = f", and {counted(settled, 'problem')} {settled_were} settled again {by}" if settled else ""
        say(f"{counted(len(every), 'trial')} {f'{were} deleted{again}' if yes else 'would be deleted; --yes does it'}")
        if blocked:
            stay, them = ("stays", "it") if blocked == 1 else ("stay", "them")
            say(
                f"{counted(blocked, 'configuration')} of what failed {stay} blocked, so that no sweep tries {them} again: "
                f"`{hint('inspect', 'blocked')}` "
                f"says why, and `{hint('unblock', 'OPERATION')}` lets {them} be tried"
            )


def _pruned(database: Database, trials: set[int], kernels: Path | None) -> int:
    """Delete `trials` and settle their problems again, or do neither; of how many problems that could be done."""
    folder = kernels.resolve() if kernels else None
    operations = {name: load(name, folder) for name in operation_names(folder)}
    with database.write():
        touched = database.touched_by(trials)
        database.prune(trials)
        settled = database.rebuild(operations, only=touched).settled if touched else 0
    database.give_back_space()
    return settled


def _present(kernels: Path | None) -> str:
    folder = kernels.resolve() if kernels else None
    return present_templates({name: templates_here(load(name, folder)).values() for name in operation_names(folder)})
