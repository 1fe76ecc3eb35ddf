"""What runs in the emulator's child process: problems set up there, and instances checked and timed on them."""

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from autotune import catalogue
from autotune.backends.emulation.memory import AROUND_BOTH, Matrix
from autotune.backends.emulation.run import HangError, Launch, Library, Prepared
from autotune.check import AROUND_INPUT, Array, compare, inputs, numpy_dtype
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.errors import KernelError
from autotune.problem import Problem
from autotune.trial import Check, Failure, Outcome

IN_PLACE_ROWS = 9  # one of each kind that `check.inputs` makes
SEEDS = (0, 1, 2)  # index order, and two shuffled schedules; with four rows or more these found every race of a mutation test


class Engine:
    """Holds the problems that are open and the libraries that are loaded."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._libraries: dict[Path, Library] = {}
        self._setups: dict[int, _Setup] = {}

    def open(self, key: int, folder: Path, problem: Problem, seed: int) -> None:
        """Set `problem` of the operation defined in `folder` up under `key`. Raises Failure(OUT_OF_MEMORY)."""
        try:
            self._setups[key] = _Setup(folder, problem, seed)
        except MemoryError as error:
            raise Failure(Outcome.OUT_OF_MEMORY, f"{problem} does not fit into memory: {error}") from None

    def has(self, key: int) -> bool:
        """Whether a problem is open under `key`."""
        return key in self._setups

    def forget(self, key: int) -> None:
        """Free what `open` made under `key`."""
        self._setups.pop(key, None)

    def check(self, key: int, library: Path, symbol: str, configuration: Configuration) -> Check:
        """Launch once per schedule and compare the whole output each time; then a few rows over themselves, if the version says it can.

        Raises Failure with what was wrong first.
        """
        setup = self._setups[key]
        checks = [setup.check(self._load(library), symbol, configuration, seed) for seed in SEEDS]
        if setup.takes_in_place(configuration):
            checks.append(setup.few_in_place.check(self._load(library), symbol, configuration, SEEDS[0]))
        return Check(max(check.max_error for check in checks), checks[0].first_us)

    def sample(self, key: int, library: Path, symbol: str, configuration: Configuration, samples: int) -> tuple[float, ...]:
        """The CPU time of each of `samples` launches, in microseconds."""
        setup = self._setups[key]
        launch = setup.prepared(self._load(library), symbol, configuration, seed=0)
        return tuple(setup.run(launch) for _ in range(samples))

    def _load(self, path: Path) -> Library:
        if path not in self._libraries:
            try:
                self._libraries[path] = Library(path, self._runtime)
            except OSError as error:
                raise Failure(Outcome.LAUNCH_ERROR, f"the library could not be loaded: {error}") from None
        return self._libraries[path]


class _Setup:
    """One problem in memory: input, output (the same in place) and the float64 reference."""

    def __init__(self, folder: Path, problem: Problem, seed: int) -> None:
        self._operation = catalogue.load(folder.name, folder.parent)
        self._problem = problem
        self._seed = seed
        dtype = numpy_dtype(problem.dtype)
        self._given = inputs(problem, seed)
        with np.errstate(all="ignore"):  # infinities and NaN are among the input, and what becomes of them is right by definition
            self._reference: Array = self._operation.reference(self._given.astype(np.float64)) if not problem.empty else self._given
        around = AROUND_BOTH if problem.in_place else AROUND_INPUT
        self._input = Matrix(problem.rows, problem.cols, dtype, problem.input_stride, problem.input_alignment, around)
        self._output = self._input
        if not problem.in_place:
            self._output = Matrix(problem.rows, problem.cols, dtype, problem.output_stride, problem.output_alignment)
        self._workspace = np.zeros(0, np.uint64)

    @cached_property
    def _few_in_place(self) -> Problem:
        """At most nine rows of the problem, to be computed over themselves."""
        p = self._problem
        rows = min(p.rows, IN_PLACE_ROWS)
        return replace(p, rows=rows, input_stride=p.output_stride, input_alignment=p.output_alignment, in_place=True)

    @cached_property
    def few_in_place(self) -> "_Setup":
        return _Setup(self._operation.folder, self._few_in_place, self._seed)

    def takes_in_place(self, configuration: Configuration) -> bool:
        """Whether there is another problem to check: a version that declares IN_PLACE, given a problem that is not in place."""
        if self._problem.in_place or self._problem.empty:
            return False
        return bool(self._operation.applicable(configuration, self._few_in_place, EMULATOR))

    def prepared(self, library: Library, symbol: str, configuration: Configuration, seed: int) -> Prepared | None:
        """The launch of an instance on this problem; None when there is nothing to compute."""
        problem = self._problem
        if problem.empty:
            return None
        version = self._operation.version(configuration.version)
        bounds, plan = version.bounds(configuration), version.launch(configuration, problem, EMULATOR)
        if self._workspace.nbytes < plan.workspace_bytes:
            self._workspace = np.zeros(-(-plan.workspace_bytes // 8), np.uint64)
        strides = (problem.output_stride, problem.input_stride)
        arguments = (self._output.values, self._input.values, problem.rows, problem.cols, *strides, self._workspace)
        fences = [self._input.fence("matrix")] if problem.in_place else [self._input.fence("input"), self._output.fence("output")]
        shape = (plan.blocks, bounds.threads, plan.shared_bytes, bounds.cluster, plan.cooperative)
        try:
            return library.prepared(Launch(symbol, arguments, *shape, seed, fences))
        except KernelError as error:
            raise Failure(Outcome.LAUNCH_ERROR, str(error)) from None

    def run(self, launch: Prepared | None) -> float:
        """Launch on a fresh input and return the CPU time in microseconds."""
        self._input.values[:] = self._given
        if launch is None:
            return 0.0
        before = time.thread_time_ns()
        try:
            launch()
        except KernelError as error:
            self._workspace = np.zeros(0, np.uint64)  # its counters cannot be trusted any more
            raise Failure(Outcome.TIMEOUT if isinstance(error, HangError) else Outcome.LAUNCH_ERROR, str(error)) from None
        return (time.thread_time_ns() - before) / 1e3

    def check(self, library: Library, symbol: str, configuration: Configuration, seed: int) -> Check:
        """Launch once with schedule `seed` and compare everything."""
        for matrix in (self._input, self._output):
            matrix.place(at_end=seed % 2 == 0)
        time_us = self.run(self.prepared(library, symbol, configuration, seed))
        where = f"in schedule {seed}, " + ("in place, " if self._problem.in_place else "")
        if self._output.strayed or self._input.strayed:
            raise Failure(Outcome.WRONG_RESULT, where + "the kernel wrote before, after or between the rows of the matrix")
        if not self._problem.in_place and not np.array_equal(self._input.values.view(self._input.bits.dtype), self._bits_given()):
            raise Failure(Outcome.WRONG_RESULT, where + "the kernel changed its input")
        if not self._problem.in_place and (missed := self._output.untouched).any():
            row, col = divmod(int(np.argmax(missed)), self._problem.cols)
            raise Failure(
                Outcome.WRONG_RESULT, where + f"{np.count_nonzero(missed)} elements were not written, first row {row}, column {col}"
            )
        comparison = compare(self._output.values, self._reference, self._operation.tolerances[self._problem.dtype])
        if not comparison:
            raise Failure(Outcome.WRONG_RESULT, where + str(comparison))
        return Check(comparison.max_error, time_us)

    def _bits_given(self) -> Array:
        return self._given.view(self._input.bits.dtype)
