"""Rows that say something sensible, and the one warning about those that do not.

Files are edited by hand, written by other programs and kept on bad disks. A row that makes no sense is left out by itself and stays stored,
as the dispatcher has it: what is right in a file is worth as much as before.
"""

import json
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from autotune.configuration import Configuration
from autotune.database.connection import Connection, Row
from autotune.database.credible import device_of, dtype_name, matrix, time_of_a_kernel
from autotune.device import Device
from autotune.errors import UsageError, shortened
from autotune.trial import LEAST_TIME_US, MOST_TIME_US, Outcome

Found = TypeVar("Found")

MOST_SAID = 200  # characters of what is wrong with a row
NONSENSE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, UsageError)

_TEXT, _WHOLE, _NUMBER = (str,), (int,), (float, int)
_WORDS = {_TEXT: "a text", _WHOLE: "a whole number", _NUMBER: "a number"}
_FOUND = {str: "a text", int: "a whole number", float: "a number", bytes: "bytes", type(None): "missing"}

# Of each column of a question, whichever table or view it is of: what it holds. SQLite keeps to that only where nobody else has written.
_KINDS = {
    _TEXT: "name device compute_capability arch package python os driver cuda compiler pycuda card operation dtype kind outcome evidence "
    "message version parameters runner_up_version runner_up_parameters next_version next_parameters sha template_sha text flags symbol "
    "binary_sha protocol description protocol_description space_sha state origin created updated taken_at first last throttled samples_us "
    "tier author why reason",
    _WHOLE: "id trial trial_id run run_id number problem problem_id device_id rows cols input_stride output_stride input_alignment "
    "output_alignment in_place bytes_moved rule protocol_rule replayed beyond_noise tried trials problems runs configurations best_on "
    "count sm_count l2_bytes bus_bits shared_bytes_per_block shared_bytes_per_sm registers_per_sm threads_per_sm threads_per_block "
    "registers spill_bytes static_shared_bytes launches_per_sample sm_clock_mhz least_rows most_rows least_cols most_cols "
    "of_older_templates searched",
    _NUMBER: "time_us first_us ci_low_us ci_high_us runner_up_us copy_us gb_per_s spread gap fraction_of_copy max_error",
}
_KIND = {column: kind for kind, columns in _KINDS.items() for column in columns.split()}
_TIMES = ("time_us", "ci_low_us", "ci_high_us", "runner_up_us", "copy_us")

# The columns that may hold nothing, by table.
_MAY_LACK = {
    "best": "runner_up_version runner_up_parameters next_version next_parameters runner_up_us gap copy_us fraction_of_copy gb_per_s "
    "bytes_moved",
    "trials": "time_us evidence kind gb_per_s bytes_moved max_error first_us registers spill_bytes static_shared_bytes",
    "rounds": "sm_clock_mhz throttled",
    "problems": "bytes_moved",
    "misses": "version parameters",
    "blocked": "rows cols problem_id",
    "environments": "searched",
}


def sound(database: Connection, table: str, rows: Iterable[Row], entry: Callable[[Row], Found], key: str = "id") -> list[Found]:
    """What `entry` makes of each row of `table`. Those of which it makes no sense, which is any of NONSENSE, are left out.

    So are rows with a column of another type than it has, or with a time that cannot be. One warning for each table of an open database
    names the first of them, by its column `key`.
    """
    found, bad = list[Found](), list[str]()
    check: Callable[[Row], None] | None = None
    for row in rows:
        check = check or _check(table, row)
        try:
            check(row)
            found.append(entry(row))
        except NONSENSE as error:
            said = shortened(" ".join(str(error).split()), MOST_SAID)
            named = f"row {row[key]!r}" if key == "id" else f"the row with {key} {shortened(repr(row[key]), MOST_SAID)}"
            bad.append(f"{named} of {table} ({said})")
    if bad and table not in database.complained:
        database.complained.add(table)
        others = f" and {len(bad) - 1:,} more like it" if len(bad) > 1 else ""
        warnings.warn(f"database {database.path}: {bad[0]}{others} cannot be used and {'are' if others else 'is'} left out", stacklevel=2)
    return found


def _check(table: str, first: Row) -> Callable[[Row], None]:
    """What raises TypeError or ValueError for a row with the columns of `first` that holds what they never do."""
    columns = [(name, _KIND[name]) for name in first]
    times = [name for name in _TIMES if name in first]
    may_lack = _MAY_LACK.get(table, "").split()
    right = set[tuple[type, ...]]()  # of a million rows, nearly all are alike

    def check(row: Row) -> None:
        types = tuple(map(type, row.values()))
        if types not in right:
            for (name, kind), there in zip(columns, types, strict=True):
                if there not in kind and not (there is type(None) and name in may_lack):
                    raise TypeError(f"its {name} is {_FOUND[there]} where {_WORDS[kind]} belongs")
            right.add(types)
        for name in times:
            us = row[name]
            if us is not None and not LEAST_TIME_US <= us <= MOST_TIME_US:
                raise ValueError(f"its {name}, {us}, is no time that a kernel takes")

    return check


def parameters_of(text: str) -> dict[str, Any]:
    """A configuration's parameters by name. Raises UsageError where `text` is not those."""
    return dict(Configuration.from_json("", text).parameters)


def samples_of(text: str) -> tuple[float, ...]:
    """The samples of a round, in microseconds. Raises ValueError or RecursionError where `text` is not one time or more."""
    found = json.loads(text)
    if not isinstance(found, list) or not found:
        raise ValueError("its samples are not a list of times")
    for us in found:
        time_of_a_kernel(us)
    return tuple(found)


def require_problem(row: Row) -> Row:
    """`row`, whose columns say of which size a matrix is and how it lies. Raises ValueError where none can."""
    dtype_name(row["dtype"])
    matrix(
        row["rows"],
        row["cols"],
        row["input_stride"],
        row["output_stride"],
        row["input_alignment"],
        row["output_alignment"],
        row["in_place"],
    )
    return row


def described(row: Row) -> Device:
    """The device that the columns of `row` describe. Raises ValueError where none can be so."""
    return device_of(
        row["name"],
        row["compute_capability"],
        row["sm_count"],
        row["l2_bytes"],
        row["bus_bits"],
        row["shared_bytes_per_block"],
        row["shared_bytes_per_sm"],
        row["registers_per_sm"],
        row["threads_per_sm"],
        row["threads_per_block"],
    )


def without_id(row: Row) -> Row:
    """What a row says, whatever its number in this file."""
    return {column: value for column, value in row.items() if column != "id"}


def require_trial(row: Row) -> None:
    """Raise ValueError unless `row` has an outcome that is known, and a problem that can be."""
    Outcome(row["outcome"])
    require_problem(row)
