"""Which problems a search starts from: those measured already that are most like the one to be tuned."""

from collections.abc import Iterable
from math import gcd, log2

from autotune.problem import Problem

NEIGHBOURS = 3
COLUMNS_OVER_ROWS = 4.0  # doubling the length of a row changes what is fast as much as sixteen times as many rows do
ALIGNMENT = 2.0  # for each factor of two, up to a vector of 8, that divides the length of the one's rows and not of the other's


def distance(a: Problem, b: Problem) -> float:
    """How far two problems of one operation and element type are apart; 1 for twice as many rows."""
    apart = _doublings(a.rows, b.rows) + COLUMNS_OVER_ROWS * _doublings(a.cols, b.cols)
    return apart + ALIGNMENT * _doublings(gcd(a.cols, 8), gcd(b.cols, 8))


def nearest(problem: Problem, others: Iterable[Problem]) -> list[Problem]:
    """The few of `others` that are nearest to `problem`, of the same operation and element type, the nearest first."""
    like = [o for o in others if o != problem and (o.operation, o.dtype) == (problem.operation, problem.dtype)]
    return sorted(like, key=lambda other: distance(problem, other))[:NEIGHBOURS]


def _doublings(a: int, b: int) -> float:
    return abs(log2(max(a, 1) / max(b, 1)))
