"""The report's data, its page and its picture, without a browser."""

import json
import math
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.database import Database
from autotune.dispatch.knowledge import Knowledge, Tuned
from autotune.dispatch.selection import _Map
from autotune.errors import installing
from autotune.problem import Problem
from autotune.report.data import _stretches, collect, embeddable
from autotune.report.effects import Tally
from autotune.report.library import vl_convert
from autotune.report.picture import packed
from autotune.report.plane import cells
from autotune.report.style import OUTCOMES, PALETTE
from autotune.trial import Outcome, Round
from tests.command import refused, run, said
from tests.database_samples import COLD, DEVICE, ENVIRONMENT
from tests.dispatch_cases import V3, write_database
from tests.report_samples import MARKUP, SIZES, configurations, measured, source

RESULTS = Path(__file__).parent.parent / "results" / "nvidia-h200.sqlite"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("report") / "measured.sqlite")


@pytest.fixture(scope="module")
def series(database: Path) -> list[dict[str, Any]]:
    with Database(database, mode="read") as db:
        return collect(db)


def test_what_may_not_be_compared_is_in_different_series(series: list[dict[str, Any]]) -> None:
    assert [(one["device"], one["dtype"], one["protocol"]) for one in series] == [
        ("Other GPU", "float32", "cold"),
        ("Test GPU", "bfloat16", "cold"),
        ("Test GPU", "float32", "cold"),
        ("emulator", "float32", "cpu"),
    ]
    assert [len(one["problems"]) for one in series] == [4, 3, 5, 2]


def test_the_report_says_what_inspect_says(series: list[dict[str, Any]], database: Path) -> None:
    with Database(database, mode="read") as db:
        best = {(row["rows"], row["cols"]): row for row in db.best(device="Test GPU", dtype="float32")}
        per_version = db.best_per_version(device="Test GPU", dtype="float32")
    one = series[2]
    for problem in one["problems"]:
        settled = best[problem["rows"], problem["cols"]]
        assert problem["time_us"] == settled["time_us"]
        assert (problem["version"], problem["fraction_of_copy"]) == (settled["version"], settled["fraction_of_copy"])
        assert problem["trials"] == 18
    assert {(s["rows"], s["cols"], s["version"]): s["time_us"] for s in one["shares"]} == {
        (row["rows"], row["cols"], row["version"]): row["time_us"] for row in per_version
    }
    assert sum(f["count"] for f in one["failures"]) == len(SIZES) * 2 + 3 * 3 - 1  # v1 at block 1024, and vector 4 at 4095 columns
    assert series[3]["shares"][0]["share"] is None


def test_each_of_two_protocols_has_what_was_settled_by_it(tmp_path: Path) -> None:
    with Database(measured(tmp_path / "x.sqlite", warm=0.5), mode="read") as db:
        cold, warm = collect(db, "Test GPU", "float32")
    assert (cold["protocol"], warm["protocol"]) == ("cold", "warm")
    assert {problem["state"] for problem in (*cold["problems"], *warm["problems"])} == {"confirmed"}
    for slow, fast in zip(cold["problems"], warm["problems"], strict=True):
        assert fast["time_us"] == pytest.approx(slow["time_us"] / 2)


def test_replayed_times_are_series_of_their_own_and_marked_in_page_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sqlite"
    said("sweep", "softmax", "--device", "recorded", "--size", "4096x4096", "--version", "v1", "--db", str(path), "--json")
    with Database(path, mode="read") as db:
        (replayed,) = collect(db)
    assert (replayed["device"], replayed["replayed"]) == ("NVIDIA H200 (replayed)", True)
    drawn: list[Any] = []

    def draw(spec: Any, **how: Any) -> bytes:
        drawn.append(spec)
        return bytes(vl_convert().vegalite_to_png(spec, **how))

    monkeypatch.setattr("autotune.report.picture.vl_convert", lambda: SimpleNamespace(vegalite_to_png=draw))
    said("report", "--html", str(tmp_path / "x.html"), "--png", str(tmp_path / "x.png"), "--db", str(path))
    assert drawn[0]["title"]["text"] == "softmax float32 on NVIDIA H200 (replayed)"
    assert "about NVIDIA H200 (replayed)." in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_measured_and_replayed_times_of_one_size_are_not_mixed(tmp_path: Path) -> None:
    with Database(measured(tmp_path / "x.sqlite"), mode="read") as db:
        (before,) = collect(db, "Test GPU", "float32")
    with Database(tmp_path / "x.sqlite") as db:
        number = db.begin_run(DEVICE, ENVIRONMENT, COLD)
        fast = Configuration.of("v3", block=64, vector=1)
        db.record(
            number, Problem("softmax", 1, 1024), fast, source("v3").sha, Outcome.OK, rounds=[Round("final", (0.5,), 1)], replayed=True
        )
        after, replayed = collect(db, "Test GPU", "float32")
    assert after == before
    assert [(problem["time_us"], problem["state"]) for problem in replayed["problems"]] == [(0.5, "not settled")]


