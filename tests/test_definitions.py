"""The definitions of softmax's versions: their spaces, when a configuration is applicable and why not, how it is launched."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import catalogue
from autotune.configuration import Configuration, Value
from autotune.device import EMULATOR
from autotune.problem import Problem

SOFTMAX = catalogue.load("softmax")
ANY = Problem("softmax", 64, 1024)


def why(problem: Problem, version: str, **parameters: Value) -> str:
    return SOFTMAX.applicable(Configuration.of(version, **parameters), problem, EMULATOR).why


def test_the_versions_in_their_order_and_the_sizes_of_their_spaces() -> None:
    sizes = {name: len(version.configurations()) for name, version in SOFTMAX.versions.items()}
    assert dict(list(sizes.items())[:5]) == {"v0": 5, "v1": 12, "v2": 30, "v3": 90, "v4": 120}


def test_every_declared_configuration_is_applicable_to_a_well_aligned_problem() -> None:
    assert not [str(c) for c in SOFTMAX.configurations(("v0", "v1", "v2", "v3", "v4")) if not SOFTMAX.applicable(c, ANY, EMULATOR)]


@pytest.mark.parametrize("block", [48, 96, 100, 1000])
def test_v1_needs_a_block_that_is_a_power_of_two(block: int) -> None:
    assert why(ANY, "v1", block=block, unroll=1) == f"block {block} is not a power of two, which v1 needs"


@pytest.mark.parametrize("block", [1, 16, 48, 100])
def test_shuffles_need_whole_warps(block: int) -> None:
    more = {"vector": 1, "unroll": 1}
    assert why(ANY, "v2", block=block, unroll=1) == f"block {block} is not a multiple of 32, which v2 needs"
    assert why(ANY, "v3", block=block, **more) == f"block {block} is not a multiple of 32, which v3 needs"
    assert why(ANY, "v4", block=block, **more, stash="inputs") == f"block {block} is not a multiple of 32, which v4 needs"


@pytest.mark.parametrize(
    ("problem", "widest"),
    [
        (Problem("softmax", 64, 1000), 4),
        (Problem("softmax", 64, 1002), 2),
        (Problem("softmax", 64, 1001), 1),
        (Problem("softmax", 1, 1001), 4),  # one row starts at the pointer, whatever its length
        (Problem("softmax", 64, 1001, input_stride=1004, output_stride=1004), 4),
        (Problem("softmax", 64, 1000, output_stride=1001), 1),
        (Problem("softmax", 64, 1000, input_alignment=8), 2),
        (Problem("softmax", 64, 1000, output_alignment=4), 1),
    ],
    ids=str,
)
def test_vectors_need_rows_that_start_aligned(problem: Problem, widest: int) -> None:
    for vector in (1, 2, 4):
        reason = (
            "" if vector <= widest else f"rows start at multiples of {widest * 4} bytes, and vector {vector} of float32 needs {vector * 4}"
        )
        assert why(problem, "v3", block=64, vector=vector, unroll=1) == reason
        assert why(problem, "v4", block=64, vector=vector, unroll=1, stash="inputs") == reason


def test_no_vector_is_wider_than_16_bytes() -> None:
    assert why(ANY, "v3", block=64, vector=8, unroll=1) == "vector 8 of float32 is 32 bytes, and no access is wider than 16"
    half = replace(ANY, dtype="float16")
    own = SOFTMAX.version("v4").own_applicable
    assert own(Configuration.of("v4", block=64, vector=8, unroll=1, stash="inputs"), half, EMULATOR)
    verdict = own(Configuration.of("v4", block=64, vector=8, unroll=1, stash="exponentials"), half, EMULATOR)
    assert verdict.why == "vector 8 of float32 exponentials is 32 bytes, and no access is wider than 16"


def test_v4_counts_dynamic_and_static_shared_memory() -> None:
    def fits(cols: int, block: int) -> bool:
        return not why(Problem("softmax", 1, cols), "v4", block=block, vector=1, unroll=1, stash="inputs")

    limit = EMULATOR.shared_bytes_per_block // 4
    assert fits(limit, block=32)  # one warp reduces by shuffles alone
    assert not fits(limit + 1, block=32)
    assert fits(limit - 64, block=1024)
    assert not fits(limit - 63, block=1024)
    reason = why(Problem("softmax", 1, 60000), "v4", block=1024, vector=1, unroll=1, stash="inputs")
    assert reason == "a row of 60000 takes 240256 bytes of shared memory, and a block on emulator has 232448"


def test_a_dtype_that_is_not_offered_is_refused() -> None:
    assert why(replace(ANY, dtype="float16"), "v0", block=32) == "dtype float16 is not offered by v0"


def test_more_rows_than_a_grid_has_blocks_are_refused() -> None:
    huge = Problem("softmax", 2**31, 1)
    assert why(huge, "v2", block=32, unroll=1) == f"{2**31} blocks are more than a grid holds"
    assert not why(huge, "v0", block=32)


@given(
    rows=st.integers(0, 2**31 - 1), cols=st.integers(0, 2**33), extra=st.integers(0, 9), alignment=st.sampled_from([4, 8, 16]),
    in_place=st.booleans(),
)  # fmt: skip
def test_the_safe_configuration_computes_everything(rows: int, cols: int, extra: int, alignment: int, in_place: bool) -> None:
    problem = Problem("softmax", rows, cols, "float32", cols + extra, cols + extra, alignment, 4, in_place)
    assert SOFTMAX.applicable(SOFTMAX.safe, problem, EMULATOR)


@given(st.integers(0, 10**9), st.sampled_from([32, 64, 128, 256, 512]))
def test_v0_has_a_thread_for_each_row_and_less_than_a_block_to_spare(rows: int, block: int) -> None:
    version = SOFTMAX.version("v0")
    blocks = version.launch(Configuration.of("v0", block=block), Problem("softmax", rows, 8), EMULATOR).blocks
    assert 0 <= blocks * block - rows < block


def test_v4_stashes_whole_packs() -> None:
    version = SOFTMAX.version("v4")

    def bytes_for(cols: int, dtype: str, **parameters: Value) -> int:
        return version.launch(
            Configuration.of("v4", block=64, unroll=1, **parameters), Problem("softmax", 3, cols, dtype), EMULATOR
        ).shared_bytes

    assert bytes_for(1003, "float32", vector=4, stash="inputs") == 4000
    assert bytes_for(1003, "float16", vector=1, stash="inputs") == 2006
    assert bytes_for(1003, "float16", vector=1, stash="exponentials") == 4012


def test_the_fewest_bytes_are_one_read_and_one_write() -> None:
    assert SOFTMAX.bytes_moved(Problem("softmax", 4096, 4096)) == 2 * 4096 * 4096 * 4
    assert SOFTMAX.bytes_moved(Problem("softmax", 4096, 4096, "float16", input_stride=5000)) == 2 * 4096 * 4096 * 2


def test_configurations_are_in_one_order_even_where_a_parameter_has_numbers_and_names() -> None:
    ordered = [Configuration.of("v0", block=32, mode=mode) for mode in (1, 2, 10, "a", "b")] + [Configuration.of("v1", block=1)]
    assert sorted(ordered[3:] + ordered[:3]) == ordered
