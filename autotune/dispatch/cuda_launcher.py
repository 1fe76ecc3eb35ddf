"""Loads stored instances on a GPU and launches them."""

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Version
from autotune.dispatch import store
from autotune.dispatch.cuda_driver import Cuda
from autotune.dispatch.plan import Function, LaunchCall
from autotune.dispatch.store import StoredInstance
from autotune.errors import AutotuneError, KernelError
from autotune.problem import Problem

# Words of 8 bytes in a frame: CUlaunchConfig (cuda.h), the seven arguments of every kernel, the pointers to them, two attributes.
_STREAM, _ARGUMENTS, _POINTERS, _ATTRIBUTES, _WORDS = 4, 7, 14, 21, 39
_OUTPUT, _INPUT, _WORKSPACE = _ARGUMENTS, _ARGUMENTS + 1, _ARGUMENTS + 6
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_ATTRIBUTE_WORDS = 9  # sizeof(CUlaunchAttribute) is 72
_INVALID_CONTEXT = 201
_CAPTURE_IMPLICIT = 906
_COOPERATIVE_LAUNCH_TOO_LARGE = 720
_PORTABLE_CLUSTER = 8  # more blocks per cluster than every GPU with clusters has; CUDA C++ Programming Guide, "Thread Block Clusters"
_DEFAULT_SHARED_BYTES = 48 << 10
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD; 0 and 1 are the legacy stream

Frame = tuple[Any, ctypes.c_void_p, ctypes.c_void_p]


class CudaLauncher:
    """One GPU."""

    host = False

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self.cuda = cuda
        self.ordinal = ordinal
        self.device = cuda.device(ordinal)
        self._workspaces: dict[object, tuple[int, int]] = {}
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
        code, *status = self.cuda.module.cuStreamIsCapturing(self.cuda.module.CUstream(stream))
        return int(code) == _CAPTURE_IMPLICIT or (int(code) == 0 and int(status[0]) != 0)

    def synchronize(self, stream: int) -> None:
        self.cuda.call("cuStreamSynchronize", self.cuda.module.CUstream(stream))

    def workspace(self, stream: int, size_bytes: int) -> int:
        """The address of this stream's workspace of at least `size_bytes`, zeroed when it is made.

        Raises KernelError when it would have to be made while the stream is being captured.
        """
        # The default streams have one handle in all contexts, and the per-thread one in all threads too.
        key = stream if stream > _PER_THREAD_STREAM else (stream, threading.get_ident(), int(self.cuda.call("cuCtxGetCurrent")))
        address, present_bytes = self._workspaces.get(key, (0, 0))
        if present_bytes >= size_bytes:
            return address
        with self.lock:
            address, present_bytes = self._workspaces.get(key, (0, 0))
            if present_bytes >= size_bytes:
                return address
            if self.capturing(stream):
                raise KernelError("no workspace was made for the stream being captured; call warm(shapes, stream=…) before the capture")
            with self.cuda.on(self.ordinal):
                made = int(self.cuda.call("cuMemAlloc", size_bytes))
                handle = self.cuda.module.CUstream(stream)
                self.cuda.call("cuMemsetD8Async", self.cuda.module.CUdeviceptr(made), 0, size_bytes, handle)
            # The smaller one is not freed: a captured graph may still refer to it.
            self._workspaces[key] = (made, size_bytes)
            return made

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
        self._handle = ctypes.c_void_p(int(kernel))
        self._shared_bytes = _DEFAULT_SHARED_BYTES - int(self._attribute("SHARED_SIZE_BYTES"))  # the dynamic ones that need no asking
        if bounds.cluster > _PORTABLE_CLUSTER:
            self._allow("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    def bind(self, problem: Problem, launch: Launch) -> LaunchCall:
        with self._launcher.lock:
            if launch.shared_bytes > self._shared_bytes:
                self._allow("MAX_DYNAMIC_SHARED_SIZE_BYTES", launch.shared_bytes)
                self._shared_bytes = launch.shared_bytes
        call = _launch_call(self._launcher, self._handle, lambda: _frame(problem, launch, self._bounds.threads), launch.workspace_bytes)
        return call if self._launcher.cuda.device_count == 1 else _on_its_device(call, self._launcher)

    def _attribute(self, name: str) -> Any:
        attribute = getattr(self._launcher.cuda.module.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return self._launcher.cuda.call("cuKernelGetAttribute", attribute, self._kernel, self._device())

    def _allow(self, name: str, value: int) -> None:
        attribute = getattr(self._launcher.cuda.module.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        self._launcher.cuda.call("cuKernelSetAttribute", attribute, value, self._kernel, self._device())

    def _device(self) -> Any:
        return self._launcher.cuda.call("cuDeviceGet", self._launcher.ordinal)


def _frame(problem: Problem, launch: Launch, threads: int) -> Frame:
    """A launch's configuration, arguments and the pointers between them in one piece of memory, with the addresses of its two ends."""
    words = (ctypes.c_uint64 * _WORDS)()
    base = ctypes.addressof(words)
    words[0], words[1], words[2], words[3] = launch.blocks | 1 << 32, 1 | threads << 32, 1 | 1 << 32, launch.shared_bytes
    if launch.cooperative:
        words[5], words[6] = base + 8 * _ATTRIBUTES, 1
        words[_ATTRIBUTES], words[_ATTRIBUTES + 1] = _COOPERATIVE, 1
    words[_ARGUMENTS + 2], words[_ARGUMENTS + 3] = problem.rows, problem.cols
    words[_ARGUMENTS + 4], words[_ARGUMENTS + 5] = problem.output_stride, problem.input_stride
    for place in range(7):
        words[_POINTERS + place] = base + 8 * (_ARGUMENTS + place)
    # A memoryview is set faster than the array, which it keeps alive.
    return memoryview(words).cast("B").cast("Q"), ctypes.c_void_p(base), ctypes.c_void_p(base + 8 * _POINTERS)


def _launch_call(launcher: CudaLauncher, function: ctypes.c_void_p, new_frame: Callable[[], Frame], workspace_bytes: int) -> LaunchCall:
    """The hot call. A frame is taken from a pool for its duration: list.pop is atomic, so threads never write the same one."""
    frames = [new_frame()]
    launch_kernel, take, give = launcher.cuda.launch_kernel, frames.pop, frames.append

    def call(output: int, source: int, stream: int) -> None:
        try:
            frame = take()
        except IndexError:
            frame = new_frame()
        words, configuration, arguments = frame
        words[_STREAM] = stream
        words[_OUTPUT] = output
        words[_INPUT] = source
        if workspace_bytes:
            words[_WORKSPACE] = launcher.workspace(stream, workspace_bytes)
        code = launch_kernel(configuration, function, arguments, None)
        if code:
            launcher.recover(code, source)
            code = launch_kernel(configuration, function, arguments, None)
            if code:
                launcher.recover(code, source)
        give(frame)

    return call


def _on_its_device(call: LaunchCall, launcher: CudaLauncher) -> LaunchCall:
    """Where there are several GPUs, a launch first sees to it that its own is current."""

    def placed(output: int, source: int, stream: int) -> None:
        with launcher.cuda.on(launcher.ordinal):
            call(output, source, stream)

    return placed
