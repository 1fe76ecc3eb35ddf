"""Launches on the emulator, on arrays in memory of this CPU: the same kernels, plans and decisions as on a GPU, without one.

An instance that is needed is built here, by the C++ compiler: this is for tests and for trying things out, not for speed.
"""

from functools import partial

from autotune import source
from autotune.backends.emulation import build, run
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Version
from autotune.device import EMULATOR, Device
from autotune.dispatch.plan import Function, LaunchCall
from autotune.dispatch.store import StoredInstance
from autotune.problem import Problem


class EmulatorLauncher:
    """The CPU in the place of a GPU."""

    host = True

    @property
    def device(self) -> Device:
        return EMULATOR

    def load(self, version: Version, configuration: Configuration, dtype: str, stored: StoredInstance | None, bounds: Bounds) -> Function:
        """Build the instance, or find it in the cache. Raises CompileError when the compiler rejects it, UsageError without one."""
        library = run.Library(build.library(source.render(version, [configuration], dtype)))
        return EmulatorFunction(library, source.symbol(version, configuration, dtype), bounds)

    def capturing(self, stream: int) -> bool:
        return False

    def synchronize(self, stream: int) -> None:
        """Every launch has ended when it returns."""

    def workspace(self, stream: int, size_bytes: int) -> int:
        """None is kept: each launch has its own."""
        return 0


class EmulatorFunction:
    """A kernel compiled for this CPU."""

    def __init__(self, library: run.Library, symbol: str, bounds: Bounds) -> None:
        self._library = library
        self._symbol = symbol
        self._bounds = bounds

    def bind(self, problem: Problem, launch: Launch) -> LaunchCall:
        return partial(self._run, problem, launch)

    def fix(self, problem: Problem, launch: Launch) -> None:
        """Never: a launch in the emulator takes far longer than saying what it is for."""

    def _run(self, problem: Problem, launch: Launch, output: int, source: int, stream: int) -> None:
        # Zeroed for each launch, which is what a kernel finds that leaves its counters as they were.
        workspace = bytearray(launch.workspace_bytes)
        self._library.launch(self._launch(problem, launch, output, source, workspace))

    def _launch(self, problem: Problem, launch: Launch, output: int, source: int, workspace: bytearray) -> run.Launch:
        import numpy as np

        return run.Launch(
            symbol=self._symbol,
            arguments=(
                output,
                source,
                problem.rows,
                problem.cols,
                problem.output_stride,
                problem.input_stride,
                np.frombuffer(workspace, np.uint8) if workspace else None,
            ),
            blocks=launch.blocks,
            threads=self._bounds.threads,
            shared_bytes=launch.shared_bytes,
            cluster=self._bounds.cluster,
            cooperative=launch.cooperative,
        )
