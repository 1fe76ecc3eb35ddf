"""Which configuration the dispatcher chooses, from facts alone: no database, no device."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.device import EMULATOR, Device
from autotune.dispatch.knowledge import Knowledge, Pin, Tuned
from autotune.dispatch.selection import TIERS, Selector, likeness
from autotune.dispatch.store import Layer, StoredInstance
from autotune.errors import AutotuneError
from autotune.problem import Problem
from tests.dispatch_cases import H200, SOFTMAX, V2, V3, V4, tuned


def selector(*entries: Tuned, **more: object) -> Selector:
    return Selector(SOFTMAX, H200, dataclasses.replace(Knowledge(tuned=entries), **more))  # type: ignore[arg-type]


def test_a_tuned_size_gets_its_own_configuration() -> None:
    chosen = selector(tuned(4096, 4096, V3), tuned(4096, 8192, V4)).choose(Problem("softmax", 4096, 8192))
    assert (chosen.tier, chosen.configuration) == ("exact", V4)


def test_a_size_never_tuned_gets_that_of_the_nearest_one_where_columns_count_more_than_rows() -> None:
    # Four doublings of the rows are nearer than two of the columns.
    chosen = selector(tuned(64, 4096, V3), tuned(1024, 16384, V4)).choose(Problem("softmax", 1024, 4096))
    assert (chosen.tier, chosen.configuration, chosen.distance) == ("nearest", V3, 4.0)


def test_a_configuration_that_the_real_call_cannot_run_is_passed_over_with_its_reason() -> None:
    told = selector(tuned(4096, 4096, V3), tuned(64, 1024, V2)).explain(Problem("softmax", 4096, 4095))
    assert told.chosen is not None
    assert (told.tier, told.chosen.configuration) == ("nearest", V2)
    assert told.candidates[0].configuration == V3
    assert "rows start at multiples of 4 bytes, and vector 4 of float32 needs 16" in told.candidates[0].rejected


@pytest.mark.parametrize("layout", [{"input_alignment": 4}, {"output_alignment": 8}, {"input_stride": 4097}, {"output_stride": 4098}])
def test_alignment_of_either_pointer_and_of_either_stride_decides_even_at_a_tuned_size(layout: dict[str, int]) -> None:
    told = selector(tuned(4096, 4096, V3)).explain(Problem("softmax", 4096, 4096, **layout))  # type: ignore[arg-type]
    assert told.candidates[0].configuration == V3
    assert told.candidates[0].rejected
    assert told.tier == "analytic default"


def test_the_limits_of_the_device_decide() -> None:
    chosen = selector(tuned(64, 131072, V4), tuned(64, 1024, V3)).choose(Problem("softmax", 64, 131072))
    assert chosen.configuration == V3


def test_of_several_layouts_of_one_size_the_one_like_the_call_is_taken() -> None:
    entries = tuned(64, 1024, V2, in_place=False), tuned(64, 1024, V3, 20.0, in_place=True)
    assert selector(*entries).choose(Problem("softmax", 64, 1024, in_place=True)).configuration == V3
    assert selector(*entries).choose(Problem("softmax", 64, 1024)).configuration == V2


def test_a_pin_comes_first_within_its_range_and_only_there() -> None:
    pin = Pin("float32", 1, 100, 1, 100, V2, "me", "it is calm")
    chooser = selector(tuned(64, 64, V3), pins=(pin,))
    pinned = chooser.choose(Problem("softmax", 64, 64))
    assert (pinned.tier, pinned.configuration, pinned.note) == ("pin", V2, "pinned by me: it is calm")
    assert chooser.choose(Problem("softmax", 64, 128)).tier == "nearest"


def test_a_pin_that_cannot_run_the_call_is_passed_over() -> None:
    pin = Pin("float32", 1, 100, 1, 100, V3, "me", "fast")
    told = selector(pins=(pin,)).explain(Problem("softmax", 64, 63))
    assert [c.tier for c in told.candidates][:1] == ["pin"]
    assert told.tier == "analytic default"


def test_a_blocked_configuration_is_not_used_for_the_size_or_for_any() -> None:
    at_one_size = {(V3, "float32", 64, 64): "it hung"}
    chooser = selector(tuned(64, 64, V3), blocked=at_one_size)
    assert chooser.explain(Problem("softmax", 64, 64)).candidates[0].rejected == "it is blocked: it hung"
    assert chooser.choose(Problem("softmax", 64, 128)).configuration == V3
    everywhere = {(V3, "float32", None, None): "wrong result"}
    assert selector(tuned(64, 64, V3), blocked=everywhere).choose(Problem("softmax", 64, 128)).tier == "analytic default"


def stored(*configurations: Configuration) -> dict[tuple[Configuration, str], StoredInstance]:
    layer = Layer(tuned(1, 1, V2).path)
    return {(c, "float32"): StoredInstance(c, "float32", "sm_90", "cubin", "symbol", "sha", layer) for c in configurations}


def test_a_configuration_without_a_compiled_instance_is_passed_over() -> None:
    chooser = selector(tuned(64, 64, V3), tuned(64, 128, V2), instances=stored(V2, SOFTMAX.safe))
    told = chooser.explain(Problem("softmax", 64, 64))
    assert (told.tier, told.candidates[0].rejected) == ("nearest", "no compiled instance of it for sm_90 is stored")


def test_without_the_safe_kernel_too_the_error_says_what_is_missing() -> None:
    chooser = selector(instances=stored())
    with pytest.raises(AutotuneError, match=r"no kernel is left for softmax 64x64 float32 on NVIDIA H200: .* for sm_90 is stored"):
        chooser.choose(Problem("softmax", 64, 64))


def test_an_untuned_gpu_borrows_from_the_most_similar_one_of_its_generation_and_never_from_the_emulator() -> None:
    h100 = dataclasses.replace(H200, name="NVIDIA H100", l2_bytes=52428800)
    a100 = Device("NVIDIA A100", (8, 0), 108, 41943040, 5120, 166912, 167936)
    small = dataclasses.replace(H200, name="small Hopper", sm_count=16)
    known = (
        (a100, (tuned(64, 64, V4, device=a100),)),
        (small, (tuned(64, 64, V2, device=small),)),
        (h100, (tuned(64, 64, V3, device=h100),)),
    )
    chosen = selector(similar=known).choose(Problem("softmax", 64, 64))
    assert (chosen.tier, chosen.configuration) == ("similar device", V3)
    assert likeness(H200, EMULATOR) is None
    assert likeness(H200, a100) is None


def test_an_explanation_names_the_nearest_tuned_sizes_with_their_times() -> None:
    told = selector(*(tuned(64, 2**k, V2, float(k)) for k in range(5, 17))).explain(Problem("softmax", 64, 1000))
    assert [(c.tuned.cols, c.tuned.time_us) for c in told.nearest if c.tuned][:3] == [(1024, 10.0), (512, 9.0), (2048, 11.0)]
    assert len(told.nearest) == 8


configurations = st.sampled_from(SOFTMAX.configurations())
sizes = st.tuples(st.integers(1, 2**20), st.integers(1, 2**18))
layouts = st.fixed_dictionaries(
    {"input_alignment": st.sampled_from([4, 8, 16]), "output_alignment": st.sampled_from([4, 8, 16]), "in_place": st.booleans()}
)


@given(st.lists(st.tuples(sizes, configurations), max_size=8), sizes, st.integers(0, 3), layouts)
def test_whatever_is_known_the_choice_can_run_the_call_and_is_the_first_that_can(
    known: list[tuple[tuple[int, int], Configuration]], size: tuple[int, int], gap: int, layout: dict[str, int]
) -> None:
    chooser = selector(*(tuned(*at, configuration) for at, configuration in known))
    problem = Problem("softmax", *size, input_stride=size[1] + gap, **layout)  # type: ignore[arg-type]
    chosen = chooser.choose(problem)
    assert SOFTMAX.applicable(chosen.configuration, problem, H200)
    told = chooser.explain(problem)
    assert told.chosen == chosen == told.candidates[-1]
    assert all(not SOFTMAX.applicable(c.configuration, problem, H200) for c in told.candidates[:-1])
    order = [TIERS.index(c.tier) for c in told.candidates]
    assert order == sorted(order)
