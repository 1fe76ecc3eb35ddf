"""What two databases say about the same problems: what changed, and what of it is more than noise."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from autotune.database import Database
from autotune.database.read import CARE, StoredTrial
from autotune.database.sound import sound
from autotune.device import Device
from autotune.errors import UsageError
from autotune.statistics import confidence_interval
from autotune.trial import Round, TimingProtocol

Row = dict[str, Any]
Rounds = Sequence[Round]

# Two runs of the same kernel on one H200 agree within 1 %, so less than that is no change, however narrow the intervals of each run are.
RUN_TO_RUN = 0.01

_PROBLEM = (
    *("operation", "dtype", "rows", "cols", "input_stride", "output_stride", "input_alignment", "output_alignment", "in_place"),
    *("protocol", "protocol_rule"),
)


_SAMPLES = f"""
SELECT s.value AS us FROM rounds r, json_each(r.samples_us) s WHERE r.trial IN (
    SELECT trial FROM trial_results
    WHERE (device, {", ".join(_PROBLEM)}, version, json(parameters)) = (?, {", ".join("?" * len(_PROBLEM))}, ?, json(?)))
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a database and the device in it that is compared."""

    database: Database
    device: Device

    @classmethod
    def of(cls, database: Database, name: str | None) -> "Side":
        """The device called `name`, or the only one. Raises UsageError when there is none, or several to choose from."""
        there = database.devices_measured()
        found = [device for device in there if name in (None, device.name)]
        if not found:
            raise UsageError(f"database {database.path} has no trials{f' on {name}' if name else ''}; it has {_names(there)}")
        if len({device.name for device in found}) > 1:
            raise UsageError(f"database {database.path} has several devices: {_names(there)}; name one as {database.path}#DEVICE")
        return cls(database, found[0])


def compare_best(a: Side, b: Side, tolerance: float = RUN_TO_RUN) -> list[Row]:
    """The best of each problem that both have settled under the same protocol, in the order of a's rows.

    `change` is the time of b over that of a, less 1; `verdict` is "slower" or "faster" where the intervals of the two do not meet and
    the change is more than `tolerance`, else "same". An interval without width, as of one sample, says nothing of noise, and a replay of
    what the other side measured is no measurement: in both cases the verdict is "same".
    """
    theirs = {_key(row): row for row in b.database.best(device=b.device.name)}
    rows = []
    for mine in a.database.best(device=a.device.name):
        if other := theirs.get(_key(mine)):
            row = _best_row(mine, other, tolerance)
            replayed = row["verdict"] != "same" and (_replays(a, mine, b) or _replays(b, other, a))
            rows.append(row | {"verdict": "same"} if replayed else row)
    return rows


def compare_configurations(a: Side, b: Side, tolerance: float = RUN_TO_RUN) -> list[Row]:
    """The same for every configuration that was timed in both, by its latest trial of the most careful kind.

    Times are of the most careful kind of round that both trials have: the first times of a kernel and those against rivals differ. Where
    they have none in common there is nothing to compare.
    """
    rows = []
    for timing in a.database.protocols_measured(a.device):
        theirs = _latest(b, timing)
        for key, mine in _latest(a, timing).items():
            other = theirs.get(key)
            if other and (alike := _alike(mine, other)):
                rows.append(_configuration_row(mine, other, alike, timing, tolerance))
    return sorted(rows, key=lambda row: -abs(row["change"]))


def only_in(a: Side, b: Side) -> int:
    """How many problems a has settled that b has not, under the same protocol."""
    theirs = {_key(row) for row in b.database.best(device=b.device.name)}
    return sum(_key(row) not in theirs for row in a.database.best(device=a.device.name))


def differences(a: Side, b: Side) -> list[Row]:
    """What the times of the two depend on and that differs: `what`, `a`, `b`."""
    columns = ("driver", "cuda", "compiler", "pycuda", "package", "python", "os")
    mine, theirs = _templates(a), _templates(b)
    rows = [
        {"what": "device", "a": a.device.name, "b": b.device.name},
        {"what": "best kernels", "a": _how(a), "b": _how(b)},
        *({"what": column, "a": _environment(a, column), "b": _environment(b, column)} for column in columns),
        *({"what": f"template of {n}", "a": mine.get(n, ""), "b": theirs.get(n, "")} for n in sorted(mine.keys() | theirs.keys())),
    ]
    return [row for row in rows if row["a"] != row["b"]]


def _best_row(mine: Row, other: Row, tolerance: float) -> Row:
    change = other["time_us"] / mine["time_us"] - 1
    copies = mine["copy_us"] and other["copy_us"]
    return {
        **{column: mine[column] for column in _PROBLEM},
        "a_version": mine["version"],
        "a_parameters": mine["parameters"],
        "a_time_us": mine["time_us"],
        "a_fraction_of_copy": mine["fraction_of_copy"],
        "b_version": other["version"],
        "b_parameters": other["parameters"],
        "b_time_us": other["time_us"],
        "b_fraction_of_copy": other["fraction_of_copy"],
        "change": change,
        "copy_change": other["copy_us"] / mine["copy_us"] - 1 if copies else None,
        "same_configuration": (mine["version"], mine["parameters"]) == (other["version"], other["parameters"]),
        "verdict": _verdict(change, (mine["ci_low_us"], mine["ci_high_us"]), (other["ci_low_us"], other["ci_high_us"]), tolerance),
    }


def _configuration_row(
    mine: StoredTrial, other: StoredTrial, alike: tuple[Rounds, Rounds], timing: TimingProtocol, tolerance: float
) -> Row:
    a_time_us, b_time_us = (median(median(taken.samples_us) for taken in rounds) for rounds in alike)
    a_interval, b_interval = (confidence_interval([us for taken in rounds for us in taken.samples_us]) for rounds in alike)
    a_all, b_all = ({us for taken in trial.rounds for us in taken.samples_us} for trial in (mine, other))
    replay = (mine.replayed and a_all <= b_all) or (other.replayed and b_all <= a_all)
    problem = mine.problem
    change = b_time_us / a_time_us - 1
    return {
        "operation": problem.operation,
        "dtype": problem.dtype,
        "rows": problem.rows,
        "cols": problem.cols,
        "protocol": timing.name,
        "protocol_rule": timing.rule,
        "version": mine.configuration.version,
        "parameters": dict(mine.configuration.parameters),
        "a_time_us": a_time_us,
        "b_time_us": b_time_us,
        "change": change,
        "same_template": mine.template_sha == other.template_sha,
        "verdict": "same" if replay else _verdict(change, a_interval, b_interval, tolerance),
    }


def _alike(mine: StoredTrial, other: StoredTrial) -> tuple[Rounds, Rounds] | None:
    """The rounds of the most careful kind that both have; None where they have none in common."""
    for kind in CARE:
        a, b = ([taken for taken in trial.rounds if taken.kind == kind] for trial in (mine, other))
        if a and b:
            return a, b
    return None


def _verdict(change: float, a: tuple[float, float], b: tuple[float, float], tolerance: float) -> str:
    known = a[0] < a[1] and b[0] < b[1]
    apart = a[1] < b[0] or b[1] < a[0]
    if not known or not apart or abs(change) <= tolerance:
        return "same"
    return "slower" if change > 0 else "faster"


def _replays(side: Side, best: Row, other: Side) -> bool:
    """Whether `best` of `side` was chosen by times that `other` measured for the same configuration."""
    if not best["replayed"]:
        return False
    chosen = side.database.select("SELECT value AS us FROM rounds r, json_each(r.samples_us) WHERE r.trial = ?", (best["trial"],))
    problem = [best[column] for column in _PROBLEM]
    measured = other.database.select(_SAMPLES, (other.device.name, *problem, best["version"], json.dumps(best["parameters"])))
    return {row["us"] for row in chosen} <= {row["us"] for row in measured}


def _latest(side: Side, timing: TimingProtocol) -> dict[tuple[object, object], StoredTrial]:
    care = {"final": 2, "race": 1, "screen": 0}
    found: dict[tuple[object, object], StoredTrial] = {}
    for trial in _timed(side, timing):
        key = (trial.problem, trial.configuration)
        if key not in found or care[trial.evidence[0].kind] >= care[found[key].evidence[0].kind]:
            found[key] = trial
    return found


def _timed(side: Side, timing: TimingProtocol) -> Iterator[StoredTrial]:
    return (t for t in side.database.trials(side.device, timing) if t.outcome.timed and t.rounds)


def _how(side: Side) -> str:
    """How the best kernels of a side came about: measured, replayed from another database's measurements, or both."""
    replayed = {row["replayed"] for row in side.database.best(device=side.device.name)}
    return " and ".join("replayed" if one else "measured" for one in sorted(replayed))


def _environment(side: Side, column: str) -> str:
    rows = side.database.select(
        f"SELECT DISTINCT e.id, e.{column} FROM runs u JOIN environments e ON e.id = u.environment JOIN devices d ON d.id = u.device "
        "WHERE d.name = ? ORDER BY u.id",
        (side.device.name,),
    )
    said = dict.fromkeys(sound(side.database, "environments", rows, lambda row: str(row[column])))
    return ", ".join(one for one in said if one)


def _templates(side: Side) -> dict[str, str]:
    """The newest template of each version, by operation and version: the first twelve digits of its hash."""
    rows = side.database.select("SELECT id, operation, version, sha FROM templates ORDER BY id")
    return dict(sound(side.database, "templates", rows, lambda row: (f"{row['operation']} {row['version']}", row["sha"][:12])))


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row[column] for column in _PROBLEM)


def _names(devices: list[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices})) or "no device"
