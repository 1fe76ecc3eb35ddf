"""What a predictor sees of a problem: a few numbers that decide which kernel is fast."""

from math import cos, log2, pi, sin

from autotune.device import Device
from autotune.problem import WIDEST_ACCESS_BYTES, Problem

NAMES = ("log2 waves", "log2 rows", "log2 columns", "row bytes mod 16", "log2 bytes over L2", "log2 alignment")

# Rows beyond this many per SM change a kernel's time but hardly which kernel is the fastest.
ROWS_PER_SM = 4

Features = tuple[float, float, float, float, float, float]
Place = tuple[float, float, float, float, float, float]

TURN = 2 * pi


def features(problem: Problem, device: Device) -> Features:
    """The features of a problem that is not empty, in the order of `NAMES`. A wave is a row on each SM."""
    rows = log2(problem.rows)
    row_bytes = problem.bytes_per_row
    return (
        rows - log2(max(device.sm_count, 1)),
        rows,
        log2(problem.cols),
        float(row_bytes % WIDEST_ACCESS_BYTES),
        rows + log2(row_bytes / max(device.l2_bytes, 1)),
        log2(problem.alignment_bytes),
    )


def place(seen: Features) -> Place:
    """Coordinates in which problems that are near want the same kernels: doublings of the rows up to and beyond several per SM, of the
    columns and of the alignment, and two for the place that the columns have between two powers of two.

    What a row leaves unused of kernels that hold powers of two repeats with each doubling: the logarithm's fraction goes round a circle.
    """
    beyond = max(0.0, seen[0] - log2(ROWS_PER_SM))
    angle = TURN * seen[2]
    return seen[1] - beyond, beyond, seen[2], seen[5], cos(angle), sin(angle)
