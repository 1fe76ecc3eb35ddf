"""The dispatcher: from arrays to a launch of the best kernel known for them.

A call whose layout has been seen before takes the short path of `calls`. A new layout takes the long one, once: it is checked, decided
and planned here, and the plan is kept.
"""

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from autotune import arguments
from autotune.catalogue import OPERATIONS, load
from autotune.configuration import Configuration
from autotune.definition import MOST
from autotune.device import EMULATOR, Device
from autotune.dispatch.arrays import Call, Kind, View, kind_of, stream_handle, telling_gpus_apart
from autotune.dispatch.calls import SlowPath, call_of
from autotune.dispatch.plan import Bound, LaunchCall, Launcher, NotLoaded, Plan, Planner, nothing
from autotune.dispatch.plans import Plans, Table
from autotune.dispatch.request import posed
from autotune.dispatch.selection import Explanation
from autotune.dispatch.store import layers
from autotune.errors import KernelError, UsageError
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.dispatch.cuda_driver import Cuda

# Those that are alive, by number: how a compiled graph, which holds numbers and tensors, names one.
DISPATCHERS: "WeakValueDictionary[int, Dispatcher]" = WeakValueDictionary()
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Stats:
    """Calls answered per tier ("empty" for nothing to do), decisions made, instances loaded, layouts with a plan."""

    hits: dict[str, int]
    misses: int
    loads: int
    plans: int


