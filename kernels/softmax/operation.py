"""Softmax over the last axis: y[r, c] = exp(x[r, c] - max_r) / sum_r, where sum_r adds exp(x[r, c] - max_r) over the row."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from autotune import packs
from autotune.configuration import Value
from autotune.device import Device
from autotune.operation import Tolerance
from autotune.problem import Problem

Array = np.ndarray[Any, np.dtype[Any]]

# float32: the worst that v0-v4 do on wide-range inputs is 3.8e-6, most of it the rounding of a log2-domain difference of up to 126;
# the absolute part only lets results that are denormal be flushed. The 16-bit types are correctly rounded (half an ulp is 2^-11 of
# a value in float16 and 2^-8 in bfloat16) up to a twentieth of that, and the absolute part of float16 is half its subnormal spacing,
# since 1/65536 is already subnormal there.
TOLERANCES = {
    "float32": Tolerance(relative=1e-5, absolute=1e-37),
    "float16": Tolerance(relative=2**-11 * 1.05, absolute=2**-25 * 1.05),
    "bfloat16": Tolerance(relative=2**-8 * 1.05, absolute=2e-38),
}

# Applicable to every problem that fits in memory: no alignment, no limit on the columns, 1 KiB of shared memory at most.
SAFE = ("v2", {"block": 256, "unroll": 1})

# Parameters that follow from the problem and the others: instances of one kernel that differ in them alone are made for different rows.
FITTED = {
    "v5": ("edges",),
    "v6": ("items", "edges"),
    "v7": ("items", "edges"),
    "v8": ("items", "edges"),
    "v9": ("items",),
    "v10": ("edges",),
    "v12": ("items",),
    "v13": ("width",),
}
THREADS_PER_ROW = {
    "v6": ("lanes",),
    "v7": ("block",),
    "v8": ("cluster", "block"),
    "v9": ("lanes",),
    "v12": ("threads",),
}  # the product of these, each with `items` packs

# The parameter that shares a row among threads: it may also follow from the problem, as so many packs a thread.
SHARED_AMONG = {
    **dict.fromkeys(("v1", "v2", "v3", "v4", "v5", "v7", "v8"), "block"),
    **dict.fromkeys(("v6", "v9"), "lanes"),
    "v12": "threads",
}
# A pack has `vector` elements, or 16 bytes where that is no parameter, but here one element, or here the elements of 4 bytes.
BY_ELEMENTS = ("v1", "v2", "v12")
BY_WORDS = ("v9",)

WORD_BYTES = 4

HALF_ACCESS_BYTES = 8  # rows of such packs are loaded by packs, whatever their number
SMALL_BYTES = 2 << 20  # of a matrix: below, what is saved by a few wide accesses is lost to masks at the edges of odd rows
LONG_PACKS = 48 << 10  # of a row, 768 KiB: with few such rows, a cluster's SMs take longer than the way to blocks on all others

# The same function on the GPU, for outputs too large to be compared on the host.
REFERENCE_TEMPLATE = "reference.cu"


def reference(x: Array) -> Array:
    """Row softmax of a float64 matrix, as torch defines it: a row with NaN, +inf or nothing but -inf is NaN throughout."""
    with np.errstate(invalid="ignore"):
        e: Array = np.exp(x - np.max(x, axis=1, keepdims=True))
        quotient: Array = e / np.sum(e, axis=1, keepdims=True)
        return quotient


def bytes_moved(problem: Problem) -> int:
    """The fewest bytes that a softmax of `problem` moves: each element read once and written once."""
    return 2 * problem.rows * problem.bytes_per_row


def fit(version: str, parameters: Mapping[str, Value], problem: Problem, declared: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """The parameters of `version` that follow for `problem` from the others; without those that no declared value fits.

    These are the `FITTED` ones, and with `packs` in `parameters` the one of `SHARED_AMONG` too.
    """
    access_bytes = WORD_BYTES if version in BY_WORDS else packs.WIDEST_ACCESS_BYTES
    vector = 1 if version in BY_ELEMENTS else int(parameters.get("vector", access_bytes // problem.element_bytes))
    edges = "exact" if packs.placed(problem, vector, "exact")[0] else "masked"
    chosen: dict[str, Value] = {"edges": edges} if "edges" in declared else {}
    if "width" in declared and problem.cols in declared["width"]:
        chosen["width"] = problem.cols
    if "edges" in chosen:
        row_packs = packs.per_row(problem, vector, edges)
    else:  # of words a row may touch one more: it need not start with one
        row_packs = -(-(problem.cols + (vector - 1 if version in BY_WORDS else 0)) // vector)
    if "packs" in parameters:
        wanted = row_packs / (int(parameters["packs"]) * int(parameters.get("cluster", 1)))
        chosen[SHARED_AMONG[version]] = _nearest(declared[SHARED_AMONG[version]], wanted)
    if version in THREADS_PER_ROW:
        given = {**parameters, **chosen}
        needed = -(-row_packs // prod(int(given[name]) for name in THREADS_PER_ROW[version]))
        place = bisect_left(declared["items"], needed)
        if place < len(declared["items"]):
            chosen["items"] = declared["items"][place]
    return chosen


def default(problem: Problem, device: Device) -> Iterator[tuple[str, dict[str, Value]]]:
    """Kernels that should do well on any GPU, best first, as (version, parameters without the fitted ones); numbers may be approximate.

    A row is read once where registers hold it: by a thread that has several, by part of a warp, by a block with some four wide loads a
    thread in flight, by a cluster, or by blocks all over the GPU when rows are too few to fill it. Any other row is read twice or three
    times by one block.
    """
    yield from _without_packs(problem)
    vector = _widest(problem)
    row_packs = -(-problem.cols // vector)
    holds = ("exponentials", "inputs") if problem.element_bytes == 2 else ("exponentials",)
    if row_packs >= 2048:
        across = (
            [*_across_the_grid(vector, row_packs, device.sm_count // problem.rows, holds)] if 2 * problem.rows <= device.sm_count else []
        )
        if row_packs >= LONG_PACKS and 16 * problem.rows <= device.sm_count:
            yield from across
        yield from _in_a_cluster(vector, row_packs, holds)
        yield from across
        yield from _in_wide_clusters(vector, row_packs, holds)
    if row_packs > 128:
        for share in (4, 2, 8, 16):
            for hold in holds:
                yield "v7", {"block": _power(row_packs / share, 64, 1024), "vector": vector, "hold": hold}
    else:
        tile: tuple[str, dict[str, Value]] = (
            "v9",
            {"warps": 2, "lanes": _power(problem.cols / 16, 1, 32), "rows": 4 if problem.cols <= 8 else 2},
        )
        whole = [width for width in (vector, vector // 2) if width and packs.placed(problem, width, "exact")[0]]
        if not whole and problem.cols <= 128:
            yield tile
        for width in (*whole, vector):
            if lanes := _lanes(problem, width):
                yield "v6", {"lanes": lanes, "rows": 1, "vector": width, "warps": 4}
        yield tile
        yield "v7", {"block": 64, "vector": vector, "hold": "exponentials"}
    yield from _passes(problem, vector)


def _nearest(values: tuple[Value, ...], wanted: float) -> Value:
    """Of ascending numbers the one nearest to `wanted` by ratio; of two as near, the greater."""
    place = min(bisect_left(values, wanted), len(values) - 1)
    below, above = int(values[max(place - 1, 0)]), int(values[place])
    return above if above * below <= wanted * wanted or above <= wanted else below


def _lanes(problem: Problem, vector: int) -> int:
    """The most lanes that share a row of packs of `vector` with few of them idle; 0 when there are none."""
    row_packs = packs.per_row(problem, vector, "exact" if packs.placed(problem, vector, "exact")[0] else "masked")
    for lanes in (32, 16, 8, 4, 2, 1):
        items = -(-row_packs // lanes)
        enough = items * vector * problem.element_bytes >= packs.WIDEST_ACCESS_BYTES or lanes == 1
        if enough and lanes * items <= max(1.5 * row_packs, row_packs + 1) and (items <= 4 or lanes == 32):
            return lanes
    return 0


def _without_packs(problem: Problem) -> Iterator[tuple[str, dict[str, Value]]]:
    """For rows of which a pack holds several, and for those of small matrices that no packs fit."""
    if problem.cols in (1, 2, 4) and problem.packed and problem.bytes_per_row < packs.WIDEST_ACCESS_BYTES:
        for block in (128, 256):
            yield "v13", {"block": block, "items": 1}
    by_packs = packs.placed(problem, HALF_ACCESS_BYTES // problem.element_bytes, "exact")[0]
    if not by_packs and problem.rows * problem.bytes_per_row <= SMALL_BYTES:
        for share in (5, 2.5):  # there are no 16 threads: of two that are as near, one may be too few for the row
            yield "v12", {"threads": _power(problem.cols / share, 8, 512)}


def _in_a_cluster(vector: int, row_packs: int, holds: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Value]]]:
    """The smallest blocks in the widest cluster that leave each thread four packs or more."""
    for block, cluster in product((128, 256, 512), (16, 8, 4, 2)):
        share = row_packs / (cluster * block)
        if (6 if cluster == 16 else 4) <= share <= 16:
            yield "v8", {"cluster": cluster, "block": block, "vector": vector, "hold": holds[-1] if share > 4 else "exponentials"}


def _in_wide_clusters(vector: int, row_packs: int, holds: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Value]]]:
    """Clusters of 16 for rows that leave each thread more packs than are good for it, and yet need not be read twice."""
    for block in (128, 256, 512):
        if 16 < row_packs / (16 * block) <= 32:
            yield "v8", {"cluster": 16, "block": block, "vector": vector, "hold": holds[-1]}


def _across_the_grid(vector: int, row_packs: int, most_blocks: int, holds: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Value]]]:
    """One block of each row on an SM; of the longest rows as many as registers allow, which `applicable` knows."""
    share = row_packs / min(64, most_blocks)
    for block in (256, 128):
        items = min((items for items in (2, 3, 4, 8) if items * block >= share), default=0)
        if items:
            yield "v10", {"block": block, "items": items, "vector": vector, "hold": "exponentials"}
    for block, items in ((256, 8), (128, 8), (256, 16), (128, 16)):
        if items * block < share:
            yield "v10", {"block": block, "items": items, "vector": vector, "hold": holds[-1]}
    if share > 8 * 256:
        yield "v10", {"block": 256, "items": 16, "vector": vector, "hold": holds[-1]}


def _passes(problem: Problem, vector: int) -> Iterator[tuple[str, dict[str, Value]]]:
    """Kernels that read the input again, so that a row may have any length."""
    if problem.cols <= 16 and problem.rows >= 1 << 16:
        yield "v0", {"block": 32}
    block = _power(problem.cols / (4 * vector), 128, 1024)
    for unroll in (4, 2, 1):
        yield "v5", {"block": block, "vector": vector, "unroll": unroll}
    width = vector
    while problem.alignment_bytes % (width * problem.element_bytes):
        width //= 2
    block = _power(problem.cols / 16, 32, 1024)
    if width > 1:
        yield "v3", {"block": block, "vector": width, "unroll": 4}
    yield "v2", {"block": block, "unroll": 4}


def _widest(problem: Problem) -> int:
    """The elements of the widest access that packs of both matrices allow, whole rows or not."""
    vector = packs.WIDEST_ACCESS_BYTES // problem.element_bytes
    while vector > 1 and not any(packs.placed(problem, vector, edges)[0] for edges in ("exact", "masked")):
        vector //= 2
    return vector


def _power(wanted: float, least: int, most: int) -> int:
    """The power of two nearest to `wanted` from `least` to `most`, both powers of two; of two as near, the greater."""
    power = least
    while power < most and power * 1.5 <= wanted:
        power *= 2
    return power
