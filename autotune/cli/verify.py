"""`autotune verify`: every configuration against the float64 reference."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from autotune.arguments import MOST_SEED
from autotune.backends import Backend
from autotune.backends.select import gpu_count, select
from autotune.cli.options import dtype_of, hang_timeout_option, kernels_option, operation_of, problems_of, repeatable
from autotune.cli.summary import outcomes, told_once
from autotune.configuration import Configuration
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.spaces import impossible, spoken
from autotune.trial import Failure, Outcome, ProblemFailure
from autotune.workshop import Workshop

# One column and one row; fewer columns than threads; around a warp and a vector; odd; long enough for every loop to run often.
SIZES = ("1x1", "5x7", "9x33", "6x1000", "10x1001", "3x4096")
LONG = ("2x131072",)


@click.command("verify")
@click.argument("operation")
@repeatable("--size", "sizes", metavar="MxN", help=f"May be repeated.  [default: {', '.join(SIZES + LONG)}]")
@repeatable("--dtype", "dtypes", metavar="D", help="May be repeated.  [default: all that OPERATION offers]")
@repeatable("--version", "versions", metavar="vK", help="Only this version; may be repeated.")
@click.option("--device", default="auto", show_default=True, metavar="DEVICE", help="auto (the first GPU), cuda, cuda:I or emulator.")
@click.option("--seed", type=click.IntRange(0, MOST_SEED), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: one per core]")
@hang_timeout_option
@kernels_option
def verify_command(
    operation: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    device: str,
    seed: int,
    jobs: int | None,
    hang_timeout: float,
    kernels: Path | None,
) -> int:
    """Run every configuration of OPERATION and compare all of its output with the float64 reference.

    Those of a version that declares IN_PLACE also write over their input once. The status is 1 when one is wrong, when a size was not
    checked, when nothing is applicable to any, and when SAFE, which must take any input, is not applicable to each.
    """
    loaded = operation_of(operation, kernels, versions)
    offered = {dtype for name in versions or loaded.versions for dtype in loaded.version(name).dtypes}
    names = [dtype_of(loaded, name) for name in dtypes] or [name for name in loaded.dtypes if name in offered]
    problems = problems_of(loaded, sizes or SIZES + LONG, None, names)
    failures: list[tuple[str, str, str]] = []
    right, unchecked = 0, []
    with closing(executing(device, jobs, hang_timeout)) as backend:
        workshop = Workshop(backend, loaded)
        for problem in problems:
            try:
                passed, failed = _verify(backend, loaded, workshop, problem, versions, seed)
            except Failure as failure:  # of no configuration: the problem does not fit into memory, say
                unchecked.append(f"{problem} was not checked: {failure.message.replace(str(problem), 'it', 1)}")
                continue
            right += passed
            for configuration, wrong in failed:
                failures.append((configuration.version, f"{configuration} at {problem}", f"{wrong.outcome}: {wrong.message}"))
            without = impossible(loaded, backend, problem, versions or (() if passed or failed else tuple(loaded.versions)))
            why = f"; {spoken(without)}" if without else ""
            click.echo(f"{problem}: {passed} right, {_wrong(failed)} on {backend.device.name}{why}")
        refused = list(_safe_refused(loaded, problems, backend))
    for line in (*told_once(failures), *unchecked, *refused):
        click.echo(line, err=True)
    click.echo(f"{right} right, {len(failures)} wrong" + (f", {len(unchecked)} not checked" if unchecked else ""))
    if not (right or failures or unchecked):
        click.echo("nothing was verified, for nothing is applicable; name another version or size", err=True)
    return 1 if failures or unchecked or refused or not right else 0


def _wrong(failed: list[tuple[Configuration, Failure]]) -> str:
    """How many are wrong, and how those ended that gave no wrong result: what does not compile or hangs has none."""
    ended = Counter(failure.outcome for _, failure in failed)
    return f"{len(failed)} wrong" + (f" ({outcomes(ended)})" if ended.keys() - {Outcome.WRONG_RESULT} else "")


def _safe_refused(operation: Operation, problems: list[Problem], backend: Backend) -> Iterator[str]:
    """One sentence when SAFE is not applicable to each problem whose dtype its version offers."""
    safe = operation.safe
    offered = [problem for problem in problems if problem.dtype in operation.version(safe.version).dtypes]
    verdicts = [(problem, operation.applicable(safe, problem, backend.device)) for problem in offered]
    refused = [(problem, verdict.why) for problem, verdict in verdicts if not verdict]
    if refused:
        (first, why), more = refused[0], len(refused) - 1
        where = f"{first}" + (f" and at {more} more of these problems" if more else "")
        yield f"{safe}, which is SAFE and must take any input, is not applicable at {where} ({why})"


def executing(device: str, jobs: int | None, hang_timeout_s: float) -> Backend:
    """The backend for `device`. Raises UsageError for recordings, which have no output to compare, and without a GPU for `auto`."""
    if device == "auto" and not gpu_count():
        raise UsageError("no CUDA GPU was found, so no kernel can be run on one; --device emulator runs them on this CPU")
    if device.partition(":")[0] == "recorded":
        raise UsageError(f"device {device!r} replays times and runs no kernel; use --device cuda or emulator")
    return select(device, jobs=jobs, hang_timeout_s=hang_timeout_s).backend


def _verify(
    backend: Backend, operation: Operation, workshop: Workshop, problem: Problem, versions: tuple[str, ...], seed: int
) -> tuple[int, list[tuple[Configuration, Failure]]]:
    """How many configurations computed `problem` rightly, and those that did not. Raises Failure where none is at fault."""
    space = [c for c in operation.configurations(versions) if operation.applicable(c, problem, backend.device)]
    workshop.build(space, problem.dtype)
    wrong = []
    with backend.open(operation, problem, seed=seed) as bench:
        for configuration in space:
            try:
                bench.check(workshop.instance(configuration, problem.dtype))
            except ProblemFailure:
                raise
            except Failure as failure:
                wrong.append((configuration, failure))
    return len(space) - len(wrong), wrong
