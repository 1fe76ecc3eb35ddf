"""torch's tensors: how they are read and made at every call. Imported only where torch already is."""

from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any

import torch

from autotune.dispatch.arrays import Call, HandOver, Kind, View
from autotune.dispatch.calls import SlowPath
from autotune.dispatch.plan import Fix, Plan
from autotune.dispatch.plans import Table
from autotune.dispatch.repeats import PLACES, Repeats
from autotune.dispatch.request import check_interleaved
from autotune.dispatch.torch_known import Alike, Known
from autotune.errors import UsageError

Tables = defaultdict[Any, defaultdict[int, Table]]


def kind_of(tensor: Any) -> Kind:
    """The kind of a tensor's type: a subclass (fake, functional, a user's own) always goes through torch's dispatcher."""
    return _plain() if type(tensor) in (torch.Tensor, torch.nn.Parameter) else _wrapped()


def _describe() -> Callable[[Any], tuple[Hashable, int]]:
    gradients_wanted, stands_for_others = torch.is_grad_enabled, _stands_for_others()

    def describe(tensor: Any) -> tuple[Hashable, int]:
        if (tensor.requires_grad and gradients_wanted()) or stands_for_others(tensor):
            raise HandOver
        if tensor.layout is not torch.strided:
            raise UsageError(f"the tensor has the layout {tensor.layout}, and its elements no place of their own; make it dense first")
        return (tensor.shape, tensor.dtype, tensor.get_device(), tensor.stride()), tensor.data_ptr()

    return describe


def _stands_for_others() -> Callable[[Any], bool]:
    """Whether a tensor means other numbers than its memory holds: a negation that is still to be done, or one of a function transform."""
    wrapped: Callable[[Any], bool] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda tensor: False)
    return lambda tensor: bool(tensor.is_neg() or wrapped(tensor))


def _hand_over_at_once(tensor: Any) -> tuple[Hashable, int]:
    raise HandOver


def _view(tensor: Any) -> View:
    shape, strides, dtype = tuple(tensor.shape), tensor.stride(), _dtype_name(tensor.dtype)
    if tensor.is_cuda:
        return View("the torch tensor", tensor.data_ptr(), shape, strides, dtype, tensor.get_device())
    return View(f"the {tensor.device.type.upper()} tensor", tensor.data_ptr(), shape, strides, dtype, host=True)


@lru_cache(maxsize=256)
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _allocate() -> Callable[[Any], Any]:
    empty_like, contiguous = torch.empty_like, torch.contiguous_format

    def allocate(tensor: Any) -> Any:
        return empty_like(tensor, memory_format=contiguous)

    return allocate


def _allocate_on(tensor: Any, handle: int) -> Any:
    # Memory belongs to the stream it was allocated on: torch would otherwise hand it out again while ours still writes.
    with torch.cuda.stream(torch.cuda.ExternalStream(handle, device=tensor.device)):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _raw_stream() -> Callable[[int], int]:
    """The handle of a GPU's current stream. torch.cuda.current_stream() builds an object and takes 4 us; the raw handle takes 0.1 us."""
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream))


def _layout_stream() -> Callable[[Any], int]:
    raw = _raw_stream()

    def stream(layout: Any) -> int:
        return raw(layout[2]) if layout[2] >= 0 else 0

    return stream


