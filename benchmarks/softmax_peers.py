"""Row softmax on one GPU: ours through the dispatcher, other libraries, a copy of the same bytes and a floor, all in one run.

    python benchmarks/softmax_peers.py --json results/softmax-peers-h200.json --seconds 400
    python benchmarks/softmax_report.py results/softmax-peers-h200.json --table … --plot …      afterwards, without a GPU

Needs a GPU, nvcc and torch; what else is not installed is left out and named. Each cell is written as soon as it is known, and a second run
with the same file measures those that are missing.

The protocol is the tuner's cold one: a CUDA graph of whole laps over distinct (input, output) pairs, as many as make four times the L2, at
most 256; a lap below three times the L2 is a sample of its own. Before each sample other memory is read, outside the timed window, which
also hides the time that the host takes to launch the graph. All contestants of a cell make the same number of launches a sample and take
turns, each round in another order; a figure is the median of its samples, a spread their interquartile range over it.
"""

import gc
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from benchmarks.starting import require, require_gpu, started

require("torch")

import torch

from autotune.backends.clocks import Clocks
from autotune.backends.cuda_pairs import FLUSH_OF_L2
from autotune.dispatch import Dispatcher
from autotune.dispatch.cuda_launcher import CudaLauncher
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.statistics import median, spread
from autotune.trial import Failure, Instance
from benchmarks import softmax_floor
from benchmarks.softmax_cells import SIZES, Cell, Record, cells_of
from benchmarks.softmax_report import OURS, summary, table
from benchmarks.softmax_rivals import COMPILED, Rival, installed, prepare_rivals
from benchmarks.softmax_timing import Buffers, Call, Timed, in_turn, instance_call

SAMPLES_TO_CHOOSE = 3
WARM_UP_S = 0.1
CHECKED_ROWS = 64
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}  # norm of the error over that of the result: rivals are not under test
PACKAGES = ("torch", "triton", "liger-kernel", "quack-kernels", "nvidia-cutlass-dsl", "nvidia-cudnn-cu13")


