"""How to reach a device: one protocol, three backends (`cuda`, `emulator`, `recorded`).

The sweep knows only what is declared here, so a fake backend in a test takes the same path as a GPU.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.source import Source
from autotune.trial import Check, Environment, Failure, Instance, Round, RoundKind, TimingProtocol


class Bench(Protocol):
    """One problem set up on a device: inputs, outputs and the reference in place, ready to try instances.

    Both methods raise `Failure` when the configuration is at fault; the bench stays usable after it, whatever the fault was.
    """

    @property
    def copy_us(self) -> float | None:
        """The time of a device copy of the problem's bytes under the same protocol, in microseconds; None off a GPU."""

    def check(self, instance: Instance) -> Check:
        """Poison the output with NaN, launch once, and compare every element with the float64 reference."""

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool = False) -> Round:
        """Take `samples` samples. With `single`, each is of one launch only: for configurations that are far behind."""


class Backend(Protocol):
    """A device and how its instances are built and timed."""

    @property
    def device(self) -> Device: ...

    @property
    def environment(self) -> Environment: ...

    @property
    def timing(self) -> TimingProtocol: ...

    @property
    def flags(self) -> str:
        """What instances are compiled with beside their architecture; "" where nothing is compiled."""

    @property
    def replayed(self) -> bool:
        """Whether times come from a database instead of from this machine."""

    def known(self, problem: Problem) -> frozenset[Configuration] | None:
        """The only configurations that can be tried on `problem`; None when every one can."""

    def templates(self, operation: Operation) -> list[tuple[str, Source]]:
        """The templates whose instances this backend times: the present ones, or those that a recording was made with."""

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        """Build instances, in parallel where that is faster; yields each as soon as its fate is known, in any order."""

    def open(self, operation: Operation, problem: Problem, *, seed: int = 0) -> AbstractContextManager[Bench]:
        """Set `problem` up. Raises Failure(OUT_OF_MEMORY) when it does not fit on the device."""

    def close(self) -> None:
        """Give the device back."""
