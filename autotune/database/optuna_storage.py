"""Trials as an Optuna storage in one SQLite file, one study per problem, for optuna-dashboard and Optuna's own plots.

Optuna makes the file and the studies. The trials are inserted into its tables: through its interface one of them costs 80 ms, which for
a measured database is minutes.
"""

import json
import shutil
import sqlite3
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from autotune.configuration import VERSION
from autotune.database.connection import Row
from autotune.database.faults import is_full, no_room_to_work
from autotune.database.placing import new_file, scratch_folder
from autotune.errors import AutotuneError
from autotune.finite import finite
from autotune.trial import Outcome

ATTRIBUTES = ("outcome", "message", "gb_per_s", "max_error", "registers", "spill_bytes", "static_shared_bytes", "evidence", "template_sha")


def export(trials: Iterable[Row], path: Path) -> int:
    """Write trials, as `Database.trial_rows` gives them, to the new file `path`; returns how many studies it holds.

    The value of a trial is its time in microseconds; one that left the race early is "pruned", one that failed is "fail". Raises
    UsageError when `path` exists or cannot be written, StorageError when there is no room.
    """
    studies: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(trials, key=lambda row: row["trial"]):
        studies[_name(row)].append(row)
    with new_file(path) as partial, scratch_folder("optuna") as folder:
        work = folder / "optuna.sqlite"
        _fill(work, studies)
        shutil.copyfile(work, partial)
    return len(studies)


def _fill(path: Path, studies: Mapping[str, list[Row]]) -> None:
    import optuna
    from sqlalchemy.exc import OperationalError

    try:
        _make_studies(path, studies)
        with closing(sqlite3.connect(path)) as connection, connection:
            for name, rows in studies.items():
                _add_trials(connection, name, rows)
    except (sqlite3.Error, OperationalError, optuna.exceptions.StorageInternalError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, sqlite3.Error):
            cause = cause.__cause__
        if cause is not None and is_full(cause):
            raise no_room_to_work(cause) from error
        raise AutotuneError(
            f"Optuna {optuna.__version__} stores trials in a way that this autotune does not know ({cause or error}); install optuna<6"
        ) from error


def _make_studies(path: Path, names: Iterable[str]) -> None:
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of names of metrics
            for name in names:
                optuna.create_study(storage=storage, study_name=name, direction="minimize").set_metric_names(["time, us"])
        storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)


def _add_trials(connection: sqlite3.Connection, name: str, rows: list[Row]) -> None:
    (study,) = connection.execute("SELECT study_id FROM studies WHERE study_name = ?", (name,)).fetchone()
    (first,) = connection.execute("SELECT coalesce(max(trial_id), 0) + 1 FROM trials").fetchone()
    choices = _choices(rows)
    for number, row in enumerate(rows):
        trial, at = first + number, row["created"].replace("T", " ").rstrip("Z")[:23]
        connection.execute(
            "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete) VALUES (?, ?, ?, ?, ?, ?)",
            (trial, number, study, _state(row), at, at),
        )
        connection.executemany(
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, ?, ?, ?)",
            [(trial, key, choices[key][0].index(value), choices[key][1]) for key, value in _parameters(row).items()],
        )
        connection.executemany(
            "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?, ?, ?)",
            [(trial, key, json.dumps(row[key])) for key in ATTRIBUTES if finite(row[key]) not in (None, "")],
        )
        if finite(row["time_us"]) is not None:
            connection.execute(
                "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, 0, ?, 'FINITE')", (trial, row["time_us"])
            )


def _choices(rows: Iterable[Row]) -> dict[str, tuple[list[Any], str]]:
    """The values of each parameter of a study, and that set as Optuna writes it; versions that share a name share the set."""
    from optuna.distributions import CategoricalDistribution, distribution_to_json

    found: dict[str, set[Any]] = defaultdict(set)
    for row in rows:
        for key, value in _parameters(row).items():
            found[key].add(value)
    ordered = {key: sorted(values, key=lambda value: (isinstance(value, str), value)) for key, values in found.items()}
    return {key: (values, distribution_to_json(CategoricalDistribution(values))) for key, values in ordered.items()}


def _parameters(row: Row) -> dict[str, Any]:
    return {VERSION: row["version"], **row["parameters"]}


def _state(row: Row) -> str:
    outcome = Outcome(row["outcome"])
    if finite(row["time_us"]) is None or not outcome.timed:
        return "FAIL"
    return "PRUNED" if outcome is Outcome.PRUNED else "COMPLETE"


def _name(row: Row) -> str:
    """One study per problem, device and protocol, named so that they sort and differ in any layout."""
    layout = (
        ""
        if (row["input_stride"], row["output_stride"]) == (row["cols"], row["cols"])
        else f" strides {row['input_stride']} {row['output_stride']}"
    )
    if min(row["input_alignment"], row["output_alignment"]) < 16:
        layout += f" aligned to {row['input_alignment']} and {row['output_alignment']} bytes"
    layout += " in place" if row["in_place"] else ""
    size = f"{row['rows']}x{row['cols']}"
    return f"{row['operation']} {size} {row['dtype']}{layout} on {row['device']}, {row['protocol']} rule {row['protocol_rule']}"
