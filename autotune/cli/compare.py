"""`autotune compare`: what two databases say about the same problems."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli.options import NumberRange
from autotune.cli.output import SIZE, Column, Form, Row, counted, emit, microseconds, parameters, percent, reading, say
from autotune.database import Database
from autotune.database.comparison import RUN_TO_RUN, Side, compare_best, compare_configurations, differences, only_in


def signed(value: float) -> str:
    """A relative change with its sign: 0.031 reads +3.1 %, and what rounds to nothing has none: 0.0 %."""
    said = f"{100 * value:+.1f} %"
    return said if said.strip("+-") != "0.0 %" else "0.0 %"


PROBLEM = (SIZE, Column("dtype", "dtype", right=False, shared=True))
TIMES = (Column("a_time_us", "A us", microseconds), Column("b_time_us", "B us", microseconds), Column("change", "change", signed))
VERDICT = Column("verdict", "verdict", right=False)
BEST = (
    *PROBLEM,
    *TIMES,
    VERDICT,
    Column("a_fraction_of_copy", "A of copy", percent, rank=1),
    Column("b_fraction_of_copy", "B of copy", percent, rank=1),
    Column("a_kernel", "best in A", right=False, long=True, phrases=True),
    Column("b_kernel", "best in B", right=False, long=True, phrases=True),
)
CONFIGURATIONS = (
    *PROBLEM,
    Column("version", "version", right=False),
    Column("parameters", "configuration", parameters, right=False, long=True, phrases=True, named=False),
    *TIMES,
    VERDICT,
    Column("same_template", "template", lambda same: "same" if same else "changed", right=False, rank=1),
)
DIFFERENCES = (
    Column("what", "what differs", right=False),
    Column("a", "A", right=False, long=True),
    Column("b", "B", right=False, long=True),
)


@click.command("compare")
@click.argument("a", metavar="A[#DEVICE]")
@click.argument("b", metavar="B[#DEVICE]")
@click.option("--configurations", is_flag=True, help="Every configuration that both have timed, rather than the best of each problem.")
@click.option("--changed", is_flag=True, help="Only rows that are faster or slower beyond noise.")
@click.option("--tolerance", type=NumberRange(min=0), default=RUN_TO_RUN, show_default=True, help="Changes up to this share are noise.")
@click.option("--fail-if-slower", is_flag=True, help="Exit status 1 when something in B is slower beyond noise.")
@reading
def compare_command(a: str, b: str, configurations: bool, changed: bool, tolerance: float, fail_if_slower: bool, form: Form) -> int:
    """Compare database B with database A: two drivers, two GPUs, two commits.

    A change is beyond noise when the confidence intervals of the two times do not meet and it is more than --tolerance. One sample
    tells nothing of noise, and a replay of the other database's own times is no change.
    """
    (a_path, a_device), (b_path, b_device) = _place(a), _place(b)
    with Database(a_path, mode="read") as one, Database(b_path, mode="read") as two:
        sides = Side.of(one, a_device), Side.of(two, b_device)
        rows = (compare_configurations if configurations else compare_best)(*sides, tolerance)
        if form == "table":
            emit(differences(*sides), DIFFERENCES, form, empty="A and B were made with the same device, software and templates")
        alone = (only_in(*sides), only_in(*reversed(sides)))
    shown = [row for row in rows if not changed or row["verdict"] != "same"]
    if form == "table":
        shown = [row | _kernels(row) for row in shown]
    emit(
        shown,
        CONFIGURATIONS if configurations else BEST,
        form,
        empty="nothing changed beyond noise" if rows else "A and B share no problem",
    )
    if form == "table":
        say(_summary(rows, alone))
    return int(fail_if_slower and any(row["verdict"] == "slower" for row in rows))


def _place(text: str) -> tuple[Path, str | None]:
    path, _, device = text.rpartition("#")
    return (Path(path), device or None) if path and not Path(text).exists() else (Path(text), None)


def _kernels(row: Row) -> Row:
    if "a_version" not in row:
        return {}
    a, b = (f"{row[f'{side}_version']} {parameters(row[f'{side}_parameters'])}" for side in "ab")
    return {"a_kernel": a, "b_kernel": "the same" if a == b else b}


def _summary(rows: Sequence[Row], alone: tuple[int, int]) -> str:
    count = Counter(row["verdict"] for row in rows)
    only = "".join(f"; {counted(n, 'problem')} only in {side}" for n, side in zip(alone, "AB", strict=True) if n)
    return f"{len(rows)} compared: {count['slower']} slower, {count['faster']} faster, {count['same']} the same within noise{only}"
