"""Row softmax on one GPU: ours through the dispatcher, other libraries, a copy of the same bytes and a floor, all in one run.

    python benchmarks/softmax_peers.py --json results/softmax-peers-h200.json --plot results/softmax-peers-h200.png

Needs a GPU and torch; what else is not installed is left out and named. The protocol is the tuner's cold one: a CUDA graph of whole laps
over distinct (input, output) pairs, as many as make four times the L2, at most 256; a lap below three times the L2 is a sample of its own,
before which other memory is read, outside the timed window. Contestants of a cell take turns, and each figure is the median of its samples.

The floor, for problems below 8 MB, is our kernel with its exponentials left out: it loads, exchanges and stores as that does.
QuACK's recorded time, scaled by the copy of the same cell, stands in where it is not installed, and the table says so.
"""

import json
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from softmax_rivals import Call, floor, installed  # beside this file

from autotune.dispatch import Dispatcher
from autotune.problem import Problem, parse_size

SIZES = """
    4096x4096 4096x1024 4096x16384 1024x65536 32x128256 65536x128 32768x512 8192x2048 8192x8192 2048x32768 1x131072 8x131072 64x50257
    1024x1000 16384x2047 8192x4095 262144x32 65536x256 1048576x16 512x131072 256x262144 1x4096 128x4096 1x1024 16x1024
""".split()  # noqa: SIM905
FLOOR_BYTES = 8_000_000
MOST_BYTES = 1 << 30  # of a random problem's input
MOST_PAIRS = 256
LAUNCHES, SAMPLES, FLUSHED_SAMPLES = 2000, 9, 25
SAMPLE_US = 8000.0


@dataclass(frozen=True)
class Cell:
    problem: Problem
    drawn: bool  # at random, so that nobody tuned for it

    def __str__(self) -> str:
        return f"{self.problem.dtype} {self.problem.size}" + (" (drawn)" if self.drawn else "")


