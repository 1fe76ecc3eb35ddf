"""What the rows of a foreign database must say before any of them is believed, beyond what its tables' own constraints ask.

One scan per table, in SQL, so that a million trials take seconds. Each condition is that of a row which is refused.
"""

import sqlite3
from collections import deque
from pathlib import Path

from autotune.database.merge import TABLES
from autotune.element import ELEMENTS
from autotune.errors import UsageError
from autotune.problem import MOST_ELEMENTS
from autotune.trial import LEAST_TIME_US, MOST_TIME_US

MOST_NAME_BYTES = 200  # of a device, an operation, a version, a protocol or an author


def _no_name(column: str) -> str:
    return f"length(CAST({column} AS BLOB)) NOT BETWEEN 1 AND {MOST_NAME_BYTES}"


def _no_time(column: str) -> str:
    return f"{column} NOT BETWEEN {LEAST_TIME_US} AND {MOST_TIME_US}"


def _no_date(column: str) -> str:
    # A clock may be off by some hours and no more: of two decisions the later stands, so one from the future would stand for good.
    shape = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
    return f"({column} NOT GLOB '{shape}' OR julianday({column}) IS NULL OR julianday({column}) > julianday('now') + 1)"


_NAMES = {
    "devices": ("name",),
    "protocols": ("name",),
    "templates": ("operation", "version"),
    "configurations": ("operation", "version"),
    "problems": ("operation",),
    "selectors": ("operation", "kind"),
    "pins": ("operation", "author"),
}


def _too_large(column: str) -> str:
    return f"{column} NOT BETWEEN -(1 << 53) AND 1 << 53"  # sums of larger ones overflow, in SQLite as in JSON


def _in_future(column: str) -> str:
    # Text sorts as time does; what is no date sorts before or after all of them, and is not asked further: nothing is decided by it.
    return f"{column} > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 day')"


_MADE = {
    "runs": ("started", "coalesce(ended, '')"),
    "trials": ("created",),
    "endings": ("created",),
    "rounds": ("taken_at",),
    "copies": ("taken_at",),
    "best": ("updated",),
    "misses": ("last",),
}
_TIMES = {
    "rounds": ("median_us", "coalesce(time_us, 0)"),
    "copies": ("copy_us",),
    "best": ("time_us", "ci_low_us", "ci_high_us", "runner_up_us", "copy_us"),
}
_SIZES_OF_A_DEVICE = (
    "sm_count, l2_bytes, bus_bits, shared_bytes_per_block, shared_bytes_per_sm, registers_per_sm, threads_per_sm, threads_per_block"
)
_DTYPES = ", ".join(f"'{name}'" for name in ELEMENTS)
_NOT_ANY = "EXISTS (SELECT 1 FROM json_each({}) WHERE {})"
_NO_VALUE = (
    "type NOT IN ('integer', 'real', 'text', 'true', 'false') OR (type IN ('integer', 'real') AND NOT (value > -9e999 AND value < 9e999)) "
    "OR (type = 'integer' AND typeof(value) <> 'integer')"  # a whole number of more than 64 bits is read as a real one
)
_NO_SAMPLE = f"type NOT IN ('integer', 'real') OR {_no_time('value')}"

WRONG = (
    *(
        (table, _no_name(name), f"whose {name} is not 1 to {MOST_NAME_BYTES} bytes long")
        for table, names in _NAMES.items()
        for name in names
    ),
    *((table, f"dtype NOT IN ({_DTYPES})", "of an unknown dtype") for table in ("instances", "problems", "selectors", "pins", "blocked")),
    *((table, " OR ".join(map(_no_time, names)), "with a time that no kernel takes") for table, names in _TIMES.items()),
    *((table, " OR ".join(map(_in_future, names)), "dated in the future") for table, names in _MADE.items()),
    *((table, _no_date("created"), "whose date is malformed or in the future") for table in ("selectors", "pins", "blocked")),
    (
        "devices",
        "compute_capability NOT GLOB '[0-9].[0-9]' AND compute_capability NOT GLOB '[0-9][0-9].[0-9]'",
        "whose compute capability is not like 9.0",
    ),
    (
        "devices",  # of one that is known by its name alone, all the rest is 0
        f"min({_SIZES_OF_A_DEVICE}) < 0 OR (sm_count < 1 AND max({_SIZES_OF_A_DEVICE}) > 0)",
        "with properties that no device has",
    ),
    (
        "configurations",
        f"json_type(parameters) <> 'object' OR {_NOT_ANY.format('parameters', _NO_VALUE)}",
        "whose parameters are not an object of numbers and texts",
    ),
    (
        "problems",
        f"min(rows, cols) < 1 OR max(input_stride, output_stride, rows * 1e0 * cols) >= {MOST_ELEMENTS} "
        "OR min(input_stride, output_stride) < cols "
        "OR input_alignment NOT IN (1, 2, 4, 8, 16) OR output_alignment NOT IN (1, 2, 4, 8, 16)",
        "of a size or layout that no matrix has",
    ),
    (
        "rounds",
        f"json_type(samples_us) <> 'array' OR json_array_length(samples_us) = 0 OR {_NOT_ANY.format('samples_us', _NO_SAMPLE)}",
        "whose samples are not a list of times that a kernel takes",
    ),
    ("trials", f"first_us NOT BETWEEN 0 AND {MOST_TIME_US}", "with a time that no kernel takes"),
    ("pins", "trim(author, char(9, 10, 13, 32)) = '' OR trim(why, char(9, 10, 13, 32)) = ''", "whose author or reason is blank"),
    (
        "pins",
        "least_rows < 1 OR least_cols < 1 OR most_rows < least_rows OR most_cols < least_cols "
        f"OR max(most_rows, most_cols) >= {MOST_ELEMENTS}",
        "of sizes that no matrix has",
    ),
)


def vet(connection: sqlite3.Connection, source: Path) -> None:
    """Raise UsageError, which calls the database `source`, unless every row of `connection` can be believed."""
    for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        raise UsageError(f"database {source} does not fit (a row of {table} names one of {parent} that is missing); nothing was imported")
    for table, wrong, what in WRONG:
        if connection.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone():
            raise UsageError(f"database {source} holds a row of {table} {what}; nothing was imported")
    for name in (table.name for table in TABLES):
        whole = [column for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({name})") if kind == "INTEGER"]
        if whole and connection.execute(f"SELECT 1 FROM {name} WHERE {' OR '.join(map(_too_large, whole))} LIMIT 1").fetchone():
            raise UsageError(f"database {source} holds a row of {name} with a number beyond 2^53; nothing was imported")
        try:
            deque(connection.execute(f"SELECT * FROM {name}"), maxlen=0)
        except sqlite3.OperationalError as error:  # SQLite itself takes any bytes for a text
            raise UsageError(f"database {source} holds a row of {name} whose text is not UTF-8; nothing was imported") from error
