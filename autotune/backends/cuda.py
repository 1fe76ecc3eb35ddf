"""The `cuda` backend: PyCUDA compiles here, in the parent, which never makes a CUDA context; a worker child runs what was compiled."""

import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from autotune import __version__, nvcc, source
from autotune.backends import Bench
from autotune.backends.cuda_compile import Compiler
from autotune.backends.cuda_engine import Engine, Facts, expected_s
from autotune.backends.turns import Turns
from autotune.backends.worker import OF_SET_UP, Worker, again_if_killed, set_up_again_if_killed
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.device import Device
from autotune.errors import AutotuneError, UsageError
from autotune.guard import ALLOWED_S
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Check, Environment, Failure, Instance, Outcome, ProblemFailure, Round, RoundKind, TimingProtocol

COLD = TimingProtocol(
    "cold",
    1,
    "CUDA graph of whole laps over (input, output) pairs that together take 4x the L2 (2 to 256 pairs), timed by events; a lap that moves "
    "less than 3x the L2 runs once, after 3x the L2 of other memory was read outside the timed window, others until 2 ms; "
    "in screening, where a lap takes over 4 ms, as many launches as take 2 ms, after such a read; "
    "copy by the faster of cuMemcpyDtoDAsync and a kernel of 16-byte accesses in the same way",
)
WARM = TimingProtocol("warm", 1, "CUDA graph of launches on one (input, output) pair, 2 ms or 2000 launches long, timed by events")
REFERENCE_S = 5.0  # for CHUNK_ELEMENTS of a reference on the host, which come at once: far above what was ever measured
OPEN_TIMEOUT_S = 120.0  # making inputs and a float64 reference for the largest problems; on the host where the operation has no template
SETTLE_S = 2.0


