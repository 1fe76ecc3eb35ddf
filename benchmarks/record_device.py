"""Record the database that is shipped for the GPUs in front of you: every configuration, at every size of results/sizes.txt.

    python benchmarks/record_device.py --work FOLDER --out results/nvidia-h200.sqlite

Problems are divided over all GPUs, one process each. All measurements go into files in FOLDER, which can be carried from machine to
machine: the same command goes on from there and measures nothing twice, however it ended before. `--seconds` ends it in time. Once all
is measured, `--out` makes the shipped file as benchmarks/ship_device.py does, which needs no GPU and may be run elsewhere.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.backends import Backend
from autotune.backends.select import gpu_count, select
from autotune.catalogue import load, shipped
from autotune.cli.options import problems_of
from autotune.configuration import Configuration
from autotune.operation import Operation
from autotune.problem import Problem
from benchmarks.recording import PACKING_S, Share, Spaces, compress, expected_s, finished, measure, shares, spaces_of
from benchmarks.ship_device import ship
from benchmarks.starting import started

COMPILE_S = 0.6  # CPU seconds per configuration


@click.command()
@click.argument("operation", default="softmax")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), required=True, help="What is measured; goes on from there.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The shipped file; replaces what is there.")
@click.option(
    "--sizes",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="May be repeated; --out ships the first.  [default: results/sizes.txt]",
)
@click.option("--dtype", "dtypes", multiple=True, help="May be repeated.  [default: every one that is offered]")
@click.option("--version", "versions", multiple=True, help="May be repeated.  [default: all]")
@click.option("--seconds", type=float, default=float("inf"), help="End in time, with everything stored.")
@click.option("--device", default="cuda", show_default=True, help="cuda is all GPUs, cuda:I one of them.")
@click.option("--processes", type=click.IntRange(min=1), help="[default: one per GPU]")
def main(
    operation: str,
    work: Path,
    out: Path | None,
    files: tuple[Path, ...],
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    seconds: float,
    device: str,
    processes: int | None,
) -> None:
    """Record OPERATION (softmax) on the GPUs in front of you."""
    deadline = time.time() + seconds
    loaded = load(operation)
    sizes = files or (shipped("results") / "sizes.txt",)
    problems = by_size([p for file in sizes for p in problems_of(loaded, (), file, dtypes or loaded.dtypes)])
    work.mkdir(parents=True, exist_ok=True)
    for left in sorted(work.glob("*.sqlite")):
        compress(left)
    with closing(select(device).backend) as backend:
        spaces = spaces_of(loaded, problems, backend.device, versions)
        done = finished(work, loaded, spaces)
        wanted = [p for p in problems if p not in done and spaces[p]]
        say(f"{len(problems) - len(wanted)} of {len(problems)} problems are recorded on {backend.device.name}")
        devices = processes_of(device, processes)
        wanted = in_time(wanted, spaces, len(devices), deadline)
        if wanted:
            build(loaded, backend, wanted, spaces)
    failed = record(operation, work, devices, wanted, spaces, versions, deadline) if wanted else 0
    done = finished(work, loaded, spaces)
    left_over = [p for p in problems if p not in done and spaces[p]]
    say(f"{len(problems) - len(left_over)} of {len(problems)} problems are recorded")
    if failed:
        raise SystemExit(f"{failed} of {len(devices)} processes failed; run the same command again")
    if out is not None and not left_over:
        ship(loaded, work, out, problems_of(loaded, (), sizes[0], dtypes or loaded.dtypes))


def by_size(problems: Sequence[Problem]) -> list[Problem]:
    """Each problem once, and all element types of a size before the next size: a recording that was ended early has whole sizes."""
    sizes = {size: place for place, size in enumerate(dict.fromkeys((p.rows, p.cols) for p in problems))}
    return sorted(dict.fromkeys(problems), key=lambda p: sizes[p.rows, p.cols])


def processes_of(device: str, processes: int | None) -> list[str]:
    """The device of each process that measures."""
    if device == "cuda":
        return [f"cuda:{ordinal}" for ordinal in range(min(processes or gpu_count(), gpu_count()))]
    return [device] * (processes or 1)


def in_time(problems: Sequence[Problem], spaces: Spaces, processes: int, deadline: float) -> list[Problem]:
    """Those of `problems`, from the first, that may be reached before `deadline`: what comes after them is not worth compiling."""
    left_s = 1.3 * processes * max(0.0, deadline - time.time() - PACKING_S)
    total_s = sum(expected_s(p, spaces[p]) for p in problems)
    say(f"{len(problems)} problems will take about {total_s / processes:.0f} s on {processes} devices, and their compilation before that")
    reached = []
    for problem in problems:
        left_s -= expected_s(problem, spaces[problem])
        if left_s < 0:
            break
        reached.append(problem)
    return reached


def build(operation: Operation, backend: Backend, problems: Sequence[Problem], spaces: Spaces) -> None:
    """Fill the store of compiled kernels with all cores, before anything is timed."""
    if backend.replayed:
        return
    wanted: dict[tuple[str, str], dict[Configuration, None]] = {}
    for problem in problems:
        for configuration in spaces[problem]:
            wanted.setdefault((configuration.version, problem.dtype), {})[configuration] = None
    total, built, began = sum(map(len, wanted.values())), 0, time.monotonic()
    say(f"{total} kernels to compile, about {COMPILE_S * total / len(os.sched_getaffinity(0)):.0f} s")
    for (version, dtype), configurations in wanted.items():
        built += sum(1 for _ in backend.compile(operation.version(version), configurations, dtype))
        say(f"{built}/{total} kernels compiled, {time.monotonic() - began:.0f} s: {version} {dtype}")


def record(
    operation: str, work: Path, devices: list[str], problems: Sequence[Problem], spaces: Spaces, versions: tuple[str, ...], deadline: float
) -> int:
    """Measure `problems`, a process for each of `devices`; returns how many of them failed."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    processes = []
    for number, (device, mine) in enumerate(zip(devices, shares(problems, spaces, len(devices)), strict=True)):
        path = work / f"{stamp}-{number}.sqlite"
        known = {problem: spaces[problem] for problem in mine}
        share = Share(f"[{number}]", path, operation, device, tuple(mine), known, versions, deadline - PACKING_S)
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(share,), daemon=False)
        process.start()
        processes.append(process)
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt:  # which they hear too: each stores what it has and ends
        for process in processes:
            process.join()
    return sum(process.exitcode != 0 for process in processes)


def say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


if __name__ == "__main__":
    started(main)
