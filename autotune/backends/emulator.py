"""The emulator backend: instances are compiled for this CPU and run in a child process, where everything that can be checked is."""

import errno
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import autotune
from autotune.backends.emulation import build
from autotune.backends.worker import OF_SET_UP, Worker, again_if_killed, set_up_again_if_killed
from autotune.check import seeds
from autotune.compilers import in_parallel
from autotune.configuration import Configuration
from autotune.cubins import default_folder
from autotune.definition import Version
from autotune.device import EMULATOR, Device
from autotune.errors import CompileError, StorageError, UsageError
from autotune.guard import ALLOWED_S
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.source import Source, definitions, read, render, symbol, templates
from autotune.trial import Check, Environment, Failure, Instance, Outcome, ProblemFailure, Round, RoundKind, TimingProtocol

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL = os.strerror(errno.ENOSPC)  # which is how a compiler says it

MOST_INSTANCES_PER_UNIT = 12  # one instance costs 0.2 s to compile and each further one 0.03 s, but a unit compiles on one core
# Far above what was ever measured, and added to the hang timeout: a launch that hangs is found at once, one that loops only by time.
SECONDS_PER_ELEMENT = 1e-6
SECONDS_PER_THREAD = 50e-6
MOST_LAUNCHES_S = 3600.0  # for a definition may ask for 2^31 blocks


