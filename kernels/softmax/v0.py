"""v0: one thread per row, three passes over the input."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v0.cu"
PARAMETERS = {"block": (32, 64, 128, 256, 512)}
DTYPES = ("float32",)
IN_PLACE = True


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    return all_of()


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    block = configuration.integer("block")
    return Launch(blocks=(problem.rows + block - 1) // block)
