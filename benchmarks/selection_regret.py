"""How much slower than the best kernel the selected one is, on sizes that were never tuned: ours and other rules, on one database.

    python benchmarks/selection_regret.py results/nvidia-h200.sqlite --output results/selection_regret
    python benchmarks/selection_regret.py results/nvidia-h200.sqlite --only "never tuned" --dtype bfloat16 --output regret
    python benchmarks/selection_regret.py results/nvidia-h200.sqlite --held-out tests/data/held_out_h200.json.xz
    python benchmarks/selection_regret.py --sizes-file train.txt --which training
    python benchmarks/selection_regret.py --sizes-file held.txt --which held-out

Nothing is measured: a database is replayed. The sizes of `selection_sizes.held_out` that are in it are never trained on; all others are,
each but the one or the band that is left out. `--only` makes some of the splits, for a first look. With `--held-out`, the database is
judged as it dispatches, by what `selection_matrix.py` kept of the sizes that are never tuned. The last two forms write the sizes worth
measuring for this, one a line.

Regret is t(selected) / t(oracle). The samples of each configuration are halved by rounds: everything is chosen by one half, the oracle too,
and timed by the other, so that no one profits from a lucky sample. The noise floor is the oracle's own regret under that rule; a regret
below a size's floor counts as none.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log2
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune import source
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.selector.cover import cover
from autotune.selector.matrix import Matrix, default_choices
from autotune.statistics import median
from autotune.trial import Round
from benchmarks import selection_held_out, selection_matrix, selection_report
from benchmarks.selection_rules import RULES, Rule, Tuned
from benchmarks.selection_sizes import held_out, training
from benchmarks.starting import started

MOST_FOLDS = 10
COVERS = (4, 8, 16, 24)

Halves = dict[Problem, dict[Configuration, tuple[float, float]]]


@dataclass
class Recorded:
    """One operation and dtype of one device: for every size and configuration, the time by each half of the samples."""

    operation: Operation
    device: Device
    dtype: str
    halves: Halves
    stale: int
    _made: tuple[frozenset[Problem], Tuned, Mapping[str, Rule]] | None = field(default=None, init=False)

    def tuned(self, problems: Sequence[Problem]) -> Tuned:
        """What rules may see: one half of the samples at these sizes."""
        return Tuned(self.operation, self.device, self._firsts(problems), self.whole)

    @cached_property
    def whole(self) -> Matrix:
        """The matrix of all sizes that may be trained on, of which every split takes its part."""
        unseen = {size for sizes in held_out().values() for size in sizes}
        times = self._firsts([p for p in self.halves if (p.rows, p.cols) not in unseen])
        versions = {configuration.version for here in times.values() for configuration in here}
        return Matrix.of(self.operation, self.device, times, dict.fromkeys(versions, ""))

    def rules(self, trained: Sequence[Problem]) -> tuple[Tuned, Mapping[str, Rule]]:
        """Every rule, made from `trained`; those of the last one are kept, for several splits train on the same."""
        key = frozenset(trained)
        if self._made is None or self._made[0] != key:
            tuned = self.tuned(trained)
            self._made = key, tuned, {name: make(tuned) for name, make in RULES.items()}
        return self._made[1:]

    def _firsts(self, problems: Iterable[Problem]) -> dict[Problem, dict[Configuration, float]]:
        return {p: {c: first for c, (first, _) in self.halves[p].items()} for p in problems}

    def oracle(self, problem: Problem) -> tuple[float, float]:
        """The time by the second half of what is best by the first, and that over the best by the second: the noise floor."""
        here = self.halves[problem]
        chosen = min(here, key=lambda c: here[c][0])
        return here[chosen][1], here[chosen][1] / min(second for _, second in here.values())

    def ratio(self, problem: Problem, configuration: Configuration) -> float:
        """The regret of `configuration`, as a ratio of at least 1."""
        oracle_us, floor = self.oracle(problem)
        ratio = self.halves[problem][configuration][1] / oracle_us
        return ratio if ratio > floor else 1.0


def read(path: Path, operation: Operation, dtype: str) -> Recorded:
    """What a database holds of the device that has the most problems in it, under the cold protocol."""
    shas = {name: template.sha for name, template in source.templates(operation)}
    with Database(path, mode="read") as database:
        device = max(database.devices_measured(), key=lambda d: len(database.best(operation.name, dtype=dtype, device=d.name)))
        timing = max((t for t in database.protocols_measured(device) if t.name != "warm"), key=lambda t: t.rule)
        halves: Halves = {}
        stale = 0
        for problem in database.problems_measured(operation.name, device, timing):
            if problem.dtype != dtype:
                continue
            for trial in database.trials(device, timing, problem=problem):
                if trial.outcome.timed and trial.rounds and trial.configuration.version in operation.versions:
                    stale += trial.template_sha != shas.get(trial.configuration.version)
                    halves.setdefault(problem, {})[trial.configuration] = halved(trial.rounds)
    return Recorded(operation, device, dtype, halves, stale)


def halved(rounds: Sequence[Round]) -> tuple[float, float]:
    """The median of every second round's median, from the first and from the second one on.

    The screening sample, which nothing was measured beside, counts only where there is no other; a single round is halved itself.
    """
    raced = [r.samples_us for r in rounds if r.kind != "screen"] or [r.samples_us for r in rounds]
    if len(raced) == 1:
        samples = raced[0]
        return median(samples[::2]), median(samples[1::2] or samples)
    first, second = ([median(samples) for samples in raced[start::2]] for start in (0, 1))
    return median(first), median(second)


def splits(problems: Sequence[Problem]) -> Iterator[tuple[str, list[tuple[list[Problem], list[Problem]]]]]:
    """Each way to judge, by name, as pairs of (sizes to train on, sizes to be judged by)."""
    unseen = {size: name for name, sizes in held_out().items() for size in sizes}
    trained = [p for p in problems if (p.rows, p.cols) not in unseen]
    folds = min(MOST_FOLDS, len(trained)) or 1
    ordered = sorted(trained, key=lambda p: (p.cols, p.rows))
    yield "one size left out", [(_without(trained, part), part) for part in (ordered[fold::folds] for fold in range(folds))]
    for axis in ("rows", "cols"):
        bands: dict[int, list[Problem]] = {}
        for problem in trained:
            bands.setdefault(int(log2(getattr(problem, axis)) // 2), []).append(problem)
        yield f"a band of {'columns' if axis == 'cols' else 'rows'} left out", [(_without(trained, part), part) for part in bands.values()]
    for name in held_out():
        part = [p for p in problems if unseen.get((p.rows, p.cols)) == name]
        if part:
            yield f"never tuned: {name}", [(trained, part)]


def judge(recorded: Recorded, parts: Sequence[tuple[list[Problem], list[Problem]]]) -> dict[str, dict[Problem, tuple[float, str]]]:
    """For each rule, the regret at each size and what it chose."""
    found: dict[str, dict[Problem, tuple[float, str]]] = {}
    for trained, judged in parts:
        if len(trained) < 2:
            continue
        tuned, rules = recorded.rules(trained)
        for name, rule in rules.items():
            for problem in judged:
                chosen = _first(recorded, problem, rule)
                found.setdefault(name, {})[problem] = (recorded.ratio(problem, chosen), str(chosen))
        _judge_covers(recorded, tuned, judged, found)
    every = [problem for _, judged in parts for problem in judged]
    found["noise floor"] = {problem: (recorded.oracle(problem)[1], "") for problem in every}
    return found


def _judge_covers(recorded: Recorded, tuned: Tuned, judged: Sequence[Problem], found: dict[str, dict[Problem, tuple[float, str]]]) -> None:
    """The oracle among the first members of a cover: what a perfect predictor would make of them."""
    matrix = tuned.matrix
    columns = cover(matrix, max(COVERS))
    for most in COVERS:
        for problem in judged:
            families = [matrix.families[column] for column in columns[:most]]
            members = [recorded.operation.fitted(f, problem) if f else _default(recorded, tuned, problem) for f in families]
            measured = [c for c in members if c in recorded.halves[problem]]
            best = min(measured, key=lambda c: recorded.halves[problem][c][0]) if measured else recorded.operation.safe
            chosen = _or_slowest(recorded, problem, best)
            found.setdefault(f"oracle of a cover of {most}", {})[problem] = (recorded.ratio(problem, chosen), str(chosen))


def _default(recorded: Recorded, tuned: Tuned, problem: Problem) -> Configuration | None:
    return next(iter(default_choices(recorded.operation, recorded.device, problem, tuned.versions)), None)


def _first(recorded: Recorded, problem: Problem, rule: Callable[[Problem], Any]) -> Configuration:
    """The first configuration that the rule names and that was measured; the safe one where there is none."""
    measured = recorded.halves[problem]
    return _or_slowest(recorded, problem, next((c for c in rule(problem) if c in measured), recorded.operation.safe))


def _or_slowest(recorded: Recorded, problem: Problem, chosen: Configuration) -> Configuration:
    """`chosen`, or where it was not measured, as the safe one is not everywhere, what took the longest of all that was."""
    measured = recorded.halves[problem]
    return chosen if chosen in measured else max(measured, key=lambda c: measured[c][0])


def _without(problems: Sequence[Problem], left_out: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem not in set(left_out)]


def summary(ratios: Sequence[float]) -> dict[str, float]:
    values = np.array(ratios)
    return {
        "sizes": len(values),
        "geomean": float(np.exp(np.log(values).mean())),
        "p95": float(np.quantile(values, 0.95, method="higher")),
        "worst": float(values.max()),
        **{f"within {share} %": float((values <= 1 + share / 100).mean()) for share in (2, 5, 10)},
    }


def regrets(path: Path, operation: Operation, dtype: str, only: str = "") -> dict[str, Any]:
    """The splits whose names have `only` in them, and all rules, on one dtype of a database, as what is written to the JSON file."""
    recorded = read(path, operation, dtype)
    results: dict[str, Any] = {}
    for name, parts in splits(list(recorded.halves)):
        if only not in name:
            continue
        judged: Mapping[str, Mapping[Problem, tuple[float, str]]] = judge(recorded, parts)
        results[name] = {
            rule: {
                **summary([ratio for ratio, _ in by_size.values()]),
                "worst ten": [[p.size, ratio, chosen] for p, (ratio, chosen) in sorted(by_size.items(), key=lambda item: -item[1][0])[:10]],
            }
            for rule, by_size in judged.items()
        }
    counts = [len(here) for here in recorded.halves.values()]
    return {
        "dtype": dtype,
        "device": recorded.device.name,
        "problems": len(counts),
        "trials": sum(counts),
        "stale": recorded.stale,
        "splits": results,
    }


@click.command()
@click.argument("database", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--operation", "name", default="softmax", show_default=True)
@click.option("--dtype", "dtypes", multiple=True, default=("float32",), show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("results/selection_regret"), show_default=True)
@click.option("--only", default="", help="Of the splits, those with this in their name.  [default: all]")
@click.option("--held-out", "matrix", type=click.Path(path_type=Path, exists=True), help="Judge DATABASE by this file of times.")
@click.option("--sizes-file", type=click.Path(path_type=Path), help="Write the sizes worth measuring there, and do nothing else.")
@click.option("--which", type=click.Choice(["training", "held-out"]), default="training", show_default=True)
def main(
    database: Path | None,
    name: str,
    dtypes: tuple[str, ...],
    output: Path,
    only: str,
    matrix: Path | None,
    sizes_file: Path | None,
    which: str,
) -> None:
    """Replay DATABASE and write OUTPUT.md and OUTPUT.json."""
    if sizes_file is not None:
        sets = {"training": training()} if which == "training" else held_out()
        lines = [f"# {title}\n" + "".join(f"{rows}x{cols}\n" for rows, cols in sizes) for title, sizes in sets.items()]
        sizes_file.write_text("".join(lines), encoding="utf-8")
        click.echo(f"{sum(map(len, sets.values()))} sizes in {sizes_file}")
        return
    if database is None:
        raise click.UsageError("name a database to replay, or a file to write sizes to with --sizes-file")
    if matrix is not None:
        held = selection_matrix.read(matrix)
        found = selection_held_out.report(database, held, load(name).dtypes)
        text = selection_held_out.page(database.name, held, found)
    else:
        found = [regrets(database, load(name), dtype, only) for dtype in dtypes]
        text = selection_report.page(database.name, found)
    output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    started(main)
