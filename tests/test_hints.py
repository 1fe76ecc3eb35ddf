"""Commands that messages tell their reader to run next: they can be copied, and speak of the same database and the same kernels."""

import re
import shlex
from pathlib import Path

import pytest

from autotune.cli.hints import hint
from tests.command import rows, run


def commands(text: str) -> list[list[str]]:
    return [shlex.split(found)[1:] for found in re.findall(r"`(autotune [^`]*)`", text)]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "my measurements.sqlite"
    status, _, err = run("sweep", "softmax", "--size", "5x7", "--device", "emulator", "--trials", "2", "--db", str(path))
    assert (status, err) == (0, "")
    return path


def test_a_command_outside_of_any_other_is_as_it_was_said() -> None:
    assert hint("inspect", "best", "--size", "5x7") == "autotune inspect best --size 5x7"


ASKED = (
    ("inspect", "best", "--size", "6x8"),
    ("inspect", "trials", "--size", "6x8", "--device", "emulator"),
    ("unpin", "softmax", "5x7", "--device", "emulator"),
    ("unblock", "softmax"),
    ("unblock", "softmax", "v0 block 128", "--device", "emulator"),
    ("report", "--png", "x.png", "--dtype", "bfloat16"),
    ("export", "--t4", "x.json", "--dtype", "bfloat16"),
    ("sweep", "softmax", "--size", "5x7", "--device", "emulator", "--trials", "2"),
)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_commands_that_a_message_quotes_name_the_database_that_it_is_about(
    db: Path, asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run as it stands; what a mutating one does is its own matter, as is one that tunes."""
    monkeypatch.chdir(tmp_path)
    _, out, err = run(*asked, "--db", str(db))
    quoted = commands(out + err)
    assert quoted
    for words in quoted:
        assert words[words.index("--db") + 1] == str(db)
        if words[0] in ("inspect", "report"):
            assert run(*words)[0] == 0


def test_a_command_that_knows_kernels_of_ones_own_names_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    asked = ("sweep", "softmax", "--size", "5x7", "--device", "emulator", "--trials", "2", "--db", "a.sqlite", "--kernels", "mine")
    _, out, _ = run(*asked)
    assert [words for words in commands(out) if words[:2] == ["inspect", "best"]] == [
        ["inspect", "best", "--db", "a.sqlite", "--kernels", "mine"]
    ]
    assert all("--kernels" not in words for words in commands(out) if words[0] == "report")  # which does not take it


def test_a_prune_says_that_what_counts_as_tried_is_what_is_left(db: Path) -> None:
    _, out, _ = run("prune", "--older-than", "0", "--yes", "--db", str(db))
    assert out.endswith("and 1 problem was settled again by what is left, which is all that inspect best counts as tried now\n")
    assert [row["trials"] for row in rows("inspect", "best", "--db", str(db))] == [1]
