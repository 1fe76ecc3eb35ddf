"""What the report shows, asked from a database: plain rows, grouped by what may be compared.

A series is one operation on one device with one dtype under one protocol, either measured or replayed: nothing is ever compared across
series. Only trials of each version's newest template in the database count; how many others there are is said in the provenance. Of a
series with very many sizes some are shown, spread over all of them, so that a report on a million trials takes no longer than one on a
hundred thousand; the page says so.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from autotune.cli.output import on_device, parameters
from autotune.database import Database
from autotune.database.sound import parameters_of, require_problem, sound, without_id
from autotune.report.effects import Tally
from autotune.report.plane import cells
from autotune.trial import Outcome

Row = dict[str, Any]

SERIES = ("device", "operation", "dtype", "protocol", "protocol_rule", "replayed")
LAYOUT = ("input_stride", "output_stride", "input_alignment", "output_alignment", "in_place")
MOST_REASONS = 20
MOST_SIZES = 750  # of a series: of many more than that most would cover each other
MOST_IN_MEMORY = 20_000  # trials
MOST_TRIALS = 5000  # of a size, the first ones: several times what the largest space has

_NEWEST = "(SELECT max(id) FROM templates GROUP BY operation, version)"
_TRIALS = f"""
SELECT t.id, t.problem, c.version, c.parameters, coalesce(e.outcome, t.outcome) AS outcome,
       CASE WHEN e.message <> '' THEN e.message ELSE t.message END AS message, r.time_us, r.kind
FROM (SELECT *, row_number() OVER (PARTITION BY problem ORDER BY id) AS place FROM trials
      WHERE problem IN (SELECT value FROM json_each(?)) AND replayed = ? AND template IN {_NEWEST}
      AND run IN (SELECT u.id FROM runs u JOIN devices d ON d.id = u.device JOIN protocols q ON q.id = u.protocol
                  WHERE (d.name, q.name, q.rule) = (?, ?, ?))) t
JOIN configurations c ON c.id = t.configuration
LEFT JOIN endings e ON e.trial = t.id
LEFT JOIN rounds r ON r.id = (SELECT id FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1)
WHERE t.place <= {MOST_TRIALS}
ORDER BY t.problem, t.place
"""
_MEASURED = f"""
SELECT d.name AS device, p.operation, p.dtype, q.name AS protocol, q.rule AS protocol_rule, t.replayed, p.id, p.rows, p.cols,
       p.input_stride, p.output_stride, p.input_alignment, p.output_alignment, p.in_place, sum(t.trials) AS trials
FROM (SELECT run, problem, replayed, count(*) AS trials FROM trials WHERE template IN {_NEWEST} GROUP BY run, problem, replayed) t
JOIN runs u ON u.id = t.run
JOIN devices d ON d.id = u.device
JOIN protocols q ON q.id = u.protocol
JOIN problems p ON p.id = t.problem
WHERE (?1 IS NULL OR d.name = ?1) AND (?2 IS NULL OR p.dtype = ?2)
GROUP BY d.name, p.operation, p.dtype, q.name, q.rule, t.replayed, p.id
ORDER BY d.name, p.operation, p.dtype, q.name, q.rule, t.replayed, p.rows, p.cols, p.id
"""
_PROVENANCE = f"""
SELECT e.id, e.driver, e.cuda, e.compiler, e.pycuda, e.package, e.python, e.os, u.card, q.description AS protocol_description,
       min(u.started) AS first, max(u.started) AS last,
       group_concat(DISTINCT CASE typeof(u.origin) WHEN 'text' THEN u.origin END) AS origin, count(DISTINCT u.id) AS runs,
       count(*) AS trials, sum(t.template NOT IN {_NEWEST}) AS of_older_templates,
       min(u.command GLOB 'autotune[ .]sweep*' AND u.command NOT LIKE '%--exhaustive%') AS searched
