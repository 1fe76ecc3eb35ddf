"""Judges outputs on the GPU: every element against a float64 reference, every byte around the matrix against having been written."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autotune import check
from autotune.backends.cuda_kernel import ARGUMENTS
from autotune.backends.cuda_pairs import Slots
from autotune.backends.cuda_setup import THREADS, UNWRITTEN, Setup
from autotune.check import Array
from autotune.errors import AutotuneError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Check, Failure, Instance, Outcome

COMPARE = struct.Struct("PPPqqqqdd")
MISTAKES = np.dtype([("wrong", "<i8"), ("first", "<i8"), ("strayed", "<i8"), ("max_error", "<f8")])  # AutotuneMistakes of compare.cu
GUARD_ELEMENTS = 64  # compared on both sides of a matrix; at most GUARD_BYTES for every element type
HARD_ROWS = len(check.KINDS)  # one of each
MOST_HARD_BYTES = 1 << 30  # of an arena of hard rows; wider strides are only met by the random input
SAMPLED_ELEMENTS = 1 << 20  # of the GPU's reference, compared with the host's each time a problem is set up
CHUNK_ELEMENTS = 1 << 22  # of a reference that the host computes, at a time
REFERENCE_AGREEMENT = 1e-9  # float64 exponentials and sums over a million elements stay far below it; a wrong formula does not


class Group(NamedTuple):
    """Consecutive rows that one launch of a check computes: where they lie, how many they are, and the seed of hard ones."""

    output: int
    input: int
    reference: int
    rows: int
    output_stride: int
    seed: int | None = None


class HardRows(NamedTuple):
    """The hard rows as they are given to kernels that take so many at once."""

    groups: list[Group]
    poison: Callable[[], None]
    upload: Callable[[], None]


class Judge:
    """Compares matrices on the GPU, with what one comparison needs allocated once."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._warps = setup.support.warps
        self._mistakes = setup.allocate(self._warps * MISTAKES.itemsize)
        self._tolerance = setup.operation.tolerances[setup.problem.dtype]

    def judge(self, group: Group, what: str) -> float:
        """The largest relative error of the group's output. Raises Failure(WRONG_RESULT) when an element or a byte around it is wrong."""
        setup, tolerance = self._setup, self._tolerance
        problem = setup.problem
        sizes = (group.rows, problem.cols, group.output_stride, GUARD_ELEMENTS)
        arguments = COMPARE.pack(self._mistakes, group.output, group.reference, *sizes, tolerance.relative, tolerance.absolute)
        setup.support.launch("autotune_compare", arguments, setup.stream)
        found = setup.download(self._mistakes, self._warps, MISTAKES)
        wrong, strayed = int(found["wrong"].sum()), int(found["strayed"].sum())
        if wrong:
            first = int(found["first"][found["wrong"] > 0].min())
            raise Failure(
                Outcome.WRONG_RESULT, f"{what}: {wrong} of {group.rows * problem.cols} elements are wrong, {self._quote(group, first)}"
            )
        if strayed:
            raise Failure(Outcome.WRONG_RESULT, f"{what}: elements outside the matrix were written, {strayed} of them")
        return float(found["max_error"].max())

    def _quote(self, group: Group, index: int) -> str:
        problem = self._setup.problem
        row, col = divmod(index, problem.cols)
        size = problem.element_bytes
        raw = self._setup.download(group.output + (row * group.output_stride + col) * size, size, np.uint8)
        expected = self._setup.download(group.reference + 8 * index, 1, np.float64)[0]
        got = "never written" if (raw == UNWRITTEN).all() else f"{float(raw.view(check.numpy_dtype(problem.dtype))[0]):.9g}"
        where, right = check.place(row, col, group.seed), f"{expected:.9g}{self._tolerance.around(expected)}"
        return f"the first at {where}, which is {got} instead of {right}"

    def input_unchanged(self) -> bool:
        """Whether the first pair's input still is what it was filled with."""
        self._setup.count_changed(0, self._mistakes)
        return not self._setup.download(self._mistakes, self._warps, np.int64).any()


