"""What is shipped in results/ is whole, was measured by what is here, and is what its page says."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import load, shipped
from autotune.database import Database, shipped_databases
from benchmarks import database_scale
from benchmarks.results_readme import page

SOFTMAX = load("softmax")


@pytest.fixture(params=shipped_databases(), ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_something_is_shipped() -> None:
    assert "nvidia-h200.sqlite" in [path.name for path in shipped_databases()]


def test_the_page_is_what_the_databases_say() -> None:
    assert (shipped("results") / "README.md").read_text(encoding="utf-8") == page(shipped_databases())


def test_the_first_figures_of_the_readme_are_those_of_the_shipped_database() -> None:
    text = " ".join((Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split())
    found = re.search(r"On an (.*?), softmax of a (\d+)x(\d+) (\w+) matrix takes ([\d.]+) us: it runs at ([\d.]+) % of the speed", text)
    assert found is not None
    device, rows, cols, dtype, time_us, share = found.groups()
    with Database(shipped_databases()[0], mode="read") as database:
        (best,) = database.best("softmax", int(rows), int(cols), dtype, device=device)
    assert (time_us, share) == (f"{best['time_us']:.1f}", f"{100 * best['fraction_of_copy']:.1f}")


def test_the_readme_counts_the_versions_that_there_are() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"({len(SOFTMAX.versions)} versions; there is no v11 any more)" in text
    assert "v11" not in SOFTMAX.versions


def test_a_device_of_which_neither_peak_nor_rivals_are_known_has_its_part_of_the_page(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    shutil.copyfile(path, other)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE devices SET name = 'Other GPU'")
    part = page([*shipped_databases(), other]).partition("## Other GPU: `other.sqlite`")[2].partition("\n## ")[0]
    assert "### Softmax at 4096x4096 float32" in part
    assert "### All tuned problems, summed up" in part
    assert "TB/s" not in part.partition("### Softmax")[2]
    assert "rival" not in part


def test_the_page_on_scale_is_what_was_measured() -> None:
    found = json.loads((shipped("results") / "database_scale.json").read_text(encoding="utf-8"))
    assert (shipped("results") / "database_scale.md").read_text(encoding="utf-8") == database_scale.page(found)
    assert found["trials"] >= 1_000_000
    assert all(row["cpu_ms"] < row["limit_ms"] for row in found["promises"])
    assert found["brought_by_import"] == database_scale.brought() == []


def test_the_database_that_scale_is_measured_with_answers_every_question(tmp_path: Path) -> None:
    database_scale.build(tmp_path / "small.sqlite", 500)
    with Database(tmp_path / "small.sqlite", mode="read") as database:
        assert len(database.best()) == 2
        for ask in database_scale.QUESTIONS.values():
            ask(database)
    for _, before, code in database_scale.PROMISES.values():
        wall_ms, cpu_ms = database_scale.timed_alone(tmp_path / "small.sqlite", before, code)
        assert min(wall_ms, cpu_ms) > 0


def test_every_problem_is_confirmed_with_samples_clock_and_provenance(path: Path) -> None:
    with Database(path, mode="read") as database:
        best = database.best()
        assert best
        assert {row["state"] for row in best} == {"confirmed"}
        facts = database.select(
            "SELECT e.driver, e.compiler, e.pycuda, q.description FROM runs u JOIN environments e ON e.id = u.environment "
            "JOIN protocols q ON q.id = u.protocol"
        )
        assert all(all(row.values()) for row in facts)
        assert database.select("SELECT count(*) AS n FROM rounds WHERE sm_clock_mhz IS NULL OR samples_us = '[]'") == [{"n": 0}]


def test_every_best_has_a_compiled_kernel_whose_bytes_are_intact(path: Path) -> None:
    with Database(path, mode="read") as database:
        (count,) = database.select("SELECT count(*) AS n FROM best")
        rows = database.select("SELECT DISTINCT binary_sha FROM dispatchable")
        (dispatchable,) = database.select("SELECT count(*) AS n FROM dispatchable")
        assert dispatchable == count
        assert all(database.load_binary(row["binary_sha"]) for row in rows)


def test_the_safe_kernel_is_there_for_any_gpu(path: Path) -> None:
    with Database(path, mode="read") as database:
        rows = database.select("SELECT version, parameters, dtype, arch, kind FROM stored_instances WHERE kind = 'ptx'")
    safe = SOFTMAX.safe
    assert {(row["version"], row["parameters"], row["arch"]) for row in rows} == {(safe.version, safe.to_json(), "compute_75")}
    assert {row["dtype"] for row in rows} == set(SOFTMAX.version(safe.version).dtypes)


def test_every_recorded_problem_can_be_replayed_and_what_no_longer_exists_is_left_out(path: Path) -> None:
    existing = set(SOFTMAX.configurations())
    with closing(RecordedBackend(path)) as backend:
        for problem in backend.problems("softmax"):
            assert backend.known(problem) & existing
