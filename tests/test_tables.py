"""Tables on terminals of any width: nothing is cut, no word is broken, and what is left out is said."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from autotune.cli import compare, doctor, explain, inspected, prune, share, sweep
from autotune.cli.output import counted, in_bytes, parameters
from autotune.cli.table import Column, Row, lines, wrap
from autotune.database import Database, shipped_databases
from tests.command import run
from tests.report_samples import measured

WIDTHS = (60, 80, 120)
SHIPPED = next(path for path in shipped_databases() if "h200" in path.name)
CONFIGURATION = {"lanes": 32, "rows": 1, "items": 16, "vector": 4, "hold": "exponentials", "edges": "masked"}
REASON = "wrong_result at 1x131072: hard rows: 4 of 1179648 elements are wrong, the first at row 2, which is 0.020858 instead of 0.020847"
KERNEL: Row = {"device": "NVIDIA H200", "operation": "softmax", "dtype": "bfloat16", "version": "v10", "parameters": CONFIGURATION}


def stored(table: str) -> list[Row]:
    """Rows as a database that is really there holds them, or such rows where it holds none."""
    with Database(SHIPPED, mode="read") as database:
        match table:
            case "best":
                return database.best()
            case "trials":
                return database.trial_rows(limit=20) + database.trial_rows(outcome="wrong_result", limit=20)
            case "versions":
                return database.versions()
    return [KERNEL | {"count": 123456, "tier": "nearest", "last": "2026-11-30T12:00:00.000Z", "rows": 8192, "cols": 131072}] * 5


PIN = KERNEL | {"least_rows": 1, "most_rows": 131072, "least_cols": 1024, "most_cols": 1048576, "author": "someone", "why": REASON}
SIDES = {"a_time_us": 1234.5, "b_time_us": 33.5, "change": -0.9, "verdict": "slower", "a_fraction_of_copy": 1.0, "b_fraction_of_copy": 0.2}
CHANGED = KERNEL | SIDES | {"rows": 1048576, "cols": 16, "a_kernel": "v7 " + parameters(CONFIGURATION), "b_kernel": "the same"}
CANDIDATE = KERNEL | {"tier": "selector", "configuration": CHANGED["a_kernel"], "tuned_at": "8192x131072", "time_us": 1234.56}
VERDICT = {"expected_regret": 0.031, "verdict": "rejected: vector 4 needs rows that begin at a multiple of 16 bytes, and these do not"}
FOUND = {"what": "shipped nvidia-h200.sqlite", "state": "missing", "said": REASON}
IMPORTED = {"file": "results/of/the/other/machine.sqlite", "trials": 11382, "best": 84, "binaries": 0, "note": REASON}
REBUILT = {"settled": 84, "stale": 3, "unknown": 0, "selectors": 3}
RULE = {"rule": "superseded", "trials": 12345, "why": "repeated later with at least the same care on the same device"}
SWEPT = KERNEL | {"time_us": 33.58, "gb_per_s": 3996.7, "fraction_of_copy": 0.982, "trials": 275, "recorded_on": "NVIDIA H200"}

TABLES: dict[str, tuple[tuple[Column, ...], list[Row]]] = {
    "best": (inspected.BEST, stored("best")),
    "best of one size": (
        inspected.BEST + inspected.RUNNER_UP,
        [row for row in stored("best") if (row["rows"], row["cols"]) == (4096, 4096)],
    ),
    "trials": (inspected.TRIALS, stored("trials")),
    "versions": (inspected.VERSIONS, stored("versions")),
    "misses": (inspected.MISSES, stored("misses")),
    "pins": (inspected.PINS, [PIN] * 4),
    "blocked": (inspected.BLOCKED, [KERNEL | {"rows": None, "cols": None, "reason": REASON}] * 4),
    "compare": (compare.BEST, [CHANGED] * 4),
    "compare configurations": (compare.CONFIGURATIONS, [CHANGED | {"same_template": False}] * 4),
    "compare differences": (compare.DIFFERENCES, [{"what": "compiler", "a": "nvcc 13.0.88", "b": "nvcc 12.9.1"}] * 4),
    "explain": (explain.CANDIDATES, [CANDIDATE | VERDICT] * 5),
    "doctor": (doctor.COLUMNS, [FOUND] * 8),
    "import": (share.IMPORTED, [IMPORTED] * 4),
    "rebuild": (share.REBUILT, [REBUILT]),
    "prune": (prune.COLUMNS, [RULE] * 4),
    "sweep": (sweep.VERSION_COLUMNS, [SWEPT] * 8),
}


def texts(columns: tuple[Column, ...], rows: list[Row]) -> set[str]:
    return {word for column in columns for row in rows for word in column.cell(row).split()}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_a_terminal_without_breaking_a_word_or_losing_what_matters(name: str, width: int) -> None:
    columns, rows = TABLES[name]
    assert rows
    shown = [line.text for line in lines(rows, columns, width)]
    assert max(map(cell_len, shown)) <= width
    words = {word.rstrip(",:;") for line in shown for word in line.split()}
    headings = {word for column in columns for word in column.heading.split()}
    assert {word.rstrip(",:;") for word in texts(tuple(column for column in columns if not column.rank), rows)} <= words
    note = set("left out here a wider terminal pipe --csv and --json show all".replace(",", "").split())
    known = {word.rstrip(",:;") for word in texts(columns, rows) | headings | note}
    assert {word for word in words if word.strip("─")} <= known


@pytest.mark.parametrize("name", TABLES)
def test_a_pipe_gets_every_column_with_one_line_a_row(name: str) -> None:
    columns, rows = TABLES[name]
    _heading, rule, *shown = [line.text for line in lines(rows, columns)]
    assert len(shown) == len(rows)
    assert set(rule) == {"─"}
    for row, line in zip(rows, shown, strict=True):
        for column in columns:
            assert column.cell(row) in line


def test_what_is_left_out_for_want_of_room_is_named() -> None:
    columns, rows = TABLES["best"]
    assert lines(rows, columns, 80)[-1].text == "left out here: GB/s; a wider terminal, a pipe, --csv and --json show all"
    assert not any("left out" in line.text for line in lines(rows, columns, 120))


def test_what_all_rows_have_in_common_is_said_once_above() -> None:
    columns, rows = TABLES["trials"]
    first, *others = [line.text for line in lines([row for row in rows if row["dtype"] == "float16"], columns, 80)]
    assert first == "NVIDIA H200, softmax, float16"
    assert not any("H200" in line or "float16" in line for line in others)


def test_a_few_rows_that_do_not_fit_are_shown_whole_as_blocks() -> None:
    columns, rows = TABLES["best of one size"]
    shown = [line.text for line in lines(rows, columns, 60)]
    assert shown.count("") == len(rows) - 1
    for heading in ("size", "configuration", "time us", "GB/s", "spread", "of copy", "tried", "runner-up", "gap", "beyond noise"):
        assert sum(line.startswith(heading + "  ") for line in shown) == len(rows)


@settings(deadline=None)
@example(["000 \u093a"], 1)  # ends in a mark that takes no room
@given(st.lists(st.text(), min_size=1, max_size=6), st.integers(min_value=1, max_value=200))
def test_text_of_others_neither_steers_the_terminal_nor_breaks_a_table(values: list[str], width: int) -> None:
    rows: list[Row] = [{"a": value, "b": number} for number, value in enumerate(values)]
    for line in lines(rows, (Column("b", "number"), Column("a", "text", right=False, long=True)), width):
        assert line.text.isprintable()
    whole = [line.text for line in lines(rows, (Column("b", "number"), Column("a", "text", right=False, long=True)))]
    assert len(whole) == len(rows) + 2


def test_a_parameter_stays_with_its_value() -> None:
    said = "block 256, items 16, vector 8, hold exponentials, edges masked"
    for width in range(17, 70):
        assert all(re.fullmatch(r"(\w+ \w+)(, \w+ \w+)*,?", line) for line in wrap(said, width, phrases=True))


def on_terminal(width: int, *arguments: str) -> list[str]:
    """The lines that a command shows on a terminal of this width."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")} | {"TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "autotune", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment | {"PYTHONPATH": str(Path(__file__).parent.parent)},
    ) as process:
        os.close(terminal)
        shown = b""
        while part := _read(main):
            shown += part
    os.close(main)
    assert process.returncode == 0, shown
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in shown.decode().replace("\r", "").split("\n")]


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "arguments", [("inspect", "best"), ("compare", "DB", "DB"), ("explain", "softmax", "100x1001"), ("doctor",), ("inspect", "devices")]
)
def test_commands_fit_the_terminal_that_they_run_on(width: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    path = str(measured(tmp_path / "x.sqlite") if arguments[0] == "inspect" else _deep(tmp_path))
    named = [path if word == "DB" else word for word in arguments]
    shown = on_terminal(width, *named, *(() if "DB" in arguments else ("--db", path)))
    assert len(shown) > 4
    long = [line for line in shown if len(line) > width and not line.startswith("autotune: warning")]
    assert all(os.sep in line.split()[-1] and len(line.split()[-1]) > width // 3 for line in long), long  # a path is never cut


def _deep(folder: Path) -> Path:
    """The shipped database by a path that is longer than any column."""
    deep = folder.joinpath(*["a-folder-of-some-length"] * 5)
    deep.mkdir(parents=True)
    (deep / SHIPPED.name).symlink_to(SHIPPED)
    return deep / SHIPPED.name


def test_replayed_results_are_marked_in_tables(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    size = ("--size", "4096x4096", "--version", "v3")
    assert run("sweep", "softmax", *size, "--device", f"recorded:{SHIPPED}", "--db", path)[0] == 0
    for command in (("inspect", "best"), ("inspect", "best", "--version", "v3"), ("inspect", "trials")):
        status, out, _ = run(*command, "--db", path)
        assert status == 0
        assert all(line.startswith("NVIDIA H200 (replayed)  ") for line in out.splitlines()[2:])
        assert "replayed" not in run(*command, "--db", str(SHIPPED))[1]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (4, "4 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (131072, "131 KB"),
        (999_600, "1.0 MB"),
        (33_554_432, "33.6 MB"),
    ],
)
def test_amounts_of_memory_are_said_in_the_unit_that_fits(count: int, said: str) -> None:
    assert in_bytes(count) == said


def test_things_are_counted_in_the_plural_but_one() -> None:
    assert [counted(n, "best kernel") for n in (0, 1, 2000)] == ["0 best kernels", "1 best kernel", "2,000 best kernels"]
    assert [counted(n, "study") for n in (1, 2)] == ["1 study", "2 studies"]
