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

from benchmarks.search_plot import plot
from benchmarks.search_spaces import RecordedSpace, representative
from benchmarks.starting import INSTALLED_BY

Floats = NDArray[np.float64]
Improvements = Sequence[tuple[int, float]]
Runs = Mapping[str, Mapping[str, Sequence[Improvements]]]  # by method, by space
Task = tuple[str, str, str, int]
RESAMPLED = 2000
CLOSE = (0.95, 0.99)  # of the optimum's speed
OURS = "ours"
BAR = {"ours, neighbours known": 12, OURS: 40}  # measurements to 99 % of the optimum on softmax
NOTES = """Ours, not knowing neighbours, tries each version of a kernel once before it models anything, the newest first; the other methods
know versions only as values of a parameter, and the spaces of other people's kernels have one. "Neighbours known" are the times of the
three nearest sizes of the same database, their kernels made for the size, which no other method can use; a sweep asks for what the
operation itself proposes besides, which is left out here. A parameter that a version lacks is -1 in Kernel Tuner, whose
strategies that mend invalid points, such as diff_evo, thereby draw versions with many parameters more often. A method with few runs has
not been run to the end."""
HEAD = "| method | spaces | runs each | all spaces | other people's | softmax | behind ours |"
SPACE_HEAD = "| method | runs | score | 95 % interval | median evaluations to 95 % | to 99 % |"


def write(runs: Mapping[Task, Improvements], spaces: Sequence[RecordedSpace], absent: Sequence[str], output: Path) -> None:
    """Prints the table and writes it to OUTPUT.md, everything to OUTPUT.json and, where matplotlib is installed, OUTPUT.svg."""
    by_name = {space.name: space for space in spaces}
    grouped: dict[str, dict[str, list[Improvements]]] = defaultdict(lambda: defaultdict(list))
    for (_, name, method, _), improvements in sorted(runs.items()):
        if improvements:
            grouped[method][name].append(improvements)
    compared = {method: {name: found for name, found in of.items() if representative(by_name[name])} for method, of in grouped.items()}
    compared = {method: of for method, of in compared.items() if of}
    scores = {m: {name: scores_of(by_name[name], found) for name, found in of.items()} for m, of in compared.items()}
    totals = {method: _total(of, scores.get(OURS, {}), by_name) for method, of in scores.items()}
    each = {m: {name: _summary(by_name[name], found) for name, found in of.items()} for m, of in grouped.items()}
    bars = {method: _bar(each.get(method, {}), by_name, most) for method, most in BAR.items()}
    used = {name: _facts(by_name[name]) for name in sorted({name for of in grouped.values() for name in of})}
    text = _markdown(totals, each, bars, used, absent)
    print(text)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".md").write_text(text)
    facts = {"date": _today(), "versions": _versions(), "spaces": used, "totals": totals, "softmax": bars, "results": each}
    output.with_suffix(".json").write_text(json.dumps(_rounded(facts)) + "\n")
    if importlib.util.find_spec("matplotlib"):
        plot(_panels(compared, by_name), output.with_suffix(".svg"))
    else:
        print(
            f"{output.with_suffix('.svg')} is not drawn: there is no matplotlib; {INSTALLED_BY['matplotlib']}, and again with --report-only"
        )


def _panels(compared: Runs, spaces: Mapping[str, RecordedSpace]) -> dict[str, dict[str, list[Floats]]]:
    """The curves of each method, by kind of space."""
    panels: dict[str, dict[str, list[Floats]]] = {}
    for method, of in compared.items():
        for name, found in of.items():
            title = "kernels of other people" if spaces[name].problem is None else "softmax"
            panels.setdefault(title, {}).setdefault(method, []).append(progress(spaces[name], found))
    return dict(sorted(panels.items()))


def progress(space: RecordedSpace, found: Sequence[Improvements]) -> Floats:
    """The score at each evaluation of the budget, as the mean of the runs."""
    curve = np.mean([_curve(space, improvements) for improvements in found], axis=0)
    random = space.random_curve[: space.budget]
    return np.asarray((random - curve) / np.maximum(random - space.optimum, 1e-12))


def scores_of(space: RecordedSpace, found: Sequence[Improvements]) -> Floats:
    """The score of each run."""
    return np.array([progress(space, [improvements]).mean() for improvements in found])


def _curve(space: RecordedSpace, improvements: Improvements) -> Floats:
    """The best time after 1, 2, … evaluations of the budget; a method that ended keeps its best."""
    curve = np.full(space.budget, max(space.times.values()))
    for evaluation, time_us in improvements:
        curve[evaluation - 1 :] = time_us
    return curve


def _reached(space: RecordedSpace, improvements: Improvements, share: float) -> float:
    return next((float(evaluation) for evaluation, time_us in improvements if time_us <= space.optimum / share), np.inf)


def _summary(space: RecordedSpace, found: Sequence[Improvements]) -> dict[str, Any]:
    scores = scores_of(space, found)
    low, high = np.quantile(_resampled(scores), [0.025, 0.975])
    summary: dict[str, Any] = {"runs": len(found), "score": scores.mean(), "low": low, "high": high}
    for share in CLOSE:
        evaluations = np.array([_reached(space, improvements, share) for improvements in found])
        median = float(np.quantile(evaluations, 0.5, method="inverted_cdf"))
        summary[f"evaluations to {share:.0%}"] = median if np.isfinite(median) else None
        summary[f"runs that reached {share:.0%}"] = int(np.isfinite(evaluations).sum())
    within = [_reached(space, improvements, 0.99) for improvements in found]
    return summary | {f"share within {most}": float(np.mean(np.array(within) <= most)) for most in BAR.values()}