class Field:
    """The GPU, the dispatcher, the rivals and the floors: what all cells have in common."""

    def __init__(self, db: Path | None, rivals: dict[str, Rival]) -> None:
        self.dispatcher, self.rivals = Dispatcher("softmax", db=db), rivals
        launcher = self.dispatcher._planner(0).launcher
        assert isinstance(launcher, CudaLauncher)
        self.launcher, self.device = launcher, launcher.device
        self.flush = torch.randn(FLUSH_OF_L2 * self.device.l2_bytes // 4, device="cuda")
        self.clocks = Clocks(self._bus_id())
        self.floors: dict[softmax_floor.Built, Instance | Failure] = {}

    def _bus_id(self) -> str:
        found = self.launcher.cuda.call("cuDeviceGetPCIBusId", 32, self.launcher.cuda.call("cuDeviceGet", 0))
        return str(found.split(b"\0")[0].decode())

    def build_floors(self, cells: Iterable[Cell]) -> None:
        chosen = [(self.dispatcher.explain(c.problem.rows, c.problem.cols, c.problem.dtype).chosen, c.problem.dtype) for c in cells]
        self.floors = softmax_floor.build([(candidate.configuration, dtype) for candidate, dtype in chosen if candidate], self.device.arch)

    def floor(self, problem: Problem) -> Call:
        """The kernel that the dispatcher chooses for `problem`, without its arithmetic; launched as the dispatcher launches."""
        chosen = self.dispatcher.explain(problem.rows, problem.cols, problem.dtype).chosen
        assert chosen
        instance = self.floors[chosen.configuration, problem.dtype]
        if isinstance(instance, Failure):
            raise instance
        return instance_call(self.launcher, softmax_floor.SOFTMAX.version(chosen.configuration.version), instance, problem)

    def contestants(self, problem: Problem) -> dict[str, Callable[[], dict[str, Call]]]:
        """By name, what makes each one's ways to run `problem`."""
        made: dict[str, Callable[[], dict[str, Call]]] = {
            # By the driver, or where that is slow, which is at odd sizes, by an elementwise kernel.
            "copy": lambda: {"": lambda x, y: y.copy_(x), "kernel": lambda x, y: torch.add(x, 0, out=y)},
            "ours": lambda: {"": lambda x, y: self.dispatcher(x, out=y)},
            "floor": lambda: {"": self.floor(problem)},
        }
        return made | {name: lambda rival=rival: rival.alternatives(problem) for name, rival in self.rivals.items()}


def wrong(call: Call, buffers: Buffers, dtype: str) -> str:
    """What is wrong with a contestant's first and last rows; "" when nothing is."""
    x, y = buffers.inputs[0], buffers.outputs[0]
    y.fill_(math.nan)
    made = call(x, y)
    got = made if isinstance(made, torch.Tensor) else y
    rows = [slice(0, CHECKED_ROWS), slice(-CHECKED_ROWS, None)]
    expected = torch.cat([torch.softmax(x[part].double(), -1) for part in rows])
    error = ((torch.cat([got[part].double() for part in rows]) - expected).norm() / expected.norm()).item()
    return "" if error < TOLERANCES[dtype] else f"its result is off by {error:.2g}"


def entered(name: str, alternatives: dict[str, Call], buffers: Buffers, field: Field, dtype: str) -> tuple[str, Timed]:
    """The fastest of a contestant's alternatives, by a few samples of each; an alternative that cannot run is passed over."""
    found: list[tuple[float, str, Timed]] = []
    failures = []
    for way, call in alternatives.items():
        try:
            fault = "" if name in ("copy", "floor") else wrong(call, buffers, dtype)
            if fault:
                raise ValueError(fault)
            timed = Timed(call, buffers, field.flush)
            us = median([timed.sample() for _ in range(SAMPLES_TO_CHOOSE)]) if len(alternatives) > 1 else 0.0
            found.append((us, way, timed))
        except Exception as error:
            failures.append(error)
    if not found:
        raise failures[0]
    return min(found, key=lambda entry: entry[0])[1:]


def measure(cell: Cell, field: Field, seed: int) -> dict[str, Any]:
    """All contestants of one cell: median and spread of each in microseconds, and why some could not run."""
    problem = cell.problem
    buffers = Buffers(problem, field.device.l2_bytes)
    timed: dict[str, Timed] = {}
    ways, failed = {}, {}
    for name, alternatives in field.contestants(problem).items():
        try:
            ways[name], timed[name] = entered(name, alternatives(), buffers, field, problem.dtype)
        except Exception as error:  # recorded as what it is; the others go on
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    until = time.monotonic() + WARM_UP_S
    while timed and time.monotonic() < until:
        next(iter(timed.values())).sample()
    clocks = [field.clocks.sm_mhz()]
    samples = in_turn(timed, OURS, buffers.samples, seed, lambda: clocks.append(field.clocks.sm_mhz()))
    chosen = field.dispatcher.explain(problem.rows, problem.cols, problem.dtype).chosen
    return {
        "dtype": problem.dtype,
        "rows": problem.rows,
        "cols": problem.cols,
        "drawn": cell.drawn,
        "configuration": str(chosen.configuration if chosen else None),
        "tier": chosen.tier if chosen else "none",
        "us": {name: round(median(values), 4) for name, values in samples.items()},
        "spread": {name: round(spread(values), 5) for name, values in samples.items()},
        "ways": {name: way for name, way in ways.items() if way},
        "failed": failed,
        "pairs": len(buffers.inputs),
        "laps": buffers.laps,
        "sm_mhz": min(filter(None, clocks), default=None),
    }


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@click.command()
@click.option("--dtype", "dtypes", multiple=True, default=("float32", "bfloat16"), show_default=True)
@click.option("--size", "sizes", multiple=True, help="Instead of the 25 sizes; may be repeated.")
@click.option("--drawn", default=5, show_default=True, help="How many further sizes are drawn at random.")
@click.option("--seed", type=int, help="Decides what is drawn; printed when it is not given.")
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--json", "path", type=click.Path(path_type=Path), help="Where each cell is written; cells that are there are left as they are."
)
@click.option("--seconds", default=420.0, show_default=True, help="No cell is begun that would end after this.")
@click.option("--prepare", "prepare_s", default=75.0, show_default=True, help="Seconds to compile rivals in many processes; 0 for none.")
@click.option("--processes", default=12, show_default=True)
@click.option("--rival", "named", multiple=True, help="Only this one; may be repeated.")
def main(
    dtypes: tuple[str, ...],
    sizes: tuple[str, ...],
    drawn: int,
    seed: int | None,
    db: Path | None,
    path: Path | None,
    seconds: float,
    prepare_s: float,
    processes: int,
    named: tuple[str, ...],
) -> None:
    """Measure every cell and print the table."""
    require_gpu()
    started = time.monotonic()
    # One cache for all kernels of Triton: torch.compile would move it elsewhere once it is used.
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(tempfile.gettempdir()) / "softmax-peers-triton"))
    try:
        record = Record(path, seed)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    print(f"seed {record.seed}", flush=True)
    cells = [cell for cell in cells_of(dtypes, sizes or SIZES, drawn, record.seed) if cell.key not in record.keys]
    if prepare_s and cells:
        said = prepare_rivals([cell.problem for cell in cells], named or COMPILED, min(processes, 4 * len(cells)), prepare_s)
        print(f"{time.monotonic() - started:.0f} s: {said}", flush=True)
    field = Field(db, {name: rival for name, rival in installed().items() if name in (named or (name,))})
    field.build_floors(cells)
    print(f"{time.monotonic() - started:.0f} s: {len(field.floors)} floors; rivals: {', '.join(field.rivals)}", flush=True)
    record.begin(
        {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "gpu": torch.cuda.get_device_name(),
            "driver": field.clocks.driver(),
            "rivals": list(field.rivals),
            "versions": versions(),
        }
    )
    left = measure_all(cells, field, record, started + seconds)
    rows = record.content["cells"]
    print(table(rows) if len(rows) <= 12 else "\n".join(summary(rows)))
    print(f"{time.monotonic() - started:.0f} s in all" + (f"; {left} cells left for another run" if left else ""))


