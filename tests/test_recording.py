"""Recording a device: shares that are even, resumption from whatever was left, and a shipped file that is small and says what it lacks."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import nvcc
from autotune.backends.recorded import RecordedBackend
from autotune.catalogue import shipped
from autotune.cli.options import problems_of
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.problem import Problem, parse_size
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Environment
from benchmarks import portfolio, recording, ship_device
from benchmarks.record_device import by_size
from benchmarks.selection_sizes import held_out, recorded, training
from tests.dispatch_cases import H200, SOFTMAX
from tests.fake import FakeBackend
from tests.imagined_gpu import time_us

ROOT = Path(__file__).parent.parent
VERSIONS = ("v2", "v7", "v9")
PROBLEMS = [Problem("softmax", rows, cols) for rows, cols in [(64, 1000), (256, 4096), (1000, 33), (8, 8192)]]
SPACES = recording.spaces_of(SOFTMAX, PROBLEMS, H200, VERSIONS)


def sizes_in(path: Path) -> list[tuple[int, int]]:
    return [parse_size(line) for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_the_sizes_cover_what_selection_needs_and_none_of_those_that_judge_it() -> None:
    sizes = sizes_in(shipped("results") / "sizes.txt")
    rivals = json.loads((shipped("results") / "softmax-peers-h200.json").read_text(encoding="utf-8"))
    assert len(sizes) == len(set(sizes)) >= 300
    assert {(cell["rows"], cell["cols"]) for cell in rivals["cells"] if not cell["drawn"]} <= set(sizes[:28])
    assert set(training()) <= set(sizes)
    assert not {size for part in held_out().values() for size in part} & set(sizes)
    assert [size for size in sizes if size in set(recorded())][-200:] == [s for s in recorded() if s not in sizes[:28]][-200:]
    assert max(4 * rows * cols for rows, cols in sizes) <= 2 << 30
    assert min(cols for _, cols in sizes) == 1
    assert max(cols for _, cols in sizes) == 1 << 19
    assert max(rows for rows, _ in sizes) >= 1_000_000


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5))
def test_every_problem_is_one_processes_and_the_shares_are_even(kinds: list[int], count: int) -> None:
    problems = [Problem("softmax", 2 + place, (100, 1000, 4096, 100_000)[kind]) for place, kind in enumerate(kinds)]
    spaces = {p: tuple(SPACES[PROBLEMS[0]])[: 1 + p.cols % 7] for p in problems}
    parts = recording.shares(problems, spaces, count)
    assert Counter(p for part in parts for p in part) == Counter(problems)
    assert all(part == sorted(part, key=problems.index) for part in parts)
    taken_s = [sum(recording.expected_s(p, spaces[p]) for p in part) for part in parts]
    assert max(taken_s) - min(taken_s) <= max(recording.expected_s(p, spaces[p]) for p in problems)


def test_an_element_type_does_not_wait_for_the_others() -> None:
    problems = problems_of(SOFTMAX, ["8x8", "4x4"], None, ["float32", "float16"]) * 2
    assert [(p.rows, p.dtype) for p in by_size(problems)] == [(8, "float32"), (8, "float16"), (4, "float32"), (4, "float16")]


def test_an_operation_that_knows_its_spaces_finds_the_same_as_one_that_asks() -> None:
    prepared = recording.Prepared.of(SOFTMAX, SPACES)
    for problem in PROBLEMS:
        found = [c for c in prepared.configurations(VERSIONS) if prepared.applicable(c, problem, H200)]
        assert found == [c for c in SOFTMAX.configurations(VERSIONS) if SOFTMAX.applicable(c, problem, H200)]
    other = Problem("softmax", 3, 77)
    assert [bool(prepared.applicable(c, other, H200)) for c in prepared.declared] == [
        bool(SOFTMAX.applicable(c, other, H200)) for c in prepared.declared
    ]


def backend(stop_after: int | None = None, driver: str = "580.1") -> FakeBackend:
    environment = Environment("0.1.0", "3.11", "Linux", driver=driver, cuda="13.0", compiler=nvcc.version(nvcc.find()), pycuda="2026.1")
    return FakeBackend(time_us, noise=0.002, device=H200, environment=environment, flags=" ".join(nvcc.FLAGS), stop_after=stop_after)


def measured(path: Path, problems: list[Problem], stop_after: int | None = None) -> None:
    with recording.Measurements(path, create=True) as database:
        sweep(
            recording.Prepared.of(SOFTMAX, SPACES),
            problems,
            backend(stop_after),
            database,
            versions=VERSIONS,
            budget=Budget(exhaustive=True),
            learn=False,
        )


def test_what_is_recorded_whole_is_not_measured_again_and_what_was_cut_short_is(tmp_path: Path) -> None:
    measured(tmp_path / "a.sqlite", PROBLEMS[:2])
    recording.compress(tmp_path / "a.sqlite")
    measured(tmp_path / "b.sqlite", PROBLEMS[2:], stop_after=len(SPACES[PROBLEMS[2]]) + 3)
    assert [path.name for path in recording.sources(tmp_path)] == ["a.sqlite.xz", "b.sqlite"]
    assert recording.finished(tmp_path, SOFTMAX, SPACES) == set(PROBLEMS[:3])
    with Database(tmp_path / "b.sqlite") as database:
        assert not database.select("SELECT * FROM binaries")
        assert not database.select("SELECT * FROM selectors")


def test_an_export_counts_among_what_is_recorded_and_is_only_read(tmp_path: Path) -> None:
    measured(tmp_path / "whole.sqlite", PROBLEMS[:1])
    folder = tmp_path / "exports"
    folder.mkdir()
    with Database(tmp_path / "whole.sqlite") as database:
        database.export(folder / "a.sqlite")
    assert recording.finished(folder, SOFTMAX, SPACES) == set(PROBLEMS[:1])


def test_trials_of_another_template_do_not_count_as_recorded(tmp_path: Path) -> None:
    measured(tmp_path / "a.sqlite", PROBLEMS[:1])
    with Database(tmp_path / "a.sqlite") as database, database.write() as connection:
        connection.execute("UPDATE templates SET sha = 'another' WHERE version = 'v7'")
    assert recording.finished(tmp_path, SOFTMAX, SPACES) == set()


offers = st.dictionaries(st.integers(0, 30), st.sets(st.integers(0, 12), min_size=1, max_size=5), max_size=20)


@settings(deadline=None, max_examples=50)
@given(offers, st.sets(st.integers(0, 12), max_size=4))
def test_a_cover_offers_every_problem_a_kernel_and_keeps_what_is_needed(offered: dict[int, set[int]], needed: set[int]) -> None:
    kernels = {n: (Configuration.of("v7", block=n), "float32") for n in range(13)}
    problems = {Problem("softmax", 1, 1 + n): [kernels[k] for k in found] for n, found in offered.items()}
    found = portfolio.cover(problems, {kernels[n] for n in needed})
    assert {kernels[n] for n in needed} <= found
    assert all(found.intersection(offered) for offered in problems.values())
    assert len(found) <= len(needed) + len(problems)


def test_where_kernels_tie_one_that_is_needed_anyway_is_settled_with_its_own_time_and_the_fastest_as_runner_up(tmp_path: Path) -> None:
    problem = PROBLEMS[0]
    ours, fastest, behind, *_ = (c for c in SPACES[problem] if c.version == "v7")
    times = {fastest: 10.0, ours: 10.06, behind: 10.5}
    with recording.Measurements(tmp_path / "a.sqlite", create=True) as database:
        told = FakeBackend(lambda c, p: times.get(c, 20.0), device=H200)
        sweep(SOFTMAX, [problem], told, database, versions=("v7",), budget=Budget(exhaustive=True), learn=False)
        assert database.best()[0]["parameters"] == json.loads(fastest.to_json())
        for strict, chosen in (([(problem.rows, problem.cols)], fastest), ([], ours)):
            needed = {(ours, "float32"), (behind, "float32")}
            loss = portfolio.prefer(database, SOFTMAX, H200, told.timing, needed, strict, 0.01)
            (best,) = database.best()
            assert best["parameters"] == json.loads(chosen.to_json())
            assert best["time_us"] == times[chosen]
            assert (chosen, "float32") in needed
        assert best["runner_up"]["parameters"] == json.loads(fastest.to_json())
        assert best["gap"] == pytest.approx(10.0 / 10.06 - 1)
        assert not best["beyond_noise"]
        assert "by 0.60 % at most" in loss


@pytest.mark.nvcc
def test_the_shipped_file_is_small_dispatches_replays_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ship_device, "LONG_COLS", (1 << 19,))  # of kernels for rows longer than any recorded, which are compiled
    monkeypatch.setattr(ship_device, "LONG_ROWS", (1,))
    work, out = tmp_path / "work", tmp_path / "gpu.sqlite"
    work.mkdir()
    measured(work / "a.sqlite", PROBLEMS[:2])
    recording.compress(work / "a.sqlite")
    measured(work / "b.sqlite", PROBLEMS[2:])
    with Database(work / "b.sqlite") as database:
        rounds_before = database.select("SELECT count(*) AS n FROM rounds")[0]["n"]
    out.touch(0o444)  # what was shipped before is replaced
    ship_device.ship(SOFTMAX, work, out, PROBLEMS[:3], strict=1, behinds=(1.05,))
    with Database(out, mode="read") as database:
        best = database.best()
        assert [(row["rows"], row["cols"], row["state"], row["origin"]) for row in best] == [
            (p.rows, p.cols, "confirmed", "local") for p in sorted(PROBLEMS[:3], key=lambda p: p.rows)
        ]
        assert [row["space_sha"] != "" for row in best] == [True] * 3
        assert len(database.select("SELECT * FROM dispatchable")) == 3
        for row in database.select("SELECT DISTINCT binary_sha, symbol FROM stored_instances"):
            assert row["symbol"].encode() in database.load_binary(row["binary_sha"])
        manifest = json.loads(database.select("SELECT manifest FROM manifest")[0]["manifest"])
        assert "1.05 or more times as slow" in manifest["note"]
        whole, thin = (database.trials(H200, backend().timing, problem) for problem in PROBLEMS[:2])
        assert {t.configuration for t in whole} == set(SPACES[PROBLEMS[0]])
        assert {t.configuration for t in thin} < set(SPACES[PROBLEMS[1]])
        assert {t.configuration.version for t in thin} == {c.version for c in SPACES[PROBLEMS[1]]}
        assert {len(t.rounds) for t in [*whole, *thin]} == {1, 5}
        assert database.select("SELECT count(*) AS n FROM rounds")[0]["n"] < rounds_before
        assert all(t.time_us for t in [*whole, *thin])
    with Database(tmp_path / "mine.sqlite", create=True) as mine:
        mine.import_from(out)
        assert mine.content_hash() == manifest["content"]
        assert mine.import_from(out).added == {}
        decided = [(row["rows"], row["version"], row["parameters"]) for row in mine.best()]
        assert mine.rebuild().settled == 3
        assert [(row["rows"], row["version"], row["parameters"]) for row in mine.best()] == decided
    replayed = RecordedBackend(out)
    with Database(tmp_path / "replayed.sqlite", create=True) as database:
        summary = sweep(SOFTMAX, replayed.problems("softmax"), replayed, database, budget=Budget(exhaustive=True))
    replayed.close()
    assert summary.confirmed == 3


def recorder(work: Path, sizes: Path, *more: str) -> list[str]:
    script = [sys.executable, "benchmarks/record_device.py", "--work", str(work), "--sizes", str(sizes)]
    return [*script, "--device", "emulator", "--version", "v0", "--dtype", "float32", *more]


def test_two_processes_that_are_killed_lose_only_the_problems_they_were_at(tmp_path: Path) -> None:
    sizes, work = tmp_path / "sizes.txt", tmp_path / "work"
    sizes.write_text("".join(f"{rows}x{cols}\n" for rows, cols in [(2, 64), (3, 33), (2, 96), (4, 65), (2, 70), (3, 80)]))
    first = subprocess.Popen(recorder(work, sizes, "--processes", "2"), cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    for line in first.stdout:
        if "/3 softmax" in line:  # one problem is done, others are being measured
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    again = subprocess.run(recorder(work, sizes), cwd=ROOT, capture_output=True, text=True, check=True)
    (before,) = re.findall(r"^([0-9]) of 6 problems are recorded on emulator", again.stdout, re.MULTILINE)
    assert int(before) >= 1
    assert again.stdout.endswith("6 of 6 problems are recorded\n")
    assert again.stdout.count("tried in") == 6 - int(before)
    assert {path.suffix for path in work.iterdir()} == {".xz"}
    merged = ship_device.merge(work)
    with Database(merged, mode="read") as database:
        assert len(database.best()) == 6
    idle = subprocess.run(recorder(work, sizes), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tried in" not in idle.stdout


def test_a_recording_ends_in_time_and_its_files_are_complete(tmp_path: Path) -> None:
    sizes, work = tmp_path / "sizes.txt", tmp_path / "work"
    sizes.write_text("".join(f"{rows}x4096\n" for rows in range(640, 704)))
    began = time.monotonic()
    ended = subprocess.run(recorder(work, sizes, "--seconds", "8"), cwd=ROOT, capture_output=True, text=True, check=True)
    assert time.monotonic() - began < 40
    assert re.search(r"^[0-9]* of 64 problems are recorded$", ended.stdout, re.MULTILINE)
    assert "64 of 64" not in ended.stdout
    assert {path.suffix for path in work.iterdir()} <= {".xz"}
