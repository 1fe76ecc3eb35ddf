"""v13: a thread per pack that holds several whole rows, in registers, one read."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v13.cu"
PARAMETERS = {"width": (1, 2, 4), "block": (128, 256), "items": (1, 2)}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)  # max and cvt of two elements of 16 bits

ACCESS_BYTES = 16


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=configuration.integer("block"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    width = configuration.integer("width")
    if width != problem.cols:
        return Verdict(f"rows have {problem.cols} elements and not {width}")
    return all_of(
        (problem.packed, "rows with gaps between them are no range of packs"),
        (
            problem.input_alignment == problem.output_alignment == ACCESS_BYTES,
            f"the matrices do not both start at a multiple of {ACCESS_BYTES} bytes",
        ),
        (
            problem.bytes_per_row < ACCESS_BYTES,
            f"a row of {problem.bytes_per_row} bytes is a pack of its own, which v6 computes in a thread",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    rows_per_block = configuration.integer("block") * configuration.integer("items") * ACCESS_BYTES // problem.bytes_per_row
    return Launch(blocks=-(-problem.rows // rows_per_block))
