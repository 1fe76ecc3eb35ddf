"""Instances loaded into the current context, and launched: through PyCUDA, or through cuda-bindings where PyCUDA cannot."""

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from autotune.definition import Bounds, Launch
from autotune.device import PORTABLE_CLUSTER, SHARED_BYTES_WITHOUT_ASKING
from autotune.errors import UsageError, installing
from autotune.trial import Failure, Instance, Outcome

ARGUMENTS = struct.Struct("PPqqqqP")  # the one interface of all kernels, see `autotune.operation.Operation`
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # of CUfunction_attribute; PyCUDA passes the number on and has no name for it

INSTALL = f"install it with: {installing('cuda')}"


def pycuda_driver() -> Any:
    """The module pycuda.driver. Raises UsageError, saying how to install it, where it cannot be imported."""
    try:
        import pycuda.driver
    except ImportError as error:
        if error.name and error.name.split(".")[0] == "pycuda":
            raise UsageError(f"the CUDA backend needs PyCUDA, which is not installed; {INSTALL}") from None
        raise UsageError(
            f"PyCUDA cannot be imported ({error}); it needs NVIDIA's driver, and libraries of the CUDA it was built with"
        ) from None
    try:
        import cuda.bindings.driver  # noqa: F401 (asked for here, where its absence can still be said in one sentence)
    except ImportError:
        raise UsageError(f"the CUDA backend needs cuda-bindings, which is not installed; {INSTALL}") from None
    return pycuda.driver


@contextmanager
def failures(driver: Any) -> Iterator[None]:
    """Turns PyCUDA's exceptions into failures of the configuration that was being tried."""
    try:
        yield
    except driver.MemoryError as error:
        raise Failure(Outcome.OUT_OF_MEMORY, _sentence(error)) from error
    except driver.Error as error:
        raise Failure(Outcome.LAUNCH_ERROR, _sentence(error)) from error


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class Kernel(Protocol):
    """An instance that is ready to be launched on one problem."""

    def launch(self, stream: Any, arguments: bytes) -> None:
        """Enqueue one launch on a PyCUDA stream. `arguments` is what ARGUMENTS packs."""


class Loader:
    """Loads instances into the current context and keeps their modules. A cubin that several instances share is loaded once."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._modules: dict[tuple[bytes, bool], Any] = {}

    def kernel(self, instance: Instance, launch: Launch, bounds: Bounds) -> Kernel:
        """`instance`, compiled for `bounds`, to be launched with the geometry `launch`. Raises Failure."""
        module = self._module(instance.binary, cooperative=launch.cooperative)
        if launch.cooperative:
            return CooperativeKernel(module, instance.symbol, launch, bounds.threads)
        return PyCudaKernel(self._driver, module, instance.symbol, launch, bounds)

    def function(self, binary: bytes, symbol: str) -> Any:
        """The PyCUDA function called `symbol` in `binary`."""
        return self._module(binary, cooperative=False).get_function(symbol)

    def _module(self, binary: bytes, *, cooperative: bool) -> Any:
        key = (binary, cooperative)
        if key not in self._modules:
            self._modules[key] = _load(binary) if cooperative else self._driver.module_from_buffer(binary)
        return self._modules[key]


class PyCudaKernel:
    """An instance launched by PyCUDA."""

    def __init__(self, driver: Any, module: Any, symbol: str, launch: Launch, bounds: Bounds) -> None:
        self._function = module.get_function(symbol)
        attribute = driver.function_attribute
        if bounds.cluster > PORTABLE_CLUSTER:
            self._function.set_attribute(attribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 1)
        static_bytes = self._function.get_attribute(attribute.SHARED_SIZE_BYTES)
        if static_bytes + launch.shared_bytes > SHARED_BYTES_WITHOUT_ASKING:
            self._function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
        self._grid, self._block, self._shared_bytes = (launch.blocks, 1, 1), (bounds.threads, 1, 1), launch.shared_bytes

    def launch(self, stream: Any, arguments: bytes) -> None:
        # What Function.__call__ and prepared_async_call end in, without their deprecated driver call before every launch.
        self._function._launch_kernel(self._grid, self._block, arguments, self._shared_bytes, stream)


class CooperativeKernel:
    """An instance whose blocks wait for one another, launched so that the driver refuses what cannot be resident at once."""

    def __init__(self, module: Any, symbol: str, launch: Launch, threads: int) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._function = _value(driver.cuModuleGetFunction(module, symbol.encode()))
        if launch.shared_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _value(driver.cuFuncSetAttribute(self._function, attribute, launch.shared_bytes))
        cooperative = driver.CUlaunchAttribute()
        cooperative.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        cooperative.value.cooperative = 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = launch.shared_bytes
        config.attrs, config.numAttrs = [cooperative], 1
        self._config = config

    def launch(self, stream: Any, arguments: bytes) -> None:
        values = (ctypes.c_uint64 * (len(arguments) // 8)).from_buffer_copy(arguments)
        first = ctypes.addressof(values)
        addresses = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        self._config.hStream = self._driver.CUstream(stream.handle)
        _value(self._driver.cuLaunchKernelEx(self._config, self._function, ctypes.addressof(addresses), 0))


def _load(binary: bytes) -> Any:
    from cuda.bindings import driver

    return _value(driver.cuModuleLoadData(binary))


def _value(answer: tuple[Any, ...]) -> Any:
    """The value of a call of cuda-bindings, which returns (status, value…). Raises Failure(LAUNCH_ERROR) for any status but success."""
    from cuda.bindings import driver

    status, *values = answer
    if int(status) != 0:
        raise Failure(Outcome.LAUNCH_ERROR, f"the CUDA driver answered {driver.CUresult(int(status)).name}")
    return values[0] if values else None
