"""Rows that a hand, another program or a bad disk has spoilt: what is right in the file is shown, and one warning names what is not."""

import json
import shutil
from pathlib import Path

import pytest

from autotune.configuration import Configuration
from autotune.database.sound import NONSENSE, samples_of
from autotune.errors import UsageError
from tests.command import run
from tests.report_samples import measured
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
    ("inspect", "best", "--version", "v1", "--json"),
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
