"""The kinds of array other than torch's: NumPy, PyCUDA, CuPy, Numba, JAX, and any with a CUDA array interface or DLPack."""

import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, NoReturn

from autotune.dispatch.arrays import Kind, View, packed
from autotune.dispatch.dlpack import dlpack_view
from autotune.errors import UsageError

LEGACY_STREAM = 0


def _legacy(layout: Any) -> int:
    return LEGACY_STREAM


def _elements(strides: tuple[int, ...], item_bytes: int, name: str) -> tuple[int, ...]:
    counted = tuple([stride // item_bytes for stride in strides])
    if strides != tuple([stride * item_bytes for stride in counted]):
        raise UsageError(f"{name} has strides {strides} in bytes, which are no multiples of its {item_bytes}-byte elements")
    return counted


# NumPy: arrays for the emulator. A GPU's dispatcher refuses them by the view's `host`.
def _numpy_pointer(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _numpy_describe(array: Any) -> tuple[Hashable, int]:
    return (array.shape, array.strides, array.dtype, array.flags.writeable), _numpy_pointer(array)


def _numpy_view(array: Any) -> View:
    return View(
        "the NumPy array",
        _numpy_pointer(array),
        array.shape,
        _elements(array.strides, array.itemsize, "the NumPy array"),
        _dtype_name(array.dtype),
        host=True,
        writable=array.flags.writeable,
    )


def _numpy_allocate(array: Any) -> Any:
    import numpy as np

    # NumPy aligns small arrays to 16 bytes, which is all that an access can need.
    return np.empty(array.shape, array.dtype)


NUMPY = Kind(_numpy_describe, _numpy_allocate, _numpy_pointer, _legacy, _numpy_view)


# PyCUDA
def _pycuda_pointer(array: Any) -> int:
    return int(array.gpudata or 0)  # an empty GPUArray has no memory at all


def _pycuda_describe(array: Any) -> tuple[Hashable, int]:
    return (array.shape, array.strides, array.dtype), int(array.gpudata or 0)


def _pycuda_view(array: Any) -> View:
    strides = _elements(array.strides, array.dtype.itemsize, "the GPUArray")
    return View("the GPUArray", int(array.gpudata or 0), array.shape, strides, _dtype_name(array.dtype))


def _pycuda_allocate(array: Any) -> Any:
    return type(array)(array.shape, array.dtype, allocator=array.allocator)


PYCUDA = Kind(_pycuda_describe, _pycuda_allocate, _pycuda_pointer, _legacy, _pycuda_view, knows_device=False)


# CuPy
def _cupy_pointer(array: Any) -> int:
    return int(array.data.ptr)


def _cupy_describe(array: Any) -> tuple[Hashable, int]:
    data = array.data
    return (array.shape, array.strides, array.dtype, data.device_id), data.ptr


def _cupy_view(array: Any) -> View:
    strides = _elements(array.strides, array.itemsize, "the CuPy array")
    return View("the CuPy array", array.data.ptr, array.shape, strides, _dtype_name(array.dtype), device=array.data.device_id)


def cupy() -> Kind:
    """CuPy's kind; its arrays are allocated from its pool and run on its current stream."""
    import cupy

    current, empty = cupy.cuda.get_current_stream, cupy.empty

    def stream(layout: Any) -> int:
        handle: int = current().ptr
        return handle

    def allocate(array: Any) -> Any:
        return empty(array.shape, array.dtype)

    def allocate_on(array: Any, handle: int) -> Any:
        with cupy.cuda.ExternalStream(handle):
            return empty(array.shape, array.dtype)

    return Kind(_cupy_describe, allocate, _cupy_pointer, stream, _cupy_view, allocate_on)


# The CUDA array interface, version 3
def _interface_pointer(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0] or 0)


def _interface_describe(array: Any) -> tuple[Hashable, int]:
    interface = array.__cuda_array_interface__
    pointer, read_only = interface["data"]
    return (interface["shape"], interface.get("strides"), interface["typestr"], read_only, interface.get("stream")), int(pointer or 0)


def _interface_view(array: Any) -> View:
    import numpy as np

    name = f"the {type(array).__name__}"
    interface = array.__cuda_array_interface__
    pointer, read_only = interface["data"]
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    return View(
        name,
        int(pointer or 0),
        shape,
        packed(shape) if strides is None else _elements(tuple(strides), dtype.itemsize, name),
        _dtype_name(dtype),
        writable=not read_only,
    )


def _interface_stream(layout: Any) -> int:
    # Work that is still being done on the array is on this stream, so ours comes after it there.
    return int(layout[4] or LEGACY_STREAM)


def _interface_producer(layout: Any) -> int | None:
    producer: int | None = layout[4]
    return producer


def _interface(allocate: Callable[[Any], Any]) -> Kind:
    return Kind(
        _interface_describe,
        allocate,
        _interface_pointer,
        _interface_stream,
        _interface_view,
        producer=_interface_producer,
        knows_device=False,
    )


def _no_allocation(array: Any) -> NoReturn:
    raise UsageError(f"no {type(array).__name__} can be made for the result; pass one as out=")


INTERFACE = _interface(_no_allocation)


def numba() -> Kind:
    """Numba's kind: its device arrays carry the interface, and `device_array_like` makes another."""

    def allocate(array: Any) -> Any:
        return sys.modules["numba"].cuda.device_array(array.shape, array.dtype)

    return _interface(allocate)


# DLPack
def _dlpack_describe(array: Any) -> tuple[Hashable, int]:
    view = dlpack_view(array)
    return (view.shape, view.strides, view.dtype, view.device, view.host), view.pointer


def _dlpack_pointer(array: Any) -> int:
    return dlpack_view(array).pointer


DLPACK = Kind(_dlpack_describe, _no_allocation, _dlpack_pointer, _legacy, dlpack_view)


def jax() -> Kind:
    """JAX's kind. Its arrays are ready when JAX says so and on no stream of ours, so a call waits before and after the launch."""
    numpy_of_jax = sys.modules["jax"].numpy

    def describe(array: Any) -> tuple[Hashable, int]:
        array.block_until_ready()
        return _dlpack_describe(array)

    def allocate(array: Any) -> Any:
        return numpy_of_jax.empty_like(array).block_until_ready()

    return Kind(describe, allocate, _dlpack_pointer, _legacy, dlpack_view, synchronous=True)


@lru_cache(maxsize=256)
def _dtype_name(dtype: Any) -> str:
    return str(dtype.name) if dtype.isnative else f"{dtype.name} of foreign byte order"
