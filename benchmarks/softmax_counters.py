"""What limits a softmax kernel: the GPU's counters, read by Nsight Compute, for several kernels on one problem side by side.

    python benchmarks/softmax_counters.py 1024x65536 --dtype bfloat16 --who ours --who quack --who floor
    python benchmarks/softmax_counters.py 1x131072 --who "v10 block=256,items=3,vector=4,hold=exponentials,edges=exact" --json FILE

`--who` is ours (what the dispatcher chooses), floor (the same without arithmetic), a rival, or a configuration. Needs a GPU, ncu, nvcc and
torch. Each kernel is launched a few times and its last launch measured, from a cold cache and at the clocks as they are.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune import nvcc
from autotune.cli.pins import parse_configuration
from autotune.problem import Problem, parse_size
from autotune.trial import Failure
from benchmarks.starting import require, require_gpu, started

SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "ComputeWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "Occupancy",
    "LaunchStats",
)
EXTRA = (  # that are in no section
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
)
# What the table shows: a name, the counter, and what its base unit is divided by.
SHOWN = (
    ("time, us", "gpu__time_duration.sum", 1e3),
    ("DRAM, % of peak", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 1),
    ("read from DRAM, MB", "dram__bytes_read.sum", 1e6),
    ("written to DRAM, MB", "dram__bytes_write.sum", 1e6),
    ("L2, % of peak", "lts__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    ("L1 and shared, % of peak", "l1tex__throughput.avg.pct_of_peak_sustained_active", 1),
    ("SM, % of peak", "sm__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    ("issue slots used, %", "smsp__issue_active.avg.pct_of_peak_sustained_active", 1),
    ("exponentials' unit, %", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", 1),
    ("instructions, millions", "smsp__inst_executed.sum", 1e6),
    ("achieved occupancy, %", "sm__warps_active.avg.pct_of_peak_sustained_active", 1),
    ("theoretical occupancy, %", "sm__maximum_warps_per_active_cycle_pct", 1),
    ("registers a thread", "launch__registers_per_thread", 1),
    ("shared memory a block, KB", "launch__shared_mem_per_block", 1e3),
    ("blocks", "launch__grid_size", 1),
    ("threads a block", "launch__block_size", 1),
)
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
STALLS_SHOWN = 5
LAUNCHES_BEFORE = 3
PROFILED_S = 300


@click.command()
@click.argument("size")
@click.option("--dtype", default="float32", show_default=True)
@click.option(
    "--who", multiple=True, default=("ours",), show_default=True, help="ours, floor, a rival or a configuration; may be repeated."
)
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where every counter is written.")
@click.option("--launch", is_flag=True, hidden=True, help="Make the launches that are measured.")
def main(size: str, dtype: str, who: tuple[str, ...], db: Path | None, path: Path | None, launch: bool) -> None:
    """Read the counters of each kernel on a matrix of SIZE."""
    problem = Problem("softmax", *parse_size(size), dtype)
    if launch:
        launch_all(problem, who, db)
        return
    require("torch")
    require_gpu()
    ncu = shutil.which("ncu")
    if ncu is None:
        raise click.UsageError("ncu is not on PATH; install NVIDIA Nsight Compute")
    found = profile(ncu, [size, "--dtype", dtype, *(["--db", str(db)] if db else []), *(part for name in who for part in ("--who", name))])
    print(table(found))
    if path:
        path.write_text(json.dumps({"problem": str(problem), "who": who, "kernels": found}, indent=1) + "\n")


def profile(ncu: str, arguments: list[str]) -> list[dict[str, str]]:
    """The counters of every kernel that the contestants launch while they are watched, in order. Raises ClickException when ncu fails."""
    with tempfile.TemporaryDirectory(prefix="counters-") as folder:
        log = Path(folder) / "counters.csv"
        watch = [ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all", "--log-file", str(log)]
        watch += ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(EXTRA)]
        watch += [part for section in SECTIONS for part in ("--section", section)]
        done = subprocess.run(
            [*watch, sys.executable, __file__, *arguments, "--launch"], capture_output=True, text=True, timeout=PROFILED_S
        )
        text = log.read_text() if log.is_file() else ""
    sys.stderr.write(done.stderr)
    rows = read(text)
    if not rows:
        raise click.ClickException(f"ncu measured nothing (exit status {done.returncode}): {(done.stdout + text)[-2000:]}")
    names = re.findall(r"^watched (.*)$", done.stdout, re.MULTILINE)
    return [{"who": names[i] if len(names) == len(rows) else "?", **row} for i, row in enumerate(rows)]


def read(text: str) -> list[dict[str, str]]:
    """The rows of ncu's raw page, without what it says before and between: the names of the columns, their units, a line per kernel."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    return [row for row in rows if row.get("Kernel Name")]


