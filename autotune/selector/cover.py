"""The few kernels that suffice: chosen one by one, each the one that lowers most how much the regrets at the tuned sizes hurt."""

from math import log2

import numpy as np

from autotune.problem import Problem
from autotune.selector.matrix import Array, Matrix
from autotune.selector.regret import hurt

MOST_MEMBERS = 32
LEAST_GAIN = 0.0001  # of the mean of what regrets hurt, that another member must spare; less is noise
UNKNOWN = 1.0  # what counts for a member where it was not measured: never worth relying on


def cover(matrix: Matrix, most: int = MOST_MEMBERS, foretold: Array | None = None, least_gain: float = LEAST_GAIN) -> list[int]:
    """The columns of at most `most` families, the analytic default first.

    Rows longer than any that were tuned count too, and what is `foretold` of other sizes (sizes x families, log regrets). Sizes of each
    alignment and band of row lengths keep a member of their own, should none of the chosen ones run any of them.
    """
    costs = hurt(np.vstack([matrix.costs, matrix.costs_beyond, matrix.costs[:0] if foretold is None else foretold]))
    members = [0]
    best = np.where(np.isnan(costs[:, 0]), UNKNOWN, costs[:, 0])
    while len(members) < most:
        with_each = np.fmin(best[:, None], costs).mean(axis=0)
        column = int(with_each.argmin())
        if best.mean() - with_each[column] < least_gain:
            break
        members.append(column)
        best = np.fmin(best, costs[:, column])
    return members + _forgotten(matrix, costs[: len(matrix.problems)], members)


def _forgotten(matrix: Matrix, costs: Array, members: list[int]) -> list[int]:
    """A member for each class of sizes that only the default can run."""
    classes: dict[tuple[int, int], list[int]] = {}
    for row, problem in enumerate(matrix.problems):
        classes.setdefault(_class(problem), []).append(row)
    added: list[int] = []
    for rows in classes.values():
        here = costs[rows]
        if np.isfinite(here[:, members[1:] + added]).any() or not np.isfinite(here[:, 1:]).any():
            continue
        mean = np.where(np.isnan(here), UNKNOWN, here).mean(axis=0)
        added.append(1 + int(mean[1:].argmin()))
    return added


def _class(problem: Problem) -> tuple[int, int]:
    return problem.alignment_bytes, int(log2(problem.bytes_per_row)) // 3