def _packed(kind: Kind, slow: SlowPath, any_layout: Call) -> Call:
    """The call for what nearly every call has: both tensors packed, aligned, apart or one, and no stream named. `any_layout` has others.

    Least is asked of memory that was seen before; of other memory, whether it is as large, and lies as well.
    """
    current = (lambda ordinal: 0) if slow.host else _raw_stream()
    pairs, singles, selves, repeats = Known(), Known(), Known(), Repeats()
    any_packed = _any_packed(kind, slow, any_layout, current, pairs, singles, selves)
    pair_of, single_of, self_of, ready_of, seen = pairs.of.get, singles.of.get, selves.of.get, repeats.of.get, repeats.seen
    empty_like, pointer = torch.empty_like, torch.Tensor.data_ptr

    def call(x: Any, out: Any, stream: Any) -> Any:
        if stream is not None:
            return any_layout(x, out, stream)
        if out is None:
            return call_without_output(x)
        try:
            pointers = (pointer(x), pointer(out))
        except Exception:  # no tensor, or one without memory of its own
            pointers = (0, 0)
        ready = ready_of(pointers)
        if ready is not None:
            alike, ordinal, handle, plan, launch, arguments, _ = ready
            if plan.live and alike(x, out) and current(ordinal) == handle and not launch(*arguments):
                plan.hits += 1
                return out
        source, target = pointers
        known = self_of(x.numel()) if out is x else pair_of(x.numel())
        if known is None or (source | target) & 15 or not source or not target:
            return any_packed(x, out)
        alike, plan, ordinal = known
        if not plan.live or (plan.before < target - source < plan.after and out is not x) or not alike(x, out):
            return any_packed(x, out)
        handle = current(ordinal)
        plan.launch(target, source, handle)
        plan.hits += 1
        place = hash(pointers) % PLACES
        if seen[place] != pointers:
            seen[place] = pointers
        elif plan.fix is not None:
            repeats.keep(pointers, partial(_ready, alike, ordinal, handle, plan, plan.fix, target, source))
        return out

    def call_without_output(x: Any) -> Any:
        known = single_of(x.numel())
        if known is None:
            return any_packed(x, None)
        alike, plan, ordinal = known
        if not plan.live or not alike(x):
            return any_packed(x, None)
        source = x.data_ptr()
        if source & 15 or not source:
            return any_packed(x, None)
        out = empty_like(x)  # new memory is aligned, and apart from the input's
        plan.launch(out.data_ptr(), source, current(ordinal))
        plan.hits += 1
        return out

    return call


def _ready(alike: Alike, ordinal: int, handle: int, plan: Plan, fix: Fix, target: int, source: int) -> tuple[Any, ...]:
    return alike, ordinal, handle, plan, *fix(target, source, handle)


def _any_packed(
    kind: Kind, slow: SlowPath, any_layout: Call, current: Callable[[int], int], pairs: Known, singles: Known, selves: Known
) -> Callable[[Any, Any], Any]:
    """The call for tensors that are packed but not known again; it makes them known.

    Each question to a tensor costs a twentieth of a microsecond and its shape or strides twice that, so only those are asked that tell
    such layouts apart. Tables within tables cost half of one whose keys are tuples that hold a shape.
    """
    apart: Tables = defaultdict(lambda: defaultdict(slow.table))
    in_place: Tables = defaultdict(lambda: defaultdict(slow.table))
    gradients_wanted, empty_like, plain, strided = torch.is_grad_enabled, torch.empty_like, torch.Tensor, torch.strided
    stands_for_others = _stands_for_others()

    def is_packed(x: Any) -> bool:
        plainly = x.layout is strided and x.is_contiguous() and not stands_for_others(x)
        return plainly and not (x.requires_grad and gradients_wanted())

    def alike(x: Any, out: Any) -> bool:
        same = type(out) is plain and out.shape == x.shape and out.dtype is x.dtype and out.get_device() == x.get_device()
        return same and is_packed(out)

    def call(x: Any, given: Any) -> Any:
        if not is_packed(x) or (given is not None and not alike(x, given)):
            return any_layout(x, given, None)
        shape, ordinal = x.shape, x.get_device()
        out = empty_like(x) if given is None else given
        source, target = x.data_ptr(), out.data_ptr()
        if (source | target) & 15 or not source or not target:
            return any_layout(x, out, None)
        if source == target and out is not x:
            return any_layout(x, out, None)
        table = (in_place if out is x else apart)[x.dtype][ordinal]
        plan = table.get(shape)
        if plan is None:
            plan = slow.plan(table, shape, kind, x, kind, out, current(ordinal) if ordinal >= 0 else 0)
        if plan.before < target - source < plan.after and out is not x:
            check_interleaved(plan.problem, target - source)
        plan.launch(target, source, current(ordinal))
        plan.hits += 1
        if given is None:
            singles.remember(table, plan, ordinal, x)
        elif given is x:
            selves.remember(table, plan, ordinal, x, x)
        else:
            pairs.remember(table, plan, ordinal, x, out)
        return out

    return call


@lru_cache(maxsize=1)
def _plain() -> Kind:
    return Kind(_describe(), _allocate(), torch.Tensor.data_ptr, _layout_stream(), _view, _allocate_on, shortcut=_packed)


@lru_cache(maxsize=1)
def _wrapped() -> Kind:
    return Kind(_hand_over_at_once, _allocate(), torch.Tensor.data_ptr, _layout_stream(), _view)
