"""v7: one block per row, in registers, one read, one barrier."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v7.cu"
PARAMETERS = {
    "block": (64, 128, 256, 512, 1024),
    "items": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32),
    "vector": (2, 4, 8),
    "hold": ("exponentials", "inputs"),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

OTHER_REGISTERS = 31  # besides those that hold inputs
# Registers with which nothing spills: so many, and so many for 16 held exponentials, or another such line where that is less (nvcc 13.0,
# sm_90). By vectors of 8, and edges.
LEAST_REGISTERS = {
    (False, "exact"): ((8, 24), (17, 18)),
    (False, "masked"): ((24, 24),),
    (True, "exact"): ((13, 19),),
    (True, "masked"): ((20, 18),),
}
MOST_REGISTERS = 96  # that hold the row: beyond, a block is alone on its SM and nothing overlaps
MOST_WASTE = 4 / 3  # places over packs: with less, no block would fit rows of 193-204 packs
MOST_BYTES_BY_8 = 8 << 20  # of a matrix: in larger ones the memory is the limit, and accesses of 16 bytes are never slower


def bounds(configuration: Configuration) -> Bounds:
    # Left to itself the compiler takes some registers more, and fewer blocks are on an SM; of inputs it computes all exponentials at once,
    # in three times the registers that the inputs take.
    block = configuration.integer("block")
    if configuration["vector"] == 2:
        return Bounds(threads=block)
    blocks = min(2048 // block, 65536 // (block * _registers(configuration)))
    whole = 2 if block == 64 else 1  # blocks whose warps are shared evenly by the four parts of an SM
    return Bounds(threads=block, blocks_per_sm=max(1, blocks // whole * whole))


def _registers(configuration: Configuration) -> int:
    """That a thread needs."""
    vector, edges = configuration.integer("vector"), str(configuration["edges"])
    values = configuration.integer("items") * vector
    if configuration["hold"] == "inputs":
        return values // 2 + OTHER_REGISTERS + (8 if edges == "masked" else 0)
    return -(-min(16 * fixed + of_16 * values for fixed, of_16 in LEAST_REGISTERS[vector == 8, edges]) // 128) * 8  # they come by eight


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, items, vector = (configuration.integer(name) for name in ("block", "items", "vector"))
    hold, edges = str(configuration["hold"]), str(configuration["edges"])
    row_packs = packs.per_row(problem, vector, edges)
    access_bytes, values = vector * problem.element_bytes, items * vector
    held = values // (2 if hold == "inputs" and problem.element_bytes == 2 else 1)
    wider = packs.placed(problem, 2 * vector, "exact")[0] or (edges == "masked" and packs.placed(problem, 2 * vector, "masked")[0])
    whole = all_of(
        packs.loadable(problem, vector),
        packs.placed(problem, vector, edges),
        packs.fewest(row_packs, block, items, PARAMETERS["items"]),
    )
    if not whole:  # of most configurations this is the answer
        return whole
    return all_of(
        (access_bytes >= 8, f"vector {vector} of {problem.dtype} is narrower than the 8 bytes that pay for a whole block"),
        (
            access_bytes == 16
            or not wider
            or (edges == "masked" and block == 64)
            or problem.rows * problem.bytes_per_row <= MOST_BYTES_BY_8,
            f"packs wider than vector {vector} are as well placed, and the matrix has more than {MOST_BYTES_BY_8} bytes",
        ),
        (items > 1 or block == 64, f"block {block} with a pack a thread is slower than a smaller one"),
        (items >= 8 or block < 1024, f"block {block} with {items} items is slower than a smaller one"),
        (items <= 8 or block > 64, f"block {block} with {items} items is slower than a larger one"),
        (hold == "exponentials" or problem.element_bytes == 2, "inputs of 4 bytes take as many registers as exponentials"),
        (
            block * items <= MOST_WASTE * row_packs or (items == 1 and block == 64),
            f"block {block} with {items} items holds {block * items} packs, and a row takes only {row_packs}",
        ),
        (held <= MOST_REGISTERS, f"{held} registers a thread to hold the row leave a block alone on its SM"),
        (
            _registers(configuration) * block <= device.registers_per_sm,
            f"block {block} with {_registers(configuration)} registers a thread needs more than the {device.registers_per_sm} of an SM",
        ),
        (
            hold == "exponentials" or values >= 32,
            f"exponentials of {values} elements fit in registers, and need not be computed twice",
        ),
        (
            hold == "inputs" or values <= 64 or problem.element_bytes == 4,
            f"exponentials of {values} elements take twice the registers of the inputs",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
