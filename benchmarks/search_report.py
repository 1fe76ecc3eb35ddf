"""The runs of the search benchmark as a table, as JSON and as a plot."""

import datetime
import importlib.metadata
import importlib.util
import json
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from search_spaces import RecordedSpace

Floats = NDArray[np.float64]
Improvements = Sequence[tuple[int, float]]
Task = tuple[str, str, str, int]
RESAMPLED = 2000
CLOSE = (0.95, 0.99)  # of the optimum's speed
MOST_PLOTS = 12


def write(runs: Mapping[Task, Improvements], spaces: Sequence[RecordedSpace], absent: Sequence[str], output: Path) -> None:
    """Prints the table and writes it to OUTPUT.md, everything to OUTPUT.json and, where matplotlib is installed, OUTPUT.png."""
    by_name = {space.name: space for space in spaces}
    grouped: dict[str, dict[str, list[Improvements]]] = defaultdict(lambda: defaultdict(list))
    for (_, name, method, _), improvements in runs.items():
        if improvements:
            grouped[method][name].append(improvements)
    results = {
        method: {name: _summary(by_name[name], found) for name, found in of.items()} | {"all": _over_spaces(of, by_name)}
        for method, of in grouped.items()
    }
    text = _markdown(results, by_name, absent)
    print(text)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".md").write_text(text)
    facts = {"date": _today(), "versions": _versions(), "spaces": {n: _facts(s) for n, s in by_name.items()}, "results": results}
    output.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        _plot(grouped, by_name, output.with_suffix(".png"))


def _curve(space: RecordedSpace, improvements: Improvements, length: int) -> Floats:
    """The best time after 1, 2, … evaluations; a method that ended keeps its best."""
    curve = np.full(length, max(space.times.values()))
    for evaluation, time_us in improvements:
        curve[evaluation - 1 :] = time_us
    return curve


def _score(space: RecordedSpace, improvements: Improvements) -> float:
    random = space.random_curve[: space.budget]
    return float(np.mean((random - _curve(space, improvements, space.budget)) / np.maximum(random - space.optimum, 1e-12)))


def _reached(space: RecordedSpace, improvements: Improvements, share: float) -> float:
    return next((float(evaluation) for evaluation, time_us in improvements if time_us <= space.optimum / share), np.inf)


def _summary(space: RecordedSpace, found: Sequence[Improvements]) -> dict[str, Any]:
    scores = np.array([_score(space, improvements) for improvements in found])
    low, high = _interval(scores, np.mean)
    summary: dict[str, Any] = {"runs": len(found), "score": float(scores.mean()), "low": low, "high": high, "scores": scores.tolist()}
    for share in CLOSE:
        evaluations = np.array([_reached(space, improvements, share) for improvements in found])
        median = float(np.quantile(evaluations, 0.5, method="inverted_cdf"))
        summary[f"evaluations to {share:.0%}"] = median if np.isfinite(median) else None
        summary[f"runs that reached {share:.0%}"] = int(np.isfinite(evaluations).sum())
    return summary


def _over_spaces(of: Mapping[str, Sequence[Improvements]], spaces: Mapping[str, RecordedSpace]) -> dict[str, float]:
    """The median over spaces of the mean scores, with the interval that resampling the runs of each space gives."""
    scores = [np.array([_score(spaces[name], improvements) for improvements in found]) for name, found in of.items()]
    random = np.random.default_rng(0)
    means = np.array([random.choice(of_space, (RESAMPLED, len(of_space))).mean(1) for of_space in scores])
    low, high = np.quantile(np.median(means, axis=0), [0.025, 0.975])
    return {"spaces": len(scores), "score": float(np.median([s.mean() for s in scores])), "low": float(low), "high": float(high)}


def _interval(values: Floats, statistic: Any) -> tuple[float, float]:
    """The 95 % interval of a statistic by the percentile bootstrap."""
    draws = np.random.default_rng(0).choice(values, (RESAMPLED, len(values)))
    low, high = np.quantile(statistic(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)


def _markdown(results: Mapping[str, Any], spaces: Mapping[str, RecordedSpace], absent: Sequence[str]) -> str:
    order = sorted(results, key=lambda method: -results[method]["all"]["score"])
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    lines = [
        "# How good the search is",
        "",
        f"{_today()}, {versions}. Written by `benchmarks/search_quality.py`, which says what a score is.",
        "",
    ]
    lines += [*absent, ""] if absent else []
    lines += ["| method | spaces | median score over spaces | 95 % interval |", "| --- | --- | --- | --- |"]
    for method in order:
        total = results[method]["all"]
        lines.append(f"| {method} | {total['spaces']} | {total['score']:.3f} | {total['low']:.3f} … {total['high']:.3f} |")
    for name, space in spaces.items():
        lines += [
            "",
            f"## {name}",
            "",
            f"{len(space.times)} configurations, budget {space.budget}, runs of {space.evaluations} evaluations.",
            "",
        ]
        lines += [
            "| method | runs | score | 95 % interval | median evaluations to 95 % | to 99 % |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for method in order:
            if found := results[method].get(name):
                close = " | ".join(_evaluations(found, share, space) for share in CLOSE)
                lines.append(f"| {method} | {found['runs']} | {found['score']:.3f} | {found['low']:.3f} … {found['high']:.3f} | {close} |")
    return "\n".join(lines) + "\n"


def _evaluations(found: Mapping[str, Any], share: float, space: RecordedSpace) -> str:
    median = found[f"evaluations to {share:.0%}"]
    return f"> {space.evaluations} ({found[f'runs that reached {share:.0%}']} runs did)" if median is None else f"{median:.0f}"


def _facts(space: RecordedSpace) -> dict[str, Any]:
    return {"configurations": len(space.times), "budget": space.budget, "evaluations": space.evaluations, "optimum_us": space.optimum}


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("numpy", "optuna", "kernel_tuner"):
        if importlib.util.find_spec(name):
            found[name] = importlib.metadata.version(name)
    return found


def _today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def _plot(grouped: Mapping[str, Mapping[str, Sequence[Improvements]]], spaces: Mapping[str, RecordedSpace], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = list(spaces.values())[:MOST_PLOTS]
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 3.4 * rows), squeeze=False, layout="constrained")
    for axis, space in zip(axes.flat, shown, strict=False):
        for method, of in grouped.items():
            if found := of.get(space.name):
                mean = np.mean([_curve(space, improvements, space.budget) for improvements in found], axis=0)
                wide = 2.2 if method.startswith("ours") else 1.0
                axis.plot(np.arange(1, space.budget + 1), space.optimum / mean, label=method.removeprefix("kernel_tuner:"), linewidth=wide)
        axis.set(title=space.name, xlabel="evaluations", ylabel="optimum over mean best time")
    axes.flat[0].legend(fontsize=6)
    figure.savefig(path, dpi=110)
