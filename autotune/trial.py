"""What is learnt by trying a configuration: its outcome, its samples, and everything a time depends on."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from autotune.configuration import Configuration

# What a stored time in microseconds may be: no launch ends within a nanosecond, and nobody has waited twelve days for one.
LEAST_TIME_US = 1e-3
MOST_TIME_US = 1e12


class Outcome(StrEnum):
    """How a trial ended. Only `ok` carries times that may be compared; `pruned` was right but clearly behind and left the race."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    PRUNED = "pruned"
    NOT_APPLICABLE = "not_applicable"

    @property
    def timed(self) -> bool:
        """Whether a trial with this outcome ran, gave the right result and has samples."""
        return self in (Outcome.OK, Outcome.PRUNED)


class Failure(Exception):  # noqa: N818 (it is a failure of a configuration, which is data, not an error of ours)
    """A configuration failed on a backend. The sweep records it and goes on."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message

    def __reduce__(self) -> tuple[type["Failure"], tuple[Outcome, str]]:
        return Failure, (self.outcome, self.message)


class ProblemFailure(Failure):
    """A problem could not be set up again after its device had to be started afresh. No configuration is at fault."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one instance takes, per thread (registers, spills, local memory) and per block (static shared memory)."""

    registers: int
    spill_bytes: int
    local_bytes: int
    static_shared_bytes: int


@dataclass(frozen=True, slots=True)
class Instance:
    """A configuration compiled for one architecture and element type.

    `binary` is a cubin for a GPU, the bytes of a shared library for the emulator, and empty for a recorded instance. Several
    instances may share one binary; `symbol` names this one's entry in it. `resources` is None where no GPU compiler was involved.
    """

    configuration: Configuration
    dtype: str
    arch: str
    symbol: str
    template_sha: str
    flags: str
    compiler: str
    binary: bytes = field(repr=False)
    resources: Resources | None


@dataclass(frozen=True, slots=True)
class Check:
    """A launch whose whole output was right: its largest relative error, and how long that one launch took in microseconds.

    The error is NaN where a recording is replayed that does not say it.
    """

    max_error: float
    first_us: float


RoundKind = Literal["screen", "race", "final"]


@dataclass(frozen=True, slots=True)
class Round:
    """The samples that one configuration gave in one round of a race: microseconds per launch, in the order taken.

    `sm_clock_mhz` is the lowest SM clock seen around the samples and `throttled` names the reasons the driver gave for holding
    clocks back ("" for none); both are None where there is no clock to read.
    """

    kind: RoundKind
    samples_us: tuple[float, ...]
    launches_per_sample: int
    sm_clock_mhz: int | None = None
    throttled: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The software that a time depends on, as version strings ("" where it does not apply)."""

    package: str
    python: str
    os: str
    driver: str = ""
    cuda: str = ""
    compiler: str = ""
    pycuda: str = ""


@dataclass(frozen=True, slots=True)
class TimingProtocol:
    """How times are taken. Times of different protocols are never compared.

    `rule` is raised by one whenever the code that takes times changes in a way that can move them.
    """

    name: Literal["cold", "warm", "cpu"]
    rule: int
    description: str
