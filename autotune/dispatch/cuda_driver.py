"""The CUDA driver through NVIDIA's cuda-bindings: contexts, devices, errors. The only module of the dispatcher that imports it.

Instances are loaded as libraries of the driver (CUDA 12.0), whose kernels are launched in whatever context is current: one that torch,
CuPy or PyCUDA made, or the primary one when there is none.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from autotune.device import Device
from autotune.errors import KernelError, UsageError, installing


def driver() -> Any:
    """cuda-bindings' driver module, initialised. Raises UsageError when it is not installed or there is no GPU."""
    try:
        from cuda.bindings import driver as module
    except ImportError as error:
        raise UsageError(f"cuda-bindings is not installed ({error}); {installing('run')}, or use device='emulator' without a GPU") from None
    try:
        code = int(module.cuInit(0)[0])
    except Exception as error:
        raise UsageError(f"there is no CUDA driver on this machine ({error}); use device='emulator'") from None
    if code:
        raise UsageError(f"the CUDA driver does not start ({_said(module, code)}); use device='emulator' on a machine without a GPU")
    return module


def _said(module: Any, code: int) -> str:
    with suppress(Exception):
        _, name = module.cuGetErrorName(module.CUresult(code))
        _, text = module.cuGetErrorString(module.CUresult(code))
        return f"{name.decode()}: {text.decode()}"
    return f"error {code}"


class Cuda:
    """The driver's calls as methods that raise instead of returning a code."""

    def __init__(self) -> None:
        self.module = driver()
        # The calls of the hot path go to the driver directly: half the host time of the binding, which builds an enum and a tuple.
        self.library = ctypes.CDLL("libcuda.so.1")
        self._primaries: dict[int, Any] = {}
        self.device_count = int(self.call("cuDeviceGetCount"))

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of a driver call. Raises KernelError with the driver's name for the error and what it means."""
        code, *results = getattr(self.module, name)(*arguments)
        if int(code):
            raise KernelError(f"{name} failed with {_said(self.module, int(code))}")
        return results[0] if len(results) == 1 else results

    def said(self, code: int) -> str:
        return _said(self.module, code)

    def ordinal(self) -> int:
        """The device of the current context, after making device 0's primary context current where there is none."""
        if not int(self.call("cuCtxGetCurrent")):
            self.enter_primary(0)
        return int(self.call("cuCtxGetDevice"))

    def enter_primary(self, ordinal: int) -> None:
        """Make the primary context of a device current in this thread."""
        self.call("cuCtxSetCurrent", self.primary(ordinal))

    def primary(self, ordinal: int) -> Any:
        """The primary context of a device, retained for as long as the process lives."""
        if ordinal not in self._primaries:
            self._primaries[ordinal] = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", ordinal))
        return self._primaries[ordinal]

    @contextmanager
    def on(self, ordinal: int) -> Iterator[None]:
        """A context of device `ordinal` is current in the block: the one that is current if it is of that device, else its primary one."""
        if self.ordinal() == ordinal:
            yield
            return
        self.call("cuCtxPushCurrent", self.primary(ordinal))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    def ordinal_of(self, pointer: int) -> int | None:
        """The device that a pointer's memory is on; None when the driver does not know it."""
        attribute = self.module.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        try:
            return int(self.call("cuPointerGetAttribute", attribute, pointer))
        except KernelError:
            return None

    def follow(self, stream: int, producer: int) -> None:
        """Make `stream` wait for the work that `producer` has been given so far."""
        event = self.call("cuEventCreate", self.module.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
        self.call("cuEventRecord", event, self.module.CUstream(producer))
        self.call("cuStreamWaitEvent", self.module.CUstream(stream), event, 0)
        self.call("cuEventDestroy", event)

    def device(self, ordinal: int) -> Device:
        """The hardware of device `ordinal`."""
        handle = self.call("cuDeviceGet", ordinal)
        attribute = self.module.CUdevice_attribute

        def number(name: str) -> int:
            return int(self.call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

        return Device(
            name=self.call("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
            compute_capability=(number("COMPUTE_CAPABILITY_MAJOR"), number("COMPUTE_CAPABILITY_MINOR")),
            sm_count=number("MULTIPROCESSOR_COUNT"),
            l2_bytes=number("L2_CACHE_SIZE"),
            bus_bits=number("GLOBAL_MEMORY_BUS_WIDTH"),
            shared_bytes_per_block=number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_bytes_per_sm=number("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            registers_per_sm=number("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            threads_per_sm=number("MAX_THREADS_PER_MULTIPROCESSOR"),
            threads_per_block=number("MAX_THREADS_PER_BLOCK"),
        )