class EmulatorBackend:
    """Runs kernels on this CPU (see `autotune.backends.Backend`). Raises UsageError when there is no C++ compiler."""

    def __init__(self, *, jobs: int | None = None, hang_timeout_s: float = ALLOWED_S) -> None:
        build.compiler_version()
        self._jobs = jobs or os.cpu_count() or 1
        self._hang_timeout_s = hang_timeout_s
        self._worker: Worker | None = None
        self._keys = count()

    @property
    def device(self) -> Device:
        return EMULATOR

    @property
    def environment(self) -> Environment:
        return Environment(
            package=autotune.__version__,
            python=platform.python_version(),
            os=platform.platform(),
            compiler=build.compiler_version(),
        )

    @property
    def timing(self) -> TimingProtocol:
        return TimingProtocol("cpu", 1, "CPU time of one launch in the emulator; never a GPU's time")

    @property
    def flags(self) -> str:
        return " ".join(build.flags())

    @property
    def replayed(self) -> bool:
        return False

    def known(self, problem: Problem) -> frozenset[Configuration] | None:
        return None

    def templates(self, operation: Operation) -> list[tuple[str, Source]]:
        return templates(operation)

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        """Instances, first those of the cache; the others several to a translation unit, and when a unit fails, each of it alone."""
        libraries: dict[Path, bytes] = {}
        missing = []
        for configuration in configurations:
            path = build.kept(render(version, [configuration], dtype))
            if path is None:
                missing.append(configuration)
                continue
            if path not in libraries:
                libraries[path] = path.read_bytes()
            yield configuration, _instance(version, configuration, dtype, libraries[path])
        size = min(MOST_INSTANCES_PER_UNIT, -(-len(missing) // self._jobs)) or 1
        units = [missing[i : i + size] for i in range(0, len(missing), size)]
        yield from in_parallel(lambda unit: _compile_unit(version, unit, dtype), units, self._jobs)

    @contextmanager
    def open(self, operation: Operation, problem: Problem, *, seed: int = 0) -> Iterator["EmulatorBench"]:
        """Set `problem` up in the child. Raises Failure(OUT_OF_MEMORY) when it does not fit into this machine's memory."""
        if self._worker is None:
            runtime = _runtime()
            self._worker = Worker("autotune.backends.emulation.engine:Engine", {"runtime": runtime}, hang_timeout_s=self._hang_timeout_s)
        bench = EmulatorBench(self._worker, next(self._keys), operation, problem, seed)
        set_up_again_if_killed(bench.set_up, operation)
        try:
            yield bench
        finally:
            bench.close()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class EmulatorBench:
    """One problem set up in the child, and again in the next child when one dies."""

    def __init__(self, worker: Worker, key: int, operation: Operation, problem: Problem, seed: int) -> None:
        self._worker = worker
        self._key = key
        self._operation = operation
        self._definitions = definitions(operation)
        self._problem = problem
        self._seed = seed
        self._inputs = len(seeds(problem, seed))

    @property
    def copy_us(self) -> float | None:
        return None

    def set_up(self) -> None:
        """Make sure that the problem is set up in the child that answers next."""
        problem = self._problem
        allowed_s = self._worker.hang_timeout_s + self._inputs * problem.rows * problem.cols * SECONDS_PER_ELEMENT
        arguments = (self._key, self._operation.folder, self._definitions, problem, self._seed, OF_SET_UP * allowed_s)
        self._worker.call("open", *arguments, timeout_s=allowed_s)

    def check(self, instance: Instance) -> Check:
        check: Check = self._call("check", instance, launches=self._inputs + 3)  # two more of the first, and one in place
        return check

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool = False) -> Round:
        taken: tuple[float, ...] = self._call("sample", instance, samples, launches=samples)
        return Round(kind, taken, launches_per_sample=1)

    def close(self) -> None:
        """Free the problem's memory in the child, if it is still there."""
        with suppress(Failure):
            self._worker.call("forget", self._key)

    def _call(self, method: str, instance: Instance, *arguments: Any, launches: int) -> Any:
        self._ready()
        with _room():
            library = build.store(instance.binary)
        timeout_s = self._worker.hang_timeout_s + min(launches * self._launch_s(instance.configuration), MOST_LAUNCHES_S)
        return self._worker.call(method, self._key, library, instance.symbol, instance.configuration, *arguments, timeout_s=timeout_s)

    def _ready(self) -> None:
        """Set the problem up again where another instance has brought the child down; raises ProblemFailure."""

        def ready() -> None:
            if not self._worker.call("has", self._key):
                self.set_up()

        try:
            again_if_killed(ready)
        except Failure as failure:
            raise ProblemFailure(failure.outcome, f"{self._problem} cannot be set up again: {failure.message}") from failure

    def _launch_s(self, configuration: Configuration) -> float:
        version = self._operation.version(configuration.version)
        plan = version.launch(configuration, self._problem, EMULATOR)
        threads = plan.blocks * version.bounds(configuration).threads
        return self._problem.rows * self._problem.cols * SECONDS_PER_ELEMENT + threads * SECONDS_PER_THREAD


def _runtime() -> Path:
    try:
        with _room():
            return build.runtime()
    except CompileError as error:
        raise UsageError(
            f"the library that runs kernels in the emulator could not be compiled ({error}); see that {build.compiler()} is of C++17 and "
            "has memory, or name another compiler by CXX, and run again"
        ) from error


@contextmanager
def _room() -> Iterator[None]:
    """Raises StorageError where there was none in the cache folder, in which the compiler has its temporary files too."""
    try:
        yield
    except (OSError, CompileError) as error:
        if not (FULL in str(error) or (isinstance(error, OSError) and error.errno in NO_ROOM)):
            raise
        raise StorageError(
            f"there is no room in the cache folder {default_folder()} to compile in ({error}); make room there, or name another folder by "
            "AUTOTUNE_CACHE, and run again"
        ) from error


def _compile_unit(version: Version, unit: list[Configuration], dtype: str) -> list[tuple[Configuration, Instance | Failure]]:
    try:
        with _room():
            library = build.library(render(version, unit, dtype))
            binary = library.read_bytes()
            for configuration in unit if len(unit) > 1 else ():
                build.keep(render(version, [configuration], dtype), library)
    except CompileError as error:
        if len(unit) == 1:
            return [(unit[0], Failure(Outcome.COMPILE_ERROR, str(error)))]
        return [outcome for configuration in unit for outcome in _compile_unit(version, [configuration], dtype)]
    return [(configuration, _instance(version, configuration, dtype, binary)) for configuration in unit]


def _instance(version: Version, configuration: Configuration, dtype: str, binary: bytes) -> Instance:
    return Instance(
        configuration=configuration,
        dtype=dtype,
        arch=platform.machine(),
        symbol=symbol(version, configuration, dtype),
        template_sha=read(version).sha,
        flags=" ".join(build.flags()),
        compiler=build.compiler_version(),
        binary=binary,
        resources=None,
    )
