"""An operation: what its kernels compute, how exactly, and how many bytes that must move."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.configuration import Configuration
from autotune.definition import Verdict, Version
from autotune.device import Device
from autotune.errors import UsageError
from autotune.problem import Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element y passes against its float64 reference r when |y - r| <= absolute + relative * |r|; NaN matches NaN alone."""

    relative: float
    absolute: float


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation and its versions, as the files of its folder declare them.

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

    def version(self, name: str) -> Version:
        """The version called `name`; UsageError when there is none."""
        try:
            return self.versions[name]
        except KeyError:
            raise UsageError(f"{self.name} has no version {name!r}; it has {', '.join(self.versions)}") from None

    def configurations(self, versions: tuple[str, ...] = ()) -> list[Configuration]:
        """All configurations of `versions` (of every version when none is named), in declared order."""
        return [c for name in versions or self.versions for c in self.version(name).configurations()]

    def applicable(self, configuration: Configuration, problem: Problem, device: Device) -> Verdict:
        """Whether `configuration` computes `problem` on `device`, and why not."""
        return self.version(configuration.version).applicable(configuration, problem, device)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that at least one version offers."""
        return tuple(dtype for dtype in self.tolerances if any(dtype in v.dtypes for v in self.versions.values()))
