"""v10: several blocks anywhere on the GPU per row, in registers, one read: for few long rows."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v10.cu"
PARAMETERS = {
    "block": (128, 256),
    "items": (1, 2, 3, 4, 8, 16),
    "vector": (4, 8),
    "hold": ("exponentials", "inputs"),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = False  # a block that does not wait any longer reads the whole row, which others may be writing
LEAST_COMPUTE_CAPABILITY = (8, 0)

OTHER_REGISTERS = 40
COUNTER_BYTES = 32  # counter_bytes of v10.cu
PART_BYTES = 8
LEAST_BLOCKS = 2
LONG_BYTES = 128 << 10  # of a row: shorter ones are for the smallest block, and mostly faster in a cluster
MOST_BLOCKS = 264  # of a row: beyond, reading all parts takes longer than a part of the row itself


def bounds(configuration: Configuration) -> Bounds:
    # Left to itself the compiler takes many more registers, so that fewer blocks run at once.
    block, values = configuration.integer("block"), configuration.integer("items") * configuration.integer("vector")
    held = values // 2 if configuration["hold"] == "inputs" else values
    other = OTHER_REGISTERS + (16 if configuration["edges"] == "masked" else 0)
    return Bounds(threads=block, blocks_per_sm=max(1, min(2048 // block, 65536 // (block * (held + other)))))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, items, vector = (configuration.integer(name) for name in ("block", "items", "vector"))
    hold, edges = str(configuration["hold"]), str(configuration["edges"])
    row_packs, split = packs.per_row(problem, vector, edges), _split(configuration, problem)
    held = _held(configuration, problem)
    resident = device.sm_count * _blocks_per_sm(configuration, device)
    return all_of(
        packs.loadable(problem, vector),
        packs.placed(problem, vector, edges),
        (vector * problem.element_bytes == 16, f"vector {vector} of {problem.dtype} is narrower than the 16 bytes that long rows want"),
        (hold == "exponentials" or problem.element_bytes == 2, "inputs of 4 bytes take as many registers as exponentials"),
        (
            items > 1 if problem.bytes_per_row >= LONG_BYTES else block == 128 and items <= 4,
            f"block {block} with {items} items never was the fastest for rows of {problem.bytes_per_row} bytes",
        ),
        (
            hold == "exponentials" or items * vector >= 32,
            f"exponentials of {items * vector} elements fit in registers, and need not be computed twice",
        ),
        (split >= LEAST_BLOCKS, f"one block of {block} with {items} items holds a row of {problem.cols}"),
        (split <= MOST_BLOCKS, f"{split} blocks for one row are more than {MOST_BLOCKS}"),
        (
            split * block * items <= 1.25 * row_packs,
            f"{split} blocks of {block} with {items} items hold {split * block * items} packs, and a row takes only {row_packs}",
        ),
        (
            (held + OTHER_REGISTERS) * block <= device.registers_per_sm,
            f"block {block} with {held} registers to hold the row needs more than the {device.registers_per_sm} of an SM",
        ),
        (
            problem.rows * split <= resident,
            f"{problem.rows * split} blocks are more than the {resident} that {device.name} runs at once, and some would wait in vain",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    blocks = problem.rows * _split(configuration, problem)
    return Launch(blocks=blocks, workspace_bytes=COUNTER_BYTES * problem.rows + PART_BYTES * blocks)


def _split(configuration: Configuration, problem: Problem) -> int:
    """The blocks of a row."""
    block, items, vector = (configuration.integer(name) for name in ("block", "items", "vector"))
    return -(-packs.per_row(problem, vector, str(configuration["edges"])) // (block * items))


def _held(configuration: Configuration, problem: Problem) -> int:
    halved = configuration["hold"] == "inputs" and problem.element_bytes == 2
    return configuration.integer("items") * configuration.integer("vector") // (2 if halved else 1)


def _blocks_per_sm(configuration: Configuration, device: Device) -> int:
    """That fit: as many as the compiler was told to leave registers for."""
    told = bounds(configuration)
    return min(told.blocks_per_sm, device.threads_per_sm // told.threads)