def number(row: dict[str, str], counter: str) -> float | None:
    text = row.get(counter, "").replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def table(rows: list[dict[str, str]]) -> str:
    """A column per kernel, a line per counter, and what its warps waited for most: warps that wait so, for each instruction issued."""
    lines = ["| | " + " | ".join(row["who"] for row in rows) + " |", "| --- |" + " ---: |" * len(rows)]
    lines.append("| kernel | " + " | ".join(row["Kernel Name"].split("(")[0][:60] for row in rows) + " |")
    for title, counter, unit in SHOWN:
        values = [number(row, counter) for row in rows]
        if any(value is not None for value in values):
            lines.append(f"| {title} | " + " | ".join("" if v is None else f"{v / unit:.4g}" for v in values) + " |")
    lines.append("| waits | " + " | ".join(", ".join(f"{name} {value:.2g}" for name, value in waits(row)) for row in rows) + " |")
    return "\n".join(lines)


def waits(row: dict[str, str]) -> list[tuple[str, float]]:
    """The most frequent reasons for which warps could not issue, with how many warps had each when an instruction was issued."""
    found = {match[1]: number(row, name) or 0.0 for name in row if (match := STALL.fullmatch(name))}
    reasons = [pair for pair in found.items() if pair[0] != "selected" and not pair[0].endswith("_not_issued")]
    return sorted(reasons, key=lambda pair: -pair[1])[:STALLS_SHOWN]


def launch_all(problem: Problem, who: tuple[str, ...], db: Path | None) -> None:
    """In the watched process: prepares each contestant, then launches it once for ncu to see."""
    import torch

    from benchmarks.softmax_peers import Field
    from benchmarks.softmax_rivals import RIVALS, rival

    field = Field(db, {name: rival(name) for name in who if name in RIVALS})
    dtype = getattr(torch, problem.dtype)
    x, y = (torch.randn(problem.rows, problem.cols, device="cuda", dtype=dtype) * 3 for _ in range(2))
    for name in who:
        call = contestant(field, name, problem)
        for _ in range(LAUNCHES_BEFORE):
            call(x, y)
        torch.cuda.synchronize()
        print(f"watched {name}", flush=True)
        torch.cuda.profiler.start()
        call(x, y)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def contestant(field: Any, name: str, problem: Problem) -> Any:
    """The call of one contestant; of a rival its last alternative. Raises Failure where one does not compile."""
    from benchmarks import softmax_floor
    from benchmarks.softmax_cells import Cell
    from benchmarks.softmax_timing import instance_call

    if name == "floor":
        field.build_floors([Cell(problem, drawn=False)])
        return field.floor(problem)
    made = field.contestants(problem)
    if name in made:
        return list(made[name]().values())[-1]
    configuration = parse_configuration(softmax_floor.SOFTMAX, name)
    version = softmax_floor.SOFTMAX.version(configuration.version)
    [(_, instance)] = nvcc.compile_instances(version, [configuration], problem.dtype, field.device.arch)
    if isinstance(instance, Failure):
        raise instance
    return instance_call(field.launcher, version, instance, problem)


if __name__ == "__main__":
    started(main)
