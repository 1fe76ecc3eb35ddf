"""What the benchmarks of the dispatcher share: a run that ends in time, and what its figures were measured with."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from types import FrameType
from typing import Any

import autotune

LIBRARIES = ("numpy", "cuda-bindings", "torch", "triton", "pycuda", "cupy-cuda13x", "cupy-cuda12x", "liger_kernel")


class OutOfTime(BaseException):
    """Raised in the midst of whatever takes longer than it may. No Exception, which the libraries in between would catch."""


class Deadline:
    """`seconds` from the start of the process, so that imports count; what would come after it is left out."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds - _age_s()

    def left_s(self, reserve_s: float = 0.0) -> float:
        """The seconds that are left but for a reserve; 0 when there are none."""
        return max(0.0, self._end - reserve_s - time.monotonic())

    @contextmanager
    def within(self, reserve_s: float = 0.0) -> Iterator[None]:
        """Raises OutOfTime in the block when only the reserve is left. In the main thread alone, and between two steps of Python."""

        def ring(number: int, frame: FrameType | None) -> None:
            raise OutOfTime(f"no time is left of {self.seconds:.0f} s; give --seconds more")

        left_s = self.left_s(reserve_s)
        if not left_s:
            ring(0, None)
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, left_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def yardstick_us() -> float:
    """The least time that a fixed piece of Python takes: what the figures of two hosts, or of two moments of one, are scaled by."""
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        for number in range(10_000):
            _ = number & 7
        times.append(time.perf_counter() - begun)
    return min(times) * 1e6


def about(device: str) -> dict[str, Any]:
    """The device, the host, the versions of everything that takes part, and the date, as a result file begins."""
    versions = {"autotune": autotune.__version__, "python": python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "driver": _driver(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "yardstick_us": round(yardstick_us(), 1),
        "versions": versions,
    }


def _age_s() -> float:
    """The seconds since this process began (proc(5): field 22 of stat, in clock ticks since boot)."""
    began_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    """The model that Linux knows the processor as, "" where it does not say."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _driver() -> str:
    """The version of CUDA that the driver has, "" without one."""
    try:
        from cuda.bindings import driver

        code, number = driver.cuDriverGetVersion()
    except Exception:  # no binding, or no driver that it finds
        return ""
    return f"CUDA {number // 1000}.{number % 1000 // 10}" if int(code) == 0 else ""
