"""torch's tensors: how they are read and made at every call. Imported only where torch already is."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import torch

from autotune.dispatch.arrays import HandOver, Kind, View


def kind_of(tensor: Any) -> Kind:
    """The kind of a tensor's type: a subclass (fake, functional, a user's own) always goes through torch's dispatcher."""
    return _plain() if type(tensor) in (torch.Tensor, torch.nn.Parameter) else _wrapped()


def _describe() -> Callable[[Any], tuple[Hashable, int]]:
    gradients_wanted = torch.is_grad_enabled

    def describe(tensor: Any) -> tuple[Hashable, int]:
        if tensor.requires_grad and gradients_wanted():
            raise HandOver
        return (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()), tensor.data_ptr()

    return describe


def _hand_over_at_once(tensor: Any) -> tuple[Hashable, int]:
    raise HandOver


def _view(tensor: Any) -> View:
    host = tensor.device.type != "cuda"
    return View(
        f"the {tensor.device.type.upper() if host else 'torch'} tensor",
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        str(tensor.dtype).removeprefix("torch."),
        device=None if host else tensor.get_device(),
        host=host,
    )


def _allocate() -> Callable[[Any], Any]:
    empty_like, contiguous = torch.empty_like, torch.contiguous_format

    def allocate(tensor: Any) -> Any:
        return empty_like(tensor, memory_format=contiguous)

    return allocate


def _allocate_on(tensor: Any, handle: int) -> Any:
    # Memory belongs to the stream it was allocated on: torch would otherwise hand it out again while ours still writes.
    with torch.cuda.stream(torch.cuda.ExternalStream(handle, device=tensor.device)):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _current_stream() -> Callable[[Any], int]:
    # torch.cuda.current_stream() builds an object and takes 4 us; the raw handle takes 0.1 us.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def stream(layout: Any) -> int:
        device = layout[3]
        if device < 0:
            return 0
        return int(raw(device) if raw else torch.cuda.current_stream(device).cuda_stream)

    return stream


@lru_cache(maxsize=1)
def _plain() -> Kind:
    return Kind(_describe(), _allocate(), torch.Tensor.data_ptr, _current_stream(), _view, _allocate_on)


@lru_cache(maxsize=1)
def _wrapped() -> Kind:
    return Kind(_hand_over_at_once, _allocate(), torch.Tensor.data_ptr, _current_stream(), _view)
