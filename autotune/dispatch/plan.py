"""From a call's layout to a plan: the problem, the instance that runs it, and everything about its launch that does not change."""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Version
from autotune.device import Device
from autotune.dispatch.knowledge import Knowledge, read
from autotune.dispatch.selection import Candidate, Selector
from autotune.dispatch.store import Layer, StoredInstance
from autotune.errors import AutotuneError
from autotune.operation import Operation
from autotune.problem import Problem

# (output pointer, input pointer, stream handle); what it returns is of no meaning
LaunchCall = Callable[[int, int, int], object]
# The launch on one output, input and stream: a function that returns the driver's error, its arguments, and what must be kept for as long
# as it may be called
FixedLaunch = tuple[Callable[..., int], tuple[object, ...], object]
Fix = Callable[[int, int, int], FixedLaunch]  # (output pointer, input pointer, stream handle)
Bound = tuple[Candidate, LaunchCall, Fix | None]  # a candidate, its launch, and what fixes that


class NotLoaded(Exception):  # noqa: N818 (whoever asked for loaded instances only knows what to do about it)
    """Of all candidates for a problem, none is loaded."""


class Function(Protocol):
    """A loaded instance."""

    def bind(self, problem: Problem, launch: Launch) -> LaunchCall:
        """The launch of this instance on matrices of that size and those strides, with all but the pointers and the stream fixed."""

    def fix(self, problem: Problem, launch: Launch) -> Fix | None:
        """What fixes those too, for calls that come again with the same memory; None where a launch depends on more."""


class Launcher(Protocol):
    """One device on which instances are loaded and launched."""

    @property
    def device(self) -> Device: ...

    @property
    def host(self) -> bool:
        """Whether its arrays lie in memory of the CPU."""

    def load(self, version: Version, configuration: Configuration, dtype: str, stored: StoredInstance | None, bounds: Bounds) -> Function:
        """The instance, ready to be launched. Raises AutotuneError when what is stored cannot be used."""

    def capturing(self, stream: int) -> bool:
        """Whether `stream` records a graph just now, so that nothing may be loaded or allocated."""

    def synchronize(self, stream: int) -> None:
        """Wait until the work on `stream` is done."""

    def workspace(self, stream: int, size_bytes: int) -> int:
        """The address of this stream's workspace of at least `size_bytes`, zeroed when it is made."""


@dataclass(slots=True, eq=False)
class Plan:
    """What runs one layout. An output that starts more than `before` and less than `after` bytes from the input overlaps its range.

    `hits` counts calls without a lock, so that threads that race may lose one; `noted` of them are in a database's log of misses. `live`
    turns false when the plan is dropped.
    """

    device: Device
    problem: Problem
    tier: str
    configuration: Configuration | None
    launch: LaunchCall
    before: int
    after: int
    fix: Fix | None = None
    hits: int = 0
    noted: int = 0
    live: bool = True

    @property
    def missed(self) -> bool:
        """Whether the size has no answer of its own."""
        return self.tier not in ("pin", "exact", "empty")


def nothing(output: int, source: int, stream: int) -> None:
    """The launch of an empty problem."""


