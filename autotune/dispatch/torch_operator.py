"""The operation as torch sees it: `torch.ops.autotune.<operation>`, with a shape rule and a gradient.

Gradients, `torch.compile` and tensors that are no real ones take this way; an ordinary call does not, for torch's dispatcher costs more
than the launch.
"""

from typing import Any

import torch

from autotune.errors import UsageError


class Operator:
    """A dispatcher registered with torch, under the operation's name and `suffix`."""

    def __init__(self, dispatcher: Any, suffix: str = "") -> None:
        name = f"{dispatcher.operation.name}{suffix}"
        # Registrations live as long as the library object does.
        self._library = torch.library.Library("autotune", "FRAGMENT")
        self._library.define(f"{name}(Tensor x) -> Tensor")
        self._library.define(f"{name}_out(Tensor x, Tensor(a!) out) -> ()")

        def run(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = dispatcher(x.detach())
            return result

        def run_out(x: torch.Tensor, out: torch.Tensor) -> None:
            dispatcher(x.detach(), out.detach())

        # The lower-level registration: torch.library.custom_op wraps each call in checks that cost as much as the launch.
        self._library.impl(name, run, "CompositeExplicitAutograd")
        self._library.impl(f"{name}_out", run_out, "CompositeExplicitAutograd")
        torch.library.register_fake(f"autotune::{name}", _like, lib=self._library)
        torch.library.register_fake(f"autotune::{name}_out", lambda x, out: None, lib=self._library)
        torch.library.register_autograd(f"autotune::{name}", _backward, setup_context=_keep, lib=self._library)
        self.new = getattr(torch.ops.autotune, name).default
        self.into = getattr(torch.ops.autotune, f"{name}_out").default


_operators: dict[int, Operator] = {}


def call(dispatcher: Any, x: Any, out: Any, stream: Any) -> Any:
    """Run `dispatcher` on `x` through torch's dispatcher. Raises UsageError for a `stream`, and for `out` with a gradient."""
    if not isinstance(x, torch.Tensor):
        raise UsageError(f"out is a tensor that requires a gradient and the input a {type(x).__name__}; call within torch.no_grad()")
    registered = operator(dispatcher)
    if stream is not None:
        raise UsageError("stream= cannot be combined with a gradient or a traced tensor; use `with torch.cuda.stream(...)`")
    if out is None:
        return registered.new(x)
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise UsageError("out= cannot be combined with a gradient; leave it out, or call within torch.no_grad()")
    registered.into(x, out)
    return out


def operator(dispatcher: Any) -> Operator:
    """The operator of a dispatcher, registered when it is first asked for."""
    found = _operators.get(id(dispatcher))
    if found is None:
        suffix = f"_{len(_operators)}" if _operators else ""
        found = _operators[id(dispatcher)] = Operator(dispatcher, suffix)
    return found


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Any) -> Any:
    """The gradient of softmax: y * (g - sum(g * y)) over the last axis."""
    (y,) = ctx.saved_tensors
    weighted = gradient * y
    return weighted - y * weighted.sum(-1, keepdim=True)
