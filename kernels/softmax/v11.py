"""v11: blocks or clusters that stay, computing row after row from shared memory while the next rows are copied; one read."""

from autotune import packs
from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v11.cu"
PARAMETERS = {
    "cluster": (1, 2, 4, 8),
    "block": (128, 256, 512, 1024),
    "kilobytes": (36, 52, 72, 112, 224),  # 6, 4, 3, 2 and 1 of which an SM of Hopper has
    "idle": (0, 4, 12, 20),
    "edges": ("exact", "masked"),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

ACCESS_BYTES = 16
MOST_AHEAD = 3  # most_ahead of ring.cuh
RESERVED_BYTES = 1024  # of each block, by the system
LEAST_BYTES = 48 << 10  # of a row in each block of a cluster: fewer fit in one block with the head of the next row
LEAST_ROWS = 2  # of each block or cluster: with fewer, nothing follows that could be copied meanwhile


def bounds(configuration: Configuration) -> Bounds:
    block, kilobytes = configuration.integer("block"), configuration.integer("kilobytes")
    return Bounds(threads=block, blocks_per_sm=min(2048 // block, 228 // (kilobytes + 1)), cluster=configuration.integer("cluster"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    cluster, block, kilobytes, idle = (configuration.integer(name) for name in ("cluster", "block", "kilobytes", "idle"))
    vector, edges = ACCESS_BYTES // problem.element_bytes, str(configuration["edges"])
    items = -(-packs.per_row(problem, vector, edges) // (cluster * block))
    slots = _slots(configuration)
    blocks_per_sm = min(device.threads_per_sm // block, device.shared_bytes_per_sm // (1024 * kilobytes + _static_bytes(configuration)))
    return all_of(
        (cluster == 1 or device.compute_capability >= (9, 0), f"clusters need compute capability 9.0, which {device.name} has not"),
        packs.placed(problem, vector, edges),
        (
            cluster == 1 or problem.bytes_per_row >= cluster * LEAST_BYTES,
            f"a row of {problem.bytes_per_row} bytes is less than {LEAST_BYTES} for each block of a cluster of {cluster}",
        ),
        (idle in _idle(cluster), f"{idle} idle SMs are not worth trying with a cluster of {cluster}"),
        (
            1024 * kilobytes + _static_bytes(configuration) - RESERVED_BYTES <= device.shared_bytes_per_block,
            f"{kilobytes} KiB and the exchange are more than the shared memory of a block on {device.name}",
        ),
        (blocks_per_sm >= 1, f"{kilobytes} KiB are more than the shared memory of an SM of {device.name}"),
        (items >= 2, f"a row of {problem.cols} gives each thread of {cluster} blocks of {block} less than 2 packs"),
        (4 * slots >= 5 * items, f"{slots} packs a thread leave no room for the row after one of {items}"),
        (
            slots <= (MOST_AHEAD + 1) * items,
            f"{slots} packs a thread hold more than the {MOST_AHEAD} rows of {items} that are copied ahead",
        ),
        (
            problem.rows >= LEAST_ROWS * (device.sm_count // cluster) * blocks_per_sm,
            f"{problem.rows} rows leave nothing to copy while one is computed",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    cluster, kilobytes = configuration.integer("cluster"), configuration.integer("kilobytes")
    block, idle = configuration.integer("block"), configuration.integer("idle")
    blocks_per_sm = min(device.threads_per_sm // block, device.shared_bytes_per_sm // (1024 * kilobytes + _static_bytes(configuration)))
    clusters = max(1, (device.sm_count - idle) // cluster) * blocks_per_sm
    return Launch(blocks=cluster * min(problem.rows, clusters), shared_bytes=_slots(configuration) * block * ACCESS_BYTES)


def _slots(configuration: Configuration) -> int:
    """The packs that a thread has in shared memory."""
    return configuration.integer("kilobytes") * 1024 // (configuration.integer("block") * ACCESS_BYTES)


def _static_bytes(configuration: Configuration) -> int:
    """Two sets of parts, and what the system reserves."""
    return 2 * 8 * configuration.integer("cluster") * configuration.integer("block") // 32 + RESERVED_BYTES


def _idle(cluster: int) -> tuple[int, ...]:
    """SMs to leave alone: clusters do not fill every group of SMs, and one that has to wait for another's end doubles the time."""
    return {4: (4, 12), 8: (4, 20)}.get(cluster, (0,))