FROM trials t
JOIN problems p ON p.id = t.problem
JOIN runs u ON u.id = t.run
JOIN devices d ON d.id = u.device
JOIN protocols q ON q.id = u.protocol
JOIN environments e ON e.id = u.environment
WHERE (d.name, p.operation, p.dtype, q.name, q.rule, t.replayed) = (?, ?, ?, ?, ?, ?)
GROUP BY e.id, u.card, q.description ORDER BY first
"""


def collect(database: Database, device: str | None = None, dtype: str | None = None) -> list[Row]:
    """The series of `database`, each with all that its charts and tables show; of one device or dtype when given."""
    best = {(*_series_key(row), row["rows"], row["cols"], *_layout(row)): row for row in database.best(device=device, dtype=dtype)}
    found = []
    for key, measured in groupby(database.select(_MEASURED, (device, dtype)), _series_key):
        every = sound(database, "problems", measured, require_problem)
        if not every:
            continue
        shown = _spread(every)
        settled = {row["id"]: best.get((*key, row["rows"], row["cols"], *_layout(row))) for row in shown}
        tallies = [tally for some in _batches(shown) for tally in _tallied(database, some, settled)]
        problems = [_problem(tally, settled[tally.problem]) for tally in tallies]
        counted = {"sizes_in_all": len(every), "trials_in_all": sum(row["trials"] for row in every)}
        provenance = sound(database, "environments", database.select(_PROVENANCE, key), without_id)
        # Only of a search does the order of trials mean anything: what was enumerated was tried in the order in which it is declared.
        searched = min((row.pop("searched") for row in provenance), default=0) == 1
        told = counted | _series(problems, tallies) | {"provenance": provenance, "searched": searched}
        named = dict(zip(SERIES, key, strict=True))
        found.append(named | {"device": on_device(named["device"], named["replayed"])} | told)
    return found


def _spread(measured: list[Row]) -> list[Row]:
    """At most MOST_SIZES of the sizes, evenly spread over their order by rows and columns, the first and the last among them."""
    if len(measured) <= MOST_SIZES:
        return measured
    return [measured[place * (len(measured) - 1) // (MOST_SIZES - 1)] for place in range(MOST_SIZES)]


def _batches(measured: list[Row]) -> Iterator[list[Row]]:
    """The sizes in batches of about MOST_IN_MEMORY trials: one question for each size would read a file without indexes as often."""
    batch, trials = list[Row](), 0
    for row in measured:
        batch.append(row)
        trials += min(row["trials"], MOST_TRIALS)
        if trials >= MOST_IN_MEMORY:
            yield batch
            batch, trials = [], 0
    if batch:
        yield batch


def _tallied(database: Database, measured: list[Row], settled: Mapping[int, Row | None]) -> list[Tally]:
    """What the trials of each of these sizes of one series add up to."""
    tallies = {}
    for row in measured:
        best = settled[row["id"]]
        tallies[row["id"]] = Tally(row["id"], row["rows"], row["cols"], _layout(row), best["trial"] if best else None)
    series = [measured[0][name] for name in ("replayed", "device", "protocol", "protocol_rule")]
    sound(database, "trials", database.select(_TRIALS, (json.dumps(list(tallies)), *series)), lambda trial: _add(tallies, trial))
    return list(tallies.values())


def _add(tallies: Mapping[int, Tally], trial: Row) -> None:
    Outcome(trial["outcome"])
    parameters_of(trial["parameters"])
    tallies[trial["problem"]].add(trial)


def _problem(tally: Tally, best: Row | None) -> Row:
    """One size: what was settled for it, or where nothing was, the fastest that was seen."""
    fastest = min(tally.versions.items(), key=lambda item: item[1]["time_us"], default=(None, {"time_us": None, "parameters": "{}"}))
    chosen: Row = best or {"version": fastest[0], "parameters": fastest[1]["parameters"], "time_us": fastest[1]["time_us"]}
    following = chosen.get("runner_up")
    return {
        "size": tally.size,
        "rows": tally.rows,
        "cols": tally.cols,
        "version": chosen["version"],
        "configuration": parameters(chosen["parameters"]),
        "time_us": chosen["time_us"],
        "plus_minus": (chosen["ci_high_us"] - chosen["ci_low_us"]) / 2 / chosen["time_us"] if best else None,
        "gb_per_s": chosen.get("gb_per_s"),
        "copy_us": chosen.get("copy_us"),
        "fraction_of_copy": chosen.get("fraction_of_copy"),
        "tried": best["trials"] if best else None,
        "trials": tally.trials,
        "state": chosen.get("state", "not settled"),
        "runner_up": f"{following['version']} {parameters(following['parameters'])}" if following else None,
        "gap": chosen.get("gap"),
        "beyond_noise": chosen.get("beyond_noise"),
    }


def _series(problems: list[Row], tallies: list[Tally]) -> Row:
    timed = [p for p in problems if p["version"]]
    failures = sum((tally.failures for tally in tallies), Counter[tuple[str, str]]())
    reasons = sum((tally.reasons for tally in tallies), Counter[tuple[str, str, str]]())
    return {
        "problems": problems,
        "plane": cells(timed),
        "shares": _shares(problems, tallies),
        "failures": [{"version": v, "outcome": o, "count": n} for (v, o), n in sorted(failures.items())],
        "reasons": [{"version": v, "outcome": o, "message": m, "count": n} for (v, o, m), n in reasons.most_common(MOST_REASONS)],
        "sizes": [{"size": tally.size, "effects": tally.effects(), "convergence": tally.curve()} for tally in tallies],
    }


def _shares(problems: list[Row], tallies: list[Tally]) -> list[Row]:
    """The best of each version at each size. `leading` marks one size for each doubling of columns: the largest with aligned rows.

    Of those, a version's with the same `stretch` follow each other without a missing doubling; elsewhere it is None.
    """
    leading: dict[int, Tally] = {}
    for tally in sorted(tallies, key=lambda t: (t.cols % 8 == 0, t.rows * t.cols)):
        leading[round(math.log2(max(tally.cols, 1)))] = tally
    stretches = _stretches(leading)
    return [
        {
            "size": tally.size,
            "rows": tally.rows,
            "cols": tally.cols,
            "version": version,
            "configuration": parameters(fastest["parameters"]),
            "time_us": fastest["time_us"],
            "share": problem["copy_us"] / fastest["time_us"] if problem["copy_us"] else None,
            "leading": any(tally is leader for leader in leading.values()),
            "stretch": stretches.get((tally.problem, version)),
        }
        for problem, tally in zip(problems, tallies, strict=True)
        for version, fastest in sorted(tally.versions.items(), key=lambda item: (len(item[0]), item[0]))
    ]


def _stretches(leading: dict[int, Tally]) -> dict[tuple[int, str], int]:
    """By problem and version, the doubling of columns at which the unbroken run of doublings begins in which the version was tried."""
    found: dict[tuple[int, str], int] = {}
    for doubling, tally in sorted(leading.items()):
        before = leading.get(doubling - 1)
        for version in tally.versions:
            found[tally.problem, version] = found.get((before.problem, version), doubling) if before else doubling
    return found


def _series_key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SERIES)


def _layout(row: Row) -> tuple[Any, ...]:
    return tuple(int(row[name]) for name in LAYOUT)


def embeddable(document: Any) -> str:
    """JSON that may stand inside a script element: it holds no "<", and NaN, which JSON lacks, is null.

    Numbers have six significant digits. A list of rows with the same keys is written as {"$keys": […], "$rows": […]}, a third of the size.
    """
    return json.dumps(_packed(document), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _packed(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.6g}") if abs(value) < float("inf") else None
        case dict():
            return {key: _packed(item) for key, item in value.items()}
        case list() | tuple():
            keys = list(value[0]) if value and isinstance(value[0], dict) else []
            if keys and all(isinstance(item, dict) and list(item) == keys for item in value):
                return {"$keys": keys, "$rows": [[_packed(item) for item in row.values()] for row in value]}
            return [_packed(item) for item in value]
    return value
