"""What tuning costs: this tuner and Kernel Tuner 1.5 side by side, on the same kernel and the same 48 configurations.

    PYTHONPATH=folder/with/kernel_tuner python benchmarks/tuning_cost.py --out tuning_cost.json

Each tuner gets a process of its own, an empty cache, and first tunes one configuration, so that starting up is not counted. Then it
tunes all 48 at one size after the other, as a user would: with results verified. Kernel Tuner runs with its PyCUDA backend and with
its default one. At the end all winners are timed against each other in shuffled rounds, as instances of ours.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune import source
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.operation import Operation
from autotune.problem import Problem, parse_size
from autotune.statistics import confidence_interval, median
from benchmarks.neutral_race import race
from benchmarks.starting import require, require_gpu, started

PARAMETERS = {"block": (64, 96, 128, 192, 256, 384, 512, 1024), "vector": (1, 2, 4), "unroll": (1, 2)}
FIRST = {"block": 32, "vector": 1, "unroll": 1}  # not one of the 48: what each tuner starts up with
ENTRY = "tuned_row_softmax"
TUNERS = ("ours", "kernel_tuner_pycuda", "kernel_tuner_default")
LIMIT_S = 300
ROUNDS = 15

# The device function of v3, under an entry whose template arguments are the macros that Kernel Tuner defines.
WRAPPER = """
extern "C" __global__ void __launch_bounds__(BLOCK)
ENTRY(float* output, const float* input, int rows, int cols) {
    softmax_v3<float, BLOCK, VECTOR, UNROLL>(output, input, rows, cols, cols, cols, nullptr);
}
"""
WITHOUT_HEADERS = """#ifdef __CUDACC_RTC__
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#endif
"""


def restricted(parameters: dict[str, tuple[int, ...]]) -> Operation:
    """Softmax with v3 alone, and with these values of its parameters."""
    operation = load("softmax")
    return replace(operation, versions={"v3": replace(operation.version("v3"), parameters=parameters)})


def measure_ours(sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Seconds and winner of a whole sweep at each size, on an empty database and an empty store of cubins."""
    from autotune.backends.cuda import CudaBackend
    from autotune.database import Database
    from autotune.search import Budget
    from autotune.sweeping import sweep

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AUTOTUNE_CACHE"] = folder
        with closing(CudaBackend()) as backend, Database(Path(folder) / "x.sqlite", mode="write", create=True) as database:

            def tune(operation: Operation, size: tuple[int, int]) -> Configuration | None:
                summary = sweep(operation, [Problem("softmax", *size)], backend, database, budget=Budget(exhaustive=True))
                choice = summary.problems[0].choice
                return choice.configuration if choice else None

            tune(restricted({name: (value,) for name, value in FIRST.items()}), sizes[0])
            for size in sizes:
                started = time.perf_counter()
                winner = tune(restricted(PARAMETERS), size)
                assert winner is not None, "no configuration could be used"
                rows.append({"seconds": time.perf_counter() - started, "winner": dict(winner.parameters)})
    return rows


