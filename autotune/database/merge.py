"""How the rows of one database become rows of another: each table's portable key, what it refers to, and which row wins a clash.

Every rule picks the same row whichever comes first, so that imports commute and repeating one changes nothing. Of two rows with one key
that is the one of higher `rank`, then the one whose columns, in the order in which they are listed, first say something (NULL says nothing)
or first say the greater (numbers as numbers, texts by their bytes, references by the keys of what they refer to). A row is taken whole, so
that none comes about that nobody wrote; only the resources of an instance are facts each by itself. What was measured here is never
replaced.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field

Marks = dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """`key` are the columns that tell rows apart in any file, `data` the others; `refers` maps columns to the tables their ids are of.

    `rank` are SQL expressions by which one of two rows with the same key is preferred, ROW standing for either. `clash` ends an INSERT
    whose key is taken where another rule holds. `run` is the SQL of the run that a row was measured in: such a row cannot be updated.
    `local` are columns that only make sense in one file.
    """

    name: str
    key: tuple[str, ...]
    data: tuple[str, ...] = ()
    refers: Marks = field(default_factory=dict)
    rank: str = ""
    clash: str = ""
    run: str = ""
    local: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.data)


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _filled(columns: str) -> str:
    """Assignments that take over each of `columns` by itself: what is known beats NULL, and of two known values the greater stands."""
    return ", ".join(
        f"{c} = CASE WHEN excluded.{c} IS NULL OR instances.{c} >= excluded.{c} THEN instances.{c} ELSE excluded.{c} END"
        for c in columns.split()
    )


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
_RUN_OF_TRIAL = "(SELECT run FROM trials WHERE id = ROW.trial)"
_PINNED = "(SELECT version || parameters FROM configurations WHERE id = ROW.configuration)"

TABLES = (
    Table("devices", _columns(f"name compute_capability {_HARDWARE}"), ("arch",)),
    Table("environments", _columns("package python os driver cuda compiler pycuda")),
    Table(
        "protocols",
        ("name", "rule"),
        ("description",),
    ),
    Table(
        "runs",
        ("uuid",),
        _columns("device environment protocol command seed state started ended origin card"),
        {"device": "devices", "environment": "environments", "protocol": "protocols"},
        "ROW.ended IS NOT NULL, ROW.origin = 'local'",
        local=("origin",),
    ),
    Table(
        "templates",
        ("operation", "version", "sha"),
        ("text",),
    ),
    Table("configurations", ("operation", "version", "parameters")),
    Table("binaries", ("sha",), ("kind", "arch", "bytes", "packed"), clash="DO NOTHING"),  # the hash is that of the bytes
    Table(
        "instances",
        _columns("configuration dtype arch template flags compiler"),
        _columns(f"symbol {_RESOURCES} binary_sha"),
        {"configuration": "configurations", "template": "templates"},
        clash=f"DO UPDATE SET {_filled(_RESOURCES)}, binary_sha = coalesce(instances.binary_sha, excluded.binary_sha), "
        "symbol = iif(instances.binary_sha IS NULL AND excluded.binary_sha IS NOT NULL, excluded.symbol, instances.symbol)",
        local=("symbol", "binary_sha"),
    ),
    Table(
        "problems",
        _columns(f"operation rows cols dtype {_LAYOUT}"),
        ("bytes_moved",),
    ),
    Table(
        "trials",
        ("run", "number"),
        _columns("problem configuration template instance outcome max_error first_us message replayed created"),
        {"run": "runs", "problem": "problems", "configuration": "configurations", "template": "templates", "instance": "instances"},
        run="ROW.run",
    ),
    Table("endings", ("trial",), ("outcome", "message", "created"), {"trial": "trials"}, run=_RUN_OF_TRIAL),
    Table(
        "rounds",
        ("trial", "number"),
        _columns("kind median_us time_us samples_us launches_per_sample sm_clock_mhz throttled taken_at"),
        {"trial": "trials"},
        run=_RUN_OF_TRIAL,
    ),
    Table("copies", ("run", "number"), ("problem", "copy_us", "taken_at"), {"run": "runs", "problem": "problems"}, run="ROW.run"),
    Table(
        "best",
        ("device", "problem", "protocol"),
        _columns(_BEST),
        {"device": "devices", "problem": "problems", "protocol": "protocols", "configuration": "configurations", "template": "templates"}
        | {"trial": "trials", "runner_up": "configurations"},
        _BEST_RANK,
        local=("origin",),
    ),
    Table(
        "selectors",
        _columns("device operation dtype kind train_sha"),
        _columns("body regret_geomean regret_p95 regret_worst created"),
        {"device": "devices"},
        "ROW.created",
    ),
    Table(
        "pins",
        _columns("device operation dtype least_rows most_rows least_cols most_cols"),
        _columns("configuration author why created"),
        {"device": "devices", "configuration": "configurations"},
        f"ROW.created, {_PINNED}",
    ),
    Table(
        "blocked",
        _columns("device configuration dtype template problem"),
        ("reason", "created"),
        {"device": "devices", "configuration": "configurations", "template": "templates", "problem": "problems"},
        "ROW.created",
    ),
    Table(
        "misses",
        ("device", "problem"),
        ("tier", "configuration", "count", "last"),
        {"device": "devices", "problem": "problems", "configuration": "configurations"},
        "ROW.last, ROW.count, ROW.tier",
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
        f"WHERE {condition} ON CONFLICT {'DO NOTHING' if table.run else table.clash or _preferred(table)}"
    )
    if table.run:
        _replace_measured(connection, table, mapped)
    if table.name not in _WITHOUT_ID:
        same = " AND ".join(f"m.{column} IS {mapped[column]}" for column in table.key)
        connection.execute(f"CREATE TEMP TABLE new_{table.name} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
        connection.execute(
            f"INSERT INTO temp.new_{table.name} SELECT s.id, m.id FROM source.{table.name} s JOIN main.{table.name} m ON {same}"
        )
    return _count(connection, table) - before


def _preferred(table: Table) -> str:
    """The clash rule by which the row of higher rank stands."""
    taken = [column for column in table.data if column not in table.local]
    if not taken:
        return "DO NOTHING"
    kept = ("origin",) if table.name == "runs" else ()  # who made a run is the same when more of it becomes known
    sets = ", ".join(f"{column} = excluded.{column}" for column in table.data if column not in kept)
    return f"DO UPDATE SET {sets} WHERE {_outranks(table, 'excluded', table.name)}"


def _outranks(table: Table, one: str, other: str) -> str:
    """The condition that the row `one` differs from `other` of the same key and is to be preferred."""
    taken = [column for column in table.data if column not in table.local]
    differs = " OR ".join(f"{one}.{column} IS NOT {other}.{column}" for column in taken)

    def rank(row: str) -> str:
        each = (_portable(table, column, row) for column in taken)
        said = ", ".join(f"{value} IS NOT NULL, ifnull({value}, 0)" for value in each)
        return f"{table.rank.replace('ROW', row)}, {said}" if table.rank else said

    return f"({differs}) AND ({rank(one)}) > ({rank(other)})"


def _replace_measured(connection: sqlite3.Connection, table: Table, mapped: Marks) -> None:
    """Let the rows of `source` that outrank one of another run than those of this file take its place, and its id."""
    ids = () if table.name in _WITHOUT_ID else ("id",)
    same = " AND ".join(f"m.{column} IS {mapped[column]}" for column in table.key)
    columns = ", ".join((*(f"m.{name} AS {name}" for name in ids), *(f"{value} AS {column}" for column, value in mapped.items())))
    key = " AND ".join(f"kept.{column} = incoming.{column}" for column in table.key)
    connection.execute(
        f"WITH incoming AS (SELECT {columns} FROM source.{table.name} s JOIN main.{table.name} m ON {same}) "
        f"INSERT OR REPLACE INTO main.{table.name} ({', '.join((*ids, *mapped))}) "
        f"SELECT incoming.* FROM incoming JOIN main.{table.name} kept ON {key} WHERE {_outranks(table, 'incoming', 'kept')} "
        f"AND (SELECT origin FROM runs WHERE id = {table.run.replace('ROW', 'kept')}) <> 'local'"
    )


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
