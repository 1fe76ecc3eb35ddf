"""The plot of the search benchmark: how the score of each method grows over the budget."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEPS = 40
LEAST_SHOWN = -0.6  # methods that begin far below random would hide the others


def plot(curves: Mapping[str, Sequence[Floats]], path: Path) -> None:
    """The median over spaces of the score, at each share of the budget; one line per method of `curves`, one curve per space."""
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: smaller, and it can be searched
    share = np.linspace(0.02, 1.0, STEPS)
    figure, axis = pyplot.subplots(figsize=(8, 5), layout="constrained")
    final = {method: np.median([curve[-1] for curve in of]) for method, of in curves.items()}
    for method in sorted(curves, key=lambda name: -final[name]):
        sampled = [np.interp(share, np.arange(1, len(curve) + 1) / len(curve), curve) for curve in curves[method]]
        own = method.startswith("ours")
        name = method.removeprefix("kernel_tuner:")
        axis.plot(share, np.median(sampled, axis=0), label=name, linewidth=2.4 if own else 1.0, zorder=3 if own else 2)
    axis.axhline(0.0, color="grey", linewidth=0.6)
    axis.set(
        ylim=(LEAST_SHOWN, 1.03), xlabel="share of the budget", ylabel="score (0: random sampling, 1: the optimum), median over spaces"
    )
    axis.legend(fontsize=7, loc="lower right")
    figure.savefig(path, metadata={"Date": None})
