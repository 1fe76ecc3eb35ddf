"""What a predictor sees of a problem: a few numbers that decide which kernel is fast."""

from math import log2

from autotune.device import Device
from autotune.problem import WIDEST_ACCESS_BYTES, Problem

NAMES = ("log2 waves", "log2 rows", "log2 columns", "row bytes mod 16", "log2 bytes over L2", "log2 alignment")

# Rows beyond this many per SM change a kernel's time but hardly which kernel is the fastest.
ROWS_PER_SM = 4

Features = tuple[float, float, float, float, float, float]
Point = tuple[float, float, float]


def features(problem: Problem, device: Device) -> Features:
    """The features of a problem that is not empty, in the order of `NAMES`. A wave is a row on each SM."""
    rows = log2(problem.rows)
    row_bytes = problem.bytes_per_row
    return (
        rows - log2(device.sm_count),
        rows,
        log2(problem.cols),
        float(row_bytes % WIDEST_ACCESS_BYTES),
        rows + log2(row_bytes / max(device.l2_bytes, 1)),
        log2(problem.alignment_bytes),
    )


def point(seen: Features, cols_weight: float, alignment_weight: float, tall_weight: float) -> Point:
    """A problem as a point in a space where problems that are near want the same kernels.

    A doubling of the rows is a distance of 1, or `tall_weight` once each SM has several rows; one of the columns is `cols_weight`, and
    one of the alignment `alignment_weight`.
    """
    beyond = seen[0] - log2(ROWS_PER_SM)
    rows = seen[1] if beyond <= 0 else seen[1] - beyond + tall_weight * beyond
    return rows, cols_weight * seen[2], alignment_weight * seen[5]
