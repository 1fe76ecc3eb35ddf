"""The softmax kernels after v4: instances are right at odd sizes, compile without spills, and are offered where they should be.

CI takes a sample of instances in which every two values of parameters, element type and layout that can meet do meet.
`make all-instances` takes every instance.
"""

import os
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import nvcc
from autotune.check import inputs
from autotune.configuration import Configuration
from autotune.problem import Problem
from autotune.trial import Instance
from tests.softmax_instances import DEVICE, DTYPES, H200, SOFTMAX, VERSIONS, Case, wrong

UNIT = 12  # instances in one library
ALL = bool(os.environ.get("AUTOTUNE_ALL_INSTANCES"))


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
