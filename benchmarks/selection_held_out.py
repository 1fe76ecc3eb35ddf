"""Regret at the sizes that are never tuned, of a database as it dispatches and of other rules made from its tuned sizes.

What was measured there comes from the small file of `selection_matrix.py`; the rules see the database alone. Regret is the time of what is
chosen over the best time of the size. `selection_regret.py DATABASE --held-out FILE` calls this, and says how.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.dispatch.knowledge import read as read_knowledge
from autotune.dispatch.selection import Selector
from autotune.dispatch.store import Layer
from autotune.problem import Problem
from autotune.selector import Regret
from benchmarks.selection_matrix import HeldOut
from benchmarks.selection_rules import RULES, Tuned
from benchmarks.selection_sizes import held_out

Chooser = Callable[[Problem], Configuration]

SHIPPED = "as it dispatches"
COMPILED = "as it would, were every kernel compiled"
LEARNT_ANEW = ("our tree", "our neighbours", "our selector")  # the database has its own
BEYOND = "extrapolation"  # the group of sizes beyond those that are tuned
NAMED = 1.08  # from which on a size is named


def dispatched(database: Path, matrix: HeldOut, *, compiled: bool = False) -> Chooser:
    """What the dispatcher chooses from `database` alone; with `compiled`, as if every kernel were in it."""
    operation = load(matrix.operation)
    knowledge = read_knowledge([Layer(database, True)], operation, matrix.device)
    selector = Selector(operation, matrix.device, dataclasses.replace(knowledge, instances=None) if compiled else knowledge)
    return lambda problem: selector.choose(problem).configuration


def costs(matrix: HeldOut, problems: Sequence[Problem], choose: Chooser) -> list[float]:
    """The log regret at each problem; what was not measured there counts as the slowest that was."""
    found = []
    for problem in problems:
        times = matrix.times[problem]
        found.append(float(np.log(times.get(choose(problem), max(times.values())) / min(times.values()))))
    return found


def groups(matrix: HeldOut, dtype: str) -> dict[str, list[Problem]]:
    """The problems of an element type, by what is hard about them; all of them first, and all but those beyond the tuned sizes."""
    mine = [problem for problem in matrix.times if problem.dtype == dtype]
    parts = {name: [p for p in mine if (p.rows, p.cols) in set(sizes)] for name, sizes in held_out().items()}
    within = [problem for name, part in parts.items() for problem in part if name != BEYOND]
    return {name: part for name, part in {"all": mine, "all but extrapolation": within, **parts}.items() if part}


def report(database: Path, matrix: HeldOut, dtypes: Sequence[str]) -> list[dict[str, Any]]:
    """For each element type and group the regret of every rule, and the sizes at which `database` does worst."""
    found = []
    for dtype in dtypes:
        rules = dict(_rules(database, matrix, dtype))
        tables: dict[str, Any] = {}
        for group, problems in groups(matrix, dtype).items():
            judged = {name: Regret.of(costs(matrix, problems, choose)) for name, choose in rules.items()}
            tables[group] = {
                "sizes": len(problems),
                "rules": {name: [regret.geomean, regret.p95, regret.worst] for name, regret in judged.items()},
            }
        found.append({"dtype": dtype, "groups": tables, "named": _named(matrix, dtype, rules[SHIPPED])})
    return found


def page(database: str, matrix: HeldOut, found: Sequence[Mapping[str, Any]]) -> str:
    """The report in Markdown."""
    lines = [
        "# Regret at sizes that were never tuned",
        "",
        f"Made by `python benchmarks/selection_regret.py {database} --held-out FILE`. The database was recorded at other sizes",
        f"on a {matrix.device.name}; these {len(matrix.times)} problems were measured on one too, and nothing was trained on them.",
        "Times over the best one of each size; the aim is a geometric mean of 1.02, 1.10 at most at 95 % of sizes, and 1.25 at the worst.",
        "",
    ]
    for part in found:
        lines += [f"## {part['dtype']}", ""]
        names = list(part["groups"]["all"]["rules"])
        for group, table in part["groups"].items():
            lines += [
                f"### {group.capitalize()} ({table['sizes']} sizes)",
                "",
                "| rule | geomean | 95 % | worst |",
                "| --- | ---: | ---: | ---: |",
            ]
            for name in names:
                mark = "**" if name == SHIPPED else ""
                lines.append(f"| {mark}{name}{mark} | " + " | ".join(f"{value:.3f}" for value in table["rules"][name]) + " |")
            lines.append("")
        lines += [f"{NAMED:.2f} and more as it dispatches: " + ("; ".join(part["named"]) or "none") + ".", ""]
    return "\n".join(lines)


def _rules(database: Path, matrix: HeldOut, dtype: str) -> Iterator[tuple[str, Chooser]]:
    operation = load(matrix.operation)
    with Database(database, mode="read") as known:
        timing = max((t for t in known.protocols_measured(matrix.device) if t.name != "warm"), key=lambda t: t.rule)
        tuned = {
            problem: {t.configuration: t.time_us for t in known.trials(matrix.device, timing, problem) if t.outcome.timed and t.time_us}
            for problem in known.problems_measured(operation.name, matrix.device, timing)
            if problem.dtype == dtype
        }
    seen = Tuned(operation, matrix.device, tuned)
    for name, make in RULES.items():
        if name not in LEARNT_ANEW:
            yield name, _first_measured(matrix, make(seen), operation.safe)
    yield COMPILED, dispatched(database, matrix, compiled=True)
    yield SHIPPED, dispatched(database, matrix)


def _first_measured(matrix: HeldOut, rule: Callable[[Problem], Any], safe: Configuration) -> Chooser:
    """The first that a rule names and that can run the size, which is to say that it was measured there."""
    return lambda problem: next((c for c in rule(problem) if c in matrix.times[problem]), safe)


def _named(matrix: HeldOut, dtype: str, choose: Chooser) -> list[str]:
    problems = groups(matrix, dtype)["all"]
    ordered = sorted(zip(np.exp(costs(matrix, problems, choose)), problems, strict=True), key=lambda pair: -pair[0])
    return [
        f"{problem.size} {ratio:.2f} ({choose(problem)}; best {min(matrix.times[problem], key=matrix.times[problem].__getitem__)})"
        for ratio, problem in ordered
        if ratio >= NAMED
    ]
