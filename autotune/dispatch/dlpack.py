"""Reads a DLPack capsule: pointer, shape, strides, element type and device of an array, without a copy.

The layout is that of `DLTensor` (dmlc/dlpack, include/dlpack/dlpack.h). A newer one would come under another capsule name.
"""

import ctypes
from typing import Any

from autotune.dispatch.arrays import View, packed
from autotune.errors import UsageError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_DTYPES = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16"}  # (code, bits): kDLFloat is 2, kDLBfloat 4
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def dlpack_view(array: Any) -> View:
    """The view of an array that offers DLPack.

    The capsule is left unconsumed, so its own destructor returns the producer's reference; the caller holds the array meanwhile.
    """
    name = f"the {type(array).__name__}"
    device_type, device = array.__dlpack_device__()
    # 1 is the legacy default stream in DLPack's numbering: the producer makes that stream wait for its own work.
    capsule = array.__dlpack__(stream=1) if int(device_type) in (CUDA, CUDA_MANAGED) else array.__dlpack__()
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else packed(shape)
    dtype = _DTYPES.get((tensor.code, tensor.bits)) or f"{_CODES.get(tensor.code, 'unknown ')}{tensor.bits}"
    if tensor.lanes != 1:
        raise UsageError(f"{name} has elements of {tensor.lanes} lanes; softmax takes one number per element")
    host = int(device_type) not in (CUDA, CUDA_HOST, CUDA_MANAGED)
    return View(name, (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, None if host else int(device), host)
