"""v2: one block per row, three passes, reductions by warp shuffles."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v2.cu"
PARAMETERS = {"block": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024), "unroll": (1, 2, 4)}
DTYPES = ("float32", "float16", "bfloat16")  # it is also the safe kernel, which every dtype needs
IN_PLACE = True


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block = configuration.integer("block")
    return all_of((block % 32 == 0, f"block {block} is not a multiple of 32, which v2 needs"))


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
