"""An operation: what its kernels compute, how exactly, and how many bytes that must move."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.configuration import Configuration, Value
from autotune.definition import Verdict, Version
from autotune.device import Device
from autotune.errors import UsageError, shown
from autotune.problem import Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


RELATIVE = "packs"  # the first parameter of a family that shares a row among threads as so many packs each
PACKS_A_THREAD = (1, 2, 3, 4, 6, 8, 16)
MOST_PROPOSALS = 64  # several times what the shipped operations propose for one problem


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element y passes against its float64 reference r when |y - r| <= absolute + relative * |r|; NaN matches NaN alone."""

    relative: float
    absolute: float

    def around(self, expected: float) -> str:
        """How far from `expected` an element may be, as the end of a sentence; "" for what only itself matches.

        >>> Tolerance(relative=1e-6, absolute=1e-37).around(2.5)
        ' within 2.5e-06 (relative 1e-06 + absolute 1e-37)'
        """
        allowed = self.absolute + self.relative * abs(expected)
        return f" within {allowed:.2g} (relative {self.relative:.3g} + absolute {self.absolute:.3g})" if isfinite(allowed) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation and its versions, as the files of its folder declare them.

    `fitted_parameters` names those parameters of a version that `fit` derives from the problem, `shared_among` the one that it can derive
    from packs a thread, and `default` proposes kernels without any measurement; an operation need have none of them.
    `reference` takes a matrix (rows, cols) of any element type, leaves it as it is, and returns float64 of the same shape, or raises
    UsageError.

    Every kernel of every operation has the same seven arguments, sizes and strides as 64-bit integers, strides in elements:
    `(output, input, rows, cols, output_stride, input_stride, workspace)`.
    """

    name: str
    summary: str
    folder: Path
    versions: Mapping[str, Version]
    tolerances: Mapping[str, Tolerance]
    reference: Callable[["Array"], "Array"]
    bytes_moved: Callable[[Problem], int]
    reference_template: Path | None
    safe: Configuration
    fitted_parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared_among: Mapping[str, str] = field(default_factory=dict)
    fit: Callable[[str, Mapping[str, Value], Problem, Mapping[str, tuple[Value, ...]]], Mapping[str, Value]] | None = None
    default: Callable[[Problem, Device], Iterable[tuple[str, Mapping[str, Value]]]] | None = None

    def version(self, name: str) -> Version:
        """The version called `name`; UsageError when there is none."""
        try:
            return self.versions[name]
        except (KeyError, TypeError):  # the second of what cannot be looked up
            raise UsageError(f"{self.name} has no version {shown(name)}; it has {', '.join(self.versions)}") from None

    def configurations(self, versions: tuple[str, ...] = ()) -> list[Configuration]:
        """All configurations of `versions` (of every version when none is named), in declared order, each once."""
        return [c for name in dict.fromkeys(versions or self.versions) for c in self.version(name).configurations()]

    def applicable(self, configuration: Configuration, problem: Problem, device: Device) -> Verdict:
        """Whether `configuration` computes `problem` on `device`, and why not."""
        return self.version(configuration.version).applicable(configuration, problem, device)

    def offered(self, configurations: Iterable[Configuration], problem: Problem, device: Device) -> Iterator[Configuration]:
        """Those of `configurations` that are declared, and applicable to `problem` on `device`: what a database names need be neither."""
        for configuration in configurations:
            version = self.versions.get(configuration.version)
            if version and version.declares(configuration) and version.applicable(configuration, problem, device):
                yield configuration

    def family(self, configuration: Configuration) -> Configuration:
        """`configuration` without the parameters that follow from the problem: one kernel for rows of any length."""
        fitted = self.fitted_parameters.get(configuration.version, ())
        if not fitted:
            return configuration
        return Configuration(configuration.version, tuple(pair for pair in configuration.parameters if pair[0] not in fitted))

    def relatives(self, family: Configuration) -> list[Configuration]:
        """The families like `family` whose parameter in `shared_among` follows from the row's length, as so many packs a thread."""
        shared = self.shared_among.get(family.version)
        others = tuple(pair for pair in family.parameters if pair[0] != shared)
        return [Configuration(family.version, ((RELATIVE, packs), *others)) for packs in PACKS_A_THREAD] if shared else []

    def fitted(self, configuration: Configuration, problem: Problem) -> Configuration | None:
        """The member of a family, or of the family of `configuration`, that is made for `problem`; None when there is none.

        Whether it is applicable is another question.
        """
        version, relative = configuration.version, [name for name, _ in configuration.parameters[:1]] == [RELATIVE]
        fitted = self.fitted_parameters.get(version, ())
        if self.fit is None or not (fitted or relative):
            return configuration
        declared = self.versions[version].parameters
        given = {name: value for name, value in configuration.parameters if name not in fitted}
        chosen = self.fit(version, given, problem, declared)
        if any(name in declared and value not in declared[name] for name, value in chosen.items()):
            return None
        given |= chosen
        try:
            return Configuration(version, tuple([(name, given[name]) for name in declared]))
        except KeyError:  # no value of a parameter holds the row
            return None

    def defaults(self, problem: Problem, device: Device, versions: Container[str] | None = None) -> Iterator[Configuration]:
        """What the operation proposes for `problem` without any measurement, best first; of `versions` alone when they are given.

        No more than MOST_PROPOSALS are read, for a generator need not end. One that lacks a parameter proposes nothing.
        """
        for name, chosen in islice(self.default(problem, device), MOST_PROPOSALS) if self.default is not None else ():
            version = self.versions.get(name)
            if version is None or problem.dtype not in version.dtypes or (versions is not None and name not in versions):
                continue
            family = Configuration(name, tuple((p, _nearest(chosen[p], values)) for p, values in version.parameters.items() if p in chosen))
            configuration = self.fitted(family, problem)
            if configuration is not None and len(configuration.parameters) == len(version.parameters):
                yield configuration

    def require_dtype(self, name: str) -> str:
        """`name`; UsageError when no version offers an element type called so."""
        if name not in self.dtypes:
            raise UsageError(f"dtype {shown(name)} is not offered by {self.name}; use {', '.join(self.dtypes)}")
        return name

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that at least one version offers."""
        return tuple(dtype for dtype in self.tolerances if any(dtype in v.dtypes for v in self.versions.values()))


def _nearest(wanted: Value, declared: tuple[Value, ...]) -> Value:
    """`wanted` when it is declared; else the nearest number, by ratio, or the first name."""
    if wanted in declared:
        return wanted
    numbers = [value for value in declared if isinstance(value, int)]
    if not isinstance(wanted, int) or not numbers:
        return declared[0]
    return min(numbers, key=lambda number: max(number, wanted) / max(1, min(number, wanted)))
