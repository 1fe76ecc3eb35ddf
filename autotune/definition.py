"""What a definition file says about one version of a kernel, and the words it is written with.

A definition is a plain Python file, one per version, always in this order (`kernels/softmax/v2.py` is a short one):

    \"\"\"v2: one line that says what this version does.\"\"\"
    TEMPLATE = "v2.cu"                          # beside this file, or in templates/<operation>/
    PARAMETERS = {"block": (64, 128), ...}      # every value worth compiling; C++ template arguments in this order
    DTYPES = ("float32",)
    IN_PLACE = True                             # whether output may be the input itself
    def bounds(configuration): ...              # what is fixed when compiling: threads, cluster size
    def applicable(configuration, problem, device): ...   # a conjunction of conditions, each with its reason
    def launch(configuration, problem, device): ...       # grid, dynamic shared memory, workspace

docs/own_kernels.md has a table of all that may be declared, with types and defaults.
All three functions are pure and know no GPU: the tuner, the dispatcher and the emulator ask the same ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from numbers import Integral
from pathlib import Path

from autotune.configuration import Configuration, Value
from autotune.device import Device
from autotune.errors import shown
from autotune.problem import Problem

MOST_BLOCKS = 2**31 - 1  # gridDim.x, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
MOST = 2**63 - 1  # of anything that is counted: kernels, drivers and databases take 64 bits


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a configuration can run a problem on a device; when not, `why` is the reason as one clause."""

    why: str = ""

    def __post_init__(self) -> None:
        if self.why.__class__ is not str:
            raise TypeError(f"why of Verdict is {shown(self.why)}; give the reason as a clause, or nothing where it is applicable")

    def __bool__(self) -> bool:
        return not self.why


def all_of(*conditions: tuple[bool, str]) -> Verdict:
    """The verdict of (holds, reason if it does not) pairs: yes, or the first reason.

    >>> all_of((True, "unused"), (96 & 95 == 0, "block 96 is not a power of two, which v1 needs")).why
    'block 96 is not a power of two, which v1 needs'
    """
    for holds, reason in conditions:
        if not holds:
            if not reason:
                raise ValueError("a condition of all_of does not hold and has no reason; give each its reason as a clause")
            return Verdict(reason)
    return _APPLICABLE


_APPLICABLE = Verdict()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is compiled into an instance: threads per block, blocks that must fit on one SM, blocks per cluster."""

    threads: int
    blocks_per_sm: int = 1
    cluster: int = 1

    def __post_init__(self) -> None:
        try:
            good = self.threads > 0 and self.cluster > 0 and 0 <= self.threads | self.blocks_per_sm | self.cluster <= MOST
        except Exception:
            good = False
        if not good:
            for name, least in (("threads", 1), ("blocks_per_sm", 0), ("cluster", 1)):
                _counts(self, name, least)


@dataclass(frozen=True, slots=True)
class Launch:
    """How an instance is launched on one problem: blocks in x, dynamic shared memory and workspace in bytes.

    `cooperative` asks that all blocks be resident at once, or that the launch be refused. The workspace is zeroed once, when it is
    allocated; a kernel that uses it leaves its counters as it found them.
    """

    blocks: int
    shared_bytes: int = 0
    workspace_bytes: int = 0
    cooperative: bool = False

    def __post_init__(self) -> None:
        # Seen at once when all is well, for the dispatcher waits for it: the bits of three numbers together make one that is no larger.
        try:
            good = 0 <= self.blocks | self.shared_bytes | self.workspace_bytes <= MOST and self.cooperative.__class__ is bool
        except Exception:
            good = False
        if not good:
            for name in ("blocks", "shared_bytes", "workspace_bytes"):
                _counts(self, name, 0)
            if self.cooperative not in (True, False):
                raise ValueError(f"cooperative of Launch is {shown(self.cooperative)}; give True or False")


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One algorithm for an operation, as its definition file declares it.

    `code` is what the file held when it was loaded, and `operation_code` what its operation's did.
    """

    operation: str
    name: str
    summary: str
    template: Path
    parameters: Mapping[str, tuple[Value, ...]]
    dtypes: tuple[str, ...]
    in_place: bool
    least_compute_capability: tuple[int, int]
    bounds: Callable[[Configuration], Bounds]
    own_applicable: Callable[[Configuration, Problem, Device], Verdict]
    launch: Callable[[Configuration, Problem, Device], Launch]
    code: bytes
    operation_code: bytes

    @property
    def count(self) -> int:
        """How many configurations there are."""
        return prod(map(len, self.parameters.values()))

    def configurations(self) -> list[Configuration]:
        """Every combination of the declared values, in declared order, whether or not it is applicable anywhere."""
        pairs = [[(name, value) for value in values] for name, values in self.parameters.items()]  # shared: there may be a million
        return [Configuration(self.name, chosen) for chosen in product(*pairs)]

    def declares(self, configuration: Configuration) -> bool:
        """Whether `configuration` names each parameter with one of its values, in declared order; JSON's true is not 1."""
        allowed = _values(self)
        if len(configuration.parameters) != len(allowed):
            return False
        for (given, value), (name, values) in zip(configuration.parameters, allowed, strict=True):
            if given != name or (type(value), value) not in values:
                return False
        return True

    def applicable(self, configuration: Configuration, problem: Problem, device: Device) -> Verdict:
        """Whether `configuration` computes `problem` on `device`: the version's own conditions, then those that hold for all."""
        own = self.own_applicable(configuration, problem, device)
        if not own:
            return own
        # The dispatcher asks this within microseconds, so no reason is put into words unless it is one.
        bounds = self.bounds(configuration)
        launch = self.launch(configuration, problem, device)
        least = self.least_compute_capability
        if problem.dtype not in self.dtypes:
            return Verdict(f"dtype {problem.dtype} is not offered by {self.name}")
        if problem.in_place and not self.in_place:
            return Verdict(f"{self.name} cannot write over its input")
        if device.compute_capability < least:
            has = device.compute_capability
            return Verdict(f"{self.name} needs compute capability {least[0]}.{least[1]} and {device.name} has {has[0]}.{has[1]}")
        if bounds.threads > device.threads_per_block:
            return Verdict(f"block {bounds.threads} is more than the {device.threads_per_block} threads of a block on {device.name}")
        if launch.shared_bytes > device.shared_bytes_per_block:
            return Verdict(
                f"{launch.shared_bytes} bytes of shared memory are more than the {device.shared_bytes_per_block} bytes that a block has on "
                f"{device.name}"
            )
        if launch.blocks > MOST_BLOCKS:
            return Verdict(f"{launch.blocks} blocks are more than a grid holds")
        if not launch.blocks and not problem.empty:
            return Verdict(f"launch of {self.name} says 0 blocks, which compute nothing")
        return own


def _counts(said: "Bounds | Launch", name: str, least: int) -> None:
    """Raises ValueError unless the field `name` is a whole number, a NumPy one for all it matters, from `least` on."""
    value = getattr(said, name)
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= MOST:
        raise ValueError(f"{name} of {type(said).__name__} is {shown(value)}; give a whole number from {least} to 2^63 - 1")


@lru_cache(maxsize=128)  # a dispatcher asks it of every row of a database
def _values(version: Version) -> tuple[tuple[str, frozenset[tuple[type, Value]]], ...]:
    """What each parameter of a version may be, by name: a value with its type, for in Python True is 1."""
    return tuple((name, frozenset((type(value), value) for value in values)) for name, values in version.parameters.items())
