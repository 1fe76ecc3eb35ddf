"""What a call does when its layout has been seen before: both arrays are described, the plan is looked up and launched.

No file, lock, compiler, wait or allocation (but the result's) is on that path. Each type of array gets a function of its own, in which all
that does not change from call to call is a local name: at this scale attributes and calls in between are what costs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.dispatch.arrays import Call, HandOver, Kind
from autotune.dispatch.plan import Fix, Plan
from autotune.dispatch.plans import Table
from autotune.dispatch.repeats import PLACES, Repeats
from autotune.dispatch.request import check_interleaved


@dataclass(frozen=True, slots=True)
class SlowPath:
    """Where a call turns when its layout is new, or when it is not for it to answer.

    `plan` makes the plan under a key of a table for (kind, input, kind, output, stream). `kind` is that of an array's type. `hand_over`
    answers through torch's own dispatcher. `foreign` is the handle of a stream that the caller named, after what the input waits for.
    """

    table: Callable[[], Table]
    plan: Callable[[Table, Any, Kind, Any, Kind, Any, int], Plan]
    kind: Callable[[Any], Kind]
    hand_over: Call
    foreign: Callable[[Kind, Any, Any], int]
    host: bool


def call_of(own: type, kind: Kind, slow: SlowPath) -> Call:
    """The function `(x, out, stream) -> result` for inputs of type `own`."""
    call = _any_layout(own, kind, slow)
    return call if kind.shortcut is None else kind.shortcut(kind, slow, call)


def _any_layout(own: type, kind: Kind, slow: SlowPath) -> Call:
    table, describe, allocate, pointer, current = slow.table(), kind.describe, kind.allocate, kind.pointer, kind.stream
    repeats = Repeats()
    ready_of, seen = repeats.of.get, repeats.seen

    def call(x: Any, out: Any, stream: Any) -> Any:
        try:
            layout, source = describe(x)
            if out is not None:
                other = kind if type(out) is own else slow.kind(out)
                out_layout, target = other.describe(out)
        except HandOver:
            return slow.hand_over(x, out, stream)
        handle = current(layout) if stream is None else slow.foreign(kind, layout, stream)
        if out is None:
            other = kind
            out = allocate(x) if stream is None or kind.allocate_on is None else kind.allocate_on(x, handle)
            target = pointer(out)
            said: Any = None
        elif out_layout == layout and other is kind:  # nearly always, and cheaper to see than to have both in the key
            said = source == target
        else:
            said = (source == target, out_layout, other)
        call_key = (source, target, handle, said, layout)
        ready = ready_of(call_key)
        if ready is not None:
            plan, launch, arguments, _ = ready
            if plan.live and not launch(*arguments):
                plan.hits += 1
                return out
        # An array without memory has a key of its own: its plan may be that of an empty array, or it must be refused each time.
        key = (source and source & 15 | 16, target and target & 15 | 16, said, layout)
        plan = table.get(key) or slow.plan(table, key, kind, x, other, out, handle)
        if plan.before < target - source < plan.after and target != source:
            check_interleaved(plan.problem, target - source)
        plan.launch(target, source, handle)
        plan.hits += 1
        if plan.fix is not None:
            place = hash(call_key) % PLACES
            if seen[place] != call_key:
                seen[place] = call_key
            elif table.get(key) is plan:  # not one that a capture had to make do with
                repeats.keep(call_key, partial(_ready, plan, plan.fix, target, source, handle))
        return out

    return call


def _ready(plan: Plan, fix: Fix, target: int, source: int, handle: int) -> tuple[Any, ...]:
    return plan, *fix(target, source, handle)
