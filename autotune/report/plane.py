"""The plane of sizes: which version the dispatcher would take from the tuned sizes around each point."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from autotune.dispatch.selection import COLS_WEIGHT

Row = dict[str, Any]

CELLS = 40  # along the longer side of the plane: more cannot be told apart on paper


def cells(problems: Sequence[Row]) -> list[Row]:
    """Rectangles that tile the plane half a doubling beyond the tuned sizes, each with the version of the tuned size nearest to it.

    Nearest is as the dispatcher measures it: in log space, one doubling of columns counting as much as four of rows.
    """
    points = [(math.log2(p["rows"]), math.log2(p["cols"]), p["version"]) for p in problems if p["rows"] and p["cols"]]
    if not points:
        return []
    low, high = ([pick(p[axis] for p in points) + margin for axis in (0, 1)] for pick, margin in ((min, -0.5), (max, 0.5)))
    step = max(0.25, max(high[0] - low[0], high[1] - low[1]) / CELLS)
    counts = [max(1, round((high[axis] - low[axis]) / step)) for axis in (0, 1)]
    rows, cols = ([low[axis] + (high[axis] - low[axis]) * i / counts[axis] for i in range(counts[axis] + 1)] for axis in (0, 1))
    return [
        {"rows": bottom, "rows_to": top, "cols": first, "cols_to": last, "version": version}
        for bottom, top in pairwise(rows)
        for first, last, version in _strips(points, cols, (bottom + top) / 2)
    ]


def _strips(points: Sequence[tuple[float, float, str]], cols: Sequence[float], row: float) -> list[tuple[float, float, str]]:
    """The cells of one row of the plane, neighbours of the same version joined."""
    strips: list[tuple[float, float, str]] = []
    for left, right in pairwise(cols):
        middle = (left + right) / 2
        version = min(points, key=lambda p: (p[0] - row) ** 2 + (COLS_WEIGHT * (p[1] - middle)) ** 2)[2]
        if strips and strips[-1][2] == version:
            strips[-1] = (strips[-1][0], right, version)
        else:
            strips.append((left, right, version))
    return strips