class Checker:
    """Checks instances on one problem: on the whole first pair, and on rows chosen to be hard (`autotune.check`)."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._judge = Judge(setup)
        problem = setup.problem
        self._reference = setup.allocate(8 * problem.rows * problem.cols)
        compute_reference(setup, self._reference)
        self._hard_rows = check.inputs(replace(problem, rows=HARD_ROWS), setup.seed)
        self._hard_layouts: dict[Problem, HardRows] = {}

    def check(self, instance: Instance) -> Check:
        """Launch `instance` once on the first pair, on the hard rows, and on these over themselves if its version declares IN_PLACE.

        Raises Failure when it does not give the right result.
        """
        problem = self._setup.problem
        over_itself = replace(problem, input_stride=problem.output_stride, input_alignment=problem.output_alignment, in_place=True)
        try:
            error, first_us = self._check_random_input(instance)
            error = max(error, self._check_hard_rows(instance, problem))
            if not problem.in_place:
                error = max(error, self._check_hard_rows(instance, over_itself))
            return Check(error, first_us)
        except Failure as failure:
            if failure.outcome is Outcome.WRONG_RESULT:  # it may have spoilt inputs, which the next one must find as they were
                self._setup.fill(0)
                for layout in self._hard_layouts.values():
                    layout.upload()
            raise

    def _check_random_input(self, instance: Instance) -> tuple[float, float]:
        """The largest relative error, and the time of the one launch in microseconds."""
        setup = self._setup
        kernel, workspace = setup.kernel(instance)
        setup.poison(0)
        if setup.problem.in_place:
            setup.fill(0)
        start, end = setup.driver.Event(), setup.driver.Event()
        start.record(setup.stream)
        kernel.launch(setup.stream, setup.arguments(0, workspace))
        end.record(setup.stream)
        end.synchronize()
        first_us = end.time_since(start) * 1e3
        group = Group(setup.output(0), setup.input(0), self._reference, setup.problem.rows, setup.problem.output_stride)
        error = self._judge.judge(group, "random input")
        if not setup.problem.in_place and not self._judge.input_unchanged():
            raise Failure(Outcome.WRONG_RESULT, "random input: the input was written to")
        return error, first_us

    def _check_hard_rows(self, instance: Instance, laid_out_like: Problem) -> float:
        problem = self._hard_problem(instance, laid_out_like)
        if problem is None:
            return 0.0
        setup = self._setup
        if problem not in self._hard_layouts:
            self._hard_layouts[problem] = self._lay_out(problem)
        groups, poison, upload = self._hard_layouts[problem]
        poison()
        if problem.in_place:
            upload()
        kernel, workspace = setup.kernel(instance, problem)
        for g in groups:
            sizes = (problem.rows, problem.cols, problem.output_stride, problem.input_stride)
            kernel.launch(setup.stream, ARGUMENTS.pack(g.output, g.input, *sizes, workspace))
        what = "hard rows, in place" if problem.in_place else "hard rows"
        return max(self._judge.judge(group, what) for group in groups)

    def _hard_problem(self, instance: Instance, problem: Problem) -> Problem | None:
        """The problem as which the hard rows can be given to `instance`: all in one launch if it takes that many, else a few or one."""
        count = len(self._hard_rows)
        one = replace(problem, rows=1, input_stride=0, output_stride=0)  # the stride of a single row is of no consequence
        for candidate in (replace(problem, rows=count), replace(problem, rows=min(problem.rows, count)), one):
            fits = count * max(candidate.input_stride, candidate.output_stride) * problem.element_bytes <= MOST_HARD_BYTES
            if fits and self._setup.operation.applicable(instance.configuration, candidate, self._setup.device):
                return candidate
        return None

    def _lay_out(self, problem: Problem) -> HardRows:
        """The hard rows in groups of `problem.rows`, each at the problem's alignment and strides."""
        setup = self._setup
        size, cols, count = problem.element_bytes, problem.cols, -(-len(self._hard_rows) // problem.rows)
        rows = np.resize(self._hard_rows, (count * problem.rows, cols))
        outputs = Slots.of(count, problem.rows * problem.output_stride * size, problem.output_alignment)
        inputs = outputs if problem.in_place else Slots.of(count, problem.rows * problem.input_stride * size, problem.input_alignment)
        around = check.AROUND_OUTPUT if problem.in_place else check.AROUND_INPUT
        image = np.full(inputs.arena_bytes // 2, around, np.uint16).view(np.uint8)
        for group in range(count):
            lines = rows[group * problem.rows : (group + 1) * problem.rows]
            place = image[inputs.matrix(group) :][: problem.rows * problem.input_stride * size]
            place.reshape(problem.rows, -1)[:, : cols * size] = lines.view(np.uint8).reshape(problem.rows, -1)
        output_arena = setup.allocate(outputs.arena_bytes)
        input_arena = output_arena if problem.in_place else setup.allocate(inputs.arena_bytes)
        reference = setup.allocate(8 * rows.size)
        setup.driver.memcpy_htod(reference, host_reference(setup.operation, rows))

        def poison() -> None:
            setup.driver.memset_d8_async(output_arena, UNWRITTEN, outputs.arena_bytes, setup.stream)

        def upload() -> None:
            setup.stream.synchronize()
            setup.driver.memcpy_htod(input_arena, image)

        upload()
        places = [(output_arena + outputs.matrix(i), input_arena + inputs.matrix(i)) for i in range(count)]
        step = 8 * problem.rows * cols
        groups = [
            Group(out, into, reference + i * step, problem.rows, problem.output_stride, setup.seed + i * problem.rows)
            for i, (out, into) in enumerate(places)
        ]
        return HardRows(groups, poison, upload)


def host_reference(operation: Operation, rows: Array) -> Array:
    """The operation's float64 reference of `rows` (shape (rows, cols), any element type)."""
    return np.ascontiguousarray(operation.reference(rows))


def compute_reference(setup: Setup, reference: int) -> None:
    """Write the float64 reference of the first pair to `reference`, row after row without gaps.

    On the GPU when the operation has a reference template, whose kernel `<operation>_reference` gets a warp per row and writes double,
    and which is then compared with the host's on sampled rows; else on the host.
    Raises AutotuneError when the two disagree: then the operation is wrong, and no configuration can be judged.
    """
    problem, operation = setup.problem, setup.operation
    if operation.reference_template is None:
        rows = max(1, CHUNK_ELEMENTS // problem.input_stride)
        for first in range(0, problem.rows, rows):
            expected = host_reference(operation, input_rows(setup, first, min(rows, problem.rows - first)))
            setup.driver.memcpy_htod(reference + 8 * first * problem.cols, expected)
        return
    arguments = ARGUMENTS.pack(reference, setup.input(0), problem.rows, problem.cols, problem.cols, problem.input_stride, 0)
    blocks = -(-problem.rows * 32 // THREADS)
    setup.support.launch(f"{operation.name}_reference", arguments, setup.stream, blocks=blocks)
    for row in sampled_rows(problem, setup.seed):
        expected = host_reference(operation, input_rows(setup, row, 1))[0]
        got = setup.download(reference + 8 * row * problem.cols, problem.cols, np.float64)
        if not np.allclose(got, expected, rtol=REFERENCE_AGREEMENT, atol=1e-300, equal_nan=True):
            raise AutotuneError(
                f"the reference template of {operation.name} disagrees with its reference in row {row} of {problem}; correct one of them"
            )


def sampled_rows(problem: Problem, seed: int) -> list[int]:
    """Rows that stand for all: the first, the last, and others at random, at most 64 and about a million elements together."""
    count = min(problem.rows, 64, max(1, SAMPLED_ELEMENTS // problem.cols))
    others = np.random.default_rng(seed).integers(0, problem.rows, max(0, count - 2))
    return sorted({0, problem.rows - 1, *map(int, others)})


def input_rows(setup: Setup, first: int, count: int) -> Array:
    """`count` rows of the first pair's input from row `first` on, on the host: shape (count, cols)."""
    problem = setup.problem
    pitch = problem.input_stride * problem.element_bytes
    dtype = check.numpy_dtype(problem.dtype)
    raw = setup.download(setup.input(0) + first * pitch, (count - 1) * problem.input_stride + problem.cols, dtype)
    return np.lib.stride_tricks.as_strided(raw, (count, problem.cols), (pitch, dtype.itemsize))