def _resampled(values: Floats) -> Floats:
    """Means of resampled runs, for the percentile bootstrap."""
    return np.asarray(np.random.default_rng(0).choice(values, (RESAMPLED, len(values))).mean(1))


def _total(scores: Mapping[str, Floats], ours: Mapping[str, Floats], spaces: Mapping[str, RecordedSpace]) -> dict[str, Any]:
    """The medians over spaces of the mean scores, and how far behind ours on the same spaces, with 95 % intervals."""
    total: dict[str, Any] = {"spaces": len(scores), "runs": min(len(of) for of in scores.values())}
    kinds = {
        "all": list(scores),
        "others": [name for name in scores if spaces[name].problem is None],
        "softmax": [name for name in scores if spaces[name].problem is not None],
    }
    for kind, names in kinds.items():
        total[kind] = _median(np.array([_resampled(scores[n]) for n in names]), [scores[n].mean() for n in names]) if names else None
    both = [name for name in scores if name in ours]
    if not both:
        return total | {"behind": None}
    here, there = (np.array([_resampled(of[name]) for name in both]) for of in (ours, scores))
    apart = np.median([ours[n].mean() for n in both]) - np.median([scores[n].mean() for n in both])
    low, high = np.quantile(np.median(here, axis=0) - np.median(there[:, ::-1], axis=0), [0.025, 0.975])
    return total | {"behind": {"score": apart, "low": low, "high": high}}


def _median(means: Floats, observed: Sequence[float]) -> dict[str, float]:
    low, high = np.quantile(np.median(means, axis=0), [0.025, 0.975])
    return {"score": float(np.median(observed)), "low": low, "high": high}


def _bar(each: Mapping[str, Any], spaces: Mapping[str, RecordedSpace], most: int) -> dict[str, Any]:
    found = {name: of for name, of in each.items() if spaces[name].problem is not None}
    missed = [name for name, of in found.items() if (of["evaluations to 99%"] or np.inf) > most]
    share = float(np.mean([of[f"share within {most}"] for of in found.values()])) if found else 0.0
    medians = [of["evaluations to 99%"] or np.inf for of in found.values()]
    return {"within": most, "sizes": len(found), "runs within": share, "median": np.median(medians) if found else None, "missed": missed}


def _markdown(
    totals: Mapping[str, Any], each: Mapping[str, Any], bars: Mapping[str, Any], used: Mapping[str, Any], absent: Sequence[str]
) -> str:
    order = sorted(totals, key=lambda method: -totals[method]["all"]["score"])
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    lines = [
        "# How good the search is",
        "",
        f"{_today()}, {versions}. Written by `benchmarks/search_quality.py`, which says what a score",
        "",
    ]
    lines[-2] += " is: 0 is random sampling, 1 the optimum at the first try. Brackets are 95 % intervals."
    lines += [*absent, ""] if absent else []
    lines += ["## Medians over spaces", "", HEAD, "| --- | ---: | ---: | --- | --- | --- | --- |"]
    for method in order:
        total = totals[method]
        cells = " | ".join(_interval(total[kind]) for kind in ("all", "others", "softmax", "behind"))
        lines.append(f"| {method} | {total['spaces']} | {total['runs']} | {cells} |")
    lines += ["", NOTES, "", "![score over the budget](search_quality.svg)", "", "## Measurements to 99 % of the optimum on softmax", ""]
    for method, bar in bars.items():
        late = f"; the median run needs more at {', '.join(name.split(',')[0] for name in bar['missed'])}" if bar["missed"] else ""
        lines.append(f"- {method}: {bar['sizes']} sizes, {bar['runs within']:.0%} of the runs within {bar['within']} measurements,")
        lines.append(f"  a median over sizes of {bar['median']}{late}.")
    for name, facts in used.items():
        size = f"{facts['configurations']} configurations of `{facts['file']}` (times {facts['fingerprint']}), budget {facts['budget']},"
        size += f" runs of {facts['evaluations']} evaluations."
        lines += ["", f"## {name}", "", size, "", SPACE_HEAD, "| --- | ---: | ---: | --- | --- | --- |"]
        for method in [m for m in [*order, *(m for m in each if m not in order)] if name in each.get(m, {})]:
            found = each[method][name]
            close = " | ".join(_evaluations(found, share, facts["evaluations"]) for share in CLOSE)
            lines.append(f"| {method} | {found['runs']} | {found['score']:.3f} | {found['low']:.3f} … {found['high']:.3f} | {close} |")
    return "\n".join(lines) + "\n"


def _interval(found: Mapping[str, float] | None) -> str:
    return f"{found['score']:.3f} ({found['low']:.3f} … {found['high']:.3f})" if found else ""


def _evaluations(found: Mapping[str, Any], share: float, evaluations: int) -> str:
    median = found[f"evaluations to {share:.0%}"]
    return f"> {evaluations} ({found[f'runs that reached {share:.0%}']} runs did)" if median is None else f"{median:.0f}"


def _facts(space: RecordedSpace) -> dict[str, Any]:
    facts = {"configurations": len(space.times), "budget": space.budget, "evaluations": space.evaluations, "optimum_us": space.optimum}
    return facts | {"file": space.path.name, "fingerprint": space.fingerprint}


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("numpy", "optuna", "kernel_tuner"):
        if importlib.util.find_spec(name):
            found[name] = importlib.metadata.version(name)
    return found


def _today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def _rounded(value: Any) -> Any:
    """`value` with its numbers cut to four decimals, for a file that is read by people too."""
    if isinstance(value, Mapping):
        return {key: _rounded(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(of) for of in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value
