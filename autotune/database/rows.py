"""What `inspect` shows: plain dicts, one per row, with units in the column names."""

from collections.abc import Mapping, Sequence

from autotune import arguments
from autotune.database.connection import Connection, Row
from autotune.database.credible import time_of_a_kernel
from autotune.database.sound import described, parameters_of, require_problem, require_trial, sound, without_id
from autotune.database.views import BEST_PER_VERSION_WHERE
from autotune.definition import MOST
from autotune.trial import LEAST_TIME_US, MOST_TIME_US


class Inspector(Connection):
    """The part of a database that answers questions of people. Filters left at None match everything."""

    def best(
        self,
        operation: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        dtype: str | None = None,
        device: str | None = None,
        version: str | None = None,
    ) -> list[Row]:
        """The best configuration of every problem. `spread`, `gap` and `fraction_of_copy` are ratios, `parameters` a dict.

        `spread` is None where there are fewer than four samples, or copies of one alone, which say nothing of it.
        """
        found = self._filtered("best_kernels", _BEST_ORDER, operation, rows, cols, dtype, device, version)
        best = sound(self, "best", found, _readable_best, "trial")
        unknown = self._of_few_samples([row["trial"] for row in best if not row["spread"]])
        return [row | {"spread": None} if row["trial"] in unknown else row for row in best]

    def _of_few_samples(self, trials: Sequence[int]) -> set[int]:
        """Those of `trials` whose most careful rounds, the kind first in the alphabet, have too few samples for a spread."""
        found = self.select(
            "SELECT r.trial FROM rounds r, json_each(r.samples_us) s WHERE r.trial IN (SELECT value FROM json_each(?)) "
            "AND r.kind = (SELECT min(kind) FROM rounds WHERE trial = r.trial) "
            "GROUP BY r.trial HAVING count(*) < 4 OR count(DISTINCT s.value) = 1",
            (str(list(trials)),),
        )
        return {row["trial"] for row in found}

    def best_per_version(
        self,
        operation: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        dtype: str | None = None,
        device: str | None = None,
        version: str | None = None,
        *,
        each: bool = False,
    ) -> list[Row]:
        """One right configuration of every version on every problem, fastest first within a problem: the settled best where it is of that
        version, else the fastest by the most careful kind of round that the version reached.

        With `each` every configuration of each template, in the order in which they would stand for their version.
        """
        filters = {"p.operation": operation, "p.rows": rows, "p.cols": cols, "p.dtype": dtype, "d.name": device, "c.version": version}
        where, parameters = _where(filters)
        apart = f", c.id, s.id{_CREDIBLE}" if each else _CREDIBLE
        found = BEST_PER_VERSION_WHERE.format(condition=where.removeprefix("WHERE ") or "true", apart=apart)
        order = f"{_BEST_ORDER}, {_STANDING if each else 'time_us'}"
        best = self.select(f"SELECT * FROM ({found}) f ORDER BY {order}", parameters)
        return sound(self, "trials", best, _readable_timed, "trial")

    def trial_rows(
        self,
        operation: str | None = None,
        rows: int | None = None,
        cols: int | None = None,
        dtype: str | None = None,
        device: str | None = None,
        version: str | None = None,
        outcome: str | None = None,
        limit: int = -1,
    ) -> list[Row]:
        """The trials, newest first, at most `limit` of them when that is not negative."""
        filters = {
            "operation": operation,
            "rows": rows,
            "cols": cols,
            "dtype": dtype,
            "device": device,
            "version": version,
            "outcome": outcome,
        }
        where, parameters = _where(filters)
        most = arguments.whole("limit", limit, -MOST, MOST)
        found = self.select(f"SELECT * FROM trial_results {where} ORDER BY trial DESC LIMIT ?", [*parameters, most])
        return sound(self, "trials", found, _readable_trial, "trial")

    def problems(self, operation: str | None = None) -> list[Row]:
        """The problems that have trials, with their layout and how many trials each has."""
        where, parameters = _where({"operation": operation})
        found = self.select(
            "SELECT id, operation, dtype, rows, cols, input_stride, output_stride, input_alignment, output_alignment, in_place, "
            f"bytes_moved, (SELECT count(*) FROM trials t WHERE t.problem = problems.id) AS trials FROM problems {where} "
            "ORDER BY operation, dtype, rows, cols, input_stride, output_stride",
            parameters,
        )
        tried = [row for row in found if row["trials"]]  # a miss or a copy that was noted names a problem, too
        return sound(self, "problems", tried, lambda row: without_id(require_problem(row)))

    def devices(self, operation: str | None = None) -> list[Row]:
        """The devices that trials were taken on, with how many problems have a best on each, and how many of those were replayed.

        With `operation` those on which it was tried, and only its problems and runs are counted. A run without trials is none.
        """
        _where({"operation": operation})
        problems = "SELECT id FROM problems WHERE ?1 IS NULL OR operation = ?1"
        runs = f"SELECT run FROM trials WHERE problem IN ({problems})"
        found = self.select(
            "SELECT id, name, compute_capability, arch, sm_count, l2_bytes, bus_bits, shared_bytes_per_block, shared_bytes_per_sm, "
            "registers_per_sm, threads_per_sm, threads_per_block, "
            f"(SELECT count(*) FROM best b WHERE b.device = devices.id AND b.problem IN ({problems})) AS problems, "
            "(SELECT count(*) FROM best b JOIN trials t ON t.id = b.trial AND t.replayed "
            f"WHERE b.device = devices.id AND b.problem IN ({problems})) AS replayed, "
            f"(SELECT count(*) FROM runs u WHERE u.device = devices.id AND u.id IN ({runs})) AS runs FROM devices "
            f"WHERE ?1 IS NULL OR id IN (SELECT device FROM runs WHERE id IN ({runs})) ORDER BY name, id",
            (operation,),
        )
        return sound(self, "devices", found, _device)

    def versions(self, operation: str | None = None) -> list[Row]:
        """The versions that are known, one row per template: its hash, configurations tried, trials, and problems that it is best on."""
        where, parameters = _where({"operation": operation})
        found = self.select(
            "SELECT id, operation, version, sha AS template_sha, "
            "coalesce(t.configurations, 0) AS configurations, coalesce(t.trials, 0) AS trials, "
            "(SELECT count(*) FROM best b WHERE b.template = s.id) AS best_on FROM templates s "
            "LEFT JOIN (SELECT template, count(*) AS trials, count(DISTINCT configuration) AS configurations "
            "FROM trials GROUP BY template) t ON t.template = s.id "
            f"{where} ORDER BY operation, version, id",
            parameters,
        )
        return sound(self, "templates", found, without_id)

    def misses(self, operation: str | None = None, device: str | None = None) -> list[Row]:
        """The problems that the dispatcher had no exact answer for, most wanted first, less those of sizes that were tuned since."""
        where, parameters = _where({"operation": operation, "device": device})
        left = f"{where} {'AND' if where else 'WHERE'} NOT EXISTS ({_TUNED_SINCE})"
        found = self.select(f"SELECT * FROM missed m {left} ORDER BY count DESC, rows, cols", parameters)
        return sound(self, "misses", found, require_problem, "last")

    def pins(self, operation: str | None = None) -> list[Row]:
        """The pins, by device, operation and sizes."""
        where, parameters = _where({"operation": operation})
        found = self.select(f"SELECT * FROM pinned {where} ORDER BY device, operation, dtype, least_rows, least_cols", parameters)
        return sound(self, "pins", found, _decided, "why")

    def blocked_rows(self, operation: str | None = None) -> list[Row]:
        """The blocked configurations; `rows` and `cols` are None where a configuration is blocked for every size."""
        where, parameters = _where({"operation": operation})
        order = "device, operation, dtype, version, parameters, rows, cols"
        found = self.select(f"SELECT * FROM blocked_configurations {where} ORDER BY {order}", parameters)
        return sound(self, "blocked", found, _decided, "reason")

    def _filtered(
        self, view: str, order: str, operation: object, rows: object, cols: object, dtype: object, device: object, version: object
    ) -> list[Row]:
        where, parameters = _where(
            {"operation": operation, "rows": rows, "cols": cols, "dtype": dtype, "device": device, "version": version}
        )
        return self.select(f"SELECT * FROM {view} {where} ORDER BY {order}", parameters)


