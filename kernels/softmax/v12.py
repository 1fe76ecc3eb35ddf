"""v12: part of a warp or a block per row, element by element, in registers, one read."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v12.cu"
PARAMETERS = {"threads": (8, 32, 64, 128, 256, 512), "items": (1, 2, 3, 4, 6, 8)}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)  # redux.sync

NARROWEST_BYTES = 8  # rows of whole packs of so many are loaded by packs
MOST_BYTES = 8 << 20  # of a matrix: beyond, time goes into bytes, and an access should move many
BLOCKS_AN_SM = 16  # with more, another version was faster by 3 % or more at each size that was recorded, and by 17 times at 200000x1


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=max(32, configuration.integer("threads")))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    threads, items = configuration.integer("threads"), configuration.integer("items")
    blocks = launch(configuration, problem, device).blocks
    whole = packs.fewest(problem.cols, threads, items, PARAMETERS["items"])
    if not whole[0]:
        return all_of(whole)
    return all_of(
        (
            not packs.placed(problem, NARROWEST_BYTES // problem.element_bytes, "exact")[0],
            f"rows start and end where packs of {NARROWEST_BYTES} bytes do, by which they are loaded faster",
        ),
        (problem.rows * problem.bytes_per_row <= MOST_BYTES, f"the matrix has more than {MOST_BYTES} bytes"),
        (blocks <= BLOCKS_AN_SM * device.sm_count, f"{blocks} blocks are more than {BLOCKS_AN_SM} for each of {device.sm_count} SMs"),
        (
            threads * items < 2 * problem.cols or threads == 8,
            f"{threads} threads with {items} items are too many for a row of {problem.cols}",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    threads = configuration.integer("threads")
    return Launch(blocks=-(-problem.rows // max(1, 32 // threads)))
