"""v9: a tile of short rows per block, loaded and stored as one range whatever the rows are aligned to; one read."""

from autotune.configuration import Configuration
from autotune.definition import Bounds, Launch, Verdict, all_of
from autotune.device import Device
from autotune.problem import Problem

TEMPLATE = "v9.cu"
PARAMETERS = {
    "warps": (2, 4),
    "lanes": (1, 2, 4, 8, 16, 32),
    "rows": (1, 2, 4, 8),
    "items": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16),  # words of a row for each lane
}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = True
LEAST_COMPUTE_CAPABILITY = (8, 0)

ACCESS_BYTES = 16
WORD_BYTES = 4
OTHER_REGISTERS = 44
LEAST_TILE_BYTES, MOST_TILE_BYTES = 1024, 36 << 10
MOST_HELD = {4: 24, 2: 20}  # words of a lane, by the bytes of an element: where two rows may share a word, masks take registers too


def bounds(configuration: Configuration) -> Bounds:
    # Tiles must be many, so that some are loaded while others are computed; left to itself the compiler takes more registers.
    warps, rows, items = (configuration.integer(name) for name in ("warps", "rows", "items"))
    registers = rows * items + 2 * items + OTHER_REGISTERS  # all rows' words, and one row's values
    return Bounds(threads=32 * warps, blocks_per_sm=65536 // (32 * warps * registers))


def applicable(configuration: Configuration, problem: Problem, device: Device) -> Verdict:
    lanes, rows, items = (configuration.integer(name) for name in ("lanes", "rows", "items"))
    vector, fewest = ACCESS_BYTES // problem.element_bytes, -(-_words(problem) // lanes)
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
            items == min((count for count in PARAMETERS["items"] if count >= fewest), default=0),
            f"{items} words for each of {lanes} lanes are too few or too many for a row of {problem.cols}",
        ),
        (fewest > 1 or lanes == 1, f"{lanes} lanes are too many for a row of {problem.cols}"),
        (rows * items <= MOST_HELD[problem.element_bytes], f"{rows} rows of {items} words are more than a lane holds"),
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


def _words(problem: Problem) -> int:
    """The most words that a row touches, which need not start or end with one."""
    per_word = WORD_BYTES // problem.element_bytes
    return -(-(problem.cols + per_word - 1) // per_word)
