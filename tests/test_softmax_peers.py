"""The benchmark of softmax against rivals: its verdicts, its cells, its file, its floors, and what is read of the tools' output."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from autotune import nvcc, source
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Launch, Library
from autotune.check import numpy_dtype
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.trial import Instance
from benchmarks import softmax_counters, softmax_floor, softmax_report
from benchmarks.softmax_cells import MOST_BYTES, SIZES, Record, cells_of, drawn_sizes

Row = dict[str, Any]
H200 = replace(EMULATOR, name="NVIDIA H200", sm_count=132)


def row(us: Row, *, rows: int = 4096, cols: int = 4096, spread: float = 0.002, drawn: bool = False) -> Row:
    spreads = dict.fromkeys(us, spread)
    kernel = {"configuration": "v7 block 256, items 4", "tier": "exact"}
    return {"dtype": "float32", "rows": rows, "cols": cols, "drawn": drawn, "us": us, "spread": spreads, "failed": {}, **kernel}


@pytest.mark.parametrize(("ours", "verdict"), [(33.9, "ahead"), (34.0, "ahead"), (34.1, "equal"), (34.13, "equal"), (34.2, "behind")])
def test_a_cell_is_equal_within_twice_the_spread_and_no_further(ours: float, verdict: str) -> None:
    said = softmax_report.judged(row({"copy": 33.0, "ours": ours, "quack": 34.0, "torch": 50.0}))
    assert said is not None
    assert (said["verdict"], said["rival"]) == (verdict, "quack")


@pytest.mark.parametrize(
    ("us", "cols", "within"),
    [
        ({"copy": 100.0, "ours": 103.4}, 4096, True),
        ({"copy": 100.0, "ours": 103.6}, 4096, False),
        ({"copy": 100.0, "ours": 103.6, "floor": 102.0}, 4096, False),  # too large to be judged by its floor
        ({"copy": 1.1, "ours": 1.9, "floor": 1.8}, 16, True),
        ({"copy": 1.1, "ours": 1.99, "floor": 1.8}, 16, False),
        ({"copy": 1.1, "ours": 1.6, "floor": 1.2}, 16, True),  # near the copy is near enough
    ],
)
def test_the_limit_is_the_copy_s_or_for_a_small_problem_the_floor_s(us: Row, cols: int, *, within: bool) -> None:
    said = softmax_report.judged(row({**us, "torch": 500.0}, cols=cols))
    assert said is not None
    assert said["within"] is within


def test_a_cell_without_rivals_or_without_ours_has_no_verdict_and_a_line_all_the_same() -> None:
    alone, missing = row({"copy": 1.0, "ours": 1.0}), row({"copy": 1.0, "torch": 1.0})
    missing["failed"]["ours"] = "KernelError: no"
    assert softmax_report.judged(alone) is None
    assert softmax_report.judged(missing) is None
    assert "not measured: KernelError: no" in softmax_report.table([alone, missing])


def test_a_recorded_time_is_scaled_by_the_copies_of_both_runs_and_never_replaces_a_measured_one() -> None:
    recorded = [{"dtype": "float32", "rows": 4096, "cols": 4096, "us": {"copy": 30.0, "quack": 36.0}}]
    without, measured = row({"copy": 33.0, "ours": 34.0}), row({"copy": 33.0, "ours": 34.0, "quack": 35.0})
    first, second = softmax_report.with_recorded([without, measured], recorded)
    assert first["us"]["quack (recorded)"] == pytest.approx(39.6)
    assert "quack (recorded)" not in second["us"]


def test_the_report_is_written_without_a_gpu(tmp_path: Path) -> None:
    cells = [
        row({"copy": 33.0, "ours": 34.0, "quack": 34.5}),
        row({"copy": 1.1, "ours": 2.0, "torch": 1.9, "floor": 1.7}, rows=1, drawn=True),
    ]
    run = {"date": "2026-12-01", "gpu": "NVIDIA H200", "driver": "580", "versions": {"torch": "2.11.0"}}
    (tmp_path / "run.json").write_text(json.dumps({"seed": 7, "runs": [run], "cells": cells}))
    arguments = [str(tmp_path / "run.json"), "--table", str(tmp_path / "table.md"), "--plot", str(tmp_path / "plot.png")]
    done = CliRunner().invoke(softmax_report.main, arguments, catch_exceptions=False)
    assert "1 cells tuned: geometric mean of ours / fastest rival 0.986; 1 ahead, 0 equal, 0 behind; 0 over their limit." in done.output
    assert "Behind: float32 1x4096 (drawn) 1.053." in done.output
    written = (tmp_path / "table.md").read_text()
    assert "| float32 1x4096 (drawn) | 1.10 | 1.70 | 2.00 | torch 1.90 | 1.053 |" in written
    assert "behind, over 1.87" in written
    assert "Seed of the drawn sizes: 7" in written
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_drawn_sizes_follow_from_the_seed_and_fit() -> None:
    sizes = drawn_sizes(5, 40)
    assert sizes == drawn_sizes(5, 40)
    assert sizes != drawn_sizes(6, 40)
    assert all(rows >= 1 and cols >= 1 and 4 * rows * cols <= MOST_BYTES for rows, cols in sizes)


def test_the_cells_are_the_25_sizes_and_the_drawn_ones_for_each_element_type() -> None:
    cells = cells_of(("float32", "bfloat16"), SIZES, 5, seed=1)
    assert len(cells) == len({cell.key for cell in cells}) == 60
    assert sum(cell.drawn for cell in cells) == 10


def test_a_run_goes_on_where_the_file_ends_with_the_seed_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    first = Record(path, None)
    first.begin({"gpu": "a"})
    first.add({"dtype": "float32", "rows": 1, "cols": 2, "drawn": False})
    second = Record(path, None)
    assert second.seed == first.seed
    assert second.keys == {("float32", 1, 2, False)}
    second.begin({"gpu": "b"})
    second.add({"dtype": "float32", "rows": 3, "cols": 4, "drawn": True})
    assert [cell["run"] for cell in json.loads(path.read_text())["cells"]] == [0, 1]
    with pytest.raises(UsageError, match="was begun with seed"):
        Record(path, first.seed + 1)


HELD = [
    (Configuration.of("v6", lanes=8, rows=2, items=3, vector=4, warps=2, edges="masked"), Problem("softmax", 21, 90)),
    (Configuration.of("v7", block=64, items=4, vector=4, hold="exponentials", edges="exact"), Problem("softmax", 5, 1000)),
    (Configuration.of("v7", block=64, items=2, vector=8, hold="inputs", edges="masked"), Problem("softmax", 5, 1003, "bfloat16")),
    (Configuration.of("v8", cluster=2, block=128, items=5, vector=4, hold="exponentials", edges="masked"), Problem("softmax", 3, 4095)),
    (Configuration.of("v10", block=128, items=1, vector=4, hold="exponentials", edges="masked"), Problem("softmax", 3, 1001)),
    (Configuration.of("v12", threads=128, items=8), Problem("softmax", 3, 1001)),
    (Configuration.of("v13", width=2, block=128, items=1), Problem("softmax", 67, 2)),
]


@cache
def emulated(configuration: Configuration, dtype: str) -> Library:
    return Library(build.library(source.render(softmax_floor.version(configuration.version), [configuration], dtype)))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("configuration", "problem"), HELD, ids=lambda value: str(value)[:3])
def test_a_floor_stores_what_it_loads_after_the_same_exchange(configuration: Configuration, problem: Problem, *, together: bool) -> None:
    version = softmax_floor.version(configuration.version)
    library = emulated(configuration, problem.dtype)
    x = np.random.default_rng(0).standard_normal((problem.rows, problem.cols), np.float32).astype(numpy_dtype(problem.dtype))
    aligned = [_aligned(x), _aligned(np.zeros_like(x))]
    plan, bounds = version.launch(configuration, problem, EMULATOR), version.bounds(configuration)
    workspace = np.zeros(plan.workspace_bytes // 8 + 1, np.uint64)
    arguments = (aligned[1], aligned[0], problem.rows, problem.cols, problem.output_stride, problem.input_stride, workspace)
    symbol = source.symbol(version, configuration, problem.dtype)
    grid = (plan.blocks, bounds.threads, plan.shared_bytes, bounds.cluster)
    library.launch(Launch(symbol, arguments, *grid, cooperative=together))
    assert aligned[1].tobytes() == x.tobytes()
    assert not workspace.any()


def _aligned(x: Any) -> Any:
    raw = np.zeros(x.nbytes + 32, np.uint8)
    start = -raw.ctypes.data % 16
    found = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    found[:] = x
    return found


def test_a_floor_of_every_version_is_built_for_the_gpu_and_computes_no_exponentials_where_a_row_is_held() -> None:
    wanted = []
    for index, version in enumerate(softmax_floor.SOFTMAX.versions.values()):
        dtype = version.dtypes[index % len(version.dtypes)]
        problems = [Problem("softmax", *size, dtype) for size in ((64, 2), (64, 97), (8, 8192), (1, 131072), (2, 300001))]
        able = [c for c in version.configurations() for problem in problems if version.applicable(c, problem, H200)]
        wanted.append((able[len(able) // 2], dtype))
    built = softmax_floor.build(wanted, "sm_90")
    assert [key for key, result in built.items() if not isinstance(result, Instance)] == []
    for configuration, problem in HELD:
        text = source.render(softmax_floor.version(configuration.version), [configuration], problem.dtype)
        assert "ex2.approx" not in nvcc.compile_ptx(text, "sm_90")


NCU = """==PROF== Connected to process 1
"ID","Process ID","Kernel Name","gpu__time_duration.sum","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
"","","","ns",""
"0","7","softmax_v7_float32_block256(float *, const float *)","33,500","2.5"
"""


def test_ncu_s_raw_page_is_read_without_its_units_and_messages() -> None:
    [kernel] = softmax_counters.read(NCU)
    assert softmax_counters.number(kernel, "gpu__time_duration.sum") == 33500
    assert softmax_counters.waits(kernel) == [("barrier", 2.5)]
    assert "| time, us | 33.5 |" in softmax_counters.table([{"who": "ours", **kernel}])
