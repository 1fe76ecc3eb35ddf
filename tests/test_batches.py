"""How many configurations are built and tried at once: none that would not be done in time."""

from dataclasses import dataclass

import pytest

from autotune.batches import Batches
from autotune.search import Budget


@dataclass
class Counted:
    measured: int = 0
    remaining: int = 1000

    def expected_gain(self) -> float:
        return 1.0


def test_an_exhaustive_search_asks_for_all_at_once_and_any_other_for_a_batch() -> None:
    assert Batches(Budget(exhaustive=True), 0.0).size(Counted(), 0.0) == 1000
    assert Batches(Budget(until_gain=0.01), 0.0).size(Counted(), 0.0) == 16
    assert Batches(Budget(trials=20), 0.0).size(Counted(measured=15), 0.0) == 5


@pytest.mark.parametrize("seconds", [0.5, 3.0, 20.0, 300.0])
@pytest.mark.parametrize("each_s", [0.01, 0.2, 2.0])
def test_seconds_are_overrun_by_no_more_than_one_configuration_of_the_usual_speed(seconds: float, each_s: float) -> None:
    """A slower machine than expected is known after the first batch, which was to take half of the time at most."""
    batches, study, now = Batches(Budget(seconds=seconds), 100.0), Counted(), 100.0
    while not batches.late(now):
        asked = batches.size(study, now)
        assert 1 <= asked <= 16
        now += asked * each_s
    first_s = max(1, min(16, int(seconds))) * each_s
    assert now - 100.0 <= max(seconds, first_s) + each_s + 1e-6


def test_batches_grow_where_configurations_are_quick() -> None:
    batches = Batches(Budget(seconds=3.0), 0.0)
    assert batches.size(Counted(), 0.0) == 3
    assert batches.size(Counted(), 0.3) == 16
    assert batches.size(Counted(), 2.7) == 1


def test_nothing_is_late_without_a_limit_of_seconds() -> None:
    assert not Batches(Budget(trials=4), 0.0).late(1e9)


def test_endless_seconds_limit_no_batch() -> None:
    batches, study = Batches(Budget(seconds=1e308), 0.0), Counted()
    assert [batches.size(study, now) for now in (0.0, 1e-9)] == [16, 16]
