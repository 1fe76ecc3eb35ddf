"""v3: v2 with vector loads and stores."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v3.cu"
PARAMETERS = {"block": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024), "vector": (1, 2, 4), "unroll": (1, 2, 4)}
DTYPES = ("float32",)
IN_PLACE = True


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block, vector = configuration.integer("block"), configuration.integer("vector")
    access_bytes = vector * problem.element_bytes
    return all_of(
        (block % 32 == 0, f"block {block} is not a multiple of 32, which v3 needs"),
        (access_bytes <= 16, f"vector {vector} of {problem.dtype} is {access_bytes} bytes, and no access is wider than 16"),
        (
            problem.alignment_bytes % access_bytes == 0,
            f"rows start at multiples of {problem.alignment_bytes} bytes, and vector {vector} of {problem.dtype} needs {access_bytes}",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