class Buffers:
    """The pairs of one cell: at least four times the L2 together where 256 pairs are enough for that."""

    def __init__(self, problem: Problem, l2_bytes: int) -> None:
        dtype = getattr(torch, problem.dtype)
        pair_bytes = 2 * problem.rows * problem.bytes_per_row
        count = max(2, min(MOST_PAIRS, -(-4 * l2_bytes // pair_bytes)))
        shape = (problem.rows, problem.cols)
        self.inputs = [torch.randn(shape, device="cuda", dtype=dtype) * 3 for _ in range(count)]
        self.outputs = [torch.full(shape, math.nan, device="cuda", dtype=dtype) for _ in range(count)]
        self.flushed = count * pair_bytes < 3 * l2_bytes


class Timed:
    """One contestant on one cell, captured: `sample` is its time per launch in microseconds."""

    def __init__(self, call: Call, buffers: Buffers, stream: torch.cuda.Stream, flush: torch.Tensor) -> None:
        self._stream, self._flush = stream, flush if buffers.flushed else None
        pairs = list(zip(buffers.inputs, buffers.outputs, strict=True))
        self._before, self._after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            for pair in pairs[:3]:
                call(*pair)
            lap_us = self._elapsed(lambda: [call(*pair) for pair in pairs])
        laps = 1 if buffers.flushed else max(1, min(LAUNCHES // len(pairs), int(SAMPLE_US / lap_us)))
        self._launches = laps * len(pairs)
        self._graph = torch.cuda.CUDAGraph()
        kept: list[object] = []  # what a contestant allocates, as many outputs as the others have
        with torch.cuda.graph(self._graph, stream=stream):
            for _ in range(laps):
                for pair in pairs:
                    kept = [*kept[-len(pairs) + 1 :], call(*pair)]
        self.sample()

    def sample(self) -> float:
        with torch.cuda.stream(self._stream):
            if self._flush is not None:
                self._flush.sum()
                self._flush.max()
            return self._elapsed(self._graph.replay) / self._launches

    def _elapsed(self, work: Callable[[], object]) -> float:
        self._before.record(self._stream)
        work()
        self._after.record(self._stream)
        self._stream.synchronize()
        return max(self._before.elapsed_time(self._after) * 1e3, 1.0)


def wrong(call: Call, buffers: Buffers) -> str:
    """What is wrong with a contestant's output; "" when nothing is. Peers are held to a thousandth only: they are not under test."""
    x, y = buffers.inputs[0], buffers.outputs[0]
    y.fill_(math.nan)
    made = call(x, y)
    got = made if isinstance(made, torch.Tensor) else y
    expected = torch.softmax(x[:64].double(), -1)
    error = ((got[:64].double() - expected).norm() / expected.norm()).item()
    return "" if error < (1e-5 if x.dtype == torch.float32 else 1e-2) else f"is off by {error:.2g}"


def measure(cell: Cell, dispatcher: Dispatcher, peers: dict[str, Call], stream: torch.cuda.Stream, flush: torch.Tensor) -> dict[str, Any]:
    """All contestants of one cell: the median and the spread of each, in microseconds."""
    problem, properties = cell.problem, torch.cuda.get_device_properties(0)
    buffers = Buffers(problem, properties.L2_cache_size)
    contestants: dict[str, Call] = {"copy": lambda x, y: y.copy_(x), "ours": lambda x, y: dispatcher(x, out=y), **peers}
    device = dispatcher._planner(0).launcher.device
    if 2 * problem.rows * problem.bytes_per_row < FLOOR_BYTES:
        contestants["floor"] = floor(dispatcher, problem, device)
    timed, failed = {}, {}
    for name, call in contestants.items():
        try:
            fault = "" if name in ("copy", "floor") else wrong(call, buffers)
            if fault:
                raise RuntimeError(fault)
            timed[name] = Timed(call, buffers, stream, flush)
        except Exception as error:  # recorded as what it is
            failed[name] = f"{type(error).__name__}: {error}"[:160]
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(FLUSHED_SAMPLES if buffers.flushed else SAMPLES):
        for name, contestant in timed.items():
            samples[name].append(contestant.sample())
    medians = {name: statistics.median(values) for name, values in samples.items()}
    spreads = {name: (max(values) - min(values)) / medians[name] for name, values in samples.items()}
    told = dispatcher.explain(problem.rows, problem.cols, problem.dtype).chosen
    where = {"dtype": problem.dtype, "rows": problem.rows, "cols": problem.cols, "drawn": cell.drawn}
    return {**where, "us": medians, "spread": spreads, "failed": failed, "configuration": str(told.configuration), "tier": told.tier}


def add_recorded(row: dict[str, Any], recorded: dict[tuple[str, int, int], dict[str, Any]]) -> None:
    """QuACK's recorded time, scaled by the copy of the same cell, where it did not run."""
    old = recorded.get((row["dtype"], row["rows"], row["cols"]))
    if old and "quack" not in row["us"] and "quack" in old["peers_us"]:
        row["us"]["quack (recorded)"] = old["peers_us"]["quack"] * row["us"]["copy"] / old["copy_us"]


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """A cell against its rivals, the copy and the floor. Equal is what lies within twice the spread."""
    us = row["us"]
    rivals = {name: time for name, time in us.items() if name not in ("copy", "floor", "ours")}
    rival = min(rivals, key=lambda name: rivals[name])
    ratio, noise = us["ours"] / rivals[rival], 2 * max(row["spread"]["ours"], row["spread"].get(rival, 0.0))
    within = us["ours"] <= 1.1 * us["floor"] if "floor" in us else us["ours"] <= 1.03 * us["copy"] + 0.5
    return {"rival": rival, "ratio": ratio, "wins": ratio <= 1 + noise, "of_copy": us["copy"] / us["ours"], "close_to_limit": within}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| cell | copy | floor | ours | rival | ours / rival | of copy | |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        us, said = row["us"], row["judged"]
        floor_us = f"{us['floor']:.2f}" if "floor" in us else ""
        notes = [text for holds, text in ((said["wins"], "slower than a rival"), (said["close_to_limit"], "over its limit")) if not holds]
        name = f"{row['dtype']} {row['rows']}x{row['cols']}" + (" (drawn)" if row["drawn"] else "")
        figures = f"{us['copy']:.2f} | {floor_us} | {us['ours']:.2f} | {us[said['rival']]:.2f} {said['rival']} | {said['ratio']:.3f}"
        lines.append(f"| {name} | {figures} | {said['of_copy']:.2f} | {', '.join(notes)} |")
    mean = math.exp(statistics.fmean(math.log(row["judged"]["ratio"]) for row in rows))
    return "\n".join([*lines, "", f"Geometric mean of ours / fastest rival over {len(rows)} cells: {mean:.3f}. Times in microseconds."])


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Share of copy over the columns of a row, a panel per element type and a line per contestant."""
    from matplotlib import pyplot

    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    figure, panels = pyplot.subplots(1, len(dtypes), figsize=(7 * len(dtypes), 5), sharey=True, squeeze=False)
    for panel, dtype in zip(panels[0], dtypes, strict=True):
        mine = sorted((row for row in rows if row["dtype"] == dtype and row["rows"] > 1), key=lambda row: row["cols"])
        for name in dict.fromkeys(name for row in mine for name in row["us"] if name not in ("copy", "floor")):
            points = [(row["cols"], row["us"]["copy"] / row["us"][name]) for row in mine if name in row["us"]]
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=2.5 if name == "ours" else 1, label=name)
        panel.set(title=dtype, xscale="log", xlabel="columns", ylabel="share of copy", ylim=(0, 1.1))
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def drawn_sizes(seed: int, count: int) -> list[tuple[int, int]]:
    """Sizes drawn evenly over the logarithm of both sides."""
    generator, sizes = random.Random(seed), []
    while len(sizes) < count:
        rows, cols = (int(2 ** generator.uniform(0, top)) for top in (20, 18))
        if rows * cols * 4 <= MOST_BYTES:
            sizes.append((rows, cols))
    return sizes


@click.command()
@click.option("--dtype", "dtypes", multiple=True, default=("float32", "bfloat16"), show_default=True)
@click.option("--size", "sizes", multiple=True, help="Instead of the 25 sizes; may be repeated.")
@click.option("--drawn", default=5, show_default=True, help="How many further sizes are drawn at random.")
@click.option("--seed", type=int, help="Decides what is drawn; printed when it is not given.")
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option("--recorded", type=click.Path(exists=True, path_type=Path), help="Times of an earlier run, for QuACK where it is missing.")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
@click.option("--table", "table_path", type=click.Path(path_type=Path))
@click.option("--plot", "plot_path", type=click.Path(path_type=Path))
def main(
    dtypes: tuple[str, ...],
    sizes: tuple[str, ...],
    drawn: int,
    seed: int | None,
    db: Path | None,
    recorded: Path | None,
    json_path: Path | None,
    table_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Measure every cell, write each as soon as it is known, and print the table."""
    seed = random.randrange(2**32) if seed is None else seed
    print(f"seed {seed}")
    cells = [Cell(Problem("softmax", *parse_size(size), dtype), drawn=False) for dtype in dtypes for size in sizes or SIZES]
    cells += [Cell(Problem("softmax", *size, dtype), drawn=True) for dtype in dtypes for size in drawn_sizes(seed, drawn)]
    old = json.loads(recorded.read_text())["cells"] if recorded else []
    known = {(c["dtype"], c["rows"], c["cols"]): c for c in old}
    dispatcher, peers, stream = Dispatcher("softmax", db=db), installed(), torch.cuda.Stream()
    flush = torch.randn(3 * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda")
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "seed": seed, "peers": sorted(peers)}
    rows: list[dict[str, Any]] = []
    for cell in cells:
        row = measure(cell, dispatcher, peers, stream, flush)
        add_recorded(row, known)
        rows.append({**row, "judged": judged(row)})
        print(f"{cell}: " + " ".join(f"{name}={us:.2f}" for name, us in row["us"].items()), flush=True)
        if json_path:
            json_path.write_text(json.dumps({**about, "cells": rows}, indent=1) + "\n")
        torch.cuda.empty_cache()
    print(table(rows))
    if table_path:
        table_path.write_text(table(rows) + "\n")
    if plot_path:
        plot(rows, plot_path)


if __name__ == "__main__":
    main()
