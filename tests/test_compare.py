"""Two databases compared: what is slower beyond noise, what only looks so, and what differs in how they were made."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.database import Database
from autotune.database.comparison import Side, compare_best, compare_configurations
from tests.command import refused, rows, run, said
from tests.report_samples import SIZES, measured


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compare")
    return {
        "before": measured(folder / "before.sqlite"),
        "slower": measured(folder / "slower.sqlite", slowdown=1.05, driver="590.2"),
        "noisy": measured(folder / "noisy.sqlite", slowdown=1.005),
    }


def named(path: Path, device: str = "Test GPU") -> str:
    return f"{path}#{device}"


def test_what_is_slower_beyond_noise_is_told_and_fails_where_that_is_asked_for(sides: dict[str, Path]) -> None:
    arguments = ("compare", named(sides["before"]), named(sides["slower"]))
    found = rows(*arguments)
    assert len(found) == len(SIZES) + 3
    assert {row["verdict"] for row in found} == {"slower"}
    assert all(row["change"] == pytest.approx(0.05) and row["same_configuration"] for row in found)
    assert run(*arguments)[0] == 0
    assert run(*arguments, "--fail-if-slower")[0] == 1
    table = said(*arguments)
    assert "590.2" in table
    assert "8 compared: 8 slower, 0 faster, 0 the same within noise" in table


def test_the_other_way_round_it_is_faster(sides: dict[str, Path]) -> None:
    found = rows("compare", named(sides["slower"]), named(sides["before"]))
    assert {row["verdict"] for row in found} == {"faster"}
    assert run("compare", named(sides["slower"]), named(sides["before"]), "--fail-if-slower")[0] == 0


def test_half_a_percent_is_noise_unless_the_user_says_otherwise(sides: dict[str, Path]) -> None:
    arguments = ("compare", named(sides["before"]), named(sides["noisy"]))
    assert {row["verdict"] for row in rows(*arguments)} == {"same"}
    assert rows(*arguments, "--changed") == []
    assert {row["verdict"] for row in rows(*arguments, "--tolerance", "0")} == {"same"}  # the intervals of the two still meet


def test_two_gpus_are_compared_where_both_have_the_problem(sides: dict[str, Path]) -> None:
    path = sides["before"]
    found = rows("compare", named(path), named(path, "Other GPU"))
    assert {(row["rows"], row["cols"]) for row in found} == set(SIZES[1:])
    assert {row["verdict"] for row in found} == {"slower"}
    assert "problems only in A" in said("compare", named(path), named(path, "Other GPU"))


def test_every_configuration_can_be_compared(sides: dict[str, Path]) -> None:
    found = rows("compare", named(sides["before"]), named(sides["slower"]), "--configurations")
    with Database(sides["before"], mode="read") as db:
        timed = [r for r in db.trial_rows(device="Test GPU") if r["time_us"]]
    assert len(found) == len(timed)
    assert all(row["change"] == pytest.approx(0.05) and row["same_template"] for row in found)


def test_a_database_does_not_differ_from_itself(sides: dict[str, Path]) -> None:
    path = sides["before"]
    assert {row["verdict"] for row in rows("compare", named(path), named(path))} == {"same"}
    assert "made with the same device, software and templates" in said("compare", named(path), named(path))


def test_what_cannot_be_compared_is_one_sentence(sides: dict[str, Path]) -> None:
    path = sides["before"]
    assert "has several devices: Other GPU, Test GPU, emulator; name one as" in refused("compare", str(path), str(path))
    assert "has no trials on Abacus; it has" in refused("compare", named(path, "Abacus"), named(path))
    assert "/no/such.sqlite" in refused("compare", named(path), "/no/such.sqlite")


@settings(max_examples=10, deadline=None)
@given(st.floats(0, 0.2))
def test_a_larger_tolerance_never_finds_more(sides: dict[str, Path], tolerance: float) -> None:
    with Database(sides["before"], mode="read") as a, Database(sides["slower"], mode="read") as b:
        one, two = Side.of(a, "Other GPU"), Side.of(b, "Test GPU")
        strict = {json.dumps(row) for row in compare_best(one, two, 0) if row["verdict"] == "faster"}
        tolerant = {json.dumps(row) for row in compare_best(one, two, tolerance) if row["verdict"] == "faster"}
        assert tolerant <= strict
        assert compare_configurations(one, one, tolerance) != []


def screened(path: Path, slowdown: float) -> Path:
    """A database whose trials were first screened, with times that are `slowdown` times those of their finals."""
    with Database(path) as db, db.write() as connection:
        same = "launches_per_sample, sm_clock_mhz, throttled"
        connection.execute(
            f"INSERT INTO rounds (trial, number, kind, median_us, time_us, samples_us, {same}) SELECT trial, number + 100, 'screen', "
            f"?1 * median_us, ?1 * time_us, (SELECT json_group_array(?1 * value) FROM json_each(samples_us)), {same} FROM rounds",
            (slowdown,),
        )
    return path


def test_a_kernel_that_raced_on_one_side_alone_is_compared_by_its_first_times(tmp_path: Path) -> None:
    raced = screened(measured(tmp_path / "raced.sqlite", slowdown=0.9), 1 / 0.9)
    alone = screened(measured(tmp_path / "alone.sqlite"), 1)
    with Database(alone) as db, db.write() as connection:
        connection.execute("DELETE FROM rounds WHERE kind <> 'screen'")
    with Database(raced, mode="read") as one, Database(alone, mode="read") as two:
        found = compare_configurations(Side.of(one, "Test GPU"), Side.of(two, "Test GPU"))
    assert found
    assert {row["verdict"] for row in found} == {"same"}
