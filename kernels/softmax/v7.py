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

OTHER_REGISTERS = 28  # besides those that hold the row
MOST_REGISTERS = 96  # that hold the row: beyond, a block is alone on its SM and nothing overlaps
MOST_WASTE = 1.25


def bounds(configuration: Configuration) -> Bounds:
    block = configuration.integer("block")
    if configuration["hold"] == "exponentials":
        return Bounds(threads=block)
    other = OTHER_REGISTERS + (8 if configuration["edges"] == "masked" else 0)
    # Left to itself the compiler computes all exponentials at once, in three times the registers that the inputs take.
    words = configuration.integer("items") * configuration.integer("vector") // 2
    return Bounds(threads=block, blocks_per_sm=max(1, min(2048 // block, 65536 // (block * (words + other)))))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, items, vector = (configuration.integer(name) for name in ("block", "items", "vector"))
    hold, edges = str(configuration["hold"]), str(configuration["edges"])
    row_packs = packs.per_row(problem, vector, edges)
    held = items * vector // (2 if hold == "inputs" and problem.element_bytes == 2 else 1)
    whole = all_of(
        packs.loadable(problem, vector),
        packs.placed(problem, vector, edges),
        packs.fewest(row_packs, block, items, PARAMETERS["items"]),
    )
    if not whole:  # of most configurations this is the answer
        return whole
    return all_of(
        (
            vector * problem.element_bytes >= 8,
            f"vector {vector} of {problem.dtype} is narrower than the 8 bytes that pay for a whole block",
        ),
        (hold == "exponentials" or problem.element_bytes == 2, "inputs of 4 bytes take as many registers as exponentials"),
        (
            block * items <= MOST_WASTE * row_packs or (items == 1 and block == 64),
            f"block {block} with {items} items holds {block * items} packs, and a row takes only {row_packs}",
        ),
        (held <= MOST_REGISTERS, f"{held} registers a thread to hold the row leave a block alone on its SM"),
        (
            (held + OTHER_REGISTERS) * block <= device.registers_per_sm,
            f"block {block} with {held} registers to hold the row needs more than the {device.registers_per_sm} of an SM",
        ),
        (
            hold == "exponentials" or items * vector >= 16,
            f"exponentials of {items * vector} elements fit in registers, and need not be computed twice",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
