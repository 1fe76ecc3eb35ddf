"""How the rows of one database become rows of another: each table's portable key, what it refers to, and which row wins a clash.

Every rule picks the same row whichever comes first, so that imports commute and repeating one changes nothing.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field

Marks = dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """`key` are the columns that tell rows apart in any file, `data` the others; `refers` maps columns to the tables their ids are of.

    `clash` ends an INSERT whose key is taken. `local` are columns that only make sense in one file.
    """

    name: str
    key: tuple[str, ...]
    data: tuple[str, ...] = ()
    refers: Marks = field(default_factory=dict)
    clash: str = "DO NOTHING"
    local: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.data)


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _newer(table: str, columns: str, rank: str) -> str:
    """The clash rule that takes over `columns` when the incoming row ranks higher; in `rank`, ROW stands for either row."""
    sets = ", ".join(f"{column} = excluded.{column}" for column in columns.split())
    return f"DO UPDATE SET {sets} WHERE ({rank.replace('ROW', 'excluded')}) > ({rank.replace('ROW', table)})"


_HARDWARE = "sm_count l2_bytes bus_bits shared_bytes_per_block shared_bytes_per_sm registers_per_sm threads_per_sm threads_per_block"
_LAYOUT = "input_stride output_stride input_alignment output_alignment in_place"
_RESOURCES = "registers spill_bytes local_bytes static_shared_bytes"
_BEST = (
    "configuration template trial time_us ci_low_us ci_high_us spread runner_up runner_up_us gap beyond_noise copy_us tried space_sha "
    "state origin updated"
)
# Measured beats replayed, confirmed beats provisional, then one's own beats a foreign one; the rest only makes the order total.
_BEST_RANK = (
    "(SELECT NOT replayed FROM trials WHERE id = ROW.trial), "
    "CASE ROW.state WHEN 'confirmed' THEN 3 WHEN 'provisional' THEN 2 WHEN 'stale' THEN 1 ELSE 0 END, ROW.origin = 'local', "
    "ROW.tried, ROW.updated, (SELECT uuid FROM runs WHERE id = (SELECT run FROM trials WHERE id = ROW.trial)), "
    "(SELECT number FROM trials WHERE id = ROW.trial)"
)
_PINNED = "(SELECT version || parameters FROM configurations WHERE id = ROW.configuration)"

TABLES = (
    Table("devices", _columns(f"name compute_capability {_HARDWARE}"), ("arch",)),
    Table("environments", _columns("package python os driver cuda compiler pycuda")),
    Table(
        "protocols",
        ("name", "rule"),
        ("description",),
        clash="DO UPDATE SET description = excluded.description WHERE excluded.description < protocols.description",
    ),
    Table(
        "runs",
        ("uuid",),
        _columns("device environment protocol command seed state started ended origin card"),
        {"device": "devices", "environment": "environments", "protocol": "protocols"},
        "DO UPDATE SET state = excluded.state, ended = excluded.ended WHERE runs.ended IS NULL AND excluded.ended IS NOT NULL",
        local=("origin",),
    ),
    Table(
        "templates",
        ("operation", "version", "sha"),
        ("text",),
        clash="DO UPDATE SET text = excluded.text WHERE excluded.text < templates.text",
    ),
    Table("configurations", ("operation", "version", "parameters")),
    Table("binaries", ("sha",), ("kind", "arch", "bytes", "packed")),
    Table(
        "instances",
        _columns("configuration dtype arch template flags compiler"),
        _columns(f"symbol {_RESOURCES} binary_sha"),
        {"configuration": "configurations", "template": "templates"},
        "DO UPDATE SET binary_sha = excluded.binary_sha, symbol = excluded.symbol "
        "WHERE instances.binary_sha IS NULL AND excluded.binary_sha IS NOT NULL",
        local=("symbol", "binary_sha"),
    ),
    Table(
        "problems",
        _columns(f"operation rows cols dtype {_LAYOUT}"),
        ("bytes_moved",),
        clash="DO UPDATE SET bytes_moved = excluded.bytes_moved WHERE excluded.bytes_moved > coalesce(problems.bytes_moved, 0)",
    ),
    Table(
        "trials",
        ("run", "number"),
        _columns("problem configuration template instance outcome max_error first_us message replayed created"),
        {"run": "runs", "problem": "problems", "configuration": "configurations", "template": "templates", "instance": "instances"},
    ),
    Table("endings", ("trial",), ("outcome", "message", "created"), {"trial": "trials"}),
    Table(
        "rounds",
        ("trial", "number"),
        _columns("kind median_us time_us samples_us launches_per_sample sm_clock_mhz throttled taken_at"),
        {"trial": "trials"},
    ),
    Table("copies", ("run", "number"), ("problem", "copy_us", "taken_at"), {"run": "runs", "problem": "problems"}),
    Table(
        "best",
        ("device", "problem", "protocol"),
        _columns(_BEST),
        {"device": "devices", "problem": "problems", "protocol": "protocols", "configuration": "configurations", "template": "templates"}
        | {"trial": "trials", "runner_up": "configurations"},
        _newer("best", _BEST, _BEST_RANK),
        local=("origin",),
    ),
    Table(
        "selectors",
        _columns("device operation dtype kind train_sha"),
        _columns("body regret_geomean regret_p95 regret_worst created"),
        {"device": "devices"},
        _newer("selectors", "body regret_geomean regret_p95 regret_worst created", "ROW.created, ROW.body"),
    ),
    Table(
        "pins",
        _columns("device operation dtype least_rows most_rows least_cols most_cols"),
        _columns("configuration author why created"),
        {"device": "devices", "configuration": "configurations"},
        _newer("pins", "configuration author why created", f"ROW.created, {_PINNED}, ROW.author, ROW.why"),
    ),
    Table(
        "blocked",
        _columns("device configuration dtype template problem"),
        ("reason", "created"),
        {"device": "devices", "configuration": "configurations", "template": "templates", "problem": "problems"},
        _newer("blocked", "reason created", "ROW.created, ROW.reason"),
    ),
    Table(
        "misses",
        ("device", "problem"),
        ("tier", "configuration", "count", "last"),
        {"device": "devices", "problem": "problems", "configuration": "configurations"},
        _newer("misses", "tier configuration count last", "ROW.last, ROW.count, ROW.tier"),
    ),
)
BY_NAME = {table.name: table for table in TABLES}
_WITHOUT_ID = ("binaries", "endings")


def portable(table: Table) -> str:
    """The query for the rows of `table` as they read in any file: no id, and for each reference the key of the row referred to."""
    columns = (f"{_portable(table, column, table.name)} AS {column}" for column in table.columns if column not in table.local)
    return f"SELECT {', '.join(columns)} FROM {table.name}"


def _portable(table: Table, column: str, alias: str) -> str:
    if column not in table.refers:
        return f"{alias}.{column}"
    target = BY_NAME[table.refers[column]]
    inner = f"{alias}_{column}"
    key = ", ".join(_portable(target, part, inner) for part in target.key)
    return f"(SELECT json_array({key}) FROM {target.name} {inner} WHERE {inner}.id = {alias}.{column})"


def merge(connection: sqlite3.Connection, table: Table, kernels_of: Collection[str]) -> int:
    """Add the rows of the attached database `source` to `table`; returns how many are new. Tables must come in the order of `TABLES`."""
    before = _count(connection, table)
    mapped = {column: _mapped(table, column) for column in table.columns}
    if "origin" in table.columns:
        mapped["origin"] = "'imported'"
    condition = "true"
    trusted = ", ".join(f"'{sha}'" for sha in kernels_of if sha.isalnum())
    of_trusted = f"s.template IN (SELECT id FROM source.templates WHERE sha IN ({trusted}))"
    if table.name == "instances":
        mapped["binary_sha"] = f"CASE WHEN {of_trusted} THEN s.binary_sha END"
    if table.name == "binaries":
        condition = f"s.sha IN (SELECT s.binary_sha FROM source.instances s WHERE {of_trusted})"
    connection.execute(
        f"INSERT INTO main.{table.name} ({', '.join(table.columns)}) SELECT {', '.join(mapped.values())} FROM source.{table.name} s "
        f"WHERE {condition} ON CONFLICT {table.clash}"
    )
    if table.name not in _WITHOUT_ID:
        same = " AND ".join(f"m.{column} IS {mapped[column]}" for column in table.key)
        connection.execute(f"CREATE TEMP TABLE new_{table.name} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
        connection.execute(
            f"INSERT INTO temp.new_{table.name} SELECT s.id, m.id FROM source.{table.name} s JOIN main.{table.name} m ON {same}"
        )
    return _count(connection, table) - before


def forget(connection: sqlite3.Connection) -> None:
    """Drop what `merge` noted about ids."""
    for table in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS temp.new_{table.name}")


def clashing_pins(connection: sqlite3.Connection) -> list[str]:
    """The pins that say something else in `source` than here, in words. Must be asked before merging them."""
    rows = connection.execute(
        "SELECT m.*, s.version, s.parameters, s.author, s.created > m.created FROM main.pinned m JOIN source.pinned s "
        "USING (device, operation, dtype, least_rows, most_rows, least_cols, most_cols) "
        "WHERE (m.version, m.parameters) <> (s.version, s.parameters)"
    )
    return [_clash(dict(zip((c[0] for c in rows.description), row, strict=True)), *row[-4:]) for row in rows]


def _clash(mine: dict[str, object], version: str, parameters: str, author: str, newer: int) -> str:
    sizes = f"rows {mine['least_rows']}-{mine['most_rows']}, cols {mine['least_cols']}-{mine['most_cols']}"
    kept = "the imported one is newer and stands" if newer else "the one here is newer and stands"
    return f"pin of {mine['operation']} {mine['dtype']}, {sizes}, on {mine['device']}: {author} pinned {version} {parameters}; {kept}"


def _mapped(table: Table, column: str) -> str:
    if column not in table.refers:
        return f"s.{column}"
    return f"(SELECT new FROM temp.new_{table.refers[column]} WHERE old = s.{column})"


def _count(connection: sqlite3.Connection, table: Table) -> int:
    return int(connection.execute(f"SELECT count(*) FROM main.{table.name}").fetchone()[0])
