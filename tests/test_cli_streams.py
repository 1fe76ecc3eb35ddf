"""Where standard output leads: a full disk and a closed descriptor are one sentence, a reader who is gone is none; each has one status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.streams import READER_GONE
from tests.report_samples import measured

ROOT = Path(__file__).parent.parent
SENTENCE = "autotune: standard output cannot be written ({}); redirect it to a file with room, or to /dev/null\n"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("streams") / "x.sqlite")


def shell(line: str, database: Path, **environment: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a line of bash in which `autotune` is the command and $DB the database."""
    prelude = f'autotune() {{ "{sys.executable}" -m autotune "$@"; }}\n'
    env = os.environ | {"PYTHONPATH": str(ROOT), "DB": str(database)} | environment
    done = subprocess.run(["bash", "-c", prelude + line], capture_output=True, text=True, env=env, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


FULL, CLOSED, READ_ONLY = ("> /dev/full", "No space left on device"), (">&-", "it is closed"), ("1< /dev/null", "Bad file descriptor")


@pytest.mark.parametrize(
    ("command", "to"),
    [
        ("inspect best --db $DB", FULL),
        ("inspect best --db $DB", CLOSED),
        ("inspect best --db $DB", READ_ONLY),
        ("inspect trials --csv --db $DB", FULL),
        ("inspect problems --json --db $DB", FULL),
        ('compare "$DB#Test GPU" "$DB#Test GPU"', FULL),
        ("prune --failed --db $DB", CLOSED),
        ("export $DB.export --db $DB", FULL),
        ("--version", FULL),
        ("", FULL),
    ],
)
def test_output_that_cannot_be_written_is_one_sentence_and_status_1(database: Path, command: str, to: tuple[str, str]) -> None:
    assert shell(f"autotune {command} {to[0]}", database) == (1, "", SENTENCE.format(to[1]))


@pytest.mark.parametrize(
    "command", ["inspect trials --csv --db $DB", "inspect trials --db $DB", "inspect trials --json --db $DB", "--help"]
)
def test_a_reader_who_is_gone_is_no_sentence_and_the_status_of_its_signal(database: Path, command: str) -> None:
    gone = f"{{ autotune {command}; echo $? >&2; }} | true"  # whose end is closed before the first write
    assert shell(gone, database) == (0, "", f"{READER_GONE}\n")


def test_what_goes_wrong_keeps_its_status_when_the_sentence_cannot_be_written(database: Path) -> None:
    for to in ("2> /dev/full", "2>&-"):
        assert shell(f"autotune inspect best --db /nowhere {to}", database) == (2, "", "")


def test_characters_that_a_terminal_cannot_show_are_spelled_out(database: Path) -> None:
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    status, out, err = shell("autotune inspect best --db $DB", database, **narrow)
    assert (status, err) == (0, "")
    assert out.isascii()
    assert json.loads(shell("autotune inspect best --json --db $DB", database, **narrow)[1])
