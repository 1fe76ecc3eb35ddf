"""Pairs lie in their arenas at exactly the layout that the problem asks for, and never touch each other."""

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends.clocks import lowest, reasons
from autotune.backends.cuda_engine import expected_s
from autotune.backends.cuda_pairs import GUARD_BYTES, Slots, input_slots, needs_flush, output_slots, pair_count
from autotune.problem import Problem

H200_L2 = 60 << 20


@given(
    count=st.integers(1, 256),
    rows=st.integers(1, 300),
    cols=st.integers(1, 300),
    gap=st.integers(0, 9),
    alignment=st.sampled_from([4, 8, 16]),
)
def test_matrices_have_the_alignment_asked_for_and_their_own_guard_zones(
    count: int, rows: int, cols: int, gap: int, alignment: int
) -> None:
    problem = Problem("softmax", rows, cols, input_stride=cols + gap, input_alignment=alignment)
    slots = input_slots(problem, count)
    starts = [slots.matrix(i) for i in range(count)]
    ends = [start + rows * (cols + gap) * 4 for start in starts]
    assert all(gcd(start, 16) == alignment for start in starts)
    assert starts[0] >= GUARD_BYTES
    assert all(after - before >= 2 * GUARD_BYTES for before, after in zip(ends, starts[1:], strict=False))
    assert slots.arena_bytes >= ends[-1] + GUARD_BYTES
    assert [slots.slot(i) for i in range(count)] == [i * slots.pitch for i in range(count)]


def test_inputs_and_outputs_have_layouts_of_their_own() -> None:
    problem = Problem("softmax", 3, 10, input_stride=12, output_stride=11, output_alignment=8)
    assert input_slots(problem, 2) == Slots.of(2, 3 * 12 * 4, 16)
    assert output_slots(problem, 2) == Slots.of(2, 3 * 11 * 4, 8)


@pytest.mark.parametrize(
    ("rows", "cols", "pairs", "flush"), [(4096, 4096, 2, False), (1, 1024, 256, True), (1024, 1000, 31, False), (64, 512, 256, True)]
)
def test_a_lap_takes_four_times_the_cache_where_256_pairs_suffice(rows: int, cols: int, pairs: int, flush: bool) -> None:
    moved = 2 * rows * cols * 4
    assert pair_count(moved, H200_L2, Problem("softmax", 1, moved // 8)) == pairs
    assert needs_flush(moved, pairs, H200_L2) is flush
    assert flush or moved * pairs >= 3 * H200_L2


def test_a_slow_configuration_gets_the_time_that_it_needs() -> None:
    assert expected_s(pairs=2, samples=9, launch_us=30) < 1
    assert expected_s(pairs=256, samples=9, launch_us=10_000) > 9 * 256 * 0.01


def test_only_what_holds_clocks_back_against_our_will_is_throttling() -> None:
    assert reasons(0x1 | 0x2 | 0x100) == ""
    assert reasons(0x8 | 0x40) == "hardware slowdown, hardware thermal slowdown"
    assert lowest(None, 1980, 1410) == 1410
    assert lowest(None, None) is None
