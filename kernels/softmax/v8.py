"""v8: a cluster of blocks per row, in registers, one read; every warp pushes its part of the sum to every block."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import PORTABLE_CLUSTER, Device
from autotune.problem import Problem

TEMPLATE = "v8.cu"
PARAMETERS = {
    "cluster": (2, 4, 8, 16),
    "block": (128, 256, 512),
    "items": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32),
    "vector": (4, 8),
    "hold": ("exponentials", "inputs"),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (9, 0)

ACCESS_BYTES = 16
OTHER_REGISTERS = 30  # besides those that hold inputs
# Registers with which nothing spills: so many, and so many for 16 held exponentials, or another such line where that is less (nvcc 13.0,
# sm_90). By vectors of 8, and edges.
LEAST_REGISTERS = {
    (False, "exact"): ((8, 24), (17, 18)),
    (False, "masked"): ((22, 24),),
    (True, "exact"): ((13, 19),),
    (True, "masked"): ((20, 18),),
}
MOST_REGISTERS = 96  # that hold the row
MOST_REGISTERS_OF_SMALL_BLOCKS = 128  # of 128 threads, of which three fit on an SM
SMALL_BLOCK = 128
MOST_WASTE = 1.25
WITH_CLUSTERS_OF_16 = (9, 10)  # major compute capabilities; elsewhere a cluster has no more than PORTABLE_CLUSTER blocks
LEAST_BYTES = 6 << 10  # of a row in each block: slices of 8 KiB win, those of 4 KiB are slower by a quarter
LEAST_BYTES_OF_FEW = 4 << 10  # where all blocks run at once, and only the way through one of them counts
MOST_BYTES = 32 << 10  # of a row in each block where a wider cluster may take it


def bounds(configuration: Configuration) -> Bounds:
    # Left to itself the compiler takes some registers more, and fewer blocks are on an SM; of inputs it computes all exponentials at once,
    # in three times the registers that the inputs take.
    block = configuration.integer("block")
    blocks = min(2048 // block, 65536 // (block * _registers(configuration)))
    return Bounds(threads=block, blocks_per_sm=max(1, blocks), cluster=configuration.integer("cluster"))


def _registers(configuration: Configuration) -> int:
    """That a thread needs."""
    vector, edges = configuration.integer("vector"), str(configuration["edges"])
    values = configuration.integer("items") * vector
    if configuration["hold"] == "inputs":
        return values // 2 + OTHER_REGISTERS + (9 if edges == "masked" else 0)
    return -(-min(16 * fixed + of_16 * values for fixed, of_16 in LEAST_REGISTERS[vector == 8, edges]) // 128) * 8  # they come by eight


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    cluster, block, items, vector = (configuration.integer(name) for name in ("cluster", "block", "items", "vector"))
    hold, edges = str(configuration["hold"]), str(configuration["edges"])
    row_packs, threads = packs.per_row(problem, vector, edges), cluster * block
    values = items * vector
    held = values // (2 if hold == "inputs" and problem.element_bytes == 2 else 1)
    few = problem.rows * cluster <= device.sm_count
    least_bytes = LEAST_BYTES_OF_FEW if few else LEAST_BYTES
    most_registers = MOST_REGISTERS_OF_SMALL_BLOCKS if (block, problem.element_bytes) == (SMALL_BLOCK, 4) else MOST_REGISTERS
    whole = all_of(
        (
            vector * problem.element_bytes == ACCESS_BYTES,
            f"vector {vector} of {problem.dtype} is not the {ACCESS_BYTES} bytes of an access",
        ),
        packs.placed(problem, vector, edges),
        packs.fewest(row_packs, threads, items, PARAMETERS["items"]),
    )
    if not whole:  # of most configurations this is the answer
        return whole
    return all_of(
        (
            cluster <= PORTABLE_CLUSTER or device.compute_capability[0] in WITH_CLUSTERS_OF_16,
            f"a cluster of {cluster} blocks is more than the {PORTABLE_CLUSTER} that {device.name} is known to have",
        ),
        (hold == "exponentials" or problem.element_bytes == 2, "inputs of 4 bytes take as many registers as exponentials"),
        (
            problem.bytes_per_row >= cluster * least_bytes,
            f"a row of {problem.bytes_per_row} bytes is less than {least_bytes} for each block of a cluster of {cluster}",
        ),
        (
            problem.bytes_per_row <= cluster * MOST_BYTES or cluster >= PORTABLE_CLUSTER,
            f"a row of {problem.bytes_per_row} bytes is more than {MOST_BYTES} for each of {cluster} blocks, and wider clusters have less",
        ),
        (items >= 8 or block < 512, f"block {block} with {items} items is slower than a smaller one"),
        (values >= (8 if few else 12), f"{values} elements a thread are too few to be in flight"),
        (
            hold == "exponentials" or values >= 32,
            f"exponentials of {values} elements fit in registers, and need not be computed twice",
        ),
        (
            hold == "inputs" or values <= 64 or problem.element_bytes == 4,
            f"exponentials of {values} elements take twice the registers of the inputs",
        ),
        (
            threads * items <= MOST_WASTE * row_packs,
            f"{cluster} blocks of {block} with {items} items hold {threads * items} packs, and a row takes only {row_packs}",
        ),
        (held <= most_registers, f"{held} registers a thread to hold the row leave a block alone on its SM"),
        (
            _registers(configuration) * block <= device.registers_per_sm,
            f"block {block} with {_registers(configuration)} registers a thread needs more than the {device.registers_per_sm} of an SM",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows * configuration.integer("cluster"))