def test_a_series_is_read_in_few_questions_however_many_sizes_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    select = Database.select

    def counted(self: Database, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        asked.append(sql)
        return select(self, sql, parameters)

    monkeypatch.setattr(Database, "select", counted)
    with Database(RESULTS, mode="read") as db:
        series = collect(db)
    assert sum(len(one["problems"]) for one in series) > 1000
    assert len(asked) <= 2 + 3 * len(series)


def test_trials_in_batches_add_up_to_the_same(database: Path, series: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.report.data.MOST_IN_MEMORY", 20)
    with Database(database, mode="read") as db:
        assert collect(db) == series


def test_effects_and_convergence_are_relative_to_the_best_of_the_size(series: list[dict[str, Any]]) -> None:
    for size in series[2]["sizes"]:
        assert min(effect["best"] for effect in size["effects"]) == 1
        assert all(effect["median"] >= effect["best"] >= 1 for effect in size["effects"])
        slowdowns = [step["slowdown"] for step in size["convergence"]]
        assert slowdowns == sorted(slowdowns, reverse=True)
        assert slowdowns[-1] == 1
        assert size["convergence"][-1]["trial"] == len(list(configurations()))


def test_trials_of_older_templates_are_counted_and_not_shown(tmp_path: Path) -> None:
    from autotune.source import Source, identity

    path = measured(tmp_path / "x.sqlite")
    with Database(path) as db:
        db.add_template("softmax", "v3", Source("int newer;", identity("int newer;")))
        (one,) = [one for one in collect(db) if (one["device"], one["dtype"]) == ("Test GPU", "float32")]
    assert {share["version"] for share in one["shares"]} == {"v1", "v2"}
    assert one["provenance"][0]["of_older_templates"] == 6 * len(SIZES)


def test_of_very_many_sizes_some_are_drawn_and_all_are_counted(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.report.data.MOST_SIZES", 3)
    with Database(database, mode="read") as db:
        one = collect(db, "Test GPU", "float32")[0]
    assert [problem["size"] for problem in one["problems"]] == ["1x1024", "1024x65536", "8192x4095"]
    assert len(one["sizes"]) == 3
    assert (one["sizes_in_all"], one["trials_in_all"]) == (5, 18 * 5)


def test_lines_join_neighbouring_doublings_of_columns_alone(series: list[dict[str, Any]]) -> None:
    one = next(one for one in series if (one["device"], one["dtype"]) == ("Test GPU", "float32"))
    stretch = {share["size"]: share["stretch"] for share in one["shares"] if share["version"] == "v3" and share["leading"]}
    assert stretch == {"64x1024": 10, "4096x4096": 12, "1024x65536": 16}
    leading = {doubling: Tally(doubling, 1, 1 << doubling, ()) for doubling in (3, 4, 5, 6, 8)}
    for doubling, tally in leading.items():
        tally.versions = {version: {} for version in ("v1", "v2") if (doubling, version) != (5, "v2")}
    found = _stretches(leading)
    assert [found.get((doubling, "v1")) for doubling in leading] == [3, 3, 3, 3, 8]
    assert [found.get((doubling, "v2")) for doubling in leading] == [3, 3, None, 6, 8]


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 18), st.sampled_from(["v1", "v2", "v3"])),
        min_size=1,
        max_size=8,
        unique_by=lambda p: p[:2],
    )
)
def test_the_plane_is_tiled_without_gaps_by_what_the_dispatcher_finds_nearest(points: list[tuple[int, int, str]]) -> None:
    tiles = cells([{"rows": rows, "cols": cols, "version": version} for rows, cols, version in points])
    logs = [(math.log2(rows), math.log2(cols)) for rows, cols, _ in points]
    height = max(y for y, _ in logs) - min(y for y, _ in logs) + 1
    width = max(x for _, x in logs) - min(x for _, x in logs) + 1
    assert sum((t["rows_to"] - t["rows"]) * (t["cols_to"] - t["cols"]) for t in tiles) == pytest.approx(height * width)
    versions = {version for _, _, version in points}
    assert {tile["version"] for tile in tiles} <= versions


