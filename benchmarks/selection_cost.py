"""What deciding for a new size costs the dispatcher, in microseconds of processor time: each kind of selector on a database's sizes.

    python benchmarks/selection_cost.py results/nvidia-h200.sqlite

The decision is made once for each layout and then kept in its plan; the aim is 50 us. A time is the least of several repetitions, so that
another process on the machine does not count; what is printed is the median, the 95th percentile and the worst over the sizes that
`selection_sizes` holds out. Every kernel counts as compiled.
"""

import dataclasses
import sys
import timeit
from pathlib import Path
from time import process_time

import click
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.catalogue import load
from autotune.database import Database
from autotune.dispatch.knowledge import Knowledge
from autotune.dispatch.knowledge import read as read_knowledge
from autotune.dispatch.selection import Selector
from autotune.dispatch.store import Layer
from autotune.problem import Problem
from autotune.selector import Model, Regret
from autotune.selector.matrix import read
from autotune.selector.training import fit
from benchmarks.selection_sizes import held_out
from benchmarks.starting import started

REPEATS, CALLS = 12, 20


@click.command()
@click.argument("database", type=click.Path(path_type=Path, exists=True))
@click.option("--operation", "name", default="softmax", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
def main(database: Path, name: str, dtype: str) -> None:
    """Time decisions from DATABASE."""
    operation = load(name)
    with Database(database, mode="read") as known:
        device = known.devices_measured()[0]
        timing = known.protocols_measured(device)[0]
        matrix = read(known, operation, device, timing, dtype, stale=True)
    members, predictors = fit(matrix, device)
    families = tuple(matrix.families[column] for column in members)
    templates = {family.version: "" for family in matrix.families if family}
    unknown = Regret(1.0, 1.0, 1.0)
    models = {kind: Model(families, made, unknown, None, len(matrix.problems), templates) for kind, made in predictors.items()}
    models["default"] = Model((None,), None, unknown, None, len(matrix.problems), templates)
    knowledge = dataclasses.replace(read_knowledge([Layer(database)], operation, device), instances=None)
    problems = [Problem(name, rows, cols, dtype) for sizes in held_out().values() for rows, cols in sizes]
    for kind, model in models.items():
        _report(
            f"selector, {kind}", Selector(operation, device, dataclasses.replace(knowledge, models={(device.name, dtype): model})), problems
        )
    _report("nearest", Selector(operation, device, dataclasses.replace(knowledge, models={})), problems)
    _report("analytic default", Selector(operation, device, Knowledge()), problems)


def _report(what: str, selector: Selector, problems: list[Problem]) -> None:
    times = [_least_us(selector, problem) for problem in problems]
    tiers = {selector.choose(problem).tier for problem in problems}
    median, high = np.quantile(times, (0.5, 0.95), method="higher")
    click.echo(f"{what:22} median {median:6.1f} us, 95 % {high:6.1f}, worst {max(times):6.1f}  tier {', '.join(sorted(tiers))}")


def _least_us(selector: Selector, problem: Problem) -> float:
    taken = timeit.repeat(lambda: selector.choose(problem), number=CALLS, repeat=REPEATS, timer=process_time)
    return min(taken) / CALLS * 1e6


if __name__ == "__main__":
    started(main)
