"""How rows of dicts reach a terminal, a program (`--json`) or a spreadsheet (`--csv`)."""

import csv
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import click

from autotune.cli.streams import printable
from autotune.cli.table import Column, Row, lines, wrap
from autotune.finite import finite
from autotune.problem import WIDEST_ACCESS_BYTES

__all__ = [
    "SIZE",
    "Column",
    "Form",
    "Row",
    "counted",
    "emit",
    "in_bytes",
    "microseconds",
    "on_device",
    "parameters",
    "percent",
    "reading",
    "say",
    "sized",
]

Form = Literal["table", "json", "csv"]


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal: 0.9731 reads 97.3 %."""
    return f"{100 * value:.1f} %"


def microseconds(value: float) -> str:
    """A time with three significant digits at least: 0.00123, 33.77, 1,236."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 or not value else f"{value:.3g}"


def in_bytes(value: float) -> str:
    """An amount of memory in the unit that leaves one to three digits before the point: 12000 reads 12.0 KB."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """A number of things in words: 1 study, 2 studies, 1 best kernel, 2 best kernels."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def parameters(value: Any) -> str:
    """A configuration's parameters as one phrase."""
    found = json.loads(value) if isinstance(value, str) else value
    return ", ".join(f"{name} {item}" for name, item in found.items())


def sized(rows: int, cols: int, *layout: Any) -> str:
    """A size in words, with its layout where that is not the usual one: packed, aligned to 16 bytes, into another matrix."""
    said = f"{rows}x{cols}"
    if not layout or None in layout:
        return said
    input_stride, output_stride, input_alignment, output_alignment, in_place = layout
    if (input_stride, output_stride) != (cols, cols):
        said += f", strides {input_stride} and {output_stride}"
    if min(input_alignment, output_alignment) < WIDEST_ACCESS_BYTES:
        said += f", aligned to {min(input_alignment, output_alignment)} bytes"
    return said + (", in place" if in_place else "")


def on_device(name: str, replayed: Any = False) -> str:
    """A device, marked where its measurements were not taken but replayed from another database."""
    return f"{name} (replayed)" if replayed else name


SIZE = Column(
    ("rows", "cols", "input_stride", "output_stride", "input_alignment", "output_alignment", "in_place"), "size", sized, right=False
)


def emit(rows: Sequence[Row], columns: Sequence[Column], form: Form, *, title: str = "", empty: str = "nothing is stored") -> None:
    """Write `rows`: every key of each in JSON and CSV, the named columns in a table."""
    if form == "json":
        click.echo(json.dumps(finite(list(rows)), indent=2, allow_nan=False))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        keys = list(dict.fromkeys(key for row in rows for key in row)) or [key for column in columns for key in column.keys]
        writer.writerow(keys)
        writer.writerows([_cell(row.get(key)) for key in keys] for row in rows)
    elif rows:
        _table(rows, columns, title)
    else:
        say(empty)


def say(text: str) -> None:
    """Write a sentence, on a terminal in lines that end between words."""
    width = _width()
    click.echo("\n".join(wrap(text, width)) if width else text)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that reads the options `--json` and `--csv`, handed to it as `form`."""
    command = click.option("--csv", "form", flag_value="csv", help="Comma-separated values with a heading line.")(command)
    command = click.option("--json", "form", flag_value="json", help="One JSON document.")(command)
    return click.option("--table", "form", flag_value="table", default="table", help="A table (the default).")(command)


def _cell(value: Any) -> Any:
    """A cell of comma-separated values, whose rows are lines; a character that no printer knows is spelled out."""
    value = finite(value)
    text = json.dumps(value) if isinstance(value, dict | list) else value
    return text if not isinstance(text, str) or text.isprintable() else printable(text)


def _width() -> int | None:
    """The width of the terminal; None where the output goes elsewhere, which has none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _table(rows: Sequence[Row], columns: Sequence[Column], title: str) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True)
    if title:
        console.print()
        console.print(title, style="bold", markup=False, highlight=False)
    for line in lines(rows, columns, _width()):
        console.print(line.text, style=line.style or None, markup=False, highlight=False)
