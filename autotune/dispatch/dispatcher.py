"""The dispatcher: from arrays to a launch of the best kernel known for them.

What a call does when its layout has been seen before: two look-ups, one launch. No file, lock, compiler, wait or allocation (but the
result's) is on that path. A new layout takes the other one, once: it is checked, decided and planned, and the plan is kept.
"""

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.device import EMULATOR, Device
from autotune.dispatch.arrays import HandOver, Kind, View, kind_of, stream_handle, telling_gpus_apart
from autotune.dispatch.plan import LaunchCall, Launcher, NotLoaded, Plan, Planner, nothing
from autotune.dispatch.request import check_interleaved, posed
from autotune.dispatch.selection import Explanation
from autotune.dispatch.store import layers
from autotune.errors import KernelError, UsageError
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.dispatch.cuda_driver import Cuda

# Enough for any model's shapes. Beyond it all plans are dropped, so that a stream of ever new shapes does not eat the memory.
MOST_PLANS = 4096


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
        self.operation = load(operation, Path(kernels) if kernels else None)
        self._dtypes = self.operation.dtypes
        self._db = db
        self._layers = layers(db)
        self._emulated = device == "emulator"
        self._cuda = None if self._emulated else _start_cuda()
        self._planners: dict[int, Planner] = {}
        self._kinds: dict[type, Kind] = {}
        self._plans: dict[Any, Plan] = {}
        self._lock = threading.Lock()
        self._flights: dict[Any, threading.Lock] = {}
        self._retired: dict[str, int] = {}
        self._misses = 0
        self._frozen = False
        self._process = os.getpid()
        _dispatchers.add(self)

    def __call__(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """The operation over the last axis of `x`, written to `out` where it is given; the result has the type of `x`.

        `x` has any number of axes whose leading ones lie at one row stride; `out` has its shape and dtype and may be `x` itself.
        The work is queued on `stream`, on the current stream of torch or CuPy for their arrays, else on the legacy default stream.
        Raises UsageError for an array that cannot be taken as it is, KernelError when a launch fails.
        """
        kind = self._kinds.get(type(x)) or self._kind(x)
        try:
            layout, source = kind.describe(x)
            if out is not None:
                other = self._kinds.get(type(out)) or self._kind(out)
                out_layout, target = other.describe(out)
        except HandOver:
            return self._hand_over(x, out, stream)
        handle = kind.stream(layout) if stream is None else self._foreign_stream(kind, layout, stream)
        if out is None:
            result = kind.allocate(x) if stream is None or kind.allocate_on is None else kind.allocate_on(x, handle)
            target = kind.pointer(result)
            key: Any = (kind, layout, source & 15, target & 15)
            plan = self._plans.get(key) or self._plan(key, kind, x, kind, result, handle)
        else:
            result = out
            key = (kind, layout, source & 15, target & 15, other, out_layout, source == target)
            plan = self._plans.get(key) or self._plan(key, kind, x, other, out, handle)
            distance = target - source
            if distance and -plan.output_bytes < distance < plan.input_bytes:
                check_interleaved(plan.problem, distance)
        plan.launch(target, source, handle)
        plan.hits += 1
        return result

    def warm(self, shapes: Iterable[tuple[int, ...]], dtypes: Iterable[str] = (), *, stream: Any = None) -> None:
        """Load what packed arrays of these shapes need on the current device, so that a capture or a first call finds it in place.

        Without `dtypes`, all are meant that the safe kernel takes. With `stream`, workspaces are made for it too.
        """
        planner = self._planner(self._ordinal(None))
        meant = tuple(dtypes) or self.operation.version(self.operation.safe.version).dtypes
        for *leading, cols in shapes:
            for dtype in meant:
                problem = Problem(self.operation.name, prod(leading), cols, dtype)
                if not problem.empty:
                    planner.warm(problem, None if stream is None else stream_handle(stream))

    def freeze(self) -> None:
        """From now on nothing is loaded: a layout without a plan is answered from what is loaded, with the safe kernel at least."""
        for planner in self._planners.values() or (self._planner(self._ordinal(None)),):
            planner.preload_safe()
        self._frozen = True

    def reload(self) -> None:
        """Read the databases again and forget all plans. The new table is made aside, so calls meanwhile use the old one.

        Ends a freeze. Raises UsageError when the database that was named is gone.
        """
        found = layers(self._db)
        planners = {ordinal: Planner(self.operation, planner.launcher, found) for ordinal, planner in self._planners.items()}
        with self._lock:
            self._layers, self._planners, self._frozen = found, planners, False
            self._drop_plans()

    def stats(self) -> Stats:
        """What was done so far. Counts are taken without a lock and may lack a call or two where threads race."""
        with self._lock:
            hits = dict(self._retired)
            for plan in list(self._plans.values()):
                hits[plan.tier] = hits.get(plan.tier, 0) + plan.hits
            return Stats(hits, self._misses, sum(planner.loads for planner in self._planners.values()), len(self._plans))

    def note_misses(self) -> int:
        """Log the sizes that had no answer of their own since the last time, for `autotune sweep --from-misses`; returns how many.

        They go into the database that was named, or the user's own. Never called by a call: it writes a file.
        """
        from autotune.database import Database, default_path

        noted: dict[Device, list[tuple[Problem, str, Configuration | None, int]]] = {}
        for plan in list(self._plans.values()):
            count = plan.hits - plan.noted
            if plan.missed and count:
                plan.noted += count
                noted.setdefault(plan.device, []).append((plan.problem, plan.tier, plan.configuration, count))
        if noted:
            with Database(Path(self._db or default_path()), create=True) as database:
                for device, misses in noted.items():
                    database.add_misses(device, misses)
        return sum(map(len, noted.values()))

    def explain(self, rows: int, cols: int, dtype: str = "float32") -> Explanation:
        """Why a packed matrix of this size gets the kernel that it gets on the current device."""
        return self._planner(self._ordinal(None)).selector.explain(Problem(self.operation.name, rows, cols, dtype))

    def _hand_over(self, x: Any, out: Any, stream: Any) -> Any:
        from autotune.dispatch import torch_operator  # the only library that takes calls over

        return torch_operator.call(self, x, out, stream)

    def _kind(self, array: Any) -> Kind:
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

    def _plan(self, key: Any, kind: Kind, x: Any, other: Kind, out: Any, stream: int) -> Plan:
        """The plan of a layout that has none yet; threads that want the same one wait for the first of them."""
        if os.getpid() != self._process and self._cuda is not None:
            raise KernelError("this process was forked after the GPU was in use, which CUDA does not survive; start it with 'spawn'")
        try:
            with self._flights.setdefault(key, threading.Lock()):
                plan = self._plans.get(key)
                if plan is None:
                    plan, keep = self._decide(kind, kind.view(x), other.view(out), stream)
                    if keep:
                        self._keep(key, plan)
        finally:
            self._flights.pop(key, None)
        return plan

    def _decide(self, kind: Kind, x: View, out: View, stream: int) -> tuple[Plan, bool]:
        problem, source, target = posed(self.operation.name, self._dtypes, x, out, host=self._emulated)
        ordinal = self._ordinal(x)
        if ordinal != self._ordinal(out):
            raise UsageError(f"out is on GPU {self._ordinal(out)} and the input on GPU {ordinal}; both must be on one")
        if problem.empty:
            return Plan(EMULATOR, problem, "empty", None, nothing, 0, 0), True
        planner = self._planner(ordinal)
        capturing = planner.launcher.capturing(stream)
        try:
            candidate, launch = planner.launch_of(problem, loaded_only=self._frozen or capturing)
        except NotLoaded:
            state = "the stream is being captured" if capturing else "the dispatcher is frozen"
            raise KernelError(
                f"{state} and no kernel that is loaded runs {problem}; call warm([({problem.rows}, {problem.cols})]) before"
            ) from None
        if kind.synchronous:
            launch = _then_wait(launch, planner.launcher)
        # What a capture had to make do with is no answer for later calls.
        chosen = (planner.launcher.device, problem, candidate.tier, candidate.configuration)
        return Plan(*chosen, launch, source.extent_bytes, target.extent_bytes), not capturing

    def _ordinal(self, view: View | None) -> int:
        """The GPU that an array is on; the current one for an array that does not say."""
        if self._cuda is None:
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

    def _keep(self, key: Any, plan: Plan) -> None:
        with self._lock:
            self._misses += 1
            if len(self._plans) >= MOST_PLANS:
                self._drop_plans()
            # Readers take no lock: setting one key of a dict is atomic, and a whole table is only ever replaced.
            self._plans[key] = plan

    def _drop_plans(self) -> None:
        for plan in list(self._plans.values()):
            self._retired[plan.tier] = self._retired.get(plan.tier, 0) + plan.hits
        self._plans = {}


def _start_cuda() -> "Cuda":
    from autotune.dispatch.cuda_driver import Cuda

    return Cuda()


def _then_wait(launch: LaunchCall, launcher: Launcher) -> LaunchCall:
    def call(output: int, source: int, stream: int) -> None:
        launch(output, source, stream)
        launcher.synchronize(stream)

    return call


_dispatchers: "WeakSet[Dispatcher]" = WeakSet()


def _forget_all_plans() -> None:
    for dispatcher in _dispatchers:
        dispatcher._plans, dispatcher._flights, dispatcher._lock = {}, {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_all_plans)
