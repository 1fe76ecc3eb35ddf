"""What runs in the emulator's child process: problems set up there, and instances checked and timed on them."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autotune.backends.emulation.memory import AROUND_BOTH, Matrix
from autotune.backends.emulation.run import HangError, Launch, Library, Prepared
from autotune.check import AROUND_INPUT, KINDS, Array, compare, inputs, numpy_dtype, place, seeds
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.errors import KernelError
from autotune.guard import guarded
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.source import loaded_alike
from autotune.trial import Check, Failure, Outcome

IN_PLACE_ROWS = len(KINDS)  # one of each
SCHEDULES = (0, 1, 2)  # index order, and two shuffled ones; with four rows or more these found every race of a mutation test
ALSO_NAN = "; nan is also what shared memory holds until it is written, and what a lane gets from one that is not in its shuffle"


class Engine:
    """Holds the problems that are open and the libraries that are loaded."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._libraries: dict[Path, Library] = {}
        self._setups: dict[int, _Setup] = {}

    def open(self, key: int, folder: Path, definitions: Mapping[str, str], problem: Problem, seed: int, allowed_s: float) -> None:
        """Set `problem` of the operation defined in `folder` up under `key`.

        Raises Failure(OUT_OF_MEMORY), and UsageError when a function of the operation takes longer than `allowed_s` seconds.
        """
        operation = loaded_alike(folder.name, folder.parent, definitions)
        try:
            with guarded(allowed_s):
                self._setups[key] = _Setup(operation, problem, seeds(problem, seed))
        except MemoryError as error:
            raise Failure(Outcome.OUT_OF_MEMORY, f"{problem} does not fit into memory: {error}") from None

    def has(self, key: int) -> bool:
        """Whether a problem is open under `key`."""
        return key in self._setups

    def forget(self, key: int) -> None:
        """Free what `open` made under `key`."""
        self._setups.pop(key, None)

    def check(self, key: int, library: Path, symbol: str, configuration: Configuration) -> Check:
        """Launch once per schedule, then once on each other input, and compare the whole output each time.

        Then launch on a few rows over themselves, if the version says it can. Raises Failure with what was wrong first.
        """
        setup, loaded = self._setups[key], self._load(library)
        first, *others = setup.inputs
        launches = [(schedule, first) for schedule in SCHEDULES] + [(SCHEDULES[0], other) for other in others]
        checks = [setup.check(loaded, symbol, configuration, schedule, given) for schedule, given in launches]
        if setup.takes_in_place(configuration):
            few = setup.few_in_place
            checks.append(few.check(loaded, symbol, configuration, SCHEDULES[0], few.inputs[0]))
        return Check(max(check.max_error for check in checks), checks[0].first_us)

    def sample(self, key: int, library: Path, symbol: str, configuration: Configuration, samples: int) -> tuple[float, ...]:
        """The CPU time of each of `samples` launches, in microseconds."""
        setup = self._setups[key]
        launch = setup.prepared(self._load(library), symbol, configuration, SCHEDULES[0])
        return tuple(setup.run(launch, setup.inputs[0]) for _ in range(samples))

    def _load(self, path: Path) -> Library:
        if path not in self._libraries:
            try:
                self._libraries[path] = Library(path, self._runtime)
            except OSError as error:
                raise Failure(Outcome.LAUNCH_ERROR, f"the library could not be loaded: {error}") from None
        return self._libraries[path]


class Input(NamedTuple):
    """The input of `check.inputs` for `seed`, and its float64 reference."""

    seed: int
    values: Array
    reference: Array


