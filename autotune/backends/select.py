"""From the word that a user gives for a device to the backend that reaches it."""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune import arguments
from autotune.backends import Backend
from autotune.catalogue import shipped
from autotune.definition import MOST
from autotune.errors import UsageError, shown
from autotune.guard import ALLOWED_S

DEVICES = "use auto, cuda, cuda:I, emulator or recorded[:PATH[#DEVICE]]"
MOST_HANG_TIMEOUT_S = 1e6  # eleven days; a wait is counted in 32 bits of milliseconds


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend, and one sentence on why it was chosen where the user did not choose it ("" otherwise)."""

    backend: Backend
    why: str = ""


def select(
    word: str, *, protocol: Literal["cold", "warm"] | None = None, hang_timeout_s: float = ALLOWED_S, jobs: int | None = None
) -> Chosen:
    """The backend for `auto`, `cuda`, `cuda:I`, `emulator`, `recorded`, `recorded:PATH` or `recorded:PATH#DEVICE`.

    `auto` is the first CUDA GPU, and the shipped recordings where there is none. Without a `protocol` a GPU is timed cold, and of a
    recording is taken what it has, cold first; the emulator, which times a CPU, has none to choose. Raises UsageError for any
    other word, and when what the device needs is missing, and for limits that make no sense.
    """
    if not 0 < arguments.number("hang_timeout_s", hang_timeout_s) <= MOST_HANG_TIMEOUT_S:
        raise UsageError(f"a hang timeout of {hang_timeout_s} s is none; give seconds above 0 and up to {MOST_HANG_TIMEOUT_S:g}")
    if jobs is not None and arguments.whole("jobs", jobs, -MOST, MOST) < 1:
        raise UsageError(f"{jobs} compilers at once build nothing; give 1 or more, or None for one per core")
    arguments.one_of("protocol", protocol, ("cold", "warm", None))
    kind, _, rest = arguments.text("device", word, DEVICES).partition(":")
    if kind == "auto" and not rest:
        if gpu_count():
            return Chosen(_cuda(0, protocol or "cold", hang_timeout_s, jobs))
        return Chosen(_recorded("", protocol), "no CUDA GPU was found, so recorded measurements are replayed")
    if kind == "cuda" and re.fullmatch("[0-9]{,9}", rest):
        return Chosen(_cuda(int(rest or 0), protocol or "cold", hang_timeout_s, jobs))
    if kind == "emulator" and not rest:
        if protocol:
            raise UsageError(f"protocol {protocol!r} is one of a GPU, and the emulator takes CPU times; leave the protocol out")
        from autotune.backends.emulator import EmulatorBackend

        return Chosen(EmulatorBackend(hang_timeout_s=hang_timeout_s, jobs=jobs))
    if kind == "recorded":
        return Chosen(_recorded(rest, protocol))
    raise UsageError(f"device {shown(word)} is not known; {DEVICES}")


def gpu_count() -> int:
    """How many CUDA GPUs the driver sees; 0 without a driver. Makes no context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def _cuda(ordinal: int, protocol: Literal["cold", "warm"], hang_timeout_s: float, jobs: int | None) -> Backend:
    from autotune.backends.cuda import CudaBackend

    count = gpu_count()
    if ordinal >= count:
        raise UsageError(
            f"device cuda:{ordinal} does not exist, the CUDA driver sees {count or 'no'} GPUs; use --device emulator or recorded"
        )
    return CudaBackend(ordinal, protocol=protocol, hang_timeout_s=hang_timeout_s, jobs=jobs)


def _recorded(rest: str, protocol: str | None) -> Backend:
    from autotune.backends.recorded import RecordedBackend

    path, _, device = rest.partition("#")
    if path:
        if not Path(path).exists():
            raise UsageError(
                f"the recording {path} does not exist; give the path of a database that autotune sweep or export made, as in --device "
                "recorded:first.sqlite, or --device recorded for the measurements that come with the package"
            )
        return RecordedBackend(Path(path), device=device or None, protocol=protocol)
    databases = sorted(shipped("results").glob("*.sqlite"))
    if not databases:
        raise UsageError("no recorded measurements are installed; name a database with --device recorded:PATH, or use --device emulator")
    return RecordedBackend(databases[0], device=device or None, protocol=protocol)
