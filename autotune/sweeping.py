"""The main path over many problems: build what is certain to be measured, then tune one problem after the other."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.declared import running
from autotune.errors import StorageError
from autotune.guard import ALLOWED_S, guarded
from autotune.ledger import ROOM_WAIT_S, Ledger
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.search import Budget
from autotune.selector import train
from autotune.selector.dense import reachable, uncompiled
from autotune.spaces import require
from autotune.tuning import Tools, Tuning
from autotune.watch import Summary, Watcher
from autotune.workshop import Workshop

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sweep(
    operation: Operation,
    problems: Sequence[Problem],
    backend: Backend,
    database: Database,
    *,
    versions: tuple[str, ...] = (),
    budget: Budget | None = None,
    seed: int = 0,
    command: str = "",
    watcher: Watcher | None = None,
    room_wait_s: float = ROOM_WAIT_S,
    learn: bool = True,
    hang_timeout_s: float = ALLOWED_S,
) -> Summary:
    """Tune `operation` for each of `problems` on `backend` and remember everything in `database`; what is named twice counts once.

    Without a `budget`, spaces of up to 1024 configurations are measured whole and larger ones until less than 1 % is to be gained.
    What the database knows already is not measured again. Ctrl-C ends it with everything stored that was measured. At its end, on a GPU
    and unless `learn` is false, selectors learn from what was measured.
    A full disk makes it wait for room, and after `room_wait_s` seconds raise StorageError. Raises UsageError when `versions` are named and
    nothing of them is applicable to any of `problems`, and when a function of a definition takes longer than `hang_timeout_s` seconds.
    """
    problems, versions = list(dict.fromkeys(problems)), tuple(dict.fromkeys(versions))
    with guarded(hang_timeout_s):
        require(operation, backend, problems, versions)
    watcher = watcher or Watcher()
    name = backend.device.name
    summary = Summary(name, recorded_on=name if backend.replayed else None, versions=versions)
    watcher.began(len(problems), backend.device, replayed=backend.replayed)
    with guarded(hang_timeout_s), _run(operation, backend, database, watcher, summary, command=command, seed=seed) as run_id:
        ledger = Ledger(database, backend, run_id, watcher, room_wait_s=room_wait_s)
        tools = Tools(operation, backend, database, Workshop(backend, operation), watcher, ledger, seed, versions, budget)
        try:
            _build_ahead(tools, problems)
            tunings = [Tuning(tools, problem, summary) for problem in problems]
            for tuning in tunings:
                tuning.run()
            for tuning in tunings:
                tuning.reconsider()
            if learn and not (backend.replayed or backend.device.is_emulator):
                _learn(tools, dict.fromkeys(problem.dtype for problem in problems))
        except KeyboardInterrupt as interrupt:
            summary.interrupted = True
            summary.interrupted_in = running(interrupt.__traceback__)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise StorageError(f"there is no room for {error.filename or 'a file'} ({error.strerror}); make some and run again") from error
        summary.raced_again = ledger.raced_again
    watcher.ended(summary)
    return summary


@contextmanager
def _run(
    operation: Operation, backend: Backend, database: Database, watcher: Watcher, summary: Summary, *, command: str, seed: int
) -> Iterator[int]:
    """A run of the database, ended as what it was: done, interrupted, or failed."""
    for name, template in backend.templates(operation):
        database.add_template(operation.name, name, template)
    run_id = database.begin_run(backend.device, backend.environment, backend.timing, command=command, seed=seed)
    state = "failed"
    try:
        yield run_id
        state = "interrupted" if summary.interrupted else "done"
    except BaseException:
        watcher.aborted()
        raise
    finally:
        database.end_run(run_id, state)


def _build_ahead(tools: Tools, problems: Sequence[Problem]) -> None:
    """Build what is going to be measured for certain, all at once, so that nothing compiles between timings."""
    wanted: dict[str, dict[Configuration, None]] = {}
    for problem in problems:
        certain = Tuning(tools, problem, Summary()).certain()
        wanted.setdefault(problem.dtype, {}).update(dict.fromkeys(certain))
    for dtype, configurations in wanted.items():
        tools.workshop.build(configurations, dtype, tools.watcher.building)


def _learn(tools: Tools, dtypes: Iterable[str]) -> None:
    """Train the selectors again, and keep what they may choose in compiled form: the dispatcher compiles nothing."""
    device, operation = tools.backend.device, tools.operation
    for dtype in dtypes:
        trained = train(tools.database, operation, device, tools.backend.timing, dtype)
        if trained is None:
            continue
        if trained.changed:
            tools.watcher.learnt(trained)
        wanted = uncompiled(tools.database, operation, device, dtype, reachable(trained.model, operation, device, dtype))
        tools.workshop.build(wanted, dtype, tools.watcher.building)
        for configuration in wanted:
            instance = tools.workshop.find(configuration, dtype)
            if instance is not None and instance.binary:
                tools.ledger.keep(instance)
