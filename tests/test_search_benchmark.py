"""The benchmark of the search: what it scores by, which times it replays, and that it goes on where it was."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from benchmarks import search_methods, search_report, search_spaces
from benchmarks.search_spaces import RecordedSpace

ROOT = Path(__file__).parent.parent


def recorded(times: list[float]) -> RecordedSpace:
    return RecordedSpace(Path("none"), "made", {Configuration.of("v1", block=32 * i): time for i, time in enumerate(times, 1)})


def cache(folder: Path) -> Path:
    """A cache file of Kernel Tuner with 48 configurations, of which two failed."""
    values = {"block_size_x": [32, 64, 96, 128, 192, 256], "vector": [1, 2, 4, 8], "unroll": [1, 2], "fixed": [7]}
    rows = [(b, v, u, 7) for b in values["block_size_x"] for v in values["vector"] for u in values["unroll"]]
    entries: dict[str, dict[str, Any]] = {
        ",".join(map(str, row)): dict(zip(values, row, strict=True)) | {"time": 1.0 + abs(row[0] - 128) / 64 + 2 / row[1] + 0.1 * row[2]}
        for row in rows
    }
    entries["32,1,1,7"]["time"] = "CompilationFailedConfig"
    entries["32,1,2,7"]["time"] = 1e20
    path = folder / "made-up.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"tune_params_keys": list(values), "tune_params": values, "cache": entries}).encode()))
    return path


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(1.0, 1e4), min_size=2, max_size=8))
def test_the_curve_of_random_sampling_is_what_shuffling_gives_on_average(times: list[float]) -> None:
    shuffled = np.array([random.Random(seed).sample(times, len(times)) for seed in range(4000)])
    mean = np.minimum.accumulate(shuffled, axis=1).mean(0)
    spread = max(times) - min(times)
    np.testing.assert_allclose(recorded(times).random_curve, mean, atol=0.05 * spread + 1e-9)


def test_the_optimum_at_the_first_try_scores_1_and_random_sampling_scores_0_on_average() -> None:
    times = [10.0 + i for i in range(60)]
    space = recorded(times)
    assert search_report.scores_of(space, [[(1, 10.0)]]) == pytest.approx([1.0])
    runs = []
    for seed in range(2000):
        found: list[tuple[int, float]] = []
        for evaluation, time in enumerate(random.Random(seed).sample(times, len(times)), 1):
            if not found or time < found[-1][1]:
                found.append((evaluation, time))
        runs.append(found)
    assert search_report.progress(space, runs).mean() == pytest.approx(0.0, abs=0.06)


def test_what_failed_is_in_no_space_and_times_are_microseconds(tmp_path: Path) -> None:
    (space,) = search_spaces.find([cache(tmp_path)])
    assert len(space.times) == 46
    assert space.optimum == pytest.approx(1350.0)
    assert all("fixed" not in dict(configuration.parameters) for configuration in space.times)


def test_of_our_databases_the_most_careful_time_of_each_configuration_is_replayed() -> None:
    from autotune.database import Database

    path = ROOT / "results" / "nvidia-h200.sqlite"
    space = next(space for space in search_spaces.own_database(path) if space.name == "softmax 4096x4096 float32, NVIDIA H200")
    assert space.problem is not None
    with Database(path, "read") as database:
        (device,) = database.devices_measured()
        timing = next(timing for timing in database.protocols_measured(device) if timing.name == "cold")
        finals = {
            trial.configuration: trial.time_us
            for trial in database.trials(device, timing, problem=space.problem)
            if any(taken.kind == "final" for taken in trial.rounds)
        }
    assert finals
    assert all(space.times[configuration] == time for configuration, time in finals.items())
    assert space.optimum == min(time for time in finals.values() if time is not None)


def test_sizes_named_for_the_benchmark_are_recorded_and_named_once() -> None:
    recorded_sizes = set((ROOT / "results" / "sizes.txt").read_text().split())
    named = [*search_spaces.REPRESENTATIVE, *search_spaces.FURTHER]
    assert len(named) == len(set(named))
    assert set(named) <= recorded_sizes


def test_every_method_measures_each_configuration_once_and_ends_at_the_optimum(tmp_path: Path) -> None:
    (space,) = search_spaces.find([cache(tmp_path)])
    for method in ("ours", "random", "tpe"):
        times = search_methods.ALL[method](space, 3)
        assert len(times) <= space.evaluations
        assert set(times) <= set(space.times.values())
        if method != "random":
            assert space.optimum not in times[:-1]


def test_an_interrupted_benchmark_goes_on_and_reports(tmp_path: Path) -> None:
    def run(seeds: int) -> str:
        command = [sys.executable, "benchmarks/search_quality.py", str(cache(tmp_path)), "--seeds", str(seeds), "--processes", "1"]
        command += ["--methods", "ours;random", "--work", str(tmp_path), "--output", str(tmp_path / "out")]
        return subprocess.run(command, cwd=ROOT, env=os.environ, check=True, capture_output=True, text=True).stdout

    assert "2 of 2 runs" in run(1)
    with (tmp_path / "runs.jsonl").open("a") as log:
        log.write('{"key": "cut off by a ki')
    assert "2 of 2 runs" in run(2)
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["totals"]["ours"]["runs"] == 2
    assert set(report["spaces"]) == {"made-up"}
    assert "| ours | 1 | 2 |" in (tmp_path / "out.md").read_text()
