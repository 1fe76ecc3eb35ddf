"""Options that several commands share, and what they are turned into."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import click

from autotune.backends.select import MOST_HANG_TIMEOUT_S
from autotune.catalogue import load
from autotune.database import Database, default_path
from autotune.element import ELEMENTS
from autotune.errors import UsageError
from autotune.guard import ALLOWED_S
from autotune.operation import Operation
from autotune.problem import Problem, parse_size

Command = Callable[..., Any]

DEFAULT_SIZE = "4096x4096"
DEFAULT_DTYPE = "float32"


class NumberRange(click.FloatRange):
    """A number between limits. Neither nan, which lies within any limits as click compares, nor infinity: a limit of that is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def db_option(command: Command) -> Command:
    return click.option(
        "--db", type=click.Path(path_type=Path), help="The database; $AUTOTUNE_DB, else one in your data folder, when not given."
    )(command)


def kernels_option(command: Command) -> Command:
    return click.option(
        "--kernels", type=click.Path(path_type=Path, exists=True, file_okay=False), help="A folder with operations of your own."
    )(command)


def hang_timeout_option(command: Command) -> Command:
    return click.option(
        "--hang-timeout",
        type=NumberRange(0, MOST_HANG_TIMEOUT_S, min_open=True),
        default=ALLOWED_S,
        metavar="S",
        help="Seconds until a kernel, or a function of a definition, counts as hung.",
    )(command)


def device_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--device", default=default, show_default=True, metavar="DEVICE", help="auto, cuda, cuda:I, emulator or recorded[:PATH[#DEVICE]]."
    )


def repeatable(*names: str, **how: Any) -> Callable[[Command], Command]:
    """An option that may be given several times; what is given twice counts once."""
    return click.option(*names, multiple=True, callback=lambda context, option, values: tuple(dict.fromkeys(values)), **how)


def dtype_option(command: Command) -> Command:
    return click.option("--dtype", metavar="D", help=f"An element type: {', '.join(ELEMENTS)}.")(command)


def problem_options(command: Command) -> Command:
    """Which problems: what `problems_of` takes."""
    file = click.Path(path_type=Path, dir_okay=False)
    helped = f"{', '.join(ELEMENTS)}; may be repeated.  [default: {DEFAULT_DTYPE}]"
    command = repeatable("--dtype", "dtypes", metavar="D", help=helped)(command)
    command = click.option("--sizes", "sizes_file", type=file, help="A file with one size a line.")(command)
    helped = f"Rows and columns; may be repeated.  [default: {DEFAULT_SIZE}]"
    return repeatable("--size", "sizes", metavar="MxN", help=helped)(command)


def size_option(command: Command) -> Command:
    return click.option("--size", metavar="MxN", help="Rows and columns, such as 4096x4096.")(command)


def operation_of(name: str, kernels: Path | None, versions: Iterable[str] = ()) -> Operation:
    """The operation called `name`; UsageError when it, or one of `versions`, does not exist."""
    operation = load(name, kernels.resolve() if kernels else None)
    for version in versions:
        operation.version(version)
    return operation


def dtype_of(operation: Operation, name: str | None) -> str:
    """An element type that `operation` offers; UsageError for another."""
    return operation.require_dtype(name or DEFAULT_DTYPE)


def problems_of(operation: Operation, sizes: Iterable[str], sizes_file: Path | None, dtypes: Iterable[str]) -> list[Problem]:
    """The problems named by `--size`, `--sizes` (one size a line, `#` begins a comment) and `--dtype`, each once."""
    written = list(sizes)
    if sizes_file is not None:
        lines = (line.partition("#")[0].strip() for line in _read(sizes_file).splitlines())
        found = [line for line in lines if line]
        if not found:
            raise UsageError(f"the file of sizes {sizes_file} names none; give one ROWSxCOLS a line")
        written += found
    parsed = [parse_size(text) for text in written or [DEFAULT_SIZE]]
    names = [dtype_of(operation, name) for name in list(dtypes) or [DEFAULT_DTYPE]]
    return list(dict.fromkeys(Problem(operation.name, rows, cols, dtype) for dtype in names for rows, cols in parsed))


def reading_database(path: Path | None) -> Database:
    """The database at `path`, or the default one, for reading."""
    return Database(path or default_path(), mode="read")


def require_readable(path: Path | None) -> None:
    """Raise UsageError for a database that was named and cannot be read: a dispatcher leaves it out, and who asks about it is to know."""
    if path is not None:
        Database(path, mode="read").close()


def require_known(database: Database, what: Literal["device", "operation"], name: str | None) -> None:
    """Raise UsageError, which names those that there are, unless `name` is None or `database` knows the device or operation so called.

    A database that knows none yet is no reason to complain of the name.
    """
    table, column = {"device": ("devices", "name"), "operation": ("templates", "operation")}[what]
    known = [row["name"] for row in database.select(f"SELECT DISTINCT {column} AS name FROM {table} ORDER BY name")]
    if name is not None and known and name not in known:
        raise UsageError(f"{what} {name!r} is not in database {database.path}; it has {', '.join(map(repr, known))}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file of sizes {path} could not be read ({error}); give a text file with one ROWSxCOLS a line") from error
