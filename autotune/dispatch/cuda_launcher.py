"""Loads stored instances on a GPU and launches them."""

import ctypes
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Version
from autotune.device import PORTABLE_CLUSTER, SHARED_BYTES_WITHOUT_ASKING
from autotune.dispatch import store
from autotune.dispatch.cuda_driver import Cuda
from autotune.dispatch.cuda_launch import as_argument, fixed_launch, frame, launch_call
from autotune.dispatch.cuda_workspace import Workspaces
from autotune.dispatch.plan import Fix, Function, LaunchCall
from autotune.dispatch.store import StoredInstance
from autotune.errors import AutotuneError, KernelError
from autotune.problem import Problem

_INVALID_CONTEXT = 201
_CAPTURE_IMPLICIT = 906
_COOPERATIVE_LAUNCH_TOO_LARGE = 720


class CudaLauncher:
    """One GPU."""

    host = False

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self.cuda = cuda
        self.ordinal = ordinal
        self.device = cuda.device(ordinal)
        self.workspaces = Workspaces(cuda, ordinal)
        self.lock = threading.Lock()

    def load(self, version: Version, configuration: Configuration, dtype: str, stored: StoredInstance | None, bounds: Bounds) -> Function:
        """Load a stored cubin, or PTX that the driver compiles. Raises AutotuneError when it is missing or damaged."""
        if stored is None:
            raise AutotuneError(f"no compiled instance of it for {self.device.arch} is stored")
        code = store.binary(stored)
        with self.cuda.on(self.ordinal):
            library = self.cuda.call("cuLibraryLoadData", code + b"\0" if stored.kind == "ptx" else code, [], [], 0, [], [], 0)
            kernel = self.cuda.call("cuLibraryGetKernel", library, stored.symbol.encode())
            # The driver loads lazily, at the first launch, which may be in the midst of a graph capture: have it load now.
            self.cuda.call("cuKernelGetFunction", kernel)
        return CudaFunction(self, kernel, bounds)

    def capturing(self, stream: int) -> bool:
        """Whether `stream` is being captured, or another one in a way that forbids the legacy stream."""
        # Past the binding, as the launch itself: what it builds takes twice as long as the question, at every new size.
        status = ctypes.c_int()
        code = self.cuda.library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
        return code == _CAPTURE_IMPLICIT or (code == 0 and status.value != 0)

    def synchronize(self, stream: int) -> None:
        self.cuda.call("cuStreamSynchronize", self.cuda.module.CUstream(stream))

    def workspace(self, stream: int, size_bytes: int) -> int:
        """The address of this stream's workspace of at least `size_bytes`, zeroed when it is made."""
        return self.workspaces.address(stream, size_bytes)

    def recover(self, code: int, source: int) -> None:
        """Make the context of an array current where this thread has none. Raises KernelError for any other `code`."""
        if code != _INVALID_CONTEXT or int(self.cuda.call("cuCtxGetCurrent")):
            reason = " (its blocks must all be resident at once)" if code == _COOPERATIVE_LAUNCH_TOO_LARGE else ""
            raise KernelError(f"the launch failed with {self.cuda.said(code)}{reason}")
        with suppress(KernelError):
            attribute = self.cuda.module.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
            context = self.cuda.call("cuPointerGetAttribute", attribute, source)
            if int(context):
                self.cuda.call("cuCtxSetCurrent", context)
                return
        self.cuda.enter_primary(self.ordinal)


class CudaFunction:
    """A kernel of a loaded library."""

    def __init__(self, launcher: CudaLauncher, kernel: Any, bounds: Bounds) -> None:
        self._launcher = launcher
        self._kernel = kernel
        self._bounds = bounds
        self._handle = as_argument(int(kernel))
        self._shared_bytes = SHARED_BYTES_WITHOUT_ASKING - int(self._attribute("SHARED_SIZE_BYTES"))  # the dynamic ones that need no asking
        if bounds.cluster > PORTABLE_CLUSTER:
            self._allow("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    def bind(self, problem: Problem, launch: Launch) -> LaunchCall:
        if launch.shared_bytes > self._shared_bytes:
            with self._launcher.lock:
                if launch.shared_bytes > self._shared_bytes:
                    self._allow("MAX_DYNAMIC_SHARED_SIZE_BYTES", launch.shared_bytes)
                    self._shared_bytes = launch.shared_bytes
        launcher, threads = self._launcher, self._bounds.threads
        workspace_of = partial(launcher.workspace, size_bytes=launch.workspace_bytes) if launch.workspace_bytes else None
        call = launch_call(
            launcher.cuda.library.cuLaunchKernelEx, self._handle, lambda: frame(problem, launch, threads), workspace_of, launcher.recover
        )
        return call if launcher.cuda.device_count == 1 else _on_its_device(call, launcher)

    def fix(self, problem: Problem, launch: Launch) -> Fix | None:
        if launch.workspace_bytes or self._launcher.cuda.device_count > 1:
            return None
        return partial(fixed_launch, self._launcher.cuda.library.cuLaunchKernelEx, self._handle, problem, launch, self._bounds.threads)

    def _attribute(self, name: str) -> Any:
        attribute = getattr(self._launcher.cuda.module.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return self._launcher.cuda.call("cuKernelGetAttribute", attribute, self._kernel, self._device())

    def _allow(self, name: str, value: int) -> None:
        attribute = getattr(self._launcher.cuda.module.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        self._launcher.cuda.call("cuKernelSetAttribute", attribute, value, self._kernel, self._device())

    def _device(self) -> Any:
        return self._launcher.cuda.call("cuDeviceGet", self._launcher.ordinal)


def _on_its_device(call: LaunchCall, launcher: CudaLauncher) -> LaunchCall:
    """Where there are several GPUs, a launch first sees to it that its own is current."""
    current_device, ordinal = launcher.cuda.library.cuCtxGetDevice, launcher.ordinal

    def placed(output: int, source: int, stream: int) -> None:
        current = ctypes.c_int()
        if current_device(ctypes.byref(current)) == 0 and current.value == ordinal:
            call(output, source, stream)
            return
        with launcher.cuda.on(ordinal):
            call(output, source, stream)

    return placed
