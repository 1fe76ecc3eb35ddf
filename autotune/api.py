"""`autotune.sweep`: what the command `autotune sweep` does, from Python."""

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Literal

from autotune.backends.recorded import RecordedBackend
from autotune.backends.select import select
from autotune.catalogue import load
from autotune.database import Database, default_path
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep as sweep_problems
from autotune.watch import Summary, Watcher


def sweep(
    operation: str = "softmax",
    *,
    sizes: Iterable[tuple[int, int]] = ((4096, 4096),),
    dtypes: Iterable[str] = ("float32",),
    versions: Iterable[str] = (),
    device: str = "auto",
    trials: int | None = None,
    seconds: float | None = None,
    until_gain: float | None = None,
    exhaustive: bool = False,
    protocol: Literal["cold", "warm"] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    hang_timeout_s: float = 10.0,
    db: str | os.PathLike[str] | None = None,
    kernels: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
) -> Summary:
    """Tune `operation` for each (rows, columns) of `sizes` and each of `dtypes`; everything is stored in the database `db`.

    >>> import tempfile, autotune
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = autotune.sweep("softmax", sizes=[(4, 64)], device="emulator", versions=["v2"], trials=2, db=f"{folder}/x.sqlite")
    >>> summary.new_trials
    2

    `device` is auto, cuda, cuda:I, emulator or recorded[:PATH[#DEVICE]]; without a limit a small space is measured whole. `protocol` is
    cold on a GPU when left out, and what was recorded in a replay; the emulator has none. Raises UsageError for a name, size or limit that
    cannot be, and when what the device needs is missing.
    """
    loaded = load(operation, Path(kernels).resolve() if kernels else None)
    chosen = tuple(loaded.version(name).name for name in versions)
    problems = [Problem(loaded.name, *_pair(size), dtype) for dtype in dtypes for size in sizes]
    limited = exhaustive or any(limit is not None for limit in (trials, seconds, until_gain))
    budget = Budget(trials=trials, seconds=seconds, until_gain=until_gain, exhaustive=exhaustive) if limited else None
    backend = select(device, protocol=protocol, hang_timeout_s=hang_timeout_s, jobs=jobs).backend
    with closing(backend):
        if isinstance(backend, RecordedBackend):
            backend.require(problems, chosen)
        with Database(Path(db) if db else default_path(), mode="write", create=True) as database:
            return sweep_problems(
                loaded,
                problems,
                backend,
                database,
                versions=chosen,
                budget=budget,
                seed=seed,
                command=f"autotune.sweep({operation!r})",
                hang_timeout_s=hang_timeout_s,
                watcher=watcher,
            )


def _pair(size: object) -> tuple[int, int]:
    if isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(part, int) for part in size):
        return size[0], size[1]
    raise UsageError(f"size {size!r} is not a pair of whole numbers; give (rows, columns), such as (4096, 4096)")
