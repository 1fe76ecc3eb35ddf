"""Recognises an input and an output by torch's own comparison: one question to both tensors, where asking for their properties takes ten.

It is the check by which torch.compile knows its graphs again: type, dtype, device, sizes, strides, gradients, and the modes of the thread.
It is no public interface, so it is tried out before it is trusted, and missed nowhere but in the cost of a call.
"""

from collections.abc import Callable
from typing import Any

import torch

from autotune.dispatch.plan import Plan
from autotune.dispatch.plans import MOST_PLANS, Table

# How often the pair of a shape may change, as it does where modes or dtypes alternate; a new one costs as much as several calls.
MOST_CHANGES = 8

Alike = Callable[[Any, Any], bool]
Pair = tuple[Alike, Plan, int]


class Pairs:
    """The last pair of tensors seen in each shape: torch's comparison with them, their plan and their GPU."""

    def __init__(self) -> None:
        self.of: dict[Any, Pair] = {}
        self._changes: dict[Any, int] = {}

    def remember(self, table: Table, shape: Any, x: Any, out: Any, plan: Plan, ordinal: int) -> None:
        """From now on, tensors like these have this plan, for as long as it is alive. Only what is kept in `table` is remembered."""
        if len(self._changes) >= MOST_PLANS:
            self.of.clear()
            self._changes.clear()
        changes = self._changes.get(shape, 0)
        if changes >= MOST_CHANGES:
            self.of.pop(shape, None)
        elif table.get(shape) is plan:
            self._changes[shape] = changes + 1
            alike = comparison(x, out)
            if alike is not None:
                self.of[shape] = (alike, plan, ordinal)


def comparison(x: Any, out: Any) -> Alike | None:
    """Whether two tensors are like these two, as far as a plan depends on it; None where this torch cannot say."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        alike: Alike = TensorGuards(x, out, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        other = torch.empty_strided((*x.shape[:-1], x.shape[-1] + 1), x.stride(), dtype=x.dtype, device="meta")
        return alike if alike(x, out) and not alike(x, other) and not alike(other, out) else None
    except Exception:  # whatever a later torch makes of it
        return None