class CudaBackend:
    """GPU `ordinal` (CUDA's number, from 0). `jobs` compilers run at once, by default one per core that this process may use.

    Raises UsageError, in one sentence, as soon as something is used that is missing: PyCUDA, nvcc, the driver, the GPU.
    """

    replayed = False
    flags = " ".join(nvcc.FLAGS)

    def __init__(
        self, ordinal: int = 0, *, protocol: Literal["cold", "warm"] = "cold", hang_timeout_s: float = ALLOWED_S, jobs: int | None = None
    ) -> None:
        self._protocol = {"cold": COLD, "warm": WARM}[protocol]
        self._worker = Worker(f"{Engine.__module__}:{Engine.__qualname__}", {"ordinal": ordinal}, hang_timeout_s=hang_timeout_s)
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._open: object = None  # the bench that the living child is set up for

    @cached_property
    def _facts(self) -> Facts:
        try:
            facts: Facts = self._called("facts")
        except Failure as failure:
            raise UsageError(f"the GPU cannot be used: {failure.message}") from failure
        return facts

    @cached_property
    def _turns(self) -> Turns:
        return Turns(self._facts.bus_id)

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self.device.arch, self._jobs)

    @property
    def device(self) -> Device:
        return self._facts.device

    @cached_property
    def environment(self) -> Environment:
        facts = self._facts
        return Environment(
            package=__version__,
            python=platform.python_version(),
            os=platform.platform(),
            driver=facts.driver,
            cuda=facts.cuda,
            compiler=self._compiler.version,
            pycuda=facts.pycuda,
        )

    @property
    def timing(self) -> TimingProtocol:
        return self._protocol

    def known(self, problem: Problem) -> frozenset[Configuration] | None:
        return None

    def templates(self, operation: Operation) -> list[tuple[str, source.Source]]:
        return source.templates(operation)

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        return self._compiler.build(version, configurations, dtype)

    @contextmanager
    def open(self, operation: Operation, problem: Problem, *, seed: int = 0) -> Iterator[Bench]:
        if problem.empty:
            raise UsageError(f"{problem} is empty; there is nothing to time")
        bench = _CudaBench(self, operation, problem, seed)
        set_up_again_if_killed(bench.set_up, operation)
        try:
            yield bench
        finally:
            if self.holds(bench):
                self._open = None
                with suppress(Failure):
                    self.call("shut")

    def close(self) -> None:
        self._worker.close()
        if "_turns" in self.__dict__:
            self._turns.close()

    def support(self, dtype: str, operation: Operation | None) -> bytes:
        """The cubin of our own kernels; see `Compiler.support`."""
        return self._compiler.support(dtype, operation)

    def holds(self, bench: object) -> bool:
        """Whether the child that lives now is set up for `bench`."""
        return self._open is bench and self._worker.alive

    def set_up(self, bench: object, *arguments: Any) -> int:
        """Set the child up for `bench`; the number of its pairs."""
        self._open = None
        allowed_s = min(self._worker.hang_timeout_s + REFERENCE_S, OF_SET_UP * OPEN_TIMEOUT_S)
        pairs: int = self.call("open", *arguments, timeout_s=OPEN_TIMEOUT_S, allowed_s=allowed_s, cold=self._protocol is COLD)
        self._open = bench
        return pairs

    def call(self, method: str, *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
        """Call the engine while no other sweep uses the GPU. A child whose context was lost with a launch is replaced at the next call."""
        with self._turns.taken():
            return self._called(method, *arguments, timeout_s=timeout_s, **named)

    def _called(self, method: str, *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
        try:
            return self._worker.call(method, *arguments, timeout_s=timeout_s, **named)
        except Failure as failure:
            if failure.outcome in (Outcome.LAUNCH_ERROR, Outcome.OUT_OF_MEMORY) and not self._healthy():
                self._worker.discard()
                self._open = None
            if failure.outcome in (Outcome.TIMEOUT, Outcome.CRASHED):  # the worker has ended the child already
                self._open = None
            raise
        except KeyboardInterrupt:  # as it has then
            self._open = None
            raise

    def hang_timeout_s(self) -> float:
        return self._worker.hang_timeout_s

    def _healthy(self) -> bool:
        try:
            return bool(self._worker.call("healthy"))
        except (Failure, AutotuneError):
            return False


class _CudaBench:
    """One problem in the child, set up again there whenever the child had to be replaced."""

    def __init__(self, backend: CudaBackend, operation: Operation, problem: Problem, seed: int) -> None:
        self._backend = backend
        self._problem = problem
        support = backend.support(problem.dtype, operation)
        known = (operation.name, operation.folder.parent, source.definitions(operation))
        self._arguments: tuple[str, Path, dict[str, str], Problem, int, bytes] = (*known, problem, seed, support)
        self._pairs = 2
        self._first_us: dict[str, float] = {}

    def set_up(self) -> None:
        """Set the problem up in the child."""
        self._pairs = self._backend.set_up(self, *self._arguments)

    def ready(self) -> None:
        """Set the problem up again in a new child, when the one that it was set up in is gone; raises ProblemFailure."""
        if self._backend.holds(self):
            return
        try:
            self.set_up()
        except Failure:  # what the child before left on the GPU may take the driver a moment to clear away
            time.sleep(SETTLE_S)
            try:
                self.set_up()
            except Failure as failure:
                raise ProblemFailure(failure.outcome, f"{self._problem} cannot be set up again: {failure.message}") from failure

    @cached_property
    def copy_us(self) -> float | None:
        def copied() -> float | None:
            self.ready()
            time_us: float | None = self._backend.call("copy_us")
            return time_us

        return again_if_killed(copied)

    def check(self, instance: Instance) -> Check:
        self.ready()
        checked: Check = self._backend.call("check", instance)
        self._first_us[instance.symbol] = checked.first_us
        return checked

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool = False) -> Round:
        self.ready()
        # A slow configuration is no hanging one: the time that its launches are known to take is added to the watchdog's.
        launch_us = self._first_us.get(instance.symbol, 0.0)
        timeout_s = self._backend.hang_timeout_s() + expected_s(1 if single else self._pairs, samples, launch_us)
        sampled: Round = self._backend.call("sample", instance, kind, samples, single=single, timeout_s=timeout_s)
        return sampled


def describe(ordinal: int = 0) -> list[tuple[str, bool, str]]:
    """What the backend needs, each as (name, whether it is there, one sentence), for `autotune doctor`."""
    backend = CudaBackend(ordinal)
    report: list[tuple[str, bool, str]] = []

    def step(name: str, ask: Any) -> bool:
        try:
            report.append((name, True, ask()))
        except (AutotuneError, Failure) as error:
            report.append((name, False, str(error)))
        except Exception as error:  # a broken installation may fail in any way, and the other steps are still worth knowing
            report.append((name, False, f"{type(error).__name__}: {error}"))
        return report[-1][1]

    try:
        if step("GPU", lambda: _about(backend)) and step("nvcc", lambda: backend.environment.compiler):
            report.append(_clocks(backend))
            if step("compile", lambda: f"our own kernels are {len(backend.support('float32', None))} bytes for {backend.device.arch}"):
                step("launch", lambda: backend.call("try_launch", backend.support("float32", None)))
    finally:
        backend.close()
    return report


def _about(backend: CudaBackend) -> str:
    device, facts = backend.device, backend._facts
    major, minor = device.compute_capability
    return (
        f"{device.name}: compute capability {major}.{minor}, {device.sm_count} SMs, {device.l2_bytes >> 20} MiB of L2; "
        f"driver {facts.driver or 'of unknown version'} with CUDA {facts.cuda}, PyCUDA {facts.pycuda}"
    )


def _clocks(backend: CudaBackend) -> tuple[str, bool, str]:
    mhz, throttled, why_not = backend.call("clocks")
    if mhz is None:
        return "clocks", False, f"clocks cannot be read ({why_not or 'this GPU does not tell'}); times are stored without them"
    return "clocks", True, f"the SM clock is {mhz} MHz" + (f", held back by: {throttled}" if throttled else "")


if __name__ == "__main__":
    for line in describe():
        sys.stdout.write(f"{line}\n")
