"""A backend that returns the times it is told, for tests of everything above it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from autotune import source
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Check, Environment, Failure, Instance, Resources, Round, RoundKind, TimingProtocol

DEVICE = Device("Fake GPU", (9, 0), 132, 60 << 20, 6144, 232448, 233472)
ENVIRONMENT = Environment("0", "3", "test", driver="1", compiler="nvcc 1")
TIMING = TimingProtocol("cold", 1, "as told")

Told = float | Failure


@dataclass
class FakeBackend:
    """`times(configuration, problem)` is the true time in microseconds, or the failure of the configuration's check."""

    times: Callable[[Configuration, Problem], Told]
    noise: float = 0.0
    seed: int = 0
    device: Device = DEVICE
    environment: Environment = ENVIRONMENT
    timing: TimingProtocol = TIMING
    flags: str = "-O3"
    replayed: bool = False
    compile_failures: dict[Configuration, Failure] = field(default_factory=dict)
    sample_failures: dict[tuple[Configuration, RoundKind], Failure] = field(default_factory=dict)
    tried: list[tuple[Problem, Configuration]] = field(default_factory=list)
    compiled: list[Configuration] = field(default_factory=list)
    stop_after: int | None = None
    copy_us: float | None = 10.0
    first_launch_us: dict[Configuration, float] = field(default_factory=dict)
    clocks_mhz: Callable[[], int] = lambda: 1980

    def known(self, problem: Problem) -> frozenset[Configuration] | None:
        return None

    def templates(self, operation: Operation) -> list[tuple[str, source.Source]]:
        return source.templates(operation)

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        for c in configurations:
            self.compiled.append(c)
            sha = source.read(version).sha
            symbol = source.symbol(version, c, dtype)
            binary = b"\x7fELF" + symbol.encode()
            built = Instance(c, dtype, "sm_90", symbol, sha, self.flags, self.environment.compiler, binary, Resources(32, 0, 0, 128))
            yield c, self.compile_failures.get(c, built)

    @contextmanager
    def open(self, operation: Operation, problem: Problem, *, seed: int = 0) -> Iterator["FakeBench"]:
        yield FakeBench(self, problem, Random(f"{self.seed} {problem}"))

    def close(self) -> None:
        pass


@dataclass
class FakeBench:
    backend: FakeBackend
    problem: Problem
    random: Random

    @property
    def copy_us(self) -> float | None:
        return self.backend.copy_us

    def check(self, instance: Instance) -> Check:
        if self.backend.stop_after is not None and len(self.backend.tried) >= self.backend.stop_after:
            raise KeyboardInterrupt
        self.backend.tried.append((self.problem, instance.configuration))
        told = self.backend.times(instance.configuration, self.problem)
        if isinstance(told, Failure):
            raise told
        return Check(1e-7, self.backend.first_launch_us.get(instance.configuration, told))

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool = False) -> Round:
        failure = self.backend.sample_failures.get((instance.configuration, kind))
        if failure:
            raise failure
        told = self.backend.times(instance.configuration, self.problem)
        assert isinstance(told, float)
        taken = tuple(told * (1 + abs(self.random.gauss(0, self.backend.noise))) for _ in range(samples))
        return Round(kind, taken, 1 if single else 64, self.backend.clocks_mhz(), "")
