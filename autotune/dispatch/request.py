"""From the two arrays of a call to the problem that they pose, or the sentence that says why they pose none."""

from autotune.dispatch.arrays import Matrix, View, alignment, matrix
from autotune.errors import UsageError
from autotune.problem import Problem


def posed(operation: str, dtypes: tuple[str, ...], x: View, out: View, *, host: bool) -> tuple[Problem, Matrix, Matrix]:
    """The problem of reading `x` and writing `out`, and both as matrices; `dtypes` are accepted, and `host` says which memory is.

    Raises UsageError for another dtype, memory or shape, for a read-only `out`, and for layouts that `matrix` refuses.
    """
    for view in (x, out):
        if view.dtype not in dtypes:
            raise UsageError(f"{view.name} holds {view.dtype}; {operation} takes {', '.join(dtypes)}")
        if view.host != host:
            accepted = "the emulator takes arrays in memory of the CPU" if host else "a GPU takes arrays in its own memory"
            raise UsageError(f"{view.name} is in memory of the {'CPU' if view.host else 'GPU'}; {accepted}: copy it there first")
    if out.shape != x.shape or out.dtype != x.dtype:
        raise UsageError(f"out is {_said(out)} and the input is {_said(x)}; they must be the same")
    if not out.writable:
        raise UsageError("out is read-only; pass an array that can be written")
    source = matrix(x)
    target = source if out.strides == x.strides else matrix(out)
    for view in (x, out):
        if not view.pointer and source.rows and source.cols:
            raise UsageError(f"{view.name} has no memory; pass one whose elements are there")
    in_place = x.pointer == out.pointer
    if in_place and source != target:
        raise UsageError("out starts where the input does but has other strides; it must be the input itself or not overlap it")
    problem = Problem(
        operation,
        source.rows,
        source.cols,
        x.dtype,
        source.stride,
        target.stride,
        alignment(x.pointer),
        alignment(out.pointer),
        in_place,
    )
    return problem, source, target


def check_interleaved(problem: Problem, distance_bytes: int) -> None:
    """Let pass what overlaps as a range but in no element: two sets of columns of one matrix. Raises UsageError for all else."""
    pitch_bytes = problem.input_stride * problem.element_bytes
    offset_bytes = distance_bytes % pitch_bytes
    same_pitch = problem.rows > 1 and problem.input_stride == problem.output_stride
    if not (same_pitch and problem.bytes_per_row <= offset_bytes <= pitch_bytes - problem.bytes_per_row):
        raise UsageError("out overlaps the input in part; it must be the input itself or not overlap it")


def _said(view: View) -> str:
    return f"{'x'.join(map(str, view.shape)) or 'a scalar'} of {view.dtype}"
