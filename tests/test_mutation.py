"""Every barrier of every template is needed, and the checks notice when it is gone."""

import re
from typing import Any

import numpy as np
import pytest

from autotune import source
from autotune.backends.emulation.sanitize import Report, sanitize
from autotune.check import inputs
from autotune.configuration import Configuration
from autotune.problem import Problem
from tests.emulated import SOFTMAX, VERSIONS, launch_of, matrix

BARRIER = re.compile(r"\b(?:__syncthreads|__syncwarp|cluster_arrive\w*|cluster_wait\w*|copy_async_wait\w*|spin_until)\b[^;{}]*;")
PROBLEM = Problem("softmax", 4, 300, input_stride=300, output_stride=300)


def instance(version: str) -> Configuration:
    """A configuration of several warps, so that each of them can be late."""
    return next(c for c in SOFTMAX.version(version).configurations() if c.integer("block") == 128)


def text(version: str) -> str:
    return source.render(SOFTMAX.version(version), [instance(version)], "float32")


def barriers() -> list[Any]:
    counts = {version: len(BARRIER.findall(text(version))) for version in VERSIONS}
    return [pytest.param(version, index, id=f"{version}-{index}") for version, count in counts.items() for index in range(count)]


def races(version: str, code: str) -> list[Report]:
    x, y = matrix(PROBLEM.rows, PROBLEM.cols), matrix(PROBLEM.rows, PROBLEM.cols)
    x[:] = inputs(PROBLEM)
    return sanitize("thread", code, [launch_of(instance(version), PROBLEM, y, x, seed) for seed in range(2)])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_as_it_is_has_no_race(version: str) -> None:
    assert races(version, text(version)) == []


@pytest.mark.parametrize(("version", "index"), barriers())
def test_a_template_without_one_of_its_barriers_has_one(version: str, index: int) -> None:
    code = text(version)
    found = list(BARRIER.finditer(code))[index]
    without = code[: found.start()] + ";" + code[found.end() :]
    assert "data race" in [report.kind for report in races(version, without)]


def test_every_version_whose_threads_share_memory_has_barriers_to_delete() -> None:
    counts = {version: len(BARRIER.findall(text(version))) for version in VERSIONS}
    shares = {version for version in VERSIONS if "SHARED_ARRAY(float" in text(version)}
    assert {version for version, count in counts.items() if count} == shares
    assert counts["v1"] == 2
    assert np.all([counts[version] == 1 for version in ("v2", "v3", "v4")])
