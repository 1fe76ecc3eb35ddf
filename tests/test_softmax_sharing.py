"""The softmax kernels after v4 share memory without a race, and every barrier in them is needed."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune import source
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Library
from autotune.backends.emulation.sanitize import Report, sanitize
from autotune.check import compare, inputs
from autotune.definition import Bounds
from autotune.errors import KernelError
from tests.softmax_instances import PATHS, SOFTMAX, Case, example, launch_of, workspace_of

LANES_PER_WARP = 32
BARRIER = re.compile(r"\b(?:__syncthreads|cluster_arrive\w*|cluster_wait\w*|inbox_(?:open|expect|wait)|copy_async_wait\w*)\b[^;{}]*;")
# Two rows share a word only where elements are smaller than words, and only in a tile.
SHARING = [
    example(path, "bfloat16" if path == "v9" else "float32", True)
    for path in PATHS
    if not path.startswith("v6") and not path.endswith("inputs")
]


def code_of(case: Case) -> str:
    return source.render(SOFTMAX.version(case.configuration.version), [case.configuration], case.problem.dtype)


def found_in(code: str, case: Case) -> list[Report]:
    """What ThreadSanitizer and the emulator find in `code` at two rows; for v10 also when all blocks run at once."""
    problem = replace(case.problem, rows=2)
    x = inputs(problem)
    y, workspace = np.full_like(x, np.nan), workspace_of(case.configuration, problem)
    launches = [launch_of(case.configuration, problem, y, x, workspace, seed=1, together=False)]
    if case.configuration.version == "v10":
        launches += [replace(launches[0], cooperative=True)]
    return sanitize("thread", code, launches)


@pytest.mark.parametrize("case", SHARING, ids=lambda case: case.configuration.version)
def test_a_template_as_it_is_has_no_race(case: Case) -> None:
    assert found_in(code_of(case), case) == []


def barriers_of(case: Case) -> list[re.Match[str]]:
    """The barriers that are compiled into an instance: not that of a reduction that no later version calls."""
    code = code_of(case)
    return [match for match in BARRIER.finditer(code) if "partial[warp] = value;" not in code[match.start() - 60 : match.start()]]


def barriers() -> list[Any]:
    many = [case for case in SHARING if case and bounds_of(case).threads > LANES_PER_WARP]  # of one warp none is compiled
    some = [(case, i) for case in many for i in range(len(barriers_of(case)))]
    return [pytest.param(case, i, id=f"{case.configuration.version}-{bounds_of(case).cluster}-{i}") for case, i in some]


def bounds_of(case: Case) -> Bounds:
    return SOFTMAX.version(case.configuration.version).bounds(case.configuration)


def misbehaves(code: str, case: Case) -> bool:
    """Whether `code` faults, hangs, computes something else or races."""
    problem = replace(case.problem, rows=2)
    x = inputs(problem)
    changed = Library(build.library(code))
    for seed in range(3):
        y = np.full_like(x, np.nan)
        try:
            changed.launch(
                launch_of(case.configuration, problem, y, x, workspace_of(case.configuration, problem), seed=seed, together=seed == 2)
            )
        except KernelError:
            return True
        if not compare(y, SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances[problem.dtype]):
            return True
    return bool(found_in(code, case))


@pytest.mark.parametrize(("case", "index"), barriers())
def test_a_template_without_one_of_its_barriers_is_found_out(case: Case, index: int) -> None:
    code, found = code_of(case), barriers_of(case)[index]
    assert misbehaves(code[: found.start()] + ";" + code[found.end() :], case)