class _Setup:
    """One problem in memory: what it is checked with, and the matrices of a launch, which are one in place."""

    def __init__(self, operation: Operation, problem: Problem, seeds: list[int]) -> None:
        self._operation = operation
        self._problem = problem
        dtype = numpy_dtype(problem.dtype)
        self.inputs = [self._input(seed) for seed in seeds]
        around = AROUND_BOTH if problem.in_place else AROUND_INPUT
        self._matrix = Matrix(problem.rows, problem.cols, dtype, problem.input_stride, problem.input_alignment, around)
        self._output = self._matrix
        if not problem.in_place:
            self._output = Matrix(problem.rows, problem.cols, dtype, problem.output_stride, problem.output_alignment)
        self._workspace = np.zeros(0, np.uint64)

    def _input(self, seed: int) -> Input:
        values = inputs(self._problem, seed)
        return Input(seed, values, values if self._problem.empty else self._operation.reference(values))

    @cached_property
    def _few_in_place(self) -> Problem:
        """At most nine rows of the problem, to be computed over themselves."""
        p = self._problem
        rows = min(p.rows, IN_PLACE_ROWS)
        return replace(p, rows=rows, input_stride=p.output_stride, input_alignment=p.output_alignment, in_place=True)

    @cached_property
    def few_in_place(self) -> "_Setup":
        return _Setup(self._operation, self._few_in_place, [self.inputs[0].seed])

    def takes_in_place(self, configuration: Configuration) -> bool:
        """Whether there is another problem to check: a version that declares IN_PLACE, given a problem that is not in place."""
        if self._problem.in_place or self._problem.empty:
            return False
        return bool(self._operation.applicable(configuration, self._few_in_place, EMULATOR))

    def prepared(self, library: Library, symbol: str, configuration: Configuration, schedule: int) -> Prepared | None:
        """The launch of an instance on this problem; None when there is nothing to compute."""
        problem = self._problem
        if problem.empty:
            return None
        version = self._operation.version(configuration.version)
        bounds, plan = version.bounds(configuration), version.launch(configuration, problem, EMULATOR)
        if self._workspace.nbytes < plan.workspace_bytes:
            self._workspace = np.zeros(-(-plan.workspace_bytes // 8), np.uint64)
        strides = (problem.output_stride, problem.input_stride)
        arguments = (self._output.values, self._matrix.values, problem.rows, problem.cols, *strides, self._workspace)
        fences = [self._matrix.fence("matrix")] if problem.in_place else [self._matrix.fence("input"), self._output.fence("output")]
        shape = (plan.blocks, bounds.threads, plan.shared_bytes, bounds.cluster, plan.cooperative)
        try:
            return library.prepared(Launch(symbol, arguments, *shape, schedule, fences))
        except KernelError as error:
            raise Failure(Outcome.LAUNCH_ERROR, str(error)) from None

    def run(self, launch: Prepared | None, given: Input) -> float:
        """Launch on `given` afresh and return the CPU time in microseconds."""
        self._matrix.values[:] = given.values
        if launch is None:
            return 0.0
        before = time.thread_time_ns()
        try:
            launch()
        except KernelError as error:
            self._workspace = np.zeros(0, np.uint64)  # its counters cannot be trusted any more
            raise Failure(Outcome.TIMEOUT if isinstance(error, HangError) else Outcome.LAUNCH_ERROR, str(error)) from None
        return (time.thread_time_ns() - before) / 1e3

    def check(self, library: Library, symbol: str, configuration: Configuration, schedule: int, given: Input) -> Check:
        """Launch once on `given` and compare everything."""
        for matrix in (self._matrix, self._output):
            matrix.place(at_end=schedule % 2 == 0)
        time_us = self.run(self.prepared(library, symbol, configuration, schedule), given)
        where = f"with its threads in shuffled order {schedule}, " if schedule else ""
        where += "in place, " if self._problem.in_place else ""
        if self._output.strayed or self._matrix.strayed:
            raise Failure(Outcome.WRONG_RESULT, where + "the kernel wrote before, after or between the rows of the matrix")
        bits = self._matrix.bits
        if not self._problem.in_place and not np.array_equal(bits, given.values.view(bits.dtype)):
            raise Failure(Outcome.WRONG_RESULT, where + "the kernel changed its input")
        if not self._problem.in_place and (missed := self._output.untouched).any():
            row, col = divmod(int(np.argmax(missed)), self._problem.cols)
            many = "1 element was" if (count := np.count_nonzero(missed)) == 1 else f"{count} elements were"
            said = f"{many} not written, or made of what the output held before, first {place(row, col, given.seed)}"
            raise Failure(Outcome.WRONG_RESULT, where + said)
        comparison = compare(self._output.values, given.reference, self._operation.tolerances[self._problem.dtype])
        if not comparison:
            why = ALSO_NAN if isnan(comparison.got) and not isnan(comparison.expected) else ""
            raise Failure(Outcome.WRONG_RESULT, where + comparison.told(given.seed) + why)
        return Check(comparison.max_error, time_us)
