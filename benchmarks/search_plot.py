"""The plot of the search benchmark: how the score of each method grows over the budget."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Curves = Mapping[str, Sequence[Floats]]  # by method, one curve per space
STEPS = 40
LEAST_SHOWN = -0.6  # methods that fall far below random would hide the others
STYLES = ("-", "--", ":")  # a line's colour and style together tell its method
COLOURS = 8


def plot(panels: Mapping[str, Curves], path: Path) -> None:
    """One panel per kind of space: the median over its spaces of the score, at each share of the budget; one line per method."""
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: smaller, and it can be searched
    methods = sorted({method for curves in panels.values() for method in curves}, key=lambda name: (not name.startswith("ours"), name))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(11, 4.6), squeeze=False, sharey=True, layout="constrained")
    share = np.linspace(0.02, 1.0, STEPS)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=True):
        for i, method in enumerate(methods):
            sampled = [np.interp(share, np.arange(1, len(curve) + 1) / len(curve), curve) for curve in curves.get(method, [])]
            if sampled:
                width = 2.4 if method.startswith("ours") else 1.0
                style = {"linewidth": width, "linestyle": STYLES[i // COLOURS], "color": f"C{i % COLOURS}"}
                axis.plot(share, np.median(sampled, axis=0), label=method.removeprefix("kernel_tuner:"), **style)
        axis.axhline(0.0, color="grey", linewidth=0.6)
        axis.set(ylim=(LEAST_SHOWN, 1.03), xlabel="share of the budget", title=title)
    axes.flat[0].set_ylabel("score: 0 random sampling, 1 the optimum")
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), fontsize=7, loc="outside right upper")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
