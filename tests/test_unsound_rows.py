"""Rows that a hand, another program or a bad disk has spoilt: what is right in the file is shown, and one warning names what is not."""

import json
import shutil
import sqlite3
import warnings
from contextlib import closing, nullcontext, suppress
from itertools import product
from pathlib import Path

import pytest

from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.database.comparison import Side, compare_best, compare_configurations, differences, only_in
from autotune.database.credible import device_of
from autotune.database.sound import NONSENSE, samples_of
from autotune.database.t4 import document
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.report.data import collect
from autotune.selector.dense import missed
from autotune.selector.features import features
from autotune.selector.training import train
from autotune.sweeping import sweep
from autotune.trial import Outcome
from tests.command import refused, run
from tests.database_samples import DEVICE, FAST, PROBLEM, SLOW, SOURCE, begin, record, screen, settle
from tests.fake import FakeBackend
from tests.report_samples import measured
from tests.test_dispatch_bad_rows import without_constraints
from tests.test_sharing_faults import altered


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("whole") / "whole.sqlite")


DEEP = "[" * 2000 + "]" * 2000
PARAMETERS = ["[1]", "null", "5", '{"a":[1]}', '{"a":1e999}', '{"a":NaN}', '{"a":null}', "", "{", DEEP, '{"a":18446744073709551616}']
SAMPLES = ["null", "5", "[]", '["x"]', "[null]", "{}", "[1e999]", "[-1.0]", "[0]", "[true]", "{", DEEP]


def of(table: str, place: int) -> str:
    return f"(SELECT id FROM {table} ORDER BY id LIMIT 1 OFFSET {place})"


ONE_EACH = [
    f"UPDATE configurations SET parameters = '{DEEP}' WHERE id = {of('configurations', 0)}",
    f"UPDATE configurations SET parameters = '[1]' WHERE id = {of('configurations', 5)}",
    f"UPDATE rounds SET samples_us = '{DEEP}' WHERE id = {of('rounds', 1)}",
    f"UPDATE rounds SET samples_us = 'null' WHERE id = {of('rounds', 2)}",
    f"UPDATE rounds SET kind = 'guess' WHERE id = {of('rounds', 3)}",
    f"UPDATE rounds SET time_us = 0 WHERE id = {of('rounds', 4)}",
    f"UPDATE trials SET outcome = 'splendid' WHERE id = {of('trials', 6)}",
    "UPDATE runs SET origin = 'moon'",
    f"UPDATE best SET time_us = 0 WHERE id = {of('best', 0)}",
    f"UPDATE best SET time_us = 9e999 WHERE id = {of('best', 1)}",
    f"UPDATE problems SET cols = -9223372036854775808 WHERE id = {of('problems', 1)}",
    f"UPDATE problems SET rows = 9223372036854775807 WHERE id = {of('problems', 2)}",
    f"UPDATE problems SET dtype = 'decimal' WHERE id = {of('problems', 0)}",
]
COMMANDS = [
    ("inspect", "best", "--json"),
    ("inspect", "best", "--version", "v1"),  # of none of the templates that are here, so there is nothing to list
    ("inspect", "trials", "--json"),
    ("export", "--t4", "T4"),
    ("export", "--optuna", "OPTUNA"),
    ("report", "--html", "HTML"),
    ("rebuild",),
]


@pytest.mark.parametrize("text", PARAMETERS, ids=lambda text: text[:12])
def test_what_is_no_configuration_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="are not a JSON object of texts and finite numbers") as refused:
        Configuration.from_json("v1", text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", SAMPLES, ids=lambda text: text[:12])
def test_what_are_no_samples_is_nonsense(text: str) -> None:
    with pytest.raises(NONSENSE):
        samples_of(text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_spoilt_rows_are_left_out_with_one_warning_for_each_table(whole: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), *ONE_EACH)
    named = [str(tmp_path / word) if word.isupper() or word == "T4" else word for word in command]
    status, out, err = run(*named, "--db", str(path))
    told = err.splitlines()
    assert status == 0, err
    assert 1 <= len(told) <= 4, err
    assert all(f"warning: database {path}: " in line and "cannot be used and" in line for line in told), err
    assert len({line.partition(" of ")[2].split()[0] for line in told}) == len(told), err
    if "--json" in named:
        assert json.loads(out)


def test_a_device_that_cannot_be_is_left_out(whole: Path, tmp_path: Path) -> None:
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), "UPDATE devices SET compute_capability = 'nine'")
    status, _, err = run("rebuild", "--db", str(path))
    assert (status, err.count("\n")) == (0, 1)
    assert "of devices (" in err


