"""v1: one block per row, three passes, reductions by a tree in shared memory."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v1.cu"
PARAMETERS = {"block": (32, 64, 128, 256, 512, 1024), "unroll": (1, 4)}
DTYPES = ("float32",)
IN_PLACE = True


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    block = configuration.integer("block")
    return all_of((block & (block - 1) == 0, f"block {block} is not a power of two, which v1 needs"))


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    return Launch(blocks=problem.rows)
