"""What a dispatcher asks a database file, in SQL; the id of a row comes first in every answer."""

import sqlite3
from typing import Any

from autotune.database.schema import APPLICATION_ID, SCHEMA
from autotune.errors import AutotuneError

Row = tuple[Any, ...]

# What reading a row or a file may raise that is no sense in it; OverflowError is of numbers that are no float.
NONSENSE = (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError, AutotuneError)

# The views say the same and more, and twice as slowly. A LEFT JOIN finds the rows that name one which is missing, too.
BEST = """
SELECT b.id, d.name, p.dtype, p.rows, p.cols, p.input_stride, p.output_stride, p.input_alignment, p.output_alignment, p.in_place,
       q.name, q.rule, c.version, c.parameters, s.sha, b.time_us, b.state, b.origin, t.replayed IS 1, b.id
FROM best b
LEFT JOIN problems p ON p.id = b.problem
LEFT JOIN devices d ON d.id = b.device
LEFT JOIN protocols q ON q.id = b.protocol
LEFT JOIN configurations c ON c.id = b.configuration
LEFT JOIN templates s ON s.id = b.template
LEFT JOIN trials t ON t.id = b.trial
WHERE p.operation = ? OR typeof(p.operation) <> 'text'
"""
# The kinds of rounds sort by care: final, race, screen. Exports have no index by problem, and a join by the ids would be one of all pairs.
RUNNERS_UP = """
SELECT b.id, c.version, c.parameters, s.sha, r.time_us
FROM trials t
CROSS JOIN runs u ON u.id = t.run
CROSS JOIN best b ON b.problem = t.problem AND b.device = u.device AND b.protocol = u.protocol
JOIN configurations c ON c.id = t.configuration
JOIN templates s ON s.id = t.template
JOIN rounds r ON r.id = (SELECT id FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1)
LEFT JOIN endings e ON e.trial = t.id
WHERE t.problem IN (SELECT problem FROM best WHERE id IN (SELECT value FROM json_each(?1)))
AND +b.id IN (SELECT value FROM json_each(?1)) AND coalesce(e.outcome, t.outcome) IN ('ok', 'pruned')
ORDER BY t.replayed, r.kind, r.time_us, t.id
"""
INSTANCES = """
SELECT i.id, c.version, c.parameters, i.dtype, i.arch, s.sha, i.symbol, i.binary_sha, n.kind
FROM instances i
LEFT JOIN binaries n ON n.sha = i.binary_sha
LEFT JOIN configurations c ON c.id = i.configuration
LEFT JOIN templates s ON s.id = i.template
WHERE i.binary_sha IS NOT NULL AND (c.operation = ? OR typeof(c.operation) <> 'text')
"""
DEVICES = """
SELECT id, name, compute_capability, sm_count, l2_bytes, bus_bits, shared_bytes_per_block, shared_bytes_per_sm, registers_per_sm,
       threads_per_sm, threads_per_block
FROM devices
"""
PINS = """
SELECT n.id, n.dtype, n.least_rows, n.most_rows, n.least_cols, n.most_cols, n.created, c.version, c.parameters, n.author, n.why
FROM pins n LEFT JOIN devices d ON d.id = n.device LEFT JOIN configurations c ON c.id = n.configuration
WHERE n.operation = ? AND (d.name = ? OR typeof(d.name) <> 'text')
ORDER BY n.created DESC
"""
BLOCKED = """
SELECT b.id, c.version, c.parameters, b.dtype, s.sha, b.reason, b.problem, p.rows, p.cols
FROM blocked b
LEFT JOIN devices d ON d.id = b.device
LEFT JOIN configurations c ON c.id = b.configuration
LEFT JOIN templates s ON s.id = b.template
LEFT JOIN problems p ON p.id = b.problem
WHERE (c.operation = ? OR typeof(c.operation) <> 'text') AND (d.name = ? OR typeof(d.name) <> 'text') AND b.reason IS NOT ''
"""
SELECTORS = """
SELECT l.id, d.name, l.dtype, l.body, l.created
FROM selectors l LEFT JOIN devices d ON d.id = l.device
WHERE l.operation = ?
ORDER BY l.created DESC, l.train_sha DESC, l.kind DESC
"""


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise ValueError for a file that is not ours, or that a newer autotune has written."""
    (application,), (schema,) = connection.execute("PRAGMA application_id").fetchone(), connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise ValueError("it is not a database of autotune")
    if not 1 <= schema <= SCHEMA:
        raise ValueError(f"it is of schema {schema}, and 1 to {SCHEMA} are known")


def fetched(connection: sqlite3.Connection, query: str, *parameters: str) -> list[Row]:
    """All rows of a question; a text that is not UTF-8 is given as bytes, which are a column of no row of ours."""
    try:
        return connection.execute(query, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = _text_or_bytes
    try:
        return connection.execute(query, parameters).fetchall()
    finally:
        connection.text_factory = str


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
