"""CUDA graphs of launches, which PyCUDA lacks: captured on a PyCUDA stream through NVIDIA's cuda-bindings."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from autotune.trial import Failure, Outcome


class Graph:
    """The launches that `enqueue` puts on `stream` (a PyCUDA stream), captured once and then launched together.

    Raises Failure(LAUNCH_ERROR) when they cannot be captured, and whatever `enqueue` raises; the stream stays usable either way.
    """

    def __init__(self, stream: Any, enqueue: Callable[[], None]) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._stream = driver.CUstream(stream.handle)
        # Relaxed: nothing else in this process uses the GPU while it captures.
        _check(driver, driver.cuStreamBeginCapture(self._stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            enqueue()
        except BaseException:
            with suppress(Exception):  # ends the capture; what it holds is of no use
                driver.cuStreamEndCapture(self._stream)
            raise
        graph = _check(driver, driver.cuStreamEndCapture(self._stream))
        try:
            self._executable = _check(driver, driver.cuGraphInstantiate(graph, 0))
        finally:
            driver.cuGraphDestroy(graph)

    def launch(self) -> None:
        """Enqueue everything captured, on the stream it was captured on."""
        _check(self._driver, self._driver.cuGraphLaunch(self._executable, self._stream))

    def destroy(self) -> None:
        """Give the graph's memory back; it cannot be launched afterwards."""
        self._driver.cuGraphExecDestroy(self._executable)


def _check(driver: Any, answer: tuple[Any, ...]) -> Any:
    """The value of a driver call of cuda-bindings, which returns (status, value…)."""
    status, *values = answer
    if int(status) != 0:
        raise Failure(Outcome.LAUNCH_ERROR, f"the CUDA driver answered {driver.CUresult(int(status)).name} to a graph of launches")
    return values[0] if values else None
