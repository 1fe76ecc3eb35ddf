"""Which kernel is called best, and that every view of a database means the same one by it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.choice import WHICH_IS_BEST, Candidate, choose
from autotune.cli.output import microseconds, parameters
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.dispatch import explain
from autotune.problem import Problem
from autotune.report.data import collect
from autotune.trial import Outcome, Round, RoundKind
from benchmarks.results_readme import page as readme
from tests.command import rows, said
from tests.database_samples import FAST, PROBLEM, SLOW, SOURCE, begin, record, settle
from tests.test_report import RESULTS

AT_4096 = ("--size", "4096x4096", "--dtype", "float32")
KINDS: tuple[RoundKind, ...] = ("final", "race", "screen")


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    """A database whose best is the simpler of two kernels that tie: the other was a little faster."""
    path = tmp_path / "tied.sqlite"
    with Database(path, create=True) as db:
        number = begin(db)
        trial = record(db, number, SLOW, [Round("final", (40.05, 40.05, 40.05), 16)])
        record(db, number, FAST, [Round("final", (40.0, 40.0, 40.0), 16)])
        settle(db, number, trial, SLOW, 40.05)
        with db.write() as connection:
            second = connection.execute("SELECT id FROM configurations WHERE parameters = ?", (FAST.to_json(),)).fetchone()[0]
            connection.execute("UPDATE best SET runner_up = ?, runner_up_us = 40, gap = 40 / 40.05 - 1, beyond_noise = 0", (second,))
    return path


def test_a_negative_gap_is_explained_by_the_rule_and_a_positive_one_needs_no_word(tied: Path) -> None:
    shown = said("inspect", "best", "--size", "4096x4096", "--db", str(tied))
    assert "-0.1 %" in shown
    assert WHICH_IS_BEST in shown
    assert WHICH_IS_BEST not in said("inspect", "best", "--db", str(tied))
    with Database(tied) as db, db.write() as connection:
        connection.execute("UPDATE best SET gap = 0.05, runner_up_us = 42")
    assert WHICH_IS_BEST not in said("inspect", "best", "--size", "4096x4096", "--db", str(tied))


def test_without_a_best_it_is_said_whether_anything_ran_right(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with Database(path, create=True) as db:
        number = begin(db)
        db.record(number, PROBLEM, SLOW, SOURCE.sha, Outcome.TIMEOUT, message="it hung")
    shown = said("inspect", "best", "--db", str(path))
    assert shown == f"1 trial of what was asked for gave no best kernel; `autotune inspect trials --db {path}` shows how they ended\n"
    with Database(path) as db:
        record(db, number, FAST, [Round("screen", (40.0,), 16)])
    shown = said("inspect", "best", "--size", "4096x4096", "--db", str(path))
    assert (
        shown == f"1 trial of what was asked for ran right, but which is best was not settled; `autotune rebuild --db {path}` does that\n"
    )


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [(1e-9, "1e-09"), (0.01234, "0.0123"), (0.5, "0.5"), (33.766, "33.77"), (1e12, "1,000,000,000,000"), (0.0, "0.00")],
)
def test_no_time_is_shown_as_nothing(time_us: float, shown: str) -> None:
    assert microseconds(time_us) == shown


@pytest.mark.parametrize(("samples", "sure"), [(1, False), (5, False), (6, True)])
def test_a_gap_is_beyond_noise_only_where_both_have_enough_samples_for_an_interval(samples: int, sure: bool) -> None:
    fast = Candidate(FAST, 0, (tuple(20.0 + n / 100 for n in range(9)),))
    slow = Candidate(SLOW, 1, (tuple(30.0 + n / 100 for n in range(samples)),))
    slower = Candidate(SLOW, 1, (tuple(30.0 + n / 100 for n in range(9)),))
    few = Candidate(FAST, 0, (tuple(20.0 + n / 100 for n in range(samples)),))
    assert [choose(both).beyond_noise for both in ((fast, slow), (few, slower))] == [sure, sure]


def test_the_help_defines_every_figure_of_the_table() -> None:
    told = " ".join(said("inspect", "best", "--help").split())
    assert WHICH_IS_BEST in told
    for word in ("spread", "of copy", "tried", "gap", "beyond noise"):
        assert f'"{word}"' in told or f"is {word} when" in told, word
    assert WHICH_IS_BEST in " ".join(said("explain", "--help").split())


def test_all_views_name_one_best_kernel_even_in_a_tie(tied: Path) -> None:
    (best,) = rows("inspect", "best", "--size", "4096x4096", "--db", str(tied))
    assert rows("inspect", "best", "--version", "v3", "--db", str(tied)) == []  # its template is none of today's
    with Database(tied, mode="read") as db:
        (of_version,) = db.best_per_version(version="v3")
        (series,) = collect(db)
        (view,) = db.select("SELECT parameters, time_us FROM best_per_version")
    (problem,), (share,) = series["problems"], series["shares"]
    assert best["parameters"] == of_version["parameters"] == json.loads(view["parameters"]) == dict(SLOW.parameters)
    assert problem["configuration"] == share["configuration"] == parameters(best["parameters"])
    assert best["time_us"] == of_version["time_us"] == view["time_us"] == problem["time_us"] == share["time_us"] == 40.05


def test_of_the_shipped_file_inspect_explain_report_and_readme_name_one_best_kernel() -> None:
    with Database(RESULTS, mode="read") as db:
        best = {(row["rows"], row["cols"], row["dtype"]): row for row in db.best()}
        of_version = {(row["rows"], row["cols"], row["dtype"], row["version"]): row for row in db.best_per_version()}
        series = collect(db, dtype="float32")
    for (row_count, cols, dtype), row in best.items():
        same = of_version[row_count, cols, dtype, row["version"]]
        assert (same["parameters"], same["time_us"]) == (row["parameters"], row["time_us"])
    drawn = {(share["rows"], share["cols"], share["version"]): share for share in series[0]["shares"]}
    for problem in series[0]["problems"]:
        share = drawn[problem["rows"], problem["cols"], problem["version"]]
        assert (share["configuration"], share["time_us"]) == (problem["configuration"], problem["time_us"])
    winner = best[4096, 4096, "float32"]
    text = readme([RESULTS])
    assert " ".join(WHICH_IS_BEST.split()) in " ".join(text.split())
    named = f"{parameters(winner['parameters'])} | {winner['time_us']:.2f} |"
    assert f"| {winner['version']} | {named}" in text
    assert f"| 4096x4096 float32 | {winner['version']} {named}" in text
    story = explain(Problem("softmax", 4096, 4096), "NVIDIA H200", db=RESULTS)
    assert story.chosen is not None
    assert story.chosen.configuration == Configuration.of(winner["version"], **winner["parameters"])


trial = st.tuples(st.sampled_from([64, 128, 256]), st.sampled_from(KINDS), st.floats(1e-3, 1e12), st.booleans())


@settings(max_examples=15, deadline=None)
@given(st.lists(trial, min_size=1, max_size=6), st.none() | st.integers(0, 5))
def test_one_trial_stands_for_a_version(tmp_path_factory: pytest.TempPathFactory, trials: list[Any], chosen: int | None) -> None:
    """The settled one, else a measured before a replayed one, then by care, then by time."""
    recorded: dict[int, tuple[Any, ...]] = {}
    with Database(tmp_path_factory.mktemp("v") / "x.sqlite", create=True) as db:
        number = begin(db)
        for block, kind, time_us, replayed in trials:
            rounds = [Round(kind, (time_us,), 16)]
            configuration = Configuration.of("v3", block=block)
            made = db.record(number, PROBLEM, configuration, SOURCE.sha, Outcome.OK, rounds=rounds, replayed=replayed)
            recorded[made] = (replayed, KINDS.index(kind), time_us)
        settled = list(recorded)[chosen] if chosen is not None and chosen < len(recorded) else None
        if settled is not None:
            settle(db, number, settled, Configuration.of("v3", block=trials[list(recorded).index(settled)][0]), recorded[settled][2])
        (found,) = db.best_per_version()
    assert found["trials"] == len(trials)
    if settled is not None:
        assert found["trial"] == settled
    else:
        assert recorded[found["trial"]] == min(recorded.values())
    assert found["time_us"] == recorded[found["trial"]][2]