# What has a time that cannot be is left out by itself, and takes nothing from the others of its version.
_CREDIBLE = f", r.time_us BETWEEN {LEAST_TIME_US} AND {MOST_TIME_US}"
_TUNED_SINCE = (
    "SELECT 1 FROM problems p JOIN best b ON b.problem = p.id JOIN devices d ON d.id = b.device "
    "WHERE (p.operation, p.dtype, p.rows, p.cols, d.name) = (m.operation, m.dtype, m.rows, m.cols, m.device) "
    "AND b.state IN ('provisional', 'confirmed') AND b.updated >= m.last"
)
_STANDING = "f.trial NOT IN (SELECT trial FROM best), replayed, (SELECT min(kind) FROM rounds WHERE trial = f.trial), time_us"
_BEST_ORDER = "device, operation, dtype, rows, cols, input_stride, output_stride, protocol, protocol_rule"


def _where(filters: Mapping[str, object]) -> tuple[str, Sequence[object]]:
    """The WHERE clause for those filters that are set, and its parameters. Raises UsageError for one of another kind than its column."""
    chosen = {column: _filter(column.rpartition(".")[2], value) for column, value in filters.items() if value is not None}
    clause = " AND ".join(f"{column} = ?" for column in chosen)
    return (f"WHERE {clause}" if clause else ""), list(chosen.values())


def _filter(column: str, value: object) -> int | str:
    if column in ("rows", "cols"):
        return arguments.whole(column, value, 0, MOST)
    return arguments.text(column, value, "give a text, or None for all")


_OF_NO_INTEREST = ("name", "registers_per_sm", "threads_per_sm", "threads_per_block")


def _device(row: Row) -> Row:
    described(row)
    return {"device": row["name"]} | {column: value for column, value in without_id(row).items() if column not in _OF_NO_INTEREST}


def _decided(row: Row) -> Row:
    return _readable({key: value for key, value in row.items() if key not in ("device_id", "problem_id")})


def _readable(row: Row) -> Row:
    """JSON text as objects, 0 and 1 as truth."""
    row["parameters"] = parameters_of(row["parameters"])
    for flag in ("replayed", "in_place", "beyond_noise"):
        if flag in row:
            row[flag] = bool(row[flag])
    return row


def _readable_trial(row: Row) -> Row:
    require_trial(row)
    return _readable(row)


def _readable_timed(row: Row) -> Row:
    time_of_a_kernel(row["time_us"])
    return _readable(require_problem(row))


def _readable_best(row: Row) -> Row:
    require_problem(row)
    version, parameters = row.pop("runner_up_version"), row.pop("runner_up_parameters")
    row["runner_up"] = {"version": version, "parameters": parameters_of(parameters)} if version else None
    return _readable(row) if version else _readable(row) | {"beyond_noise": None}
