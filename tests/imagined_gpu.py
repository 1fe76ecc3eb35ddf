"""Times of softmax kernels on a GPU that does not exist: a plausible function of size and configuration, for selectors to learn.

Kernels read rows once or thrice, bytes in flight hide latency, the last wave is not full, and long rows need many threads.
"""

import math

from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.problem import Problem
from autotune.selector.matrix import Matrix
from tests.dispatch_cases import H200

SOFTMAX = load("softmax")
PEAK = 4.5e6  # bytes a microsecond
LAUNCH_US = 1.2
READS = {"v0": 3, "v1": 3, "v2": 3, "v3": 3, "v4": 2, "v5": 2}


def time_us(configuration: Configuration, problem: Problem) -> float:
    """The time of an applicable configuration, in microseconds."""
    version = SOFTMAX.version(configuration.version)
    given = dict(configuration.parameters)
    bounds, launch = version.bounds(configuration), version.launch(configuration, problem, H200)
    vector = int(given.get("vector", 1 if configuration.version in ("v0", "v1", "v2") else 16 // problem.element_bytes))
    depth = int(given.get("items", given.get("unroll", 1)))
    row_bytes = problem.bytes_per_row
    per_sm = max(1, min(2048 // bounds.threads, 32, H200.shared_bytes_per_sm // (launch.shared_bytes + 1024)))
    registers = 28 + depth * vector
    per_sm = max(1, min(per_sm, 65536 // (registers * bounds.threads)))
    blocks_at_once = H200.sm_count * per_sm
    waves = launch.blocks / blocks_at_once
    flying = min(launch.blocks, blocks_at_once) * bounds.threads * vector * problem.element_bytes * min(depth, 8)
    rate = PEAK * flying / (flying + 2.5e6)
    reads = READS.get(configuration.version, 1)
    resident = min(problem.rows, blocks_at_once) * row_bytes
    again = 0.25 if resident < H200.l2_bytes / 2 else 0.8
    moved = problem.rows * row_bytes * (1 + 1 + (reads - 1) * again) * (1.04 if given.get("edges") == "masked" else 1.0)
    tail = math.ceil(waves) / waves if waves > 1 else 1.0
    threads_per_row = bounds.threads * bounds.cluster if launch.blocks >= problem.rows else int(given.get("lanes", 1))
    steps = math.ceil(problem.cols / (vector * depth * max(1, threads_per_row * launch.blocks // max(problem.rows, launch.blocks))))
    latency = reads * (0.5 + 0.35 * steps) + 0.15 * math.log2(bounds.threads) + (0.8 if bounds.cluster > 1 else 0)
    return LAUNCH_US + float(max(moved / rate * tail**0.3, latency * max(1.0, waves**0.8)))


def matrix(sizes: list[tuple[int, int]], dtype: str = "float32", versions: tuple[str, ...] = ()) -> Matrix:
    """Every configuration at every one of `sizes`, (rows, columns)."""
    problems = [Problem("softmax", rows, cols, dtype) for rows, cols in sizes]
    every = SOFTMAX.configurations(versions)
    times = {p: {c: time_us(c, p) for c in every if SOFTMAX.applicable(c, p, H200)} for p in problems}
    return Matrix.of(SOFTMAX, H200, times, dict.fromkeys(SOFTMAX.versions, "sha"))
