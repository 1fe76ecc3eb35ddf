"""What torch.compile sees of a call. Imported by the trace alone, so that the operator exists before it is asked for."""

from typing import Any

from autotune.dispatch.torch_operator import into, new


def softmax(x: Any, out: Any, stream: Any, dispatcher: int) -> Any:
    """The call as torch's operator, under the number of a dispatcher."""
    if stream is not None:
        raise TypeError("stream= cannot be compiled; use `with torch.cuda.stream(...)`")
    if out is None:
        return new(x, dispatcher)
    into(x, out, dispatcher)
    return out