class Planner:
    """Makes the plans of one operation on one device, and holds the instances that were loaded for them."""

    def __init__(self, operation: Operation, launcher: Launcher, layers: tuple[Layer, ...], knowledge: Knowledge | None = None) -> None:
        self.operation = operation
        self.launcher = launcher
        self.selector = Selector(operation, launcher.device, knowledge or read(layers, operation, launcher.device))
        self.loads = 0
        self._lock = threading.Lock()
        self._functions: dict[tuple[Configuration, str], Function] = {}
        self._broken: dict[tuple[Configuration, str], str] = {}

    def reread(self, layers: tuple[Layer, ...]) -> "Planner":
        """A planner that goes by what `layers` say now, and by what they said before where a file has become unreadable.

        It keeps the instances that are loaded, but for those in whose place other code is stored now.
        """
        knowledge = read(layers, self.operation, self.launcher.device, self.selector.knowledge)
        planner = Planner(self.operation, self.launcher, layers, knowledge)
        planner._functions = {key: loaded for key, loaded in dict(self._functions).items() if planner._code(key) == self._code(key)}
        return planner

    def _code(self, key: tuple[Configuration, str]) -> str | None:
        """The hash of the code that is stored for an instance; "" on a device for which none is."""
        instances = self.selector.knowledge.instances
        stored = instances.get(key) if instances else None
        return stored.binary_sha if stored else "" if instances is None else None

    def best_of(self, problem: Problem) -> Bound | None:
        """The best candidate for `problem`; None where it is not loaded. Raises AutotuneError where nothing is stored that can run it."""
        candidate = next(self._candidates(problem, loaded_only=False))
        function = self._functions.get((candidate.configuration, problem.dtype))
        return None if function is None else self._bound(candidate, function, problem)

    def launch_of(self, problem: Problem, *, loaded_only: bool) -> Bound:
        """The best candidate that can be launched for `problem`, loaded where that must be.

        With `loaded_only`, only instances that are loaded already count; NotLoaded when none of them is.
        """
        for candidate in self._candidates(problem, loaded_only):
            function = self._function(candidate.configuration, problem.dtype, loaded_only)
            if function is not None:
                return self._bound(candidate, function, problem)
        raise NotLoaded(str(problem))

    def _bound(self, candidate: Candidate, function: Function, problem: Problem) -> Bound:
        version = self.operation.version(candidate.configuration.version)
        launch = version.launch(candidate.configuration, problem, self.launcher.device)
        return candidate, function.bind(problem, launch), function.fix(problem, launch)

    def can_run(self, problem: Problem) -> bool:
        """Whether there is a kernel for `problem`: a database may hold those of one element type only."""
        try:
            return next(iter(self.selector.choices(problem)), None) is not None
        except AutotuneError:
            return False

    def warm(self, problem: Problem, stream: int | None) -> None:
        """Load the instance for `problem`, and make its workspace on `stream` where it needs one.

        So that a capture may ask for other sizes too, the safe kernel of the dtype comes with it where it is stored.
        """
        candidate, *_ = self.launch_of(problem, loaded_only=False)
        version = self.operation.version(candidate.configuration.version)
        launch = version.launch(candidate.configuration, problem, self.launcher.device)
        if launch.workspace_bytes and stream is not None:
            self.launcher.workspace(stream, launch.workspace_bytes)
        self.preload_safe((problem.dtype,))

    def preload_safe(self, dtypes: Iterable[str] = ()) -> None:
        """Load the safe kernel for those of `dtypes` (all without any) that it is stored for: it answers any input without loading."""
        safe, instances = self.operation.safe, self.selector.knowledge.instances
        for dtype in dtypes or self.operation.version(safe.version).dtypes:
            if instances is None or (safe, dtype) in instances:
                self._function(safe, dtype, loaded_only=False)

    def _function(self, configuration: Configuration, dtype: str, loaded_only: bool) -> Function | None:
        """The instance, loaded now unless only loaded ones count; None for one that is not, or that cannot be loaded."""
        key = (configuration, dtype)
        function = self._functions.get(key)
        if function is None and not loaded_only and key not in self._broken:
            with self._lock:
                function = self._functions.get(key) or self._load(*key)
        return function

    def _candidates(self, problem: Problem, loaded_only: bool) -> Iterator[Candidate]:
        if loaded_only:
            yield from (candidate for candidate in self.selector.candidates(problem) if not candidate.rejected)
            return
        try:
            yield from self.selector.choices(problem)
        except AutotuneError as error:
            why = self._without_safe(problem.dtype)
            raise AutotuneError(f"{error}{why}") from None

    def _without_safe(self, dtype: str) -> str:
        """Why the kernel that takes any input is not there, or what brings it; "" when it is."""
        safe, instances = self.operation.safe, self.selector.knowledge.instances
        if (safe, dtype) in self._broken:
            return f": {self._broken[safe, dtype]}"
        if instances is None or (safe, dtype) in instances or dtype not in self.operation.version(safe.version).dtypes:
            return ""
        command = f"autotune compile {self.operation.name} --arch {self.launcher.device.arch} --dtype {dtype} --safe"
        return f"; store one by `{command}` on a machine with nvcc"

    def _load(self, configuration: Configuration, dtype: str) -> Function | None:
        version = self.operation.version(configuration.version)
        instances = self.selector.knowledge.instances
        stored = None if instances is None else instances.get((configuration, dtype))
        try:
            function = self.launcher.load(version, configuration, dtype, stored, version.bounds(configuration))
        except AutotuneError as error:
            self._broken[configuration, dtype] = str(error)
            warnings.warn(f"{configuration} is passed over: {error}", RuntimeWarning, stacklevel=5)
            return None
        self.loads += 1
        self._functions[configuration, dtype] = function
        return function