def measure_kernel_tuner(sizes: list[tuple[int, int]], lang: str | None) -> list[dict[str, Any]]:
    """Seconds and winner of `tune_kernel` at each size; `lang` is its backend, None for its default."""
    from kernel_tuner import tune_kernel  # type: ignore[import-not-found]

    text = WITHOUT_HEADERS + source.expanded(load("softmax").version("v3").template) + WRAPPER.replace("ENTRY", ENTRY)
    # NVRTC takes a lambda for a host function unless it is told otherwise; Kernel Tuner then loads what was not compiled.
    options = ["-O3", "-std=c++17"] if lang == "PYCUDA" else ["--std=c++17", "-default-device"]

    def tune(size: tuple[int, int], parameters: dict[str, tuple[int, ...]]) -> dict[str, Any]:
        rows, cols = size
        x = np.random.default_rng(0).standard_normal(size, dtype=np.float32) * 3
        exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        answer = (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(np.float32)
        started = time.perf_counter()
        results, env = tune_kernel(
            ENTRY,
            text,
            (rows,),
            [np.zeros_like(x), x, np.int32(rows), np.int32(cols)],
            {name.upper(): list(values) for name, values in parameters.items()},
            grid_div_x=[],
            block_size_names=["BLOCK"],
            answer=[answer, None, None, None],
            compiler_options=options,
            quiet=True,
            **({"lang": lang} if lang else {}),
        )
        seconds = time.perf_counter() - started
        assert len(results) == np.prod([len(values) for values in parameters.values()])
        winner = {name: int(env["best_config"][name.upper()]) for name in parameters}
        phases = {name: value / 1e3 for name, value in env.items() if name.startswith("total_") and name.endswith("_time")}
        return {"seconds": seconds, "winner": winner, "its_own_account_s": phases}

    tune((64, 1024), {name: (value,) for name, value in FIRST.items()})
    return [tune(size, PARAMETERS) for size in sizes]


MEASURE: dict[str, Callable[[list[tuple[int, int]]], list[dict[str, Any]]]] = {
    "ours": measure_ours,
    "kernel_tuner_pycuda": lambda sizes: measure_kernel_tuner(sizes, "PYCUDA"),
    "kernel_tuner_default": lambda sizes: measure_kernel_tuner(sizes, None),
}


def in_own_process(tuner: str, sizes: tuple[str, ...]) -> list[dict[str, Any]] | str:
    """What `tuner` measured, or why it could not."""
    with tempfile.TemporaryDirectory() as folder:  # Kernel Tuner leaves files in the working folder when something fails
        out = Path(folder) / "out.json"
        arguments = [sys.executable, str(Path(__file__).resolve()), "--only", tuner, "--out", str(out)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")) if p)}
        try:
            done = subprocess.run(
                [*arguments, *(word for size in sizes for word in ("--size", size))],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return f"it took more than {LIMIT_S} s"
        if done.returncode or not out.exists():
            return "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        measured: list[dict[str, Any]] = json.loads(out.read_text())
        return measured


def raced(size: tuple[int, int], winners: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Each winner's time at `size` against the others, cold, in microseconds."""
    from autotune.backends.cuda import CudaBackend

    with closing(CudaBackend()) as backend:
        configurations = [Configuration.of("v3", **winner) for winner in winners]
        taken = race(backend, load("softmax"), Problem("softmax", *size), configurations, rounds=ROUNDS)
    return [
        {"winner": dict(c.parameters), "time_us": median(times), "confidence_us": confidence_interval(times)} for c, times in taken.items()
    ]


def report(sizes: tuple[str, ...], measured: dict[str, list[dict[str, Any]] | str], times: dict[str, list[dict[str, Any]]]) -> None:
    count = np.prod([len(values) for values in PARAMETERS.values()])
    click.echo(f"{'tuner':22} {'size':>12} {'seconds':>8} {'per configuration':>18} {'winner us':>10}  winner")
    for tuner, rows in measured.items():
        if isinstance(rows, str):
            click.echo(f"{tuner:22} failed: {rows}")
            continue
        for size, row in zip(sizes, rows, strict=True):
            time_us = next(entry["time_us"] for entry in times[size] if entry["winner"] == row["winner"])
            each = row["seconds"] / count
            click.echo(f"{tuner:22} {size:>12} {row['seconds']:8.2f} {each:16.3f} s {time_us:10.2f}  {row['winner']}")


@click.command()
@click.option("--size", "sizes", multiple=True, default=("4096x4096", "2048x8192"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the JSON goes.")
@click.option("--tuner", "tuners", multiple=True, type=click.Choice(TUNERS), default=TUNERS, show_default=True)
@click.option("--only", type=click.Choice(TUNERS), hidden=True)
def main(sizes: tuple[str, ...], out: Path, tuners: tuple[str, ...], only: str | None) -> None:
    """Tune the same 48 configurations of softmax v3 with each tuner, and race the winners."""
    parsed = [parse_size(size) for size in sizes]
    require_gpu()
    if any(tuner.startswith("kernel_tuner") for tuner in ((only,) if only else tuners)):
        require("kernel_tuner")
    if only:
        out.write_text(json.dumps(MEASURE[only](parsed)))
        return
    measured = {tuner: in_own_process(tuner, sizes) for tuner in tuners}
    out.write_text(json.dumps({"sizes": sizes, "measured": measured}, indent=2))  # kept if the race fails
    times = {}
    for place, size in enumerate(sizes):
        winners = [rows[place]["winner"] for rows in measured.values() if not isinstance(rows, str)]
        times[size] = raced(parsed[place], winners) if winners else []
    out.write_text(json.dumps({"sizes": sizes, "parameters": PARAMETERS, "measured": measured, "raced": times}, indent=2))
    report(sizes, measured, times)


if __name__ == "__main__":
    started(main)