class Dispatcher:
    """Runs `operation` on arrays with the best kernel that the databases know for their size, on the GPU they lie on.

    >>> import numpy as np
    >>> softmax = Dispatcher("softmax", device="emulator")
    >>> softmax(np.zeros((2, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25],
           [0.25, 0.25, 0.25, 0.25]], dtype=float32)

    `db` is a database that `autotune sweep` made; left out, it is $AUTOTUNE_DB or the user's own; the shipped ones lie below either.
    `device` is "cuda", or "emulator" for NumPy arrays without a GPU. Raises UsageError for an unknown operation, a missing database, or
    no GPU.
    """

    def __init__(
        self,
        operation: str = "softmax",
        *,
        db: str | os.PathLike[str] | None = None,
        device: str = "cuda",
        kernels: str | os.PathLike[str] | None = None,
    ) -> None:
        if device not in ("cuda", "emulator"):
            raise UsageError(f"device {device!r} is not known to the dispatcher; use 'cuda' or 'emulator'")
        self.operation = load(arguments.text("operation", operation, OPERATIONS), arguments.kernels_folder(kernels))
        self._dtypes = self.operation.dtypes
        self._db = None if db is None else arguments.path("db", db)
        self._layers = layers(self._db)
        self._emulated = device == "emulator"
        self._cuda = None if self._emulated else _start_cuda()
        self._planners: dict[int, Planner] = {}
        self._kinds: dict[type, Kind] = {}
        self._calls: dict[type, Call] = {}
        self._plans = Plans()
        self._lock = threading.Lock()
        self._frozen = False
        self._process = os.getpid()
        self.number = next(_numbers)
        DISPATCHERS[self.number] = self

    def __call__(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """The operation over the last axis of `x`, written to `out` where it is given; the result has the type of `x`.

        `x` has any number of axes whose leading ones lie at one row stride; `out` has its shape and dtype and may be `x` itself.
        The work is queued on `stream`, on the current stream of torch or CuPy for their arrays, else on the legacy default stream.
        Raises UsageError for an array that cannot be taken as it is, KernelError when a launch fails.
        """
        try:
            call = self._calls[type(x)]
        except KeyError:
            call = self._first_call
        return call(x, out, stream)

    def _first_call(self, x: Any, out: Any, stream: Any) -> Any:
        return self.call_for(x)(x, out, stream)

    def call_for(self, x: Any) -> Call:
        """The function `(x, out, stream) -> result` behind calls with arrays of this type."""
        slow = SlowPath(self._plans.table, self._plan, self._kind, self._hand_over, self._foreign_stream, self._emulated)
        call = self._calls[type(x)] = call_of(type(x), self._kind(x), slow)
        return call

    def warm(self, shapes: Iterable[tuple[int, ...]], dtypes: Iterable[str] = (), *, stream: Any = None) -> None:
        """Load what packed arrays of these shapes need on the current device, so that a capture or a first call finds it in place.

        Without `dtypes`, all are meant that a kernel is stored for. With `stream`, workspaces are made for it too.
        Raises AutotuneError for one of `dtypes` that no kernel is stored for.
        """
        planner = self._planner(self._ordinal(None))
        named = arguments.texts("dtypes", dtypes, 'give a list of names, such as ["float32"]')
        for *leading, cols in arguments.shapes(shapes):
            for dtype in named or self._dtypes:
                problem = Problem(self.operation.name, prod(leading), cols, dtype)
                if not problem.empty and (named or planner.can_run(problem)):
                    planner.warm(problem, None if stream is None else stream_handle(stream))

    def freeze(self) -> None:
        """From now on nothing is loaded: a layout without a plan is answered from what is loaded, with the safe kernel at least."""
        for planner in self._planners.values() or (self._planner(self._ordinal(None)),):
            planner.preload_safe()
        self._frozen = True

    def reload(self) -> None:
        """Read the databases again and forget all plans. The new table is made aside, so calls meanwhile use the old one.

        What a file said before still counts, with one warning, where it cannot be read any more. Ends a freeze. Raises UsageError when the
        database that was named is gone.
        """
        found = layers(self._db)
        planners = {ordinal: planner.reread(found) for ordinal, planner in self._planners.items()}
        with self._lock:
            self._layers, self._planners, self._frozen = found, planners, False
        self._plans.drop()

    def stats(self) -> Stats:
        """What was done so far. Counts are taken without a lock and may lack a call or two where threads race."""
        plans = self._plans
        return Stats(plans.hits(), plans.made, sum(planner.loads for planner in self._planners.values()), len(plans.all()))

    def note_misses(self) -> int:
        """Log the sizes that had no answer of their own since the last time, for `autotune sweep --from-misses`; returns how many.

        They go into the database that was named, or the user's own. Never called by a call: it writes a file.
        """
        from autotune.database import Database, default_path

        noted: dict[Device, list[tuple[Problem, str, Configuration | None, int]]] = {}
        for plan in self._plans.all():
            count = plan.hits - plan.noted
            if plan.missed and count:
                plan.noted += count
                noted.setdefault(plan.device, []).append((plan.problem, plan.tier, plan.configuration, count))
        if noted:
            with Database(self._db or default_path(), create=True) as database:
                for device, misses in noted.items():
                    database.add_misses(device, misses)
        return sum(map(len, noted.values()))

    def explain(self, rows: int, cols: int, dtype: str = "float32") -> Explanation:
        """Why a packed matrix of this size gets the kernel that it gets on the current device."""
        rows, cols = arguments.whole("rows", rows, 0, MOST), arguments.whole("cols", cols, 0, MOST)
        problem = Problem(self.operation.name, rows, cols, self.operation.require_dtype(dtype))
        return self._planner(self._ordinal(None)).selector.explain(problem)

    def _hand_over(self, x: Any, out: Any, stream: Any) -> Any:
        from autotune.dispatch import torch_operator  # the only library that takes calls over

        return torch_operator.call(self, x, out, stream)

    def _kind(self, array: Any) -> Kind:
        kind = self._kinds.get(type(array))
        if kind is None:
            kind = kind_of(array)
            if self._cuda is not None and self._cuda.device_count > 1 and not kind.knows_device:
                kind = telling_gpus_apart(kind, self._cuda.ordinal_of)
            self._kinds[type(array)] = kind
        return kind

    def _foreign_stream(self, kind: Kind, layout: Any, stream: Any) -> int:
        handle = stream if type(stream) is int else stream_handle(stream)
        producer = kind.producer(layout) if kind.producer is not None else None
        if producer is not None and producer != handle and self._cuda is not None:
            self._cuda.follow(handle, producer)
        return handle

    def _plan(self, table: Table, key: Any, kind: Kind, x: Any, other: Kind, out: Any, stream: int) -> Plan:
        if os.getpid() != self._process and self._cuda is not None:
            raise KernelError("this process was forked after the GPU was in use, which CUDA does not survive; start it with 'spawn'")
        return self._plans.get(table, key, lambda: self._decide(kind, kind.view(x), other.view(out), stream))

    def _decide(self, kind: Kind, x: View, out: View, stream: int) -> tuple[Plan, bool]:
        problem, source, target = posed(self.operation.name, self._dtypes, x, out, host=self._emulated)
        ordinal = self._ordinal(x)
        if ordinal != self._ordinal(out):
            raise UsageError(f"out is on GPU {self._ordinal(out)} and the input on GPU {ordinal}; both must be on one")
        if problem.empty:
            return Plan(EMULATOR, problem, "empty", None, nothing, 0, 0), True
        planner = self._planner(ordinal)
        best = planner.best_of(problem)
        (candidate, launch, fix), lasting = (best, True) if best is not None else self._loaded(planner, problem, stream)
        if kind.synchronous:
            launch, fix = _then_wait(launch, planner.launcher), None
        chosen = (planner.launcher.device, problem, candidate.tier, candidate.configuration)
        return Plan(*chosen, launch, -target.extent_bytes, source.extent_bytes, fix), lasting

    def _loaded(self, planner: Planner, problem: Problem, stream: int) -> tuple[Bound, bool]:
        """The best candidate, loaded unless that is forbidden now, and whether later calls may have it, as they may not what a capture had
        to make do with.
        """
        capturing = planner.launcher.capturing(stream)
        try:
            return planner.launch_of(problem, loaded_only=self._frozen or capturing), not capturing
        except NotLoaded:
            state = "the stream is being captured" if capturing else "the dispatcher is frozen"
            raise KernelError(
                f"{state} and no kernel that is loaded runs {problem}; call warm([({problem.rows}, {problem.cols})]) before"
            ) from None

    def _ordinal(self, view: View | None) -> int:
        """The GPU that an array is on; the current one for an array that does not say."""
        if self._cuda is None or self._cuda.device_count == 1:
            return 0
        if view is not None and view.device is not None:
            return view.device
        placed = self._cuda.ordinal_of(view.pointer) if view is not None and view.pointer else None
        return self._cuda.ordinal() if placed is None else placed

    def _planner(self, ordinal: int) -> Planner:
        planner = self._planners.get(ordinal)
        if planner is None:
            with self._lock:
                planner = self._planners.get(ordinal)
                if planner is None:
                    planner = Planner(self.operation, self._launcher(ordinal), self._layers)
                    self._planners[ordinal] = planner
        return planner

    def _launcher(self, ordinal: int) -> Launcher:
        if self._cuda is None:
            from autotune.dispatch.emulator import EmulatorLauncher

            return EmulatorLauncher()
        from autotune.dispatch.cuda_launcher import CudaLauncher

        return CudaLauncher(self._cuda, ordinal)


def _start_cuda() -> "Cuda":
    from autotune.dispatch.cuda_driver import Cuda

    return Cuda()


def _then_wait(launch: LaunchCall, launcher: Launcher) -> LaunchCall:
    def call(output: int, source: int, stream: int) -> None:
        launch(output, source, stream)
        launcher.synchronize(stream)

    return call


def _traced_call(self: Dispatcher, x: Any, out: Any = None, stream: Any = None) -> Any:
    from autotune.dispatch.torch_traced import softmax

    if self.operation.name != "softmax":
        raise TypeError(f"torch knows no gradient of {self.operation.name}; call it outside torch.compile")
    return softmax(x, out, stream, self.number)


# What torch.compile inlines in the place of a call, whose body it could not trace; costs an ordinary call nothing.
Dispatcher.__call__._torchdynamo_inline = _traced_call  # type: ignore[attr-defined]


def _forget_threads() -> None:
    for dispatcher in list(DISPATCHERS.values()):
        dispatcher._lock = threading.Lock()
        dispatcher._plans.forget_threads()


os.register_at_fork(after_in_child=_forget_threads)
