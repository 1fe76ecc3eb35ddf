"""Two databases compared: what is slower beyond noise, what only looks so, and what differs in how they were made."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.choice import candidates, choose
from autotune.cli.compare import signed
from autotune.configuration import Configuration
from autotune.database import Database, Settled, shipped_databases
from autotune.database.comparison import Side, compare_best, compare_configurations
from autotune.trial import Outcome, Round, RoundKind
from tests.command import refused, rows, run, said
from tests.database_samples import COLD, DEVICE, PROBLEM, SOURCE, begin
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
    assert "; 4 problems only in A\n" in said("compare", named(path), named(path, "Other GPU"))


def test_one_problem_that_only_one_side_has_is_one(sides: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "less.sqlite"
    copyfile(sides["before"], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "DELETE FROM best WHERE rowid = (SELECT b.rowid FROM best b JOIN devices d ON d.id = b.device WHERE d.name = 'Test GPU')"
        )
    assert said("compare", named(sides["before"]), named(path)).endswith("; 1 problem only in A\n")


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


KINDS: tuple[RoundKind, ...] = ("screen", "race", "final")
taken_us = st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.floats(1, 100), min_size=1, max_size=8)), min_size=1, max_size=4)


def timed(path: Path, trials: Mapping[Configuration, Sequence[Round]], replayed: bool = False) -> Path:
    """A database with one trial of each configuration, of which the best is settled."""
    with Database(path, create=True) as db:
        run = begin(db)
        for configuration, taken in trials.items():
            db.record(run, PROBLEM, configuration, SOURCE.sha, Outcome.OK, rounds=taken, replayed=replayed)
        found = db.trials(DEVICE, COLD, PROBLEM)
        choice = choose(candidates(found, {c: place for place, c in enumerate(trials)}))
        best = next(t for t in found if t.configuration == choice.configuration)
        db.settle(
            run, DEVICE, COLD, PROBLEM, Settled(best.configuration, best.trial_id, choice.time_us, choice.low_us, choice.high_us, 0, 2, 1)
        )
    return path


@settings(max_examples=15, deadline=None)
@given(st.lists(taken_us, min_size=1, max_size=2), st.data())
def test_a_database_a_replay_of_it_and_its_own_past_differ_in_nothing(
    tmp_path_factory: pytest.TempPathFactory, measured_us: list[list[tuple[RoundKind, list[float]]]], data: st.DataObject
) -> None:
    """However the samples drift, whichever of them the replay saw, in whatever order and kind of round."""
    folder = tmp_path_factory.mktemp("replay")
    trials = {
        Configuration.of("v3", block=64 << place): [Round(kind, tuple(us), 16) for kind, us in taken]
        for place, taken in enumerate(measured_us)
    }
    replays = {}
    for configuration, taken in trials.items():
        seen = data.draw(st.lists(st.sampled_from([us for one in taken for us in one.samples_us]), min_size=1, max_size=12))
        replays[configuration] = [Round(data.draw(st.sampled_from(KINDS)), tuple(seen), 16)]
    original = timed(folder / "a.sqlite", trials)
    for other in (original, timed(folder / "b.sqlite", replays, replayed=True)):
        with Database(original, mode="read") as one, Database(other, mode="read") as two:
            sides = Side.of(one, None), Side.of(two, None)
            for a, b in (sides, sides[::-1]):
                assert {row["verdict"] for row in (*compare_best(a, b, 0), *compare_configurations(a, b, 0))} <= {"same"}


@settings(max_examples=15, deadline=None)
@given(taken_us, taken_us)
def test_slower_one_way_is_faster_the_other_and_beyond_the_noise_of_both(
    tmp_path_factory: pytest.TempPathFactory, mine: list[tuple[RoundKind, list[float]]], other: list[tuple[RoundKind, list[float]]]
) -> None:
    folder = tmp_path_factory.mktemp("both")
    sides = []
    for place, taken in enumerate((mine, other)):
        path = timed(folder / f"{place}.sqlite", {Configuration.of("v3", block=64): [Round(kind, tuple(us), 16) for kind, us in taken]})
        sides.append(Side.of(Database(path, mode="read"), None))
    one, two = sides
    mirrored = {"slower": "faster", "faster": "slower", "same": "same"}
    for compared in (compare_best, compare_configurations):
        forth, away = compared(one, two), compared(two, one)
        assert [mirrored[row["verdict"]] for row in forth] == [row["verdict"] for row in away]
        for row in forth:
            if row["verdict"] != "same":
                used = [[us for _, some in taken for us in some] for taken in (mine, other)]
                assert min(map(len, used)) > 1
                assert row["a_time_us"] != row["b_time_us"]
    for side in sides:
        side.database.close()


def test_one_sample_a_side_is_no_evidence_of_a_change(tmp_path: Path) -> None:
    one, two = (timed(tmp_path / f"{us}.sqlite", {Configuration.of("v3", block=64): [Round("screen", (us,), 16)]}) for us in (40.0, 80.0))
    for more in ((), ("--configurations",)):
        (row,) = rows("compare", str(one), str(two), *more)
        assert (row["change"], row["verdict"]) == (1.0, "same")


def test_times_of_unlike_rounds_are_not_compared(tmp_path: Path) -> None:
    configuration = Configuration.of("v3", block=64)
    first = timed(tmp_path / "first.sqlite", {configuration: [Round("screen", (80.0, 80.1, 80.2), 16)]})
    final = timed(tmp_path / "final.sqlite", {configuration: [Round("final", (40.0, 40.1, 40.2), 16)]})
    assert rows("compare", str(first), str(final), "--configurations") == []


def test_a_real_replay_changes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "replay.sqlite")
    said("sweep", "softmax", "--device", "recorded", "--size", "4096x4096", "--version", "v1", "--db", path, "--json")
    shipped = str(shipped_databases()[0])
    assert len(rows("compare", shipped, path, "--configurations", "--tolerance", "0")) == 12
    assert rows("compare", shipped, path, "--configurations", "--changed", "--tolerance", "0") == []
    assert ["best", "kernels", "measured", "replayed"] in [line.split() for line in said("compare", shipped, path).splitlines()]


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


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0.0 %"), (-0.0004, "0.0 %"), (0.0004, "0.0 %"), (0.031, "+3.1 %"), (-0.0006, "-0.1 %")]
)
def test_a_change_that_rounds_to_nothing_has_no_sign(value: float, shown: str) -> None:
    assert signed(value) == shown
