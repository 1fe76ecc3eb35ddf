"""The script that watches every version with compute-sanitizer: what it launches, and what it makes of the tools' logs."""

from dataclasses import replace

import pytest

from autotune import source
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.problem import Problem
from scripts import sanitize
from scripts.sanitize import SOFTMAX, Watched, chosen, complaints, findings, table

H200 = replace(EMULATOR, name="NVIDIA H200", sm_count=132)
RACE = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at softmax_v8_float32_cluster2_block128+0x270
=========     and Write access at softmax_v8_float32_cluster2_block128+0x290 [2 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
MEMORY = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at softmax_v3_float32_block128_vector1_unroll1+0x1f0
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize("version", list(SOFTMAX.versions))
def test_each_version_is_launched_with_each_value_of_what_changes_its_synchronisation_for_each_element_type(version: str) -> None:
    found = SOFTMAX.version(version)
    for dtype in found.dtypes:
        picked = chosen(version, dtype, H200)
        assert picked
        for name in sanitize.COVERED:
            possible = {c[name] for c in found.configurations() if name in found.parameters and _runs_somewhere(version, c, dtype)}
            assert {c[name] for c, _ in picked if name in found.parameters} == possible


def _runs_somewhere(version: str, configuration: Configuration, dtype: str) -> bool:
    problems = [Problem("softmax", *size, dtype) for size in sanitize.SIZES]
    return any(SOFTMAX.version(version).applicable(configuration, problem, H200) for problem in problems)


def test_findings_are_told_from_what_the_tools_say_besides() -> None:
    assert list(findings(RACE)) == ["Warning: Race reported between Write access at softmax_v8_float32_cluster2_block128+0x270"]
    assert list(findings(MEMORY)) == ["Invalid __global__ write of size 4 bytes"]
    assert list(findings("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")) == []
    assert list(findings("========= Error: Target application terminated before first instrumented API call\n"))


def test_a_run_is_clean_only_when_all_came_back_and_what_was_planted_was_found() -> None:
    groups = {"v7": 2, "planted-for-memcheck": 1}
    good = {("memcheck", "v7"): Watched((), 2, (), ""), ("memcheck", "planted-for-memcheck"): Watched(("Invalid",), 0, (), "")}
    assert complaints(good, groups) == []
    assert "| v7 | 2 | clean |" in table(good, groups)
    assert "| planted-for-memcheck | 1 | found |" in table(good, groups)
    for bad, said in (
        (Watched(("Invalid read",), 2, (), ""), "memcheck v7: Invalid read"),
        (Watched((), 1, (), ""), "memcheck v7: only 1 of 2 launches came to an end"),
        (Watched((), 2, ("softmax_v7 at 9x33: 3 elements are wrong",), ""), "memcheck v7: softmax_v7 at 9x33: 3 elements are wrong"),
    ):
        assert complaints({**good, ("memcheck", "v7"): bad}, groups) == [said]
    missed = {**good, ("memcheck", "planted-for-memcheck"): Watched((), 1, (), "")}
    assert complaints(missed, groups) == ["memcheck did not find the planted fault: output too small"]


def test_planted_barriers_are_there_to_be_taken_away() -> None:
    version = SOFTMAX.version("v3")
    assert "__syncthreads();" in source.render(version, [version.configurations()[0]], "float32")
