"""The softmax kernels after v4 in the emulator: right at any size, layout and element type, without a race or a hang.

CI takes a sample of instances in which every two values of parameters, element type and layout that can meet do meet.
`make all-instances` takes every instance.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import catalogue, nvcc, source
from autotune.backends.emulation import build
from autotune.backends.emulation.memory import Matrix
from autotune.backends.emulation.run import Launch, Library
from autotune.backends.emulation.sanitize import Report, sanitize
from autotune.check import Array, compare, inputs, numpy_dtype
from autotune.configuration import Configuration
from autotune.definition import Bounds
from autotune.device import EMULATOR
from autotune.errors import KernelError
from autotune.problem import Problem
from autotune.trial import Instance

SOFTMAX = catalogue.load("softmax")
VERSIONS = ("v5", "v6", "v7", "v8", "v9", "v10")
DTYPES = ("float32", "float16", "bfloat16")
DEVICE = replace(EMULATOR, sm_count=4)  # so that rows are split over several blocks
H200 = replace(EMULATOR, name="NVIDIA H200", sm_count=132)
UNIT = 12  # instances in one library
ALL = bool(os.environ.get("AUTOTUNE_ALL_INSTANCES"))


@dataclass(frozen=True)
class Case:
    configuration: Configuration
    problem: Problem
    layout: str

    def values(self) -> list[tuple[str, Any]]:
        return [*self.configuration.parameters, ("dtype", self.problem.dtype), ("layout", self.layout)]


def problems() -> Iterable[tuple[str, Problem]]:
    for dtype in DTYPES:
        # Fewer columns than a pack; a few packs; odd ones of several lengths; whole packs; rows for clusters and for blocks that stay.
        for rows, cols in ((9, 1), (19, 7), (9, 33), (37, 64), (9, 200), (9, 513), (9, 1000), (9, 4095), (5, 8192)):
            yield "packed", Problem("softmax", rows, cols, dtype)
            yield "strided", Problem("softmax", rows, cols, dtype, input_stride=cols + 3, output_stride=cols + 11)
            yield "in place", Problem("softmax", rows, cols, dtype, input_alignment=4, output_alignment=4, in_place=True)
        yield "packed", Problem("softmax", 7, 9001, dtype)
        yield "packed", Problem("softmax", 3, 32768, dtype)
        yield "misaligned", Problem("softmax", 5, 3001, dtype, input_alignment=4, output_alignment=4)
        yield "packed", Problem("softmax", 2, 300001, dtype)  # more than any version holds on the chip


def cases(version: str) -> list[Case]:
    found = SOFTMAX.version(version)
    everything = found.configurations()
    return [Case(c, problem, layout) for layout, problem in problems() for c in everything if found.applicable(c, problem, DEVICE)]


def pairwise(everything: list[Case]) -> list[Case]:
    """Cases in which every two values occur together that do so in any case, chosen greedily from the smallest on."""
    order = [everything[i] for i in np.random.default_rng(0).permutation(len(everything))]
    order.sort(key=lambda case: case.problem.rows * case.problem.cols)
    met: set[tuple[Any, ...]] = set()
    chosen = []
    for case in order:
        pairs = set(combinations(case.values(), 2))
        if not pairs <= met:
            met |= pairs
            chosen.append(case)
    return chosen


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
    source_matrix = Matrix(problem.rows, problem.cols, numpy_dtype(problem.dtype), problem.input_stride, problem.input_alignment)
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


def groups(chosen: Iterable[Case]) -> dict[tuple[Configuration, str], tuple[Configuration, ...]]:
    """Which instances share a library with each."""
    found: dict[tuple[Configuration, str], tuple[Configuration, ...]] = {}
    for dtype in DTYPES:
        configurations = list(dict.fromkeys(case.configuration for case in chosen if case.problem.dtype == dtype))
        for i in range(0, len(configurations), UNIT):
            unit = tuple(configurations[i : i + UNIT])
            found |= {(c, dtype): unit for c in unit}
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_pair_of_parameters_is_right_at_odd_sizes(version: str) -> None:
    chosen = cases(version) if ALL else pairwise(cases(version))
    shared = groups(chosen)
    failures = []
    for number, case in enumerate(chosen):
        x = inputs(case.problem, number)
        group = shared[case.configuration, case.problem.dtype]
        schedules = (False, True) if version == "v10" else (False,)
        failures += [wrong(case.configuration, x, case.problem, seed=number % 3, together=t, group=group) for t in schedules]
    assert chosen
    assert not list(filter(None, failures))


# A configuration per version and per path through it, with the smallest of these problems that it is applicable to.
PATHS: dict[str, dict[str, Any]] = {
    "v5": {"block": 128, "unroll": 1},
    "v6 part of a warp": {"lanes": 8},
    "v6 warp": {"lanes": 32, "warps": 2},
    "v7 exponentials": {"block": 128, "hold": "exponentials"},
    "v7 inputs": {"block": 128, "hold": "inputs"},
    "v8 exponentials": {"cluster": 2, "block": 128, "hold": "exponentials"},
    "v8 inputs": {"cluster": 4, "block": 128, "hold": "inputs"},
    "v9": {"warps": 2, "lanes": 4},
    "v10 exponentials": {"block": 128, "hold": "exponentials"},
    "v10 inputs": {"block": 128, "hold": "inputs"},
}
EXACT, ODD = (32, 256, 4096, 8192, 12288), (33, 257, 4095, 8191, 11999)


@cache
def example(path: str, dtype: str, odd: bool) -> Case | None:
    version, wanted = SOFTMAX.version(path.split()[0]), PATHS[path].items()
    possible = [Problem("softmax", 9, cols, dtype) for cols in (ODD if odd else EXACT)]
    possible += [Problem("softmax", 9, 1026, dtype, input_alignment=4, output_alignment=4)]
    for problem in possible:
        for c in version.configurations():
            if wanted <= dict(c.parameters).items() and version.applicable(c, problem, DEVICE):
                return Case(c, problem, "packed")
    return None


def examples(*dtypes: str, odd: tuple[bool, ...] = (False, True)) -> list[Any]:
    found = [(path, dtype, uneven, example(path, dtype, uneven)) for path in PATHS for dtype in dtypes for uneven in odd]
    return [pytest.param(case, id=f"{path} {dtype} {'odd' if uneven else 'exact'}") for path, dtype, uneven, case in found if case]


def test_every_path_has_an_example() -> None:
    assert {path for path in PATHS if example(path, "bfloat16", True)} == set(PATHS)
    assert {path for path in PATHS if example(path, "float32", True)} == {path for path in PATHS if not path.endswith("inputs")}


LARGE = {
    "of 3e38, whose product with log2(e) overflows": [3e38, 3e38, -3e38, 2.9e38],
    "of 1e10, where rounding that product moves it by 512": [1e10, 1e10 - 1024, 1e10, -1e10],
    "of 2^26, with neighbours 4 apart": [2.0**26, 2.0**26 - 4, 2.0**26 - 8, 2.0**26 - 80],
    "of 2^24 in one part and less in the others": [2.0**24, 2.0**24 - 64, 2.0**23, 1.0],
    "of 65536 exactly": [65536, 65535.5, 65500, 65450],
    "below -65536": [-70000, -70000.5, -70040, -70080],
    "of the smallest denormal": [1e-45, -1e-45, 0, -0.0],
}


@pytest.mark.parametrize("case", examples("float32", "bfloat16", odd=(False,)))
def test_a_maximum_may_be_any_finite_number(case: Case) -> None:
    rows, cols = case.problem.rows, case.problem.cols
    x = np.zeros((rows, cols), numpy_dtype(case.problem.dtype))
    for row, values in enumerate(LARGE.values()):
        x[row] = values[-1]
        x[row, : cols // 2] = np.resize(np.array(values, np.float32), cols // 2)  # parts of the row have other maxima
    assert not wrong(case.configuration, x, case.problem)


@pytest.mark.parametrize("case", examples("float32", "bfloat16"))
def test_a_healthy_row_survives_parts_that_are_masked_whole_and_a_sick_one_is_nan_throughout(case: Case) -> None:
    rows, cols = case.problem.rows, case.problem.cols
    x = np.full((rows, cols), -np.inf, numpy_dtype(case.problem.dtype))
    x[0, 0], x[1, -1], x[2, cols // 2] = 1.0, -5.0, 7.0
    x[3, : cols // 4] = 0.0
    x[5:] = 0.0
    x[5, cols // 3], x[6, -1] = np.nan, np.inf
    y = softmax(case.configuration, x, case.problem).astype(np.float32)
    sick = [False, False, False, False, True, True, True, False, False]
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), sick)
    np.testing.assert_array_equal(np.isnan(y).any(axis=1), sick)
    assert (y[0, 0], y[1, -1], y[2, cols // 2]) == (1, 1, 1)


@pytest.mark.parametrize("case", examples("float32"))
def test_a_row_sums_to_one(case: Case) -> None:
    x = np.random.default_rng(1).standard_normal((case.problem.rows, case.problem.cols), dtype=np.float32)
    x[1] = 0.3  # equal terms: the errors of a plain running sum all have one sign
    np.testing.assert_allclose(softmax(case.configuration, x, case.problem).astype(np.float64).sum(axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", examples("bfloat16", odd=(True,)))
def test_the_order_of_threads_and_blocks_does_not_matter(case: Case) -> None:
    x = inputs(case.problem)
    first = softmax(case.configuration, x, case.problem)
    for seed in range(1, 4):
        np.testing.assert_array_equal(softmax(case.configuration, x, case.problem, seed=seed).view(np.uint16), first.view(np.uint16))


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from([e.values[0] for e in examples("float16", "float32", odd=(True,))]),
    rows=st.integers(1, 40),
    less=st.integers(0, 60),
    gap=st.integers(0, 2),
    where=st.sampled_from(["apart", "in place", "misaligned"]),
    seed=st.integers(0, 2**16),
)
def test_any_layout_that_is_applicable_is_right(case: Case, rows: int, less: int, gap: int, where: str, seed: int) -> None:
    cols = max(1, case.problem.cols - less)
    pitch = cols + 8 * gap + seed % 8
    alignment = 4 if where == "misaligned" else 16
    problem = Problem(
        "softmax", rows, cols, case.problem.dtype, pitch, pitch + 8 * gap * (where == "apart"), alignment, alignment, where != "apart"
    )
    if not SOFTMAX.applicable(case.configuration, problem, DEVICE):
        return
    assert not wrong(case.configuration, inputs(problem, seed), problem, seed=seed)


def test_v10_leaves_its_workspace_as_it_found_it_whatever_ran_before() -> None:
    workspace = np.zeros(4096, np.uint64)
    for rows, cols, together in ((1, 4096, True), (7, 8192, True), (3, 4096, False), (2, 16384, True), (1, 4096, False)):
        problem = Problem("softmax", rows, cols)
        version = SOFTMAX.version("v10")
        c = next(c for c in version.configurations() if c.integer("block") == 128 and version.applicable(c, problem, DEVICE))
        x, y = inputs(problem), np.full((rows, cols), np.nan, np.float32)
        library((c,), "float32").launch(launch_of(c, problem, y, x, workspace, seed=rows, together=together))
        assert compare(y, SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances["float32"])
        assert not workspace.any()


BARRIER = re.compile(r"\b(?:__syncthreads|cluster_arrive\w*|cluster_wait\w*|inbox_open|inbox_wait|copy_async_wait\w*)\b[^;{}]*;")
SHARING = [example(path, "float32", True) for path in PATHS if not path.startswith("v6") and not path.endswith("inputs")]


def code_of(case: Case) -> str:
    return source.render(SOFTMAX.version(case.configuration.version), [case.configuration], case.problem.dtype)


def found_in(code: str, case: Case) -> list[Report]:
    """What ThreadSanitizer and the emulator find in `code` at two rows; for v10 also when all blocks run at once."""
    problem = replace(case.problem, rows=2)
    x, y = inputs(problem), np.full((problem.rows, problem.cols), np.nan, np.float32)
    workspace = workspace_of(case.configuration, problem)
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
    some = [(case, i) for case in SHARING if case for i in range(len(barriers_of(case)))]
    return [pytest.param(case, i, id=f"{case.configuration.version}-{bounds_of(case).cluster}-{i}") for case, i in some]


def bounds_of(case: Case) -> Bounds:
    return SOFTMAX.version(case.configuration.version).bounds(case.configuration)


def misbehaves(code: str, case: Case) -> bool:
    """Whether `code` faults, hangs, computes something else or races."""
    problem = replace(case.problem, rows=2)
    x = inputs(problem)
    changed = Library(build.library(code))
    for seed in range(3):
        y = np.full((2, problem.cols), np.nan, np.float32)
        try:
            changed.launch(
                launch_of(case.configuration, problem, y, x, workspace_of(case.configuration, problem), seed=seed, together=seed == 2)
            )
        except KernelError:
            return True
        if not compare(y, SOFTMAX.reference(x.astype(np.float64)), SOFTMAX.tolerances["float32"]):
            return True
    return bool(found_in(code, case))


@pytest.mark.parametrize(("case", "index"), barriers())
def test_a_template_without_one_of_its_barriers_is_found_out(case: Case, index: int) -> None:
    code, found = code_of(case), barriers_of(case)[index]
    assert misbehaves(code[: found.start()] + ";" + code[found.end() :], case)


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_of_instances_compiles_without_spills(dtype: str) -> None:
    spilled = []
    for name, version in SOFTMAX.versions.items():
        if name not in VERSIONS:
            continue
        live = [c for case in problems_of_h200(dtype) for c in version.configurations() if version.applicable(c, case, H200)]
        different = list(dict.fromkeys(live))
        sample = different if ALL else different[:: max(1, len(different) // 2)][:2]
        for c, fate in nvcc.compile_instances(version, sample, dtype, "sm_90"):
            assert isinstance(fate, Instance), f"{c}: {fate}"
            assert fate.resources
            spilled += [f"{c}: {fate.resources}"] * bool(fate.resources.spill_bytes)
    assert not spilled


def problems_of_h200(dtype: str) -> list[Problem]:
    sizes = [(1048576, 16), (65536, 127), (32768, 512), (16384, 2047), (4096, 16384), (1024, 65536), (64, 50257), (8, 131072), (2, 400000)]
    return [Problem("softmax", rows, cols, dtype) for rows, cols in sizes]


@given(st.integers(1, 2**20), st.integers(1, 400_000), st.sampled_from(DTYPES), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_packed_problem_has_a_version_that_reads_it_once(rows: int, cols: int, dtype: str, in_place: bool) -> None:
    problem = Problem("softmax", rows, cols, dtype, in_place=in_place)
    once = [SOFTMAX.version(name) for name in ("v6", "v7", "v10", "v8")]
    assert any(v.applicable(c, problem, H200) for v in once for c in v.configurations())


@pytest.mark.parametrize(
    ("version", "values", "problem", "why"),
    [
        ("v6", ("lanes", 32), Problem("softmax", 8, 100000), "threads with"),
        ("v10", ("block", 128), Problem("softmax", 8, 131072, in_place=True), "v10 cannot write over its input"),
        ("v9", ("lanes", 4), Problem("softmax", 8, 33, input_stride=40), "rows with gaps between them are no range of packs"),
        ("v5", ("block", 128), Problem("softmax", 8, 4096), "is held on the chip and read once by other versions"),
    ],
)
def test_a_refusal_says_why(version: str, values: tuple[str, int], problem: Problem, why: str) -> None:
    found = SOFTMAX.version(version)
    reasons = [found.applicable(c, problem, H200).why for c in found.configurations() if values in c.parameters]
    assert any(why in reason for reason in reasons)
