"""The operation as torch sees it: `torch.ops.autotune.<operation>`, with a shape rule and a gradient, for what cannot be launched directly.

Gradients, `torch.compile` and tensors that are no real ones take this way; an ordinary call does not, for torch's dispatcher costs more
than the launch.
"""

from collections.abc import Callable
from typing import Any

import torch

from autotune.errors import UsageError

_operators: dict[Any, Callable[..., Any]] = {}


def call(dispatcher: Any, tensor: Any, out: Any, stream: Any) -> Any:
    """Run `dispatcher` on `tensor` through torch's dispatcher. Raises UsageError where `out` or `stream` cannot be had that way."""
    if out is not None or stream is not None:
        raise UsageError("out= and stream= cannot be combined with a gradient or a traced tensor; leave them out, or use torch.no_grad()")
    return operator(dispatcher)(tensor)


def operator(dispatcher: Any) -> Callable[..., Any]:
    """The custom op of a dispatcher, registered when it is first asked for."""
    if dispatcher not in _operators:
        _operators[dispatcher] = _register(dispatcher)
    return _operators[dispatcher]


def _register(dispatcher: Any) -> Callable[..., Any]:
    name = dispatcher.operation.name
    number = f"_{len(_operators)}" if _operators else ""

    def run(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = dispatcher(x.detach())
        return result

    registered: Any = torch.library.custom_op(f"autotune::{name}{number}", run, mutates_args=())
    registered.register_fake(lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
    registered.register_autograd(_backward, setup_context=_keep)
    return registered  # type: ignore[no-any-return]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Any) -> Any:
    """The gradient of softmax: y * (g - sum(g * y)) over the last axis."""
    (y,) = ctx.saved_tensors
    weighted = gradient * y
    return weighted - y * weighted.sum(-1, keepdim=True)
