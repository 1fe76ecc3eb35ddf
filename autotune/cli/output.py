"""How rows of dicts reach a terminal, a program (`--json`) or a spreadsheet (`--csv`)."""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

Row = dict[str, Any]
Form = Literal["table", "json", "csv"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the row's key, its heading with its unit, and how a value that is not None reads."""

    key: str
    heading: str
    shown: Callable[[Any], str] = str
    right: bool = True


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal: 0.9731 reads 97.3 %."""
    return f"{100 * value:.1f} %"


def microseconds(value: float) -> str:
    """A time with four significant digits where it is short."""
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}"


def parameters(value: Any) -> str:
    """A configuration's parameters as one phrase."""
    found = json.loads(value) if isinstance(value, str) else value
    return ", ".join(f"{name} {item}" for name, item in found.items())


def emit(rows: Sequence[Row], columns: Sequence[Column], form: Form, *, title: str = "", empty: str = "nothing is stored") -> None:
    """Write `rows`: every key of each in JSON and CSV, the named columns in a table."""
    if form == "json":
        click.echo(json.dumps(list(rows), indent=2))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        keys = list(dict.fromkeys(key for row in rows for key in row)) or [column.key for column in columns]
        writer.writerow(keys)
        writer.writerows([_cell(row.get(key)) for key in keys] for row in rows)
    elif rows:
        _table(rows, columns, title)
    else:
        click.echo(empty)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that reads the options `--json` and `--csv`, handed to it as `form`."""
    command = click.option("--csv", "form", flag_value="csv", help="Comma-separated values with a heading line.")(command)
    command = click.option("--json", "form", flag_value="json", help="One JSON document.")(command)
    return click.option("--table", "form", flag_value="table", default="table", help="A table (the default).")(command)


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _table(rows: Sequence[Row], columns: Sequence[Column], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(c.key) is None else c.shown(row[c.key]) for c in columns))
    console = Console()
    if not console.is_terminal:  # a pipe has no width: lines are as long as they need to be
        console = Console(width=240)
    console.print(table)
