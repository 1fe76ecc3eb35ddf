"""Recognises tensors by torch's own comparison: one question to all of a call, where asking for their properties takes ten.

It is the check by which torch.compile knows its graphs again: type, dtype, device, sizes, strides, gradients, and the modes of the thread.
It is no public interface, so it is tried out before it is trusted, and missed nowhere but in the cost of a call.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch

from autotune.dispatch.plan import Plan
from autotune.dispatch.plans import MOST_PLANS, Table

# How often the tensors that are known of one number of elements may change, as they do where modes, dtypes or shapes of as many elements
# alternate; new ones cost as much as several calls.
MOST_CHANGES = 8

Alike = Callable[..., bool]


class Known:
    """The last tensors seen of each number of elements: torch's comparison with them, their plan and their GPU.

    That number is had for a third of what a shape costs, and nearly always stands for one shape.
    """

    def __init__(self) -> None:
        self.of: dict[int, tuple[Alike, Plan, int]] = {}
        self._changes: dict[int, int] = {}

    def remember(self, table: Table, plan: Plan, ordinal: int, x: Any, *out: Any) -> None:
        """From now on, tensors like these have this plan, for as long as it is alive. Only what is kept in `table` is remembered.

        So are only tensors that require no gradient: the comparison sees that of a tensor, but not whether gradients are being recorded.
        """
        if any(tensor.requires_grad for tensor in (x, *out)):
            return
        if len(self._changes) >= MOST_PLANS:
            self.of.clear()
            self._changes.clear()
        count = x.numel()
        changes = self._changes.get(count, 0)
        if changes >= MOST_CHANGES:
            self.of.pop(count, None)
        elif table.get(x.shape) is plan:
            self._changes[count] = changes + 1
            alike = comparison(x, *out)
            if alike is not None:
                self.of[count] = (alike, plan, ordinal)


def comparison(x: Any, *out: Any) -> Alike | None:
    """Whether as many tensors are like these, as far as a plan depends on it; None where this torch cannot say."""
    try:
        if out and out[0] is x:  # torch takes no tensor twice
            alone = comparison(x)
            return None if alone is None else lambda x, out: out is x and alone(x)
        guards = _guards()
        alike: Alike = guards(x, *out, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return alike if _tells_apart(guards, 1 + len(out)) and alike(x, *out) else None
    except Exception:  # whatever a later torch makes of it
        return None


@lru_cache(maxsize=1)
def _guards() -> Any:
    from torch._C._dynamo.guards import TensorGuards

    return TensorGuards


_trusted: set[tuple[Any, int]] = set()


def _tells_apart(guards: Any, count: int) -> bool:
    """Whether torch's comparison of so many tensors sees that one of them has another layout, dtype, place or gradient.

    Tried out until it did so once: that takes longer than a decision.
    """
    if (guards, count) not in _trusted:
        plain = partial(torch.empty, dtype=torch.float32, device="cpu")
        tensors, alike_tensors = ([plain((2, 3)) for _ in range(count)] for _ in range(2))
        others = (
            plain((4, 3)),
            plain((3, 2)).t(),
            plain((6,)),
            plain((2, 3), dtype=torch.float16),
            plain((2, 3), device="meta"),
            plain((2, 3), requires_grad=True),
        )
        alike = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        changed = (alike(*tensors[:place], other, *tensors[place + 1 :]) for place in range(count) for other in others)
        if any(changed) or not alike(*alike_tensors):
            return False
        _trusted.add((guards, count))
    return True
