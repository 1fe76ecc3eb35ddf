"""Arrays of every library as one thing: where they lie, how large they are, and how one is made of the same type.

A library is never imported unless its arrays come in, and then only by what those arrays themselves bring: it may be installed with errors.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.element import ELEMENTS
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.dispatch.calls import SlowPath

Call = Callable[[Any, Any, Any], Any]  # (input, output or None, stream or None) to the result


class View(NamedTuple):  # which is made for a fraction of what a frozen dataclass costs, twice for every new layout
    """An array as a kernel sees it. Strides count elements; `device` is None where the array does not know its GPU.

    `host` says that it lies in memory of the CPU.
    """

    name: str
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int | None = None
    host: bool = False
    writable: bool = True


class Matrix(NamedTuple):
    """A view as rows of `cols` elements each, `stride` elements apart, `item_bytes` bytes per element."""

    rows: int
    cols: int
    stride: int
    item_bytes: int

    @property
    def extent_bytes(self) -> int:
        """From the first byte to the one after the last, gaps between rows included."""
        return ((self.rows - 1) * self.stride + self.cols) * self.item_bytes if self.rows and self.cols else 0


class HandOver(Exception):  # noqa: N818 (it is a change of hands, not an error)
    """Raised by `describe`: a gradient is wanted, or the array is no real one; the call must go through torch's own dispatcher."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """How to handle one type of array. The first five are asked at every call.

    `describe` gives a hashable that holds the whole layout, and the pointer; `view` says the same in full. `allocate` makes a packed
    array of the same shape and type, `pointer` is its address, and `stream` the library's current stream for an array of that layout.
    `allocate_on` allocates for use on a stream that is not the current one. `producer` is the stream that may still be writing an array.
    `knows_device` says that `describe` tells GPUs apart. A `synchronous` kind cannot be told on which stream an array gets ready.
    `shortcut` makes a cheaper call for the layouts that nearly every call has, from the call that takes any.
    """

    describe: Callable[[Any], tuple[Any, int]]
    allocate: Callable[[Any], Any]
    pointer: Callable[[Any], int]
    stream: Callable[[Any], int]
    view: Callable[[Any], View]
    allocate_on: Callable[[Any, int], Any] | None = None
    producer: Callable[[Any], int | None] | None = None
    knows_device: bool = True
    synchronous: bool = False
    shortcut: "Callable[[Kind, SlowPath, Call], Call] | None" = None


def matrix(view: View) -> Matrix:
    """The view as a matrix over its last axis.

    The leading axes must lie so that one stride leads from each row to the next, as in any contiguous array and in a slice of its
    columns. Raises UsageError where they do not, for a scalar, and for a last axis whose elements are apart.
    """
    if not view.shape:
        raise UsageError(f"{view.name} has no axis; the operation runs over the last axis of an array with at least one")
    *leading, cols = view.shape
    item_bytes = ELEMENTS[view.dtype].bytes
    if cols == 0 or 0 in leading:
        return Matrix(prod(leading), cols, cols, item_bytes)
    if view.strides[-1] != 1 and cols > 1:
        raise UsageError(
            f"{view.name} has strides {view.strides} in elements; its last axis must be contiguous (stride 1): make a contiguous copy first"
        )
    rows, stride = 1, cols
    for size, step in zip(reversed(leading), view.strides[-2::-1], strict=True):
        if size == 1:
            continue
        if rows == 1:
            stride = step
        elif step != rows * stride:
            raise UsageError(
                f"{view.name} has shape {view.shape} and strides {view.strides} in elements; its leading axes must follow each other at one"
                " row stride: make a contiguous copy first"
            )
        rows *= size
    if stride < cols:
        raise UsageError(
            f"{view.name} has rows of {cols} elements that start {stride} elements apart; rows must not overlap: make a contiguous copy"
            " first"
        )
    return Matrix(rows, cols, stride, item_bytes)


def kind_of(array: Any) -> Kind:
    """How to handle arrays of the type of `array`. Raises UsageError for what is no array."""
    roots = {ancestor.__module__.partition(".")[0] for ancestor in type(array).__mro__}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from autotune.dispatch import torch_tensors

        return torch_tensors.kind_of(array)
    from autotune.dispatch import array_kinds

    if "numpy" in roots and hasattr(array, "__array_interface__"):
        return array_kinds.NUMPY
    if "pycuda" in roots and hasattr(array, "gpudata"):
        return array_kinds.PYCUDA
    if "cupy" in roots:
        return array_kinds.cupy()
    if roots & {"jax", "jaxlib"}:
        return array_kinds.jax()
    if "numba" in roots:
        return array_kinds.numba()
    if hasattr(array, "__cuda_array_interface__"):
        return array_kinds.INTERFACE
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return array_kinds.DLPACK
    raise UsageError(
        f"what came is {_article(type(array).__name__)}; accepted are PyCUDA, torch, CuPy, Numba and JAX arrays and anything with"
        " __cuda_array_interface__ or DLPack; a dispatcher with device='emulator' takes NumPy arrays"
    )


def telling_gpus_apart(kind: Kind, ordinal_of: Callable[[int], int | None]) -> Kind:
    """A kind for machines with several GPUs, whose layouts include the GPU that a pointer belongs to."""
    describe = kind.describe

    def placed(array: Any) -> tuple[Any, int]:
        layout, pointer = describe(array)
        return (*layout, ordinal_of(pointer)), pointer

    return replace(kind, describe=placed)


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream: an int, or an object of PyCUDA, torch, CuPy, Numba or cuda-python, or with `__cuda_stream__`.

    Raises UsageError for anything else.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "handle", "ptr"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise UsageError(
            f"stream is {_article(type(stream).__name__)}; pass a PyCUDA, torch, CuPy or Numba stream, an object with __cuda_stream__, or"
            " the driver's handle as an int"
        ) from None


def alignment(pointer: int) -> int:
    """The largest power of two, at most 16, that divides `pointer`."""
    return min(pointer & -pointer, 16) if pointer else 16


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array without gaps.

    >>> packed((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
