"""v11: a block or a cluster of blocks per row, in shared memory, one read; a part is summed while the rest is still being copied."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v11.cu"
PARAMETERS = {
    "cluster": (1, 2, 4, 8),
    "block": (128, 256, 512, 1024),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

ACCESS_BYTES = 16
RESERVED_BYTES = 1024  # of each block, by the system
LEAST_BYTES = 8 << 10  # of a row in each block: fewer fit in registers
THREADS_PER_SM = 1024  # that registers must be enough for


def bounds(configuration: Configuration) -> Bounds:
    block = configuration.integer("block")
    return Bounds(threads=block, blocks_per_sm=THREADS_PER_SM // block, cluster=configuration.integer("cluster"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    cluster, block = configuration.integer("cluster"), configuration.integer("block")
    vector, edges = ACCESS_BYTES // problem.element_bytes, str(configuration["edges"])
    items = _items(configuration, problem)
    block_bytes = items * block * ACCESS_BYTES
    used_bytes = block_bytes + 8 * cluster * block // 32
    return all_of(
        (cluster == 1 or device.compute_capability >= (9, 0), f"clusters need compute capability 9.0, which {device.name} has not"),
        packs.placed(problem, vector, edges),
        (
            problem.bytes_per_row >= cluster * LEAST_BYTES,
            f"a row of {problem.bytes_per_row} bytes is less than {LEAST_BYTES} for each block of a cluster of {cluster}",
        ),
        (items >= 4, f"{items} packs for each thread are too few to be waited for in quarters"),
        (
            used_bytes <= device.shared_bytes_per_block,
            f"{used_bytes} bytes of a row in each block are more than the shared memory of a block on {device.name}",
        ),
        (
            2 * (used_bytes + RESERVED_BYTES) <= device.shared_bytes_per_sm or block >= 512,
            f"{used_bytes} bytes of shared memory leave block {block} alone on its SM, with too few threads",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    cluster, block = configuration.integer("cluster"), configuration.integer("block")
    return Launch(blocks=cluster * problem.rows, shared_bytes=_items(configuration, problem) * block * ACCESS_BYTES)


def _items(configuration: Configuration, problem: Problem) -> int:
    """The most packs of a row that a thread holds."""
    row_packs = packs.per_row(problem, ACCESS_BYTES // problem.element_bytes, str(configuration["edges"]))
    return -(-row_packs // (configuration.integer("cluster") * configuration.integer("block")))
