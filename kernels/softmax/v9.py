"""v9: a tile of short rows per block, loaded and stored as one range whatever the rows are aligned to; one read."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v9.cu"
PARAMETERS = {
    "warps": (2, 4),
    "lanes": (1, 2, 4, 8, 16, 32),
    "rows": (1, 2, 4),
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

ACCESS_BYTES = 16
LEAST_TILE_BYTES, MOST_TILE_BYTES = 2048, 36 << 10
LEAST_ELEMENTS, MOST_ELEMENTS = 12, 32  # of a row for each lane


def bounds(configuration: Configuration) -> Bounds:
    return Bounds(threads=32 * configuration.integer("warps"))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    lanes, vector = configuration.integer("lanes"), ACCESS_BYTES // problem.element_bytes
    tile_rows = _tile_rows(configuration)
    tile_bytes = tile_rows * problem.bytes_per_row
    return all_of(
        (problem.packed, "rows with gaps between them are no range of packs"),
        (
            problem.input_alignment == problem.output_alignment == ACCESS_BYTES,
            f"the matrices do not both start at a multiple of {ACCESS_BYTES} bytes",
        ),
        (
            problem.bytes_per_row % ACCESS_BYTES != 0,
            f"rows of {problem.bytes_per_row} bytes are whole packs, which v6 loads without a tile",
        ),
        (tile_rows % vector == 0, f"tiles of {tile_rows} rows do not all start at a multiple of {ACCESS_BYTES} bytes"),
        (
            (LEAST_ELEMENTS * lanes <= problem.cols or lanes == 1) and problem.cols <= MOST_ELEMENTS * lanes,
            f"{lanes} lanes are too few or too many for a row of {problem.cols}",
        ),
        (
            LEAST_TILE_BYTES <= tile_bytes <= MOST_TILE_BYTES,
            f"a tile of {tile_bytes} bytes is not between {LEAST_TILE_BYTES} and {MOST_TILE_BYTES}",
        ),
    )


def launch(configuration: Configuration, problem: Problem, device: Device) -> Launch:
    tile_rows = _tile_rows(configuration)
    tile_bytes = tile_rows * problem.bytes_per_row
    return Launch(blocks=-(-problem.rows // tile_rows), shared_bytes=-(-tile_bytes // ACCESS_BYTES) * ACCESS_BYTES)


def _tile_rows(configuration: Configuration) -> int:
    return configuration.integer("warps") * 32 // configuration.integer("lanes") * configuration.integer("rows")
