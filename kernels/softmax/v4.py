"""v4: v3 with the row stashed in shared memory, so that the input is read once or twice."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v4.cu"
PARAMETERS = {
    "block": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
    "vector": (1, 2, 4),
    "unroll": (1, 2),
    "stash": ("exponentials", "inputs"),
}
DTYPES = ("float32",)
IN_PLACE = True


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, vector = configuration.integer("block"), configuration.integer("vector")
    access_bytes = vector * problem.element_bytes
    kept_bytes = vector * _stashed_bytes(configuration, problem)
    row_bytes = launch(configuration, problem, device).shared_bytes + _static_shared_bytes(block)
    return all_of(
        (block % 32 == 0, f"block {block} is not a multiple of 32, which v4 needs"),
        (access_bytes <= 16, f"vector {vector} of {problem.dtype} is {access_bytes} bytes, and no access is wider than 16"),
        (kept_bytes <= 16, f"vector {vector} of float32 exponentials is {kept_bytes} bytes, and no access is wider than 16"),
        (
            problem.alignment_bytes % access_bytes == 0,
            f"rows start at multiples of {problem.alignment_bytes} bytes, and vector {vector} of {problem.dtype} needs {access_bytes}",
        ),
        (
            row_bytes <= device.shared_bytes_per_block,
            f"a row of {problem.cols} takes {row_bytes} bytes of shared memory, and a block on {device.name} has "
            f"{device.shared_bytes_per_block}",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    vector = configuration.integer("vector")
    return Launch(blocks=problem.rows, shared_bytes=problem.cols // vector * vector * _stashed_bytes(configuration, problem))


def _stashed_bytes(configuration: Configuration, problem: Problem) -> int:
    return 4 if configuration["stash"] == "exponentials" else problem.element_bytes


def _static_shared_bytes(block: int) -> int:
    """A float per warp for the maximum and one for the sum, up to where the stash is aligned; a single warp needs neither."""
    warps = block // 32 if block > 32 else 0
    return -(-2 * 4 * warps // 16) * 16
