"""Rows that say something sensible, and the one warning about those that do not.

Files are edited by hand, written by other programs and kept on bad disks. A row that makes no sense is left out by itself and stays stored,
as the dispatcher has it: what is right in a file is worth as much as before.
"""

import json
import warnings
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, TypeVar

from autotune.configuration import Configuration
from autotune.database.connection import Connection, Row
from autotune.element import element
from autotune.errors import UsageError, shortened
from autotune.problem import MOST_ELEMENTS
from autotune.trial import Outcome

Found = TypeVar("Found")

MOST_SAID = 200  # characters of what is wrong with a row
NONSENSE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, UsageError)


def sound(database: Connection, table: str, rows: Iterable[Row], entry: Callable[[Row], Found], key: str = "id") -> list[Found]:
    """What `entry` makes of each row of `table`. Those of which it makes no sense, which is any of NONSENSE, are left out.

    One warning for each table of an open database names the first of them, by its column `key`.
    """
    found, bad = list[Found](), list[str]()
    for row in rows:
        try:
            found.append(entry(row))
        except NONSENSE as error:
            said = shortened(" ".join(str(error).split()), MOST_SAID)
            named = f"row {row[key]}" if key == "id" else f"the row with {key} {row[key]!r}"
            bad.append(f"{named} of {table} ({said})")
    if bad and table not in database.complained:
        database.complained.add(table)
        others = f" and {len(bad) - 1:,} more like it" if len(bad) > 1 else ""
        warnings.warn(f"database {database.path}: {bad[0]}{others} cannot be used and {'are' if others else 'is'} left out", stacklevel=2)
    return found


def parameters_of(text: str) -> dict[str, Any]:
    """A configuration's parameters by name. Raises UsageError where `text` is not those."""
    return dict(Configuration.from_json("", text).parameters)


def samples_of(text: str) -> tuple[float, ...]:
    """The samples of a round, in microseconds. Raises ValueError or RecursionError where `text` is not one number or more above 0."""
    found = json.loads(text)
    if not isinstance(found, list) or not found or any(type(us) not in (float, int) or not 0 < us < 1e300 for us in found):
        raise ValueError("its samples are not a list of finite times above 0")
    return tuple(found)


def require_time(time_us: float | None) -> None:
    """Raise ValueError for what is no time; None is one that was not taken."""
    if time_us is not None and not (time_us > 0 and isfinite(time_us)):
        raise ValueError(f"{time_us} us is no time")


def require_problem(row: Row) -> None:
    """Raise ValueError or UsageError unless a matrix can have the columns `rows`, `cols` and `dtype`."""
    element(row["dtype"])
    if not (0 <= row["rows"] < MOST_ELEMENTS and 0 <= row["cols"] < MOST_ELEMENTS):
        raise ValueError(f"no matrix is of {row['rows']} x {row['cols']}")


def require_trial(row: Row) -> None:
    """Raise ValueError or UsageError unless `row` has a known outcome, and a time and a size that can be."""
    Outcome(row["outcome"])
    require_time(row["time_us"])
    require_problem(row)
