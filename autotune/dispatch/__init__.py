"""The run-time dispatcher: arrays in, the best kernel known for them launched, the result out.

knowledge   what the databases say        store      where compiled kernels lie
selection   which configuration, and why  plan       what is launched for a layout
arrays      every library's arrays        dispatcher the path of a call
cuda_driver launches on a GPU             emulator   launches on this CPU
"""

from functools import lru_cache
from typing import Any

from autotune.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher", "softmax"]


@lru_cache(maxsize=1)
def _default() -> Dispatcher:
    return Dispatcher("softmax")


def softmax(x: Any, out: Any = None, stream: Any = None) -> Any:
    """Softmax over the last axis of a GPU array; the result has the type of `x` (`Dispatcher.__call__` says what is accepted).

    The databases are read at the first call. Raises UsageError for an array that cannot be taken as it is, or without a GPU.
    """
    return _default()(x, out, stream)
