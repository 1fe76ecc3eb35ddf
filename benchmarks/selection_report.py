"""The page that `selection_regret.py` writes."""

from collections.abc import Mapping, Sequence
from typing import Any

TARGETS = {"geomean": 1.02, "p95": 1.10, "worst": 1.25}
SHARES = ("within 2 %", "within 5 %", "within 10 %")
JUDGED = "our selector"


def page(database: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Everything in Markdown: a table for each split, then the sizes that our selector does worst at."""
    lines = [
        "# Regret of the kernels selected for sizes that were never tuned",
        "",
        f"Made by `python benchmarks/selection_regret.py {database}`, which says how. Times over the oracle's, 1 being the best kernel",
        f"there is; the aim is a geometric mean of {TARGETS['geomean']}, {TARGETS['p95']:.2f} at most at 95 % of sizes, and "
        f"{TARGETS['worst']} at the worst one. The analytic default was written with the tuned sizes in view, so what is left out of those",
        "is new to the rules that learn and not to it; sizes under `never tuned` are new to all.",
        "",
    ]
    for part in found:
        lines += [f"## {part['dtype']} on {part['device']}: {part['problems']} sizes, {part['trials']} trials", ""]
        if part["stale"]:
            lines += [f"{part['stale']} trials are of templates that have changed since.", ""]
        for split, rules in part["splits"].items():
            lines += _table(split, rules)
    return "\n".join(lines)


def _table(split: str, rules: Mapping[str, Any]) -> list[str]:
    sizes = max(result["sizes"] for result in rules.values())
    head = ["rule", "geomean", "95 %", "worst", *SHARES]
    lines = [
        f"### {split[0].upper()}{split[1:]} ({sizes} sizes)",
        "",
        "| " + " | ".join(head) + " |",
        "| --- |" + " ---: |" * (len(head) - 1),
    ]
    for rule, result in rules.items():
        cells = [f"{result[key]:.3f}" for key in ("geomean", "p95", "worst")] + [f"{100 * result[key]:.0f} %" for key in SHARES]
        lines.append("| " + " | ".join([f"**{rule}**" if rule == JUDGED else rule, *cells]) + " |")
    if JUDGED in rules:
        worst = [f"{size} {ratio:.3f} ({chosen})" for size, ratio, chosen in rules[JUDGED]["worst ten"] if ratio > 1]
        met = all(rules[JUDGED][key] <= most for key, most in TARGETS.items())
        lines += ["", f"{'Within' if met else 'Not within'} the aim. The worst of our selector: {'; '.join(worst) or 'none'}."]
    return [*lines, ""]
