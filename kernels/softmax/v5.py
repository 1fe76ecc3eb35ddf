"""v5: one block per row of any length, two reads, running maximum and sum."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v5.cu"
PARAMETERS = {
    "block": (128, 512, 1024),
    "vector": (1, 2, 4, 8),
    "unroll": (1, 4),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

LEAST_BYTES = 512 << 10  # of a row: eight blocks of a cluster hold that twice over
MOST_COLS = 2**31 - 2**16  # packs and columns of a row are counted in 32 bits


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, vector, unroll = (configuration.integer(name) for name in ("block", "vector", "unroll"))
    edges, access_bytes = str(configuration["edges"]), vector * problem.element_bytes
    return all_of(
        packs.loadable(problem, vector),
        packs.placed(problem, vector, edges),
        (
            access_bytes == 16 or edges == "exact" or not packs.placed(problem, 2 * vector, "masked")[0],
            f"packs wider than vector {vector} are as well placed",
        ),
        (
            access_bytes == 16 or edges == "masked" or not packs.placed(problem, 2 * vector, "exact")[0],
            f"packs wider than vector {vector} are as well placed",
        ),
        (
            access_bytes < 16 or problem.bytes_per_row > LEAST_BYTES,
            f"a row of {problem.bytes_per_row} bytes is held on the chip and read once by other versions",
        ),
        (problem.cols <= MOST_COLS, f"{problem.cols} columns are more than the {MOST_COLS} that v5 counts"),
        (
            unroll == 1 or packs.per_row(problem, vector, edges) >= block * unroll,
            f"a row of {problem.cols} is less than block {block} takes at once with unroll {unroll}",
        ),
        (block == PARAMETERS["block"][0] or problem.cols >= 2 * block, f"a row of {problem.cols} leaves threads of block {block} idle"),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
