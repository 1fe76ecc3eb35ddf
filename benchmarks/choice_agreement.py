"""Whether two sweeps of one GPU choose equally fast kernels: sweeps with two seeds, and their choices timed against each other.

    python benchmarks/choice_agreement.py --out agreement.json --seconds 540

Sizes are drawn log-uniformly, half of them with a number of columns that no vector divides. Each size is swept twice, into databases of
their own, and where the two choices differ they meet in shuffled rounds. Every size's result is written as soon as it is
known, and with `--seconds` the run ends in time; run again, it goes on from there.
"""

import json
import math
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.backends import Backend
from autotune.backends.select import select
from autotune.catalogue import load
from autotune.choice import Choice
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.operation import Operation
from autotune.problem import Problem, parse_size
from autotune.search import Budget
from autotune.statistics import median
from autotune.sweeping import sweep
from autotune.watch import Attempt, ProblemSummary, Watcher
from benchmarks.neutral_race import race
from benchmarks.starting import started

SEEDS = (1, 2)
AGREE = 0.01
ELEMENTS = (2**12, 2**27)
COLS = (2**4, 2**17)


def sizes(count: int) -> list[tuple[int, int]]:
    """The first `count` sizes of an endless sequence, the same each time: between 4096 and 2^27 elements in rows of 16 to 131072."""
    random = np.random.default_rng(2026)
    found = []
    for index in range(count):
        cols = int(2 ** random.uniform(math.log2(COLS[0]), math.log2(COLS[1])))
        cols = cols | 1 if index % 2 else -(-cols // 8) * 8
        elements = 2 ** random.uniform(max(math.log2(ELEMENTS[0]), math.log2(cols)), math.log2(ELEMENTS[1]))
        found.append((max(1, int(elements / cols)), cols))
    return found


class Until(Watcher):
    """Ends a sweep at a point in time, as Ctrl-C would."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        if time.monotonic() > self._deadline:
            raise KeyboardInterrupt


def chosen(
    operation: Operation,
    problem: Problem,
    backend: Backend,
    path: Path,
    seed: int,
    *,
    versions: tuple[str, ...],
    budget: Budget | None,
    deadline: float,
) -> Choice | None:
    """What a sweep with this seed chooses, from scratch or from where it was interrupted; None when the time was up before."""
    with Database(path, mode="write", create=True) as database:
        summary = sweep(operation, [problem], backend, database, versions=versions, budget=budget, seed=seed, watcher=Until(deadline))
    if summary.interrupted:
        return None
    choice = summary.problems[0].choice
    if choice is None:
        raise SystemExit(f"no configuration can be used for {problem}: {dict(summary.problems[0].failures)}")
    return choice


def compared(operation: Operation, problem: Problem, backend: Backend, choices: list[Choice], rounds: int) -> dict[str, Any]:
    """The two choices of one problem, with their times against each other and how far these are apart."""
    configurations = [choice.configuration for choice in choices]
    row: dict[str, Any] = {
        "rows": problem.rows,
        "cols": problem.cols,
        "dtype": problem.dtype,
        "choices": [str(c) for c in configurations],
        "claimed_us": [choice.time_us for choice in choices],
        "same": configurations[0] == configurations[1],
    }
    if row["same"]:
        return row | {"apart": 0.0}
    taken: dict[Configuration, tuple[float, ...]] = race(backend, operation, problem, configurations, rounds=rounds)
    times = [median(taken[c]) for c in configurations]
    return row | {"raced_us": times, "apart": max(times) / min(times) - 1}


def report(rows: list[dict[str, Any]], asked: int) -> None:
    for row in sorted(rows, key=lambda r: -r["apart"])[:10]:
        click.echo(f"{row['rows']}x{row['cols']} {row['dtype']}: {100 * row['apart']:.2f} % apart; {' | '.join(row['choices'])}")
    agree = sum(row["apart"] <= AGREE for row in rows)
    same = sum(row["same"] for row in rows)
    share = f" ({100 * agree / len(rows):.1f} %)" if rows else ""
    click.echo(f"{len(rows)} of {asked} sizes; the same configuration at {same}; times within {100 * AGREE:.0f} % at {agree}{share}")


@click.command()
@click.option("--count", default=50, show_default=True, help="How many sizes.")
@click.option("--size", "named", multiple=True, metavar="MxN", help="This size instead; may be repeated.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--version", "versions", multiple=True, help="May be repeated.  [default: all]")
@click.option("--trials", type=int, help="Configurations per sweep.  [default: as `autotune sweep`]")
@click.option("--rounds", default=15, show_default=True, help="Rounds of two samples in which two different choices meet.")
@click.option("--seconds", type=float, default=float("inf"), help="End in time.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("agreement"), show_default=True, help="The folder of the databases.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON, gone on from when it is there.")
def main(
    count: int,
    named: tuple[str, ...],
    dtype: str,
    device: str,
    versions: tuple[str, ...],
    trials: int | None,
    rounds: int,
    seconds: float,
    work: Path,
    out: Path,
) -> None:
    """Sweep softmax twice at COUNT sizes, with two seeds, and compare what is chosen."""
    deadline = time.monotonic() + seconds
    operation = load("softmax")
    budget = Budget(trials=trials) if trials else None
    rows: list[dict[str, Any]] = json.loads(out.read_text())["sizes"] if out.exists() else []
    done = {(row["rows"], row["cols"], row["dtype"]) for row in rows}
    work.mkdir(parents=True, exist_ok=True)
    wanted = [parse_size(text) for text in named] or sizes(count)
    with closing(select(device).backend) as backend:
        made = {"device": backend.device.name, "date": time.strftime("%Y-%m-%d", time.gmtime())}
        made |= {"driver": backend.environment.driver, "nvcc": backend.environment.compiler.removeprefix("nvcc ")}
        for size in wanted:
            problem = Problem(operation.name, *size, dtype)
            if (*size, dtype) in done:
                continue
            choices = [
                chosen(operation, problem, backend, work / f"seed{s}.sqlite", s, versions=versions, budget=budget, deadline=deadline)
                for s in SEEDS
            ]
            first, second = choices
            if first is None or second is None:
                break
            rows.append(compared(operation, problem, backend, [first, second], rounds))
            out.write_text(json.dumps({**made, "sizes": rows}, indent=1) + "\n")
    report(rows, len(wanted))


if __name__ == "__main__":
    started(main)