def test_the_warning_names_file_table_and_row(whole: Path, tmp_path: Path) -> None:
    statement = "UPDATE configurations SET parameters = '[1]' WHERE id = (SELECT configuration FROM trials ORDER BY id DESC LIMIT 1)"
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), statement)
    _, out, err = run("inspect", "trials", "--json", "--db", str(path))
    (told,) = err.splitlines()
    assert f"warning: database {path}: the row with trial " in told
    assert "of trials (parameters '[1]' are not a JSON object" in told
    assert "more like it cannot be used and are left out" in told
    assert json.loads(out)


def test_a_comparison_passes_over_what_is_spoilt_on_either_side(whole: Path, tmp_path: Path) -> None:
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), *ONE_EACH)
    for pair in ((whole, path), (path, whole)):
        status, out, err = run("compare", *(f"{one}#Test GPU" for one in pair))
        assert status == 0, err
        assert all("cannot be used and" in line for line in err.splitlines())
        assert out


GARBAGE = [None, 2**62, float("inf"), b"\xff\xfe", "nonsense"]
EVERY = (
    *("devices", "environments", "protocols", "runs", "templates", "configurations", "instances", "problems", "trials", "rounds"),
    *("endings", "copies", "best", "selectors", "misses", "pins", "blocked"),
)


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One row and more of every table, and no constraint on any."""
    folder = tmp_path_factory.mktemp("loose")
    with Database(folder / "whole.sqlite", create=True) as db:
        run = begin(db)
        fast, _ = record(db, run, FAST, [screen(40.0), screen(41.0)]), record(db, run, SLOW, [screen(50.0)])
        db.finish(record(db, run, SLOW), Outcome.CRASHED, "it hums")
        db.record_copy(run, PROBLEM, 39.0)
        settle(db, run, fast, FAST, 40.5)
        db.pin(DEVICE, "softmax", "float32", (1, 1), (2000, 2000), FAST, author="me", why="calm")
        db.block(DEVICE, "softmax", SLOW, SOURCE.sha, "float32", "it hums", PROBLEM)
        db.add_misses(DEVICE, [(Problem("softmax", 5, 5), "nearest", FAST, 3)])
        db.store_selector(DEVICE, "softmax", "float32", "tree", "{}", "of no use", (1.0, 1.0, 1.0))
    return without_constraints(folder / "whole.sqlite", folder / "loose.sqlite")


def holds_bytes(found: object) -> bool:
    match found:
        case dict():
            return any(map(holds_bytes, found.values()))
        case list() | tuple():
            return any(map(holds_bytes, found))
    return isinstance(found, bytes)


def asked(db: Database) -> list[object]:
    """All that a database can be asked."""
    softmax, side = load("softmax"), Side(db, DEVICE)
    trials = db.trial_rows()
    found: list[object] = [db.best(), db.best_per_version(), trials, db.problems(), db.devices(), db.versions(), db.misses(), db.pins()]
    found += [db.blocked_rows(), document(db, trials), collect(db), missed(db, softmax, DEVICE.name), db.templates_tried("softmax")]
    found += [differences(side, side), only_in(side, side), compare_best(side, side), compare_configurations(side, side)]
    for device in db.devices_measured():
        found.append(db.blocked(device, "softmax", "float32", PROBLEM))
        for timing in db.protocols_measured(device):
            asked_of = (device, timing, PROBLEM)
            found += [db.environment_of(device, timing), db.problems_measured("softmax", device, timing), db.copy_us(*asked_of)]
            found += [db.settled(*asked_of), db.trials(device, timing), db.attempts(*asked_of)]
            found.append(train(db, softmax, device, timing, "float32"))
    return found


@pytest.mark.parametrize("table", EVERY)
def test_whatever_a_column_holds_every_question_is_answered_with_one_warning_a_table(loose: Path, tmp_path: Path, table: str) -> None:
    for value in GARBAGE:
        path = Path(shutil.copy(loose, tmp_path / "x.sqlite"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            connection.execute(f"CREATE TABLE whole AS SELECT * FROM {table}")
            for column in columns[1:]:  # each row again for each of its columns, which holds garbage; an id is a number, come what may
                listed = ", ".join("?" if name == column else name for name in columns)
                connection.execute(f"INSERT INTO {table} SELECT {listed} FROM whole", (value,))
        with warnings.catch_warnings(record=True) as caught, Database(path, mode="read") as db:
            warnings.simplefilter("always")
            assert not holds_bytes(asked(db)), value
            with suppress(UsageError) if isinstance(value, bytes) else nullcontext():
                db.manifest()
        told = [str(one.message) for one in caught]
        assert all("cannot be used and" in said for said in told), (value, told)
        assert len({said.partition(" of ")[2].split()[0] for said in told}) == len(told), (value, told)


IMPOSSIBLE = {
    "a matrix without rows": ("UPDATE problems SET rows = 0 WHERE rows = 64", "of a size or layout that no matrix has"),
    "a stride without end": ("UPDATE problems SET input_stride = 1 << 50", "of a size or layout that no matrix has"),
    "a time of no length": ("UPDATE best SET time_us = 1e-320", "with a time that no kernel takes"),
    "a round of no length": ("UPDATE rounds SET time_us = 1e-320", "with a time that no kernel takes"),
    "a sample of centuries": ("UPDATE rounds SET samples_us = '[1e20]'", "whose samples are not a list of times that a kernel takes"),
    "a first launch of centuries": ("UPDATE trials SET first_us = 1e20", "with a time that no kernel takes"),
    "a GPU without SMs": ("UPDATE devices SET sm_count = 0", "with properties that no device has"),
    "a GPU with less than no cache": ("UPDATE devices SET l2_bytes = -1", "with properties that no device has"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_is_neither_imported_nor_in_the_way_of_rebuilding(whole: Path, tmp_path: Path, what: str) -> None:
    statement, sentence = IMPOSSIBLE[what]
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), statement)
    assert sentence in refused("import", str(path), "--db", str(tmp_path / "mine.sqlite"))
    status, out, err = run("rebuild", "--db", str(path))
    assert (status, bool(out)) == (0, True), err
    assert all("cannot be used and" in line for line in err.splitlines())


@pytest.mark.parametrize("time_us", [0, -5, 1e-320, 1e300, None])
def test_a_time_that_cannot_be_takes_nothing_from_the_others_of_its_version(whole: Path, tmp_path: Path, time_us: float | None) -> None:
    with Database(whole, mode="read") as db:
        before = db.best_per_version(version="v2")
    spoilt, said = before[0]["trial"], "NULL" if time_us is None else repr(time_us)
    path = altered(Path(shutil.copy(whole, tmp_path / "x.sqlite")), f"UPDATE rounds SET time_us = {said} WHERE trial = {spoilt}")
    with Database(path, mode="read") as db, pytest.warns(UserWarning, match=f"trial {spoilt} of trials .* is no time that a kernel takes"):
        after = db.best_per_version(version="v2")
    assert len(after) == len(before)
    assert after[0]["trial"] != spoilt
    assert after[1:] == before[1:]


def test_a_selector_that_cannot_be_read_is_trained_again_with_a_warning(tmp_path: Path) -> None:
    path, device = tmp_path / "x.sqlite", FakeBackend.device
    sizes = [Problem("softmax", rows, cols) for rows, cols in product((1, 64, 4096), (128, 1000, 8192))]
    softmax, timing = load("softmax"), FakeBackend.timing
    with Database(path, create=True) as db:
        backend = FakeBackend(lambda c, p: 10.0 + c.integer("block") / p.cols)
        sweep(softmax, sizes, backend, db, versions=("v0",), learn=False)
        assert train(db, softmax, device, timing, "float32")
        (stored,) = db.select("SELECT body FROM selectors")
    altered(path, "UPDATE selectors SET body = '{}'")
    with Database(path) as db:
        with pytest.warns(UserWarning, match=r"x\.sqlite: the selector for softmax float32 on Fake GPU .* cannot be used, and another"):
            trained = train(db, softmax, device, timing, "float32")
        assert trained is not None
        assert trained.changed
        assert db.select("SELECT body FROM selectors") == [stored]


def test_a_miss_that_no_matrix_can_be_is_passed_over(loose: Path, tmp_path: Path) -> None:
    for statement in ("dtype = 'decimal'", f"cols = {2**62}", "rows = 0", "input_alignment = 7777777"):
        path = altered(Path(shutil.copy(loose, tmp_path / "x.sqlite")), f"UPDATE problems SET {statement} WHERE rows = 5")
        with Database(path, mode="read") as db, pytest.warns(UserWarning, match="of misses"):
            assert missed(db, load("softmax"), DEVICE.name) == []


def test_a_recording_is_replayed_whatever_its_templates_are_said_to_be_of(tmp_path: Path) -> None:
    problem, path = Problem("softmax", 64, 1000), tmp_path / "x.sqlite"
    with Database(path, create=True) as db:
        sweep(load("softmax"), [problem], FakeBackend(lambda c, _: 10.0 + c.integer("block")), db, versions=("v0",), learn=False)
        (before,) = db.best()
    altered(path, "UPDATE templates SET version = 'q'")
    recorded = RecordedBackend(path)
    with closing(recorded), Database(tmp_path / "y.sqlite", create=True) as db:
        sweep(load("softmax"), [problem], recorded, db, versions=("v0",))
        (after,) = db.best()
    assert (after["version"], after["parameters"]) == (before["version"], before["parameters"])


def test_a_device_that_is_known_by_its_name_alone_can_be_asked_about_and_one_that_lacks_only_its_sms_cannot_be() -> None:
    unknown = device_of("GPU", "0.0", 0, 0, 0, 0, 0, 0, 0, 0)
    assert features(PROBLEM, unknown)[0] == features(PROBLEM, unknown)[1]
    with pytest.raises(ValueError, match="no device has such properties"):
        device_of("GPU", "9.0", 0, 1, 0, 0, 0, 0, 0, 0)
