"""The run-time dispatcher: arrays in, the best kernel known for them launched, the result out.

knowledge    what the databases say         store     where compiled kernels lie
selection    which configuration, and why   plan      what is launched for a layout
arrays       every library's arrays         request   what a call asks for
calls        a call whose layout is known   plans     the plans that were made
cuda_driver  launches on a GPU              emulator  launches on this CPU
"""

from functools import lru_cache
from typing import Any

from autotune.dispatch.arrays import Call, kind_of
from autotune.dispatch.dispatcher import Dispatcher, Stats
from autotune.dispatch.explain import explain
from autotune.dispatch.selection import Candidate, Explanation
from autotune.errors import UsageError

__all__ = ["Candidate", "Dispatcher", "Explanation", "Stats", "default_dispatcher", "explain", "softmax"]


@lru_cache(maxsize=1)
def default_dispatcher() -> Dispatcher:
    """The dispatcher behind `autotune.softmax`; the databases are read when it is first asked for. Raises UsageError without a GPU."""
    return Dispatcher("softmax")


def softmax(x: Any, out: Any = None, stream: Any = None) -> Any:
    """Softmax over the last axis of a GPU array; the result has the type of `x`.

    `Dispatcher.__call__` says what is accepted and what is raised.
    """
    try:
        call = _calls[type(x)]
    except KeyError:
        call = _first_call
    return call(x, out, stream)


_calls: dict[type, Call] = {}


def _first_call(x: Any, out: Any, stream: Any) -> Any:
    try:
        dispatcher = default_dispatcher()
    except UsageError:  # which is about the GPU; what came may never have been meant for one
        view = kind_of(x).view(x)
        if view.host:
            raise UsageError(
                f'{view.name} is in memory of the CPU, and autotune.softmax runs on a GPU; use autotune.Dispatcher("softmax", '
                'device="emulator") to compute it here'
            ) from None
        raise
    call = _calls[type(x)] = dispatcher.call_for(x)
    return call(x, out, stream)


def _traced_softmax(x: Any, out: Any = None, stream: Any = None) -> Any:
    from autotune.dispatch.torch_traced import softmax

    return softmax(x, out, stream, 0)


# What torch.compile inlines in the place of `softmax`, whose body it could not trace; costs an ordinary call nothing.
softmax._torchdynamo_inline = _traced_softmax  # type: ignore[attr-defined]
