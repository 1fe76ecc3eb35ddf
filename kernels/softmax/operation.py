"""Softmax over the last axis: y[r, c] = exp(x[r, c] - max_r) / sum_r, where sum_r adds exp(x[r, c] - max_r) over the row."""

from typing import Any

import numpy as np

from autotune.operation import Tolerance
from autotune.problem import Problem

Array = np.ndarray[Any, np.dtype[Any]]

# float32: the worst that v0-v4 do on wide-range inputs is 3.8e-6, most of it the rounding of a log2-domain difference of up to 126;
# the absolute part only lets results that are denormal be flushed. The 16-bit types are correctly rounded (half an ulp is 2^-11 of
# a value in float16 and 2^-8 in bfloat16) up to a twentieth of that, and the absolute part of float16 is half its subnormal spacing,
# since 1/65536 is already subnormal there.
TOLERANCES = {
    "float32": Tolerance(relative=1e-5, absolute=1e-37),
    "float16": Tolerance(relative=2**-11 * 1.05, absolute=2**-25 * 1.05),
    "bfloat16": Tolerance(relative=2**-8 * 1.05, absolute=2e-38),
}

# Applicable to every problem that fits in memory: no alignment, no limit on the columns, 1 KiB of shared memory at most.
SAFE = ("v2", {"block": 256, "unroll": 1})

# The same function on the GPU, for outputs too large to be compared on the host.
REFERENCE_TEMPLATE = "reference.cu"


def reference(x: Array) -> Array:
    """Row softmax of a float64 matrix, as torch defines it: a row with NaN, +inf or nothing but -inf is NaN throughout."""
    with np.errstate(invalid="ignore"):
        e: Array = np.exp(x - np.max(x, axis=1, keepdims=True))
        quotient: Array = e / np.sum(e, axis=1, keepdims=True)
        return quotient


def bytes_moved(problem: Problem) -> int:
    """The fewest bytes that a softmax of `problem` moves: each element read once and written once."""
    return 2 * problem.rows * problem.bytes_per_row
