"""v6: a warp or a part of one per row, in registers, one read."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v6.cu"
PARAMETERS = {
    "lanes": (1, 2, 4, 8, 16, 32),
    "rows": (1, 2),
    "items": (1, 2, 3, 4, 6, 8, 12, 16),
    "vector": (1, 2, 4, 8),
    "warps": (2, 4),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)  # max and cvt of two elements of 16 bits

MOST_VALUES = 64  # in registers, as floats, beside some 20 registers of addresses and sums
LEAST_BYTES = 8  # of a row that a lane holds: below that, too little is in flight
MOST_WASTE = 1.5  # places over packs: with it some number of lanes fits every row


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=32 * configuration.integer("warps"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    lanes, rows, items, vector = (configuration.integer(name) for name in ("lanes", "rows", "items", "vector"))
    edges = str(configuration["edges"])
    row_packs, access_bytes = packs.per_row(problem, vector, edges), vector * problem.element_bytes
    groups = problem.rows / (rows * 32 // lanes)
    wider_exact = packs.placed(problem, 2 * vector, "exact")[0]
    wider_masked = packs.placed(problem, 2 * vector, "masked")[0]
    whole = all_of(
        packs.loadable(problem, vector),
        packs.placed(problem, vector, edges),
        packs.fewest(row_packs, lanes, items, PARAMETERS["items"]),
    )
    if not whole:  # of most configurations this is the answer
        return whole
    return all_of(
        (
            rows * items * vector <= MOST_VALUES,
            f"{rows * items * vector} values a lane are more than the {MOST_VALUES} that registers hold",
        ),
        (
            lanes * items <= max(MOST_WASTE * row_packs, row_packs + 1) or _sole(lanes, items),
            f"{lanes} lanes with {items} items hold {lanes * items} packs, and a row takes only {row_packs}",
        ),
        (items * access_bytes >= LEAST_BYTES or lanes == 1, f"{items * access_bytes} bytes a lane are too few to be in flight"),
        (items == 1 or lanes > 1, "rows of more than one pack want more than one lane"),
        (
            edges == "masked" or access_bytes == 16 or not wider_exact or (access_bytes == 8 and lanes == 32),
            f"packs wider than vector {vector} are as well placed",
        ),
        (edges == "exact" or access_bytes >= 8 or rows == 2 or not wider_masked, f"packs wider than vector {vector} are as well placed"),
        (access_bytes > 4 or lanes >= 8, f"accesses of 4 bytes by {lanes} lanes leave sectors half used"),
        (items * access_bytes <= 64 or lanes == 32, f"{items * access_bytes} bytes a lane leave rows on too few lanes"),
        (
            rows == 1 or lanes <= 2 or (access_bytes == 4 and lanes < 32),
            "a row a group has enough bytes in flight unless accesses have 4 bytes or a group has two lanes",
        ),
        (rows == 1 or groups >= 8 * device.sm_count, f"{problem.rows} rows are too few for {rows} a group"),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    lanes, rows, warps = (configuration.integer(name) for name in ("lanes", "rows", "warps"))
    rows_per_block = rows * warps * 32 // lanes
    return Launch(blocks=-(-problem.rows // rows_per_block))


def _sole(lanes: int, items: int) -> bool:
    """Whether nothing smaller than a single item on one lane could hold a row."""
    return lanes == 1 and items == 1