def measure_all(cells: list[Cell], field: Field, record: Record, until: float) -> int:
    """Measures and records cells while there is time; how many are left."""
    slowest, failed = 0.0, 0
    for index, cell in enumerate(cells):
        began = time.monotonic()
        if began + slowest > until:
            return len(cells) - index + failed
        row: dict[str, Any] | None = None
        try:
            row = measure(cell, field, index)
        except Exception as error:  # the cell is left to another run
            print(f"{cell.problem}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
        if not usable():
            print(
                f"the GPU's context is lost since {cell.problem}; run again with --rival for each rival but the guilty one", file=sys.stderr
            )
            return len(cells) - index + failed
        if row is None:
            failed += 1
            gc.collect()
            continue
        record.add(row)
        if row["failed"]:
            gc.collect()  # an exception keeps the buffers of the cell alive
        torch.cuda.empty_cache()
        took = time.monotonic() - began
        slowest = max(slowest, took)
        drawn = " (drawn)" if cell.drawn else ""
        times = " ".join(f"{name} {us:.2f}" for name, us in row["us"].items())
        print(
            f"{cell.problem}{drawn} {took:.1f} s: {times}" + "".join(f"; {name}: {why}" for name, why in row["failed"].items()), flush=True
        )
    return failed


def usable() -> bool:
    """Whether the GPU still works: after an illegal access by anyone nothing does in this process."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    started(main)
