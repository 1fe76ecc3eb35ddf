"""The GPU's clocks through NVML: whether they are up, how low they fell around a sample, and what held them back.

Everything is None where NVML or its Python package is missing: a time without its clock is still a time.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

# Bits of nvmlClocksEventReasons (nvml.h). Idle clocks and clocks that someone set on purpose are no throttling.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
CHEAP_S = 300e-6  # a clock is read around every sample when reading it takes no longer than this, else around every round


class Clocks:
    """The clocks of one GPU, found by its PCI bus id, since NVML and CUDA may number GPUs differently."""

    def __init__(self, pci_bus_id: str) -> None:
        self._nvml: ModuleType | None = None
        self._handle: Any = None
        self.why_not = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
            self._nvml = pynvml
        except ImportError:
            self.why_not = "the package nvidia-ml-py is not installed"
        except Exception as error:
            self.why_not = f"NVML said: {error}"
        started = time.perf_counter()
        self.sm_mhz()
        self.cheap = time.perf_counter() - started < CHEAP_S

    def sm_mhz(self) -> int | None:
        """The SM clock now, in MHz."""
        return self._read("nvmlDeviceGetClockInfo", 1)  # NVML_CLOCK_SM

    def highest_sm_mhz(self) -> int | None:
        """The highest SM clock that the GPU can have, in MHz."""
        return self._read("nvmlDeviceGetMaxClockInfo", 1)

    def throttled(self) -> str | None:
        """The reasons for which the driver holds clocks back now, comma-separated; "" for none."""
        bits = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")  # its name before driver 535
        return None if bits is None else reasons(bits)

    def driver(self) -> str:
        """The driver's version, such as "580.159.04"; "" when unknown."""
        if self._nvml is None:
            return ""
        with suppress(Exception):
            version = self._nvml.nvmlSystemGetDriverVersion()
            return version.decode() if isinstance(version, bytes) else str(version)
        return ""

    def warm_up(self, work: Callable[[], None], *, at_most_s: float = 0.2, share: float = 0.9) -> None:
        """Run `work`, which must wait for the GPU, until the SM clock is at `share` of its highest or `at_most_s` have passed."""
        highest = self.highest_sm_mhz()
        end = time.perf_counter() + at_most_s
        while time.perf_counter() < end:
            work()
            now = self.sm_mhz()
            if highest and now and now >= share * highest:
                return

    def _read(self, function: str, *arguments: int) -> int | None:
        if self._nvml is None:
            return None
        try:
            return int(getattr(self._nvml, function)(self._handle, *arguments))
        except Exception:  # not supported on this GPU, or not by this version of the package
            return None


def reasons(bits: int) -> str:
    """The names of the throttle reasons in `bits`.

    >>> reasons(0x24), reasons(0x1)
    ('power cap, software thermal slowdown', '')
    """
    return ", ".join(name for bit, name in REASONS.items() if bits & bit)


def lowest(*clocks: int | None) -> int | None:
    """The lowest of the clocks that could be read; None when none could."""
    return min((clock for clock in clocks if clock is not None), default=None)
