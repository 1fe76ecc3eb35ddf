"""Softmax over the last axis: y[r, c] = exp(x[r, c] - max_r) / sum_r, where sum_r adds exp(x[r, c] - max_r) over the row."""

import numpy as np

from autotune.operation import Tolerance

# float32: rtol 1e-5 is several times what an exp2 of a log2-domain difference costs on wide-range inputs; the absolute part only
# lets results that are denormal be flushed. The 16-bit types are correctly rounded up to a twentieth of their half-ulp, and the
# absolute part of float16 is half its subnormal spacing, since 1/65536 is already subnormal there.
TOLERANCES = {
    "float32": Tolerance(relative=1e-5, absolute=1e-37),
    "float16": Tolerance(relative=2**-11 * 1.05, absolute=2**-25 * 1.05),
    "bfloat16": Tolerance(relative=2**-9 * 1.05, absolute=2e-38),
}

# Applicable to every problem that fits in memory: no alignment, no limit on the columns, 1 KiB of shared memory at most.
SAFE = ("v2", {"block": 256, "unroll": 1})

# The same function on the GPU, for outputs too large to be compared on the host.
REFERENCE_TEMPLATE = "reference.cu"


def reference(x):
    """Row softmax of a float64 matrix, as torch defines it: a row with NaN, +inf or nothing but -inf is NaN throughout."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)


def bytes_moved(problem):
    """The fewest bytes that a softmax of `problem` moves: each element read once and written once."""
    return 2 * problem.rows * problem.bytes_per_row
