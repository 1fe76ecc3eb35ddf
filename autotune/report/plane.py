"""The plane of sizes: which version the dispatcher would take from the tuned sizes around each point."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from autotune.dispatch.selection import COLS_WEIGHT

Row = dict[str, Any]

CELLS = 40  # along the longer side of the plane: more cannot be told apart on paper


def cells(problems: Sequence[Row]) -> list[Row]:
    """Rectangles that tile the plane half a doubling beyond the tuned sizes, each with the version of the tuned size nearest to it.

    Nearest is as the dispatcher measures it: in log space, one doubling of columns counting as much as four of rows.
    """
    tuned = [(p["rows"], p["cols"], p["version"]) for p in problems if p["rows"] and p["cols"]]
    if not tuned:
        return []
    versions = [version for _, _, version in tuned]
    points = np.log2([[rows for rows, _, _ in tuned], [cols for _, cols, _ in tuned]])
    low, high = points.min(axis=1) - 0.5, points.max(axis=1) + 0.5
    step = max(0.25, float((high - low).max()) / CELLS)
    rows, cols = (
        np.linspace(first, last, max(1, round((last - first) / step)) + 1) for first, last in zip(low.tolist(), high.tolist(), strict=True)
    )
    middles = (cols[:-1] + cols[1:]) / 2
    across = (COLS_WEIGHT * (points[1] - middles[:, None])) ** 2
    return [
        {"rows": bottom, "rows_to": top, "cols": first, "cols_to": last, "version": version}
        for bottom, top in pairwise(rows.tolist())
        for first, last, version in _strips(cols.tolist(), ((points[0] - (bottom + top) / 2) ** 2 + across).argmin(axis=1), versions)
    ]


def _strips(cols: Sequence[float], nearest: Iterable[int], versions: Sequence[str]) -> list[tuple[float, float, str]]:
    """The cells of one row of the plane, neighbours of the same version joined; `nearest` says which size each takes its version from."""
    strips: list[tuple[float, float, str]] = []
    for (left, right), place in zip(pairwise(cols), nearest, strict=True):
        if strips and strips[-1][2] == versions[place]:
            strips[-1] = (strips[-1][0], right, versions[place])
        else:
            strips.append((left, right, versions[place]))
    return strips
