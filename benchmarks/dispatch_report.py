"""What a call through the dispatcher costs the host, in words: a part of results/README.md, from what `dispatch_*.py` wrote on a GPU."""

import json
from pathlib import Path
from typing import Any

LAUNCH, OURS, TORCH = "bare launch, cuda-bindings cuLaunchKernelEx", "autotune.softmax, out given", "torch.softmax, out given"
DECISION = "a decision for a new size"


def section(folder: Path) -> str:
    """The heading and its paragraphs."""
    cost, model, server = (_read(folder, name) for name in ("overhead", "transformer", "server"))
    us, ms = cost["us"], model["ms"]
    alone, many = server["reports"]
    shares = "; ".join(f"{way} {took['ours']:.3f} ms, torch's {took['torch']:.3f}" for way, took in ms.items())
    yardsticks = " to ".join(f"{bound(cost['yardsticks_us']):.0f}" for bound in (min, max))
    return (
        f"\n## What the dispatcher costs\n\nHost time on the {cost['device']}'s machine, {cost['date'][:10]}: a call with `out=` "
        f"takes {us[OURS]:.2f} us, torch's {us[TORCH]:.2f}, and the bare launch of ours {us[LAUNCH]:.2f}; a decision for a new size "
        f"takes {us[DECISION]:.1f} us. The processor's speed changed meanwhile: a fixed piece of Python took {yardsticks} us in "
        f"that run, and {server['yardstick_us']:.0f} in the server's. `python benchmarks/dispatch_overhead.py`.\n\n"
        f"A step of a small transformer whose softmax of attention and of the vocabulary are ours: {shares}. Logits differ by "
        f"{model['furthest']:.1e} at most. `python benchmarks/dispatch_transformer.py`.\n\n"
        f"A server's view, random sizes up to {server['most']}: one thread makes {_rate(alone)} calls a second, {many['threads']} threads "
        f"{_rate(many)}; {_wrong(alone, many)} results wrong or failed; memory from {many['early_mb']:.0f} to {many['late_mb']:.0f} MB. "
        "`python benchmarks/dispatch_server.py`.\n"
    )


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"dispatch_{name}.json").read_text(encoding="utf-8"))
    return found


def _rate(report: dict[str, Any]) -> str:
    return f"{report['calls'] / report['seconds']:,.0f}"


def _wrong(*reports: dict[str, Any]) -> int:
    return sum(len(report["wrong"]) + len(report["errors"]) for report in reports)
