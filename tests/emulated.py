"""Runs instances of softmax in the emulator, for the tests of its kernels."""

from functools import cache
from itertools import groupby
from typing import Any

import numpy as np

from autotune import catalogue, source
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Launch, Library
from autotune.check import compare, numpy_dtype
from autotune.configuration import Configuration, Value
from autotune.device import EMULATOR
from autotune.problem import Problem

Array = np.ndarray[Any, np.dtype[Any]]

SOFTMAX = catalogue.load("softmax")
VERSIONS = ("v0", "v1", "v2", "v3", "v4")
UNIT = 15  # instances in one library


def units() -> list[tuple[Configuration, ...]]:
    """Every configuration, in the groups that share a library."""
    groups: list[tuple[Configuration, ...]] = []
    for _, members in groupby(SOFTMAX.configurations(VERSIONS), key=lambda c: c.version):
        group = tuple(members)
        groups += [group[i : i + UNIT] for i in range(0, len(group), UNIT)]
    return groups


@cache
def library(configurations: tuple[Configuration, ...], dtype: str = "float32") -> Library:
    version = SOFTMAX.version(configurations[0].version)
    return Library(build.library(source.render(version, configurations, dtype)))


def launch_of(configuration: Configuration, problem: Problem, y: Array, x: Array, seed: int = 0) -> Launch:
    version = SOFTMAX.version(configuration.version)
    plan = version.launch(configuration, problem, EMULATOR)
    return Launch(
        symbol=source.symbol(version, configuration, problem.dtype),
        arguments=(y, x, problem.rows, problem.cols, problem.output_stride, problem.input_stride, None),
        blocks=plan.blocks,
        threads=version.bounds(configuration).threads,
        shared_bytes=plan.shared_bytes,
        seed=seed,
    )


def matrix(rows: int, cols: int, stride: int = 0, dtype: str = "float32", offset: int = 0, fill: float = np.nan) -> Array:
    """A matrix of `rows` x `cols` whose rows lie `stride` elements apart and start `offset` elements past a multiple of 16 bytes.

    Its base holds `fill` between the rows as well.
    """
    kind, stride = numpy_dtype(dtype), stride or cols
    count = max(rows - 1, 0) * stride + cols
    raw = np.empty(count * kind.itemsize + offset * kind.itemsize + 16, np.uint8)
    start = -raw.ctypes.data % 16 + offset * kind.itemsize
    flat = raw[start : start + count * kind.itemsize].view(kind)
    flat[:] = fill
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), (stride * kind.itemsize, kind.itemsize))


def softmax(
    configuration: Configuration,
    x: Array,
    problem: Problem,
    *,
    seed: int = 0,
    group: tuple[Configuration, ...] | None = None,
    output: Array | None = None,
) -> Array:
    """What `configuration` computes of `x`, whose layout `problem` describes."""
    y = matrix(problem.rows, problem.cols, problem.output_stride, problem.dtype) if output is None else output
    library(group or (configuration,), problem.dtype).launch(launch_of(configuration, problem, y, x, seed))
    return y


def wrong(configuration: Configuration, x: Array, problem: Problem, **how: Any) -> str:
    """Says what is wrong with what `configuration` computes of `x`; "" when nothing is."""
    reference = SOFTMAX.reference(x.astype(np.float64))
    comparison = compare(softmax(configuration, x, problem, **how), reference, SOFTMAX.tolerances[problem.dtype])
    return "" if comparison else f"{configuration} at {problem.size}: {comparison}"


def runs(configuration: Configuration, problem: Problem) -> bool:
    return bool(SOFTMAX.applicable(configuration, problem, EMULATOR))


def configuration(version: str, **parameters: Value) -> Configuration:
    return Configuration.of(version, **parameters)
