"""The operation as torch sees it: `torch.ops.autotune.softmax`, with a shape rule and a gradient.

Gradients, `torch.compile` and tensors that are no real ones take this way; an ordinary call does not, for torch's dispatcher costs more
than the launch. A graph holds numbers and tensors, so a dispatcher of one's own goes in as its number; 0 is that of `autotune.softmax`.
"""

from typing import Any

import torch

from autotune.dispatch import default_dispatcher
from autotune.dispatch.dispatcher import DISPATCHERS
from autotune.errors import UsageError


def _dispatcher(number: int) -> Any:
    if number == 0:
        return default_dispatcher()
    found = DISPATCHERS.get(number)
    if found is None:
        raise UsageError(f"dispatcher {number} of this graph is gone; keep the Dispatcher for as long as what was compiled with it")
    return found


def _run(x: torch.Tensor, dispatcher: int = 0) -> torch.Tensor:
    result: torch.Tensor = _dispatcher(dispatcher)(x.detach())
    return result


def _run_into(x: torch.Tensor, out: torch.Tensor, dispatcher: int = 0) -> None:
    _dispatcher(dispatcher)(x.detach(), out.detach())


def call(dispatcher: Any, x: Any, out: Any, stream: Any) -> Any:
    """Run `dispatcher` on `x` through torch's dispatcher.

    Raises UsageError for a `stream`, for `out` with a gradient or a negation, and for an operation whose gradient is not known.
    """
    if not isinstance(x, torch.Tensor):
        raise UsageError(f"out is a tensor that requires a gradient and the input a {type(x).__name__}; call within torch.no_grad()")
    if dispatcher.operation.name != "softmax":
        raise UsageError(f"torch knows no gradient of {dispatcher.operation.name}; call within torch.no_grad() and outside torch.compile")
    if stream is not None:
        raise UsageError("stream= cannot be combined with a gradient or a traced tensor; use `with torch.cuda.stream(...)`")
    if out is not None and torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise UsageError("out= cannot be combined with a gradient; leave it out, or call within torch.no_grad()")
    if out is None:
        return new(x, dispatcher.number)
    if out.is_neg():
        raise UsageError("out is a negation that is still to be done; pass a tensor with memory of its own")
    into(x, out, dispatcher.number)
    return out


def _like(x: torch.Tensor, dispatcher: int = 0) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
    """The gradient of softmax: y * (g - sum(g * y)) over the last axis."""
    (y,) = ctx.saved_tensors
    weighted = gradient * y
    return weighted - y * weighted.sum(-1, keepdim=True), None


# The lower-level registration: torch.library.custom_op wraps each call in checks that cost as much as the launch. It lives as long as
# the library object does.
_library = torch.library.Library("autotune", "FRAGMENT")
_library.define("softmax(Tensor x, int dispatcher=0) -> Tensor")
_library.define("softmax_out(Tensor x, Tensor(a!) out, int dispatcher=0) -> ()")
_library.impl("softmax", _run, "CompositeExplicitAutograd")
_library.impl("softmax_out", _run_into, "CompositeExplicitAutograd")
torch.library.register_fake("autotune::softmax", _like, lib=_library)
torch.library.register_fake("autotune::softmax_out", lambda x, out, dispatcher=0: None, lib=_library)
torch.library.register_autograd("autotune::softmax", _backward, setup_context=_keep, lib=_library)
new = torch.ops.autotune.softmax.default
into = torch.ops.autotune.softmax_out.default