def test_the_shade_is_the_version_that_the_dispatcher_would_take() -> None:
    points = [(1, 1024, "v1"), (4096, 1024, "v2"), (64, 8192, "v3")]
    entries = tuple(
        Tuned("d", "float32", rows, cols, cols, cols, 16, 16, False, Configuration.of(version), "", 1.0, "confirmed", "local", Path())
        for rows, cols, version in points
    )
    assert Knowledge(tuned=entries).tuned == entries
    nearest = _Map(entries)
    for tile in cells([{"rows": rows, "cols": cols, "version": version} for rows, cols, version in points]):
        for along in (0.25, 0.5, 0.75):
            rows = 2 ** ((tile["rows"] + tile["rows_to"]) / 2)
            cols = 2 ** (tile["cols"] + along * (tile["cols_to"] - tile["cols"]))
            found, distance = next(nearest.around(Problem("softmax", max(1, round(rows)), round(cols))))
            others = [d for entry, d in nearest.around(Problem("softmax", max(1, round(rows)), round(cols))) if entry != found]
            if min(others) - distance > 1.5:  # away from the border, where the shade is as coarse as its cells
                assert found.configuration.version == tile["version"]


def test_the_page_is_one_file_that_may_ask_for_nothing(database: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    said("report", "--html", str(page), "--db", str(database))
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)=["'](?!#)""", markup)
    assert "measured.sqlite" in markup
    data = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert MARKUP in str(data)
    assert len(text) < 2_000_000


