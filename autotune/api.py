"""`autotune.sweep`: what the command `autotune sweep` does, from Python."""

import os
from collections.abc import Iterable
from contextlib import closing
from typing import Literal

from autotune import arguments
from autotune.backends.recorded import RecordedBackend
from autotune.backends.select import select
from autotune.catalogue import OPERATIONS, load
from autotune.database import Database, default_path
from autotune.guard import ALLOWED_S
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
    hang_timeout_s: float = ALLOWED_S,
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
    cannot be, for an argument of another kind, and when what the device needs is missing.
    """
    loaded = load(arguments.text("operation", operation, OPERATIONS), arguments.kernels_folder(kernels))
    named = arguments.texts("versions", versions, 'give a list of names, such as ["v5"]')
    chosen = tuple(loaded.version(name).name for name in named)
    wanted = arguments.sizes(sizes)
    offered = [loaded.require_dtype(name) for name in arguments.texts("dtypes", dtypes, 'give a list of names, such as ["float32"]')]
    problems = [Problem(loaded.name, *size, dtype) for dtype in offered for size in wanted]
    path = default_path() if db is None else arguments.path("db", db)
    seed = arguments.whole("seed", seed, 0, arguments.MOST_SEED)
    if not isinstance(watcher, Watcher | None):
        raise arguments.refused("watcher", watcher, "give an autotune.watch.Watcher, or leave it out")
    limited = exhaustive is not False or any(limit is not None for limit in (trials, seconds, until_gain))
    budget = Budget(trials=trials, seconds=seconds, until_gain=until_gain, exhaustive=exhaustive) if limited else None
    backend = select(device, protocol=protocol, hang_timeout_s=hang_timeout_s, jobs=jobs).backend
    with closing(backend):
        if isinstance(backend, RecordedBackend):
            backend.require(problems, chosen)
        with Database(path, mode="write", create=True) as database:
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
