"""The example of docs/own_kernels.md, right and with a mistake in it: what `verify` and `sweep` say of it."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.database import Database
from autotune.definition import Bounds, Launch
from autotune.operation import Tolerance
from tests.command import rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "own_kernels.md"
FILE = re.compile(r"^```\w+\n((?:#|//) (mine/\S+)\n.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    for text, name in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "mine"


def test_the_page_names_everything_that_a_definition_may_hold() -> None:
    page = PAGE.read_text(encoding="utf-8")
    catalogue = (PAGE.parent.parent / "autotune" / "catalogue.py").read_text(encoding="utf-8")
    read = set(re.findall(r'declared(?:\[|\.get\()"(\w+)"', catalogue))
    assert {"TEMPLATE", "SAFE", "FITTED", "IN_PLACE", "fit"} <= read
    fields = {field.name for kind in (Bounds, Launch, Tolerance) for field in dataclasses.fields(kind)}
    missing = {name for name in (read - {"__doc__"}) | fields if not re.search(rf"[`(]{name}[`(,)]|, {name}\)`", page)}
    assert not missing


def test_what_the_page_says_in_python_runs(mine: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(import autotune.*?)^```$", page, re.MULTILINE | re.DOTALL)
    swept = autotune("sweep", "halve", "--kernels", mine, "--size", "2x3", "--trials", "1", "--db", mine.parent / "mine.sqlite")
    assert swept.returncode == 0, swept.stderr
    told = rows("explain", "halve", "2x3", "--kernels", str(mine), "--db", str(mine.parent / "mine.sqlite"))
    assert [(row["device"], row["tier"]) for row in told] == [("emulator", "exact")]
    done = subprocess.run([sys.executable, "-c", program], cwd=mine.parent, capture_output=True, text=True)
    assert done.stdout == "[[0.  0.5 1. ]\n [1.5 2.  2.5]]\n", done.stderr


def autotune(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "autotune", *map(str, arguments), "--device", "emulator"]
    return subprocess.run(command, capture_output=True, text=True)


def spoil(mine: Path, right: str, wrong: str) -> None:
    template = mine / "halve" / "v0.cu"
    text = template.read_text(encoding="utf-8")
    assert right in text
    template.write_text(text.replace(right, wrong), encoding="utf-8")


def test_one_column_too_many_is_wrong_in_every_configuration_at_every_size(mine: Path) -> None:
    spoil(mine, "col < cols", "col <= cols")
    done = autotune("verify", "halve", "--kernels", mine)
    assert done.stdout.endswith("\n0 right, 28 wrong\n"), done.stdout + done.stderr
    assert "before, after or between the rows" in done.stderr
    assert "reads outside the input, right after its last element" in done.stderr
    assert done.returncode == 1


def test_what_gives_no_result_at_all_is_told_from_what_gives_a_wrong_one(mine: Path) -> None:
    spoil(mine, "    const long long row", '    static_assert(block != 128, "no");\n    const long long row')
    done = autotune("verify", "halve", "--kernels", mine, "--size", "9x33")
    assert "halve 9x33 float32: 3 right, 1 wrong (1 compile error) on emulator\n" in done.stdout
    assert done.returncode == 1


def test_what_is_only_wrong_in_place_is_wrong(mine: Path) -> None:
    spoil(
        mine,
        "    for (",
        "    for (long long col = threadIdx.x; col < cols; col += block) output[row * output_stride + col] = 0.0f;\n    for (",
    )
    done = autotune("verify", "halve", "--kernels", mine, "--size", "9x33")
    assert done.stdout.endswith("\n0 right, 4 wrong\n"), done.stdout + done.stderr
    assert "wrong_result: in place, " in done.stderr
    definition = mine / "halve" / "v0.py"
    definition.write_text(definition.read_text().replace("IN_PLACE = True", "IN_PLACE = False"))
    assert autotune("verify", "halve", "--kernels", mine, "--size", "9x33").stdout.endswith("\n4 right, 0 wrong\n")


def test_a_sweep_marks_the_best_and_names_what_shows_it(mine: Path, tmp_path: Path) -> None:
    done = autotune("sweep", "halve", "--kernels", mine, "--size", "4x64", "--db", tmp_path / "x.sqlite")
    assert len(re.findall(r"^v0 .* best(?:, in a tie|, not beyond noise)?$", done.stdout, re.MULTILINE)) == 1, done.stdout
    assert f"`autotune inspect best --db {tmp_path / 'x.sqlite'} --kernels {mine}`" in done.stdout.splitlines()[-1]
    assert done.returncode == 0


def test_the_sweep_that_blocks_what_failed_says_so_itself(mine: Path, tmp_path: Path) -> None:
    spoil(mine, "0.5f", "(block == 128 ? 0.6f : 0.5f)")
    asked = ("sweep", "halve", "--kernels", mine, "--size", "4x64", "--db", tmp_path / "x.sqlite")
    for failed in ("1 x wrong_result: ", ""):  # the second sweep tries nothing, and says the same of what is blocked
        done = autotune(*asked)
        assert failed in done.stdout
        assert " 4 of 4 applicable configurations known, 1 blocked; best v0 " in done.stdout
        assert f"`autotune inspect blocked --db {tmp_path / 'x.sqlite'} --kernels {mine}` what is blocked and why" in done.stdout
    assert "x wrong_result" not in done.stdout


def test_a_sweep_in_which_nothing_works_says_where_the_reasons_are(mine: Path, tmp_path: Path) -> None:
    spoil(mine, "0.5f", "0.6f")
    done = autotune("sweep", "halve", "--kernels", mine, "--size", "4x64", "--db", tmp_path / "x.sqlite")
    assert "nothing is stored" not in done.stdout
    db = tmp_path / "x.sqlite"
    why = f"\nstored in {db}\nnothing that was tried can be used; `autotune inspect trials --db {db}` says why\n"
    assert f"{why}4 configurations are blocked" in done.stdout
    assert done.returncode == 1


def test_the_closing_table_and_the_best_of_a_version_leave_out_what_can_no_longer_be_used(mine: Path, tmp_path: Path) -> None:
    db = tmp_path / "x.sqlite"
    swept = ("sweep", "halve", "--kernels", mine, "--size", "4x64", "--db", db)
    listed = ("inspect", "best", "--version", "v0", "--kernels", mine, "--db", db, "--csv")
    assert re.search(r"^v0 .* best", autotune(*swept).stdout, re.MULTILINE)
    assert len(autotune(*listed).stdout.splitlines()) == 2
    definition, template = mine / "halve" / "v0.py", mine / "halve" / "v0.cu"
    before, text = definition.read_text(), template.read_text()
    definition.write_text(before + '\n\ndef applicable(configuration, problem, device):\n    return Verdict("never right")\n')
    definition.write_text(
        definition.read_text() if "Verdict" in before else "from autotune.definition import Verdict\n" + definition.read_text()
    )
    done = autotune(*swept).stdout
    assert "there is no best, and there is no configuration to try\n" in done
    assert "no configuration is applicable, so nothing was tried" in done
    assert not re.search(r"^v0 ", done, re.MULTILINE)
    assert len(autotune(*listed).stdout.splitlines()) <= 1
    definition.write_text(before)
    template.write_text(text.replace("0.5f", "0.6f"))
    done = autotune(*swept).stdout
    assert "; none of them can be used\n" in done
    assert not re.search(r"^v0 ", done, re.MULTILINE)
    assert len(autotune(*listed).stdout.splitlines()) <= 1


def test_inspect_and_explain_say_that_a_faster_one_is_offered_again(mine: Path, tmp_path: Path) -> None:
    db, size = tmp_path / "x.sqlite", "4x20000"
    swept = ("sweep", "halve", "--kernels", mine, "--size", size, "--db", db)
    autotune(*swept)
    with Database(db) as database:
        (row,) = database.best()
        with database.write() as connection:  # the times of emulated kernels are close, and only what is clearly faster counts
            connection.execute("DROP TRIGGER rounds_are_only_added")
            fast = "SELECT t.id FROM trials t JOIN configurations c ON c.id = t.configuration WHERE c.parameters = ?"
            changed = "time_us = 1, median_us = 1, samples_us = '[1]'"
            forged = connection.execute(f"UPDATE rounds SET {changed} WHERE trial IN ({fast})", (json.dumps(row["parameters"]),))
            assert forged.rowcount > 0
    definition = mine / "halve" / "v0.py"
    before, block = definition.read_text(), row["parameters"]["block"]
    refused = f"all_of((configuration['block'] != {block}, 'not now'))"
    definition.write_text(before.replace("all_of()", refused))
    autotune(*swept)
    definition.write_text(before)
    why = (
        f"a faster configuration that was refused before is offered again: v0 block {block}; `autotune rebuild --db {db} --kernels {mine}`"
    )
    known = ("--kernels", mine, "--db", db)
    assert why in " ".join(autotune("inspect", "best", *known).stdout.split())
    assert why in " ".join(autotune("explain", "halve", size, *known).stdout.split())
    done = [sys.executable, "-m", "autotune", "rebuild", "--db", str(db), "--kernels", str(mine)]
    subprocess.run(done, check=True, capture_output=True)
    assert why not in " ".join(autotune("explain", "halve", size, *known).stdout.split())


def test_a_sweep_that_may_try_nothing_says_what_is_blocked_and_its_command_has_all_of_it_tried_again(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "my own.sqlite"
    swept = ("sweep", "halve", "--kernels", mine, "--size", "4x64", "--db", db)
    definition = mine / "halve" / "v0.py"
    # What is wrong is not in the files: an edit there would make the failures stale, and they would block nothing.
    launch = 'blocks=problem.rows if "ALL_ROWS" in os.environ else 1'
    definition.write_text(definition.read_text().replace("blocks=problem.rows", launch).replace("\nfrom", "\nimport os\nfrom", 1))
    autotune(*swept)
    monkeypatch.setenv("ALL_ROWS", "1")
    last = autotune(*swept).stdout.splitlines()[-1]
    assert last.startswith(
        f"4 configurations are blocked, and no sweep tries them: `autotune inspect blocked --db '{db}' --kernels {mine}` says why; "
    )
    assert last.endswith(f"`autotune unblock halve --all --device emulator --db '{db}' --kernels {mine}`")
    unblock = shlex.split(last.rsplit("`", 2)[1])
    done = subprocess.run([sys.executable, "-m", *unblock], capture_output=True, text=True)
    assert done.stdout == "4 configurations may be selected again on emulator, and the next sweep tries them again\n", done.stderr
    done = autotune(*swept)
    assert ("4 new trials (4 ok)" in done.stdout, done.returncode) == (True, 0), done.stdout + done.stderr