def test_filters_of_the_command_leave_only_what_was_asked_for(database: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    said("report", "--html", str(page), "--device", "Other GPU", "--db", str(database))
    assert "Other GPU" in page.read_text(encoding="utf-8")
    assert "Test GPU" not in page.read_text(encoding="utf-8")


def test_the_picture_is_a_png_wide_enough_for_print(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.png"
    said("report", "--png", str(target), "--db", str(database))
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width >= 1500
    assert height >= 1500


def test_where_nothing_ran_right_a_page_says_so_and_a_picture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with Database(path, create=True) as db:
        db.add_template("softmax", "v3", source("v3"))
        number = db.begin_run(DEVICE, ENVIRONMENT, COLD)
        failed = Configuration.of("v3", block=64, vector=1)
        db.record(number, Problem("softmax", 1, 1024), failed, source("v3").sha, Outcome.CRASHED, message="it is gone")
    page, picture = tmp_path / "x.html", tmp_path / "x.png"
    assert "ran right" in refused("report", "--html", str(page), "--png", str(picture), "--db", str(path))
    assert not page.exists()
    said("report", "--html", str(page), "--db", str(path))
    assert "it is gone" in page.read_text(encoding="utf-8")


def test_what_cannot_be_reported_is_one_sentence(database: Path, tmp_path: Path) -> None:
    page = str(tmp_path / "x.html")
    assert "give --html FILE" in refused("report", "--db", str(database))
    assert "device 'Abacus' is not in database" in refused("report", "--html", page, "--device", "Abacus", "--db", str(database))
    assert "/no/such.sqlite" in refused("report", "--html", page, "--db", "/no/such.sqlite")
    status, out, err = run("report", "--html", "/no/such/folder/x.html", "--db", str(database))
    assert (status, out) == (1, "")
    assert "name another file" in err


def test_without_the_library_the_report_says_how_to_install_it(database: Path, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['vl_convert'] = None; from autotune.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "report", "--html", str(tmp_path / "x.html"), "--db", str(database)],
        capture_output=True,
        text=True,
        cwd=RESULTS.parent.parent,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == f"autotune: a report needs vl-convert; install it with: {installing('report')}\n"


def test_embedded_json_ends_no_script_and_holds_no_nan() -> None:
    text = embeddable({"message": "</script>", "share": float("nan"), "time_us": 1 / 3})
    assert "<" not in text
    assert json.loads(text) == {"message": "</script>", "share": None, "time_us": 0.333333}
    assert json.loads(embeddable([{"a": 1, "b": 2}, {"a": 3, "b": 4}])) == {"$keys": ["a", "b"], "$rows": [[1, 2], [3, 4]]}
    assert json.loads(embeddable([{"a": 1}, {"b": 2}])) == [{"a": 1}, {"b": 2}]


def test_every_outcome_that_is_a_failure_has_a_colour_and_white_reads_on_every_version() -> None:
    assert set(OUTCOMES) == {outcome.value for outcome in Outcome if not outcome.timed}
    for colour in (*PALETTE, *OUTCOMES.values()):
        assert contrast(colour, "#ffffff") >= 3, colour
        assert contrast(colour, "#14171b") >= 3, colour


def test_no_two_versions_have_nearly_the_same_colour() -> None:
    distances = {(one, other): math.dist(_lab(one), _lab(other)) for one, other in combinations(PALETTE, 2)}
    assert min(distances.values()) > 25, min(distances, key=lambda pair: distances[pair])


def _lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b* of an sRGB colour under D65, in which a distance of 2 is just seen (IEC 61966-2-1, CIE 15)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize(
    ("command", "searched"),
    [
        ("autotune sweep softmax", True),
        ("autotune.sweep('softmax')", True),
        ("autotune sweep softmax --exhaustive", False),
        ("record", False),
    ],
)
def test_only_a_search_is_said_to_have_converged(command: str, searched: bool, tmp_path: Path) -> None:
    path = measured(tmp_path / "x.sqlite")
    with Database(path) as db:
        with db.write() as connection:
            connection.execute("UPDATE runs SET command = ?", (command,))
        assert {one["searched"] for one in collect(db)} == {searched}
        assert all("searched" not in row for one in collect(db) for row in one["provenance"])


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2, relative luminance)."""
    lights = sorted(_luminance(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_picture_loses_nothing_when_it_is_packed() -> None:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    def png(kind: int, lines: bytes) -> bytes:
        header = struct.pack(">IIBBBBB", 2, 2, 8, kind, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")

    opaque = bytes([1, 250, 0, 7, 255, 10, 1, 255, 0]) + bytes([1, 1, 2, 3, 255, 0, 0, 0, 0])
    assert packed(png(6, opaque)) == png(2, bytes([0, 250, 0, 7, 4, 1, 6]) + bytes([0, 1, 2, 3, 1, 2, 3]))
    clear = bytes([1, 250, 0, 7, 254, 10, 1, 255, 0]) + opaque[9:]
    assert packed(png(6, clear)) == png(6, clear)
    assert packed(packed(png(6, opaque))) == packed(png(6, opaque))


def test_of_one_size_there_is_no_plane_to_draw(tmp_path: Path) -> None:
    heights = []
    for name, size in (("one", ((4096, 4096, V3),)), ("two", ((4096, 4096, V3), (64, 4096, V3)))):
        path = write_database(tmp_path / f"{name}.sqlite", size)
        with Database(path) as db, db.write() as connection:
            connection.execute("UPDATE best SET copy_us = 9.5")
        said("report", "--png", str(tmp_path / f"{name}.png"), "--scale", "1", "--db", str(path))
        heights.append(struct.unpack(">I", (tmp_path / f"{name}.png").read_bytes()[20:24])[0])
    assert heights[0] + 400 < heights[1]


def test_the_picture_of_the_readme_is_small(tmp_path: Path) -> None:
    target = tmp_path / "report.png"
    said("report", "--png", str(target), "--scale", "1", "--dtype", "float32", "--db", str(RESULTS))
    assert struct.unpack(">I", target.read_bytes()[16:20])[0] < 1000
    assert target.stat().st_size < 150_000
