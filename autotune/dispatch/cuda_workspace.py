"""Memory that some kernels need besides input and output: one piece per stream, so that launches which may overlap never share one."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.dispatch.cuda_driver import Cuda

_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD; 0 and 1 are the legacy stream
_CAPTURE_ACTIVE, _CAPTURE_IMPLICIT = 1, 906  # CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Workspaces:
    """The workspaces of one GPU. They live as long as the process: a captured graph may refer to them after all else forgot them."""

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self._cuda = cuda
        self._ordinal = ordinal
        self._made: dict[object, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def address(self, stream: int, size_bytes: int) -> int:
        """The workspace of at least `size_bytes` for a launch on `stream`, zeroed when it is made.

        Each capture gets one of its own: its graph may be replayed beside other work of the stream and beside graphs captured there.
        """
        # The default streams have one handle in all contexts, and the per-thread one in all threads too.
        place: object = stream
        if stream <= _PER_THREAD_STREAM:
            place = (stream, threading.get_ident(), int(self._cuda.call("cuCtxGetCurrent")))
        key = (place, self._capture(stream))
        address, present_bytes = self._made.get(key, (0, 0))
        return address if present_bytes >= size_bytes else self._make(key, size_bytes)

    def _capture(self, stream: int) -> int:
        """A number that no other capture has; 0 where `stream` is not being captured."""
        status, number = ctypes.c_int(), ctypes.c_uint64()
        handle = ctypes.c_void_p(stream)
        code = self._cuda.library.cuStreamGetCaptureInfo_v2(handle, ctypes.byref(status), ctypes.byref(number), None, None, None)
        return number.value if code == 0 and status.value == _CAPTURE_ACTIVE else 0

    def _make(self, key: object, size_bytes: int) -> int:
        with self._lock, self._cuda.on(self._ordinal), self._in_spite_of_captures():
            address, present_bytes = self._made.get(key, (0, 0))
            if present_bytes < size_bytes:
                address = int(self._cuda.call("cuMemAlloc", size_bytes))
                self._zero(address, size_bytes)
                # The smaller one is not freed: a captured graph may still refer to it.
                self._made[key] = (address, size_bytes)
            return address

    def _zero(self, address: int, size_bytes: int) -> None:
        # On a stream of its own: on one that is captured it would become part of the graph.
        flag = self._cuda.module.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        stream = self._cuda.call("cuStreamCreate", flag)
        self._cuda.call("cuMemsetD8Async", self._cuda.module.CUdeviceptr(address), 0, size_bytes, stream)
        self._cuda.call("cuStreamSynchronize", stream)
        self._cuda.call("cuStreamDestroy", stream)

    @contextmanager
    def _in_spite_of_captures(self) -> Iterator[None]:
        """Allows this thread what a capture forbids lest it should be part of it; CUDA driver API, cuThreadExchangeStreamCaptureMode."""
        mode = ctypes.c_int(_RELAXED)
        exchange = self._cuda.library.cuThreadExchangeStreamCaptureMode
        exchange(ctypes.byref(mode))
        try:
            yield
        finally:
            exchange(ctypes.byref(mode))
