"""Instances of the softmax kernels after v4, run in the emulator: what the tests of them share."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from autotune import catalogue, source
from autotune.backends.emulation import build
from autotune.backends.emulation.memory import AROUND_BOTH, Matrix
from autotune.backends.emulation.run import Launch, Library
from autotune.check import AROUND_INPUT, Array, compare, numpy_dtype
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.problem import Problem

SOFTMAX = catalogue.load("softmax")
VERSIONS = ("v5", "v6", "v7", "v8", "v9", "v10", "v12", "v13")
DTYPES = ("float32", "float16", "bfloat16")
DEVICE = replace(EMULATOR, sm_count=6)  # so that rows are split over several blocks
H200 = replace(EMULATOR, name="NVIDIA H200", sm_count=132)


@dataclass(frozen=True)
class Case:
    configuration: Configuration
    problem: Problem
    layout: str

    def values(self) -> list[tuple[str, Any]]:
        return [*self.configuration.parameters, ("dtype", self.problem.dtype), ("layout", self.layout)]


@cache
def library(configurations: tuple[Configuration, ...], dtype: str) -> Library:
    return Library(build.library(source.render(SOFTMAX.version(configurations[0].version), configurations, dtype)))


def launch_of(configuration: Configuration, problem: Problem, y: Array, x: Array, workspace: Array, *, seed: int, together: bool) -> Launch:
    version = SOFTMAX.version(configuration.version)
    plan, bounds = version.launch(configuration, problem, DEVICE), version.bounds(configuration)
    return Launch(
        symbol=source.symbol(version, configuration, problem.dtype),
        arguments=(y, x, problem.rows, problem.cols, problem.output_stride, problem.input_stride, workspace),
        blocks=plan.blocks,
        threads=bounds.threads,
        shared_bytes=plan.shared_bytes,
        cluster=bounds.cluster,
        cooperative=together,
        seed=seed,
    )


def workspace_of(configuration: Configuration, problem: Problem) -> Array:
    version = SOFTMAX.version(configuration.version)
    return np.zeros(version.launch(configuration, problem, DEVICE).workspace_bytes // 8 + 1, np.uint64)


def softmax(
    configuration: Configuration,
    x: Array,
    problem: Problem,
    *,
    seed: int = 0,
    together: bool = False,
    group: tuple[Configuration, ...] = (),
) -> Array:
    """What `configuration` computes of `x`, between guards that must stay untouched. With `together` all blocks run at once."""
    around = AROUND_BOTH if problem.in_place else AROUND_INPUT
    source_matrix = Matrix(problem.rows, problem.cols, numpy_dtype(problem.dtype), problem.input_stride, problem.input_alignment, around)
    target = source_matrix
    if not problem.in_place:
        target = Matrix(problem.rows, problem.cols, numpy_dtype(problem.dtype), problem.output_stride, problem.output_alignment)
    source_matrix.values[:] = x
    workspace = workspace_of(configuration, problem)
    launch = launch_of(configuration, problem, target.values, source_matrix.values, workspace, seed=seed, together=together)
    library(group or (configuration,), problem.dtype).launch(launch)
    assert not target.strayed
    assert not source_matrix.strayed
    assert not workspace.any(), "the workspace is not as it was found"
    return target.values.copy()


def wrong(configuration: Configuration, x: Array, problem: Problem, **how: Any) -> str:
    """Says what is wrong with what `configuration` computes of `x`; "" when nothing is."""
    comparison = compare(
        softmax(configuration, x, problem, **how), SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances[problem.dtype]
    )
    return "" if comparison else f"{configuration} at {problem}, {problem.input_stride} apart: {comparison}"


# A configuration per version and per path through it, with the smallest of these problems that it is applicable to.
PATHS: dict[str, dict[str, Any]] = {
    "v5": {"block": 128, "unroll": 1},
    "v6 part of a warp": {"lanes": 4},
    "v6 warp": {"lanes": 32, "warps": 2},
    "v7 exponentials": {"block": 128, "hold": "exponentials"},
    "v7 inputs": {"block": 128, "hold": "inputs"},
    "v8 exponentials": {"cluster": 2, "block": 128, "hold": "exponentials"},
    "v8 inputs": {"cluster": 4, "block": 128, "hold": "inputs"},
    "v9": {"warps": 2, "lanes": 4},
    "v10 exponentials": {"block": 128, "hold": "exponentials"},
    "v10 inputs": {"block": 128, "hold": "inputs"},
    "v12 part of a warp": {"threads": 8},
    "v12 warp": {"threads": 32},
    "v12 block": {"threads": 128},
    "v13": {},
}
EXACT, ODD = (32, 256, 4096, 8192, 14336), (33, 257, 4095, 8191, 14335)


@cache
def example(path: str, dtype: str, odd: bool) -> Case | None:
    version, wanted = SOFTMAX.version(path.split()[0]), PATHS[path].items()
    possible = [Problem("softmax", 9, cols, dtype) for cols in (ODD if odd else EXACT)]
    possible += [Problem("softmax", 9, 1026, dtype, input_alignment=4, output_alignment=4)]
    if path == "v13":
        possible = [Problem("softmax", 9, 1 if odd else 2, dtype)]
    for problem in possible:
        for c in version.configurations():
            if wanted <= dict(c.parameters).items() and version.applicable(c, problem, DEVICE):
                return Case(c, problem, "packed")
    return None


def examples(*dtypes: str, odd: tuple[bool, ...] = (False, True)) -> list[Any]:
    found = [(path, dtype, uneven, example(path, dtype, uneven)) for path in PATHS for dtype in dtypes for uneven in odd]
    return [pytest.param(case, id=f"{path} {dtype} {'odd' if uneven else 'exact'}") for path, dtype, uneven, case in found if case]
