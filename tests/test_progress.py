"""What a sweep shows of itself: on a terminal, in plain lines, as JSON lines."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.catalogue import load
from autotune.cli.progress import JsonWatcher, PlainWatcher
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.problem import Problem
from autotune.search import Budget
from autotune.sweeping import sweep
from autotune.trial import Failure, Outcome
from autotune.watch import Summary, Watcher
from tests.fake import FakeBackend, Told

SOFTMAX = replace(load("softmax"), versions={"v2": load("softmax").version("v2")})
PROBLEM, OTHER = Problem("softmax", 4096, 4096), Problem("softmax", 64, 1000)
SPACE = SOFTMAX.configurations()
ALL = len(SPACE)


def times(configuration: Configuration, problem: Problem) -> Told:
    if configuration == SPACE[4]:
        return Failure(Outcome.WRONG_RESULT, "1 element is wrong")
    return 20.0 + configuration.integer("block") / 100 + configuration.integer("unroll")


def swept(tmp_path: Path, watcher: Watcher, budget: Budget | None = None) -> Summary:
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        return sweep(SOFTMAX, [PROBLEM, OTHER], FakeBackend(times, noise=1e-7), database, watcher=watcher, budget=budget)


def test_plain_lines_say_what_was_tried_what_failed_and_why_and_how_sure_the_winner_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(tmp_path, PlainWatcher())
    said = capsys.readouterr().out
    assert f"tuning 2 problems on Fake GPU\nbuilt {len(SPACE)} instances\n" in said
    assert f"softmax 4096x4096 float32: 1 x wrong_result: 1 element is wrong ({SPACE[4]}, in 2 trials)\n" in said
    assert (
        f"softmax 4096x4096 float32: {len(SPACE) + 1} new trials, {len(SPACE)} of {ALL} applicable configurations known, 1 blocked; best"
        in said
    )
    assert (
        "21.32 us (46.9 % of copy), +-0.0 % with 95 % confidence, winner of the final race; next v2 block 64, unroll 1 1.5 % behind\n"
        in said
    )
    assert (
        f"softmax 64x1000 float32: {len(SPACE) - 1} new trials, {len(SPACE)} of {ALL} applicable configurations known, 1 blocked; best"
        in said
    )
    assert f"{2 * len(SPACE)} new trials ({2 * len(SPACE) - 2} ok, 2 wrong result) in " in said
    assert "; 2 of 2 sizes have a confirmed best; every configuration was tried\n" in said


def test_which_limit_ended_a_search_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"2 trials were the limit": Budget(trials=2), "less than 60 % was to be gained": Budget(trials=ALL - 1, until_gain=0.6)}
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        for why, budget in limits.items():
            for _ in ("searched", "known from before"):
                sweep(SOFTMAX, [PROBLEM], FakeBackend(times), database, watcher=PlainWatcher(), budget=budget)
                assert capsys.readouterr().out.endswith(f"and there are more configurations to try: {why}\n")
        sweep(SOFTMAX, [PROBLEM, OTHER], FakeBackend(times), database, watcher=PlainWatcher(), budget=Budget(seconds=1e-9))
        assert capsys.readouterr().out.endswith("2 sizes had more configurations to try: 1e-09 s were the limit\n")


def test_a_size_in_two_element_types_is_not_called_two_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [OTHER, replace(OTHER, dtype="float16")]
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        sweep(SOFTMAX, both, FakeBackend(times), database, watcher=PlainWatcher(), budget=Budget(trials=12))
    assert (
        "; 2 of 2 problems have a confirmed best; 2 problems had more configurations to try: 12 trials were the limit\n"
        in capsys.readouterr().out
    )


def test_what_was_raced_is_not_taken_for_what_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget leaves most of a space untried, however sure the race among the tried is; an interrupted sweep has no race yet."""
    swept(tmp_path, PlainWatcher(), Budget(trials=12))
    said = capsys.readouterr().out
    assert f"12 of {len(SPACE)} applicable configurations known; best" in said
    assert "; 2 of 2 sizes have a confirmed best" in said  # which may have left one in a tie
    assert said.endswith("; 2 sizes had more configurations to try: 12 trials were the limit\n")
    with Database(tmp_path / "y.sqlite", mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(times, stop_after=4), database, watcher=PlainWatcher())
    said = capsys.readouterr().out
    assert re.search(r", one sample, provisional: its final race is still to come; next v2 .* behind, which is not beyond noise\n", said)
    assert said.endswith("; the best is provisional, and there are more configurations to try\n")


def one_problem(told: Callable[[Configuration, Problem], Told], tmp_path: Path, name: str, noise: float = 0.0) -> None:
    with Database(tmp_path / name, mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(told, noise=noise), database, watcher=PlainWatcher())


def test_what_is_equally_fast_is_called_a_tie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_problem(times, tmp_path, "sure.sqlite")
    assert capsys.readouterr().out.endswith("; the best won its final race, and every configuration was tried\n")
    one_problem(lambda configuration, problem: 1234.5, tmp_path, "equal.sqlite")
    said = capsys.readouterr().out
    assert said.endswith("; the best tied with others in its final race, and every configuration was tried\n")
    assert re.search(r", final race: a tie with v\d .*, 0\.0 % behind, of which the one declared first is taken\n", said), said


def test_what_is_within_noise_is_no_tie_and_has_no_more_digits_than_it_is_sure_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_problem(lambda configuration, problem: 1234.5, tmp_path, "unsure.sqlite", noise=0.4)
    said = capsys.readouterr().out
    assert said.endswith("; the best won its final race, but not beyond noise, and every configuration was tried\n")
    sure = r" us \(\d+\.\d % of copy\), \+-\d\d % with 95 % confidence, "
    assert re.search(rf"{sure}winner of the final race; next v\d .* \d+\.\d % behind, which is not beyond noise\n", said), said
    assert re.search(r": \d,?\d00 us ", said), said
    assert "tie" not in said


def test_a_best_without_a_rival_ties_with_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def only_one(configuration: Configuration, problem: Problem) -> Told:
        return 20.0 if configuration == SPACE[0] else Failure(Outcome.WRONG_RESULT, "wrong")

    one_problem(only_one, tmp_path, "one.sqlite")
    said = capsys.readouterr().out
    assert ", no other came near enough to be measured again beside it\n" in said
    assert said.endswith("; the best had no rival near enough for a final race, and every configuration was tried\n")
    with Database(tmp_path / "two.sqlite", mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM, OTHER], FakeBackend(only_one), database, watcher=PlainWatcher())
    assert "; 2 of 2 sizes have a confirmed best; every configuration was tried\n" in capsys.readouterr().out


def test_where_nothing_can_be_used_there_is_no_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_problem(lambda configuration, problem: Failure(Outcome.WRONG_RESULT, "all is wrong"), tmp_path, "wrong.sqlite")
    assert capsys.readouterr().out.endswith("; there is no best, and every configuration was tried\n")


def test_failures_of_one_kind_are_one_line_that_counts_its_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = {c: Failure(Outcome.COMPILE_ERROR, "no") for c in SPACE if c.integer("block") == 32}
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(times, compile_failures=broken), database, watcher=PlainWatcher())
    first = next(iter(broken))
    assert f"{len(broken)} x compile_error: no ({first} and {len(broken) - 1} more)\n" in capsys.readouterr().out


def test_an_outcome_whose_name_alone_does_not_tell_what_happened_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_problem(lambda configuration, problem: 20.0 if configuration == SPACE[0] else 2000.0, tmp_path, "slow.sqlite")
    said = capsys.readouterr().out
    pruned = int(*re.findall(r"\b(\d+) pruned as far behind\b", said))
    assert f"{len(SPACE)} new trials (" in said
    assert len(SPACE) / 2 < pruned < len(SPACE)


def test_failures_that_differ_in_numbers_addresses_and_names_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a kernel that is wrong at each block size in its own place; what is another kind of failure stays a line of its own."""
    wrong = [c for c in SPACE if c.integer("block") == 32]
    why = [f"{n + 1} elements are wrong, first row {n}, column {7 * n}: {-n / 3} where 1e-0{n + 1} is right" for n in range(len(wrong))]
    why[1], why[-1] = "1 element is wrong, first row 9, column 1: 0.5 where 0.25 is right", "no kernel image"
    broken = {c: Failure(Outcome.COMPILE_ERROR, f"{said} ({c} at 0x7f{n:x})") for n, (c, said) in enumerate(zip(wrong, why, strict=True))}
    with Database(tmp_path / "x.sqlite", mode="write", create=True) as database:
        sweep(SOFTMAX, [PROBLEM], FakeBackend(times, compile_failures=broken), database, watcher=PlainWatcher())
    said = [line for line in capsys.readouterr().out.splitlines() if " x compile_error" in line]
    assert len(said) == 2
    assert f"{len(wrong) - 1} x compile_error: 1 elements are wrong, first row 0" in said[0]
    assert said[0].endswith(f" ({wrong[0]} and {len(wrong) - 2} more)")
    assert f"1 x compile_error: no kernel image ({wrong[-1]} at 0x" in said[1]


def test_seconds_that_were_over_before_anything_was_tried_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept(tmp_path, PlainWatcher(), Budget(seconds=1e-9))
    said = capsys.readouterr().out
    late = r"setting it up took \S+ s, which left no time to try anything; give more --seconds"
    assert re.search(rf"^softmax 4096x4096 float32: {late}$", said, re.MULTILINE)
    summary = swept(tmp_path, JsonWatcher(), Budget(seconds=1e-9))
    settled = [event for event in map(json.loads, capsys.readouterr().out.splitlines()) if event["event"] == "settled"]
    assert all(event["late_s"] > 0 for event in settled)
    assert (summary.new_trials, len(settled)) == (0, 2)
    swept(tmp_path, PlainWatcher(), Budget(seconds=1e9))
    swept(tmp_path, PlainWatcher(), Budget(seconds=1e-9))  # where nothing is left to try, time is not what lacked
    assert "left no time" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (1, f"built {len(SPACE) - 1} of {len(SPACE)} instances; {SPACE[0]} does not compile: no such type\n"),
        (3, f"built {len(SPACE) - 3} of {len(SPACE)} instances; 3 do not compile, such as {SPACE[0]}: no such type\n"),
    ],
)
def test_what_does_not_compile_is_not_counted_as_built(broken: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failures = {c: Failure(Outcome.COMPILE_ERROR, "no such type") for c in SPACE[:broken]}
    for watcher in (PlainWatcher(), JsonWatcher()):
        with Database(tmp_path / f"{type(watcher).__name__}.sqlite", mode="write", create=True) as database:
            sweep(SOFTMAX, [PROBLEM], FakeBackend(times, compile_failures=failures), database, watcher=watcher)
    plain, _, lines = capsys.readouterr().out.partition("{")
    assert said in plain
    last = [event for event in map(json.loads, f"{{{lines}".splitlines()) if event["event"] == "building"][-1]
    assert (last["done"], last["total"], last["failed"]) == (len(SPACE), len(SPACE), broken)


def test_json_lines_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept(tmp_path, JsonWatcher(), Budget(trials=12))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    problem = next(event for event in events if event["event"] == "problem")
    assert {key: problem[key] for key in ("space", "known", "blocked", "planned")} == {
        "space": len(SPACE),
        "known": 0,
        "blocked": 0,
        "planned": 12,
    }
    trials = [event for event in events if event["event"] == "trial" and event["rows"] == 4096]
    assert trials[-1]["done"] == 12
    assert trials[-1]["fraction_of_copy"] == pytest.approx(10.0 / trials[-1]["best_us"])
    assert {event["message"] for event in trials if event["outcome"] != "ok"} <= {"1 element is wrong"}
    settled = next(event for event in events if event["event"] == "settled")
    assert settled["confidence_us"][0] <= settled["time_us"] <= settled["confidence_us"][1]
    assert {"gap", "runner_up_us", "beyond_noise", "confirmed"} <= settled.keys()
    assert events[-1]["event"] == "ended"
    assert sum(events[-1]["outcomes"].values()) == events[-1]["new_trials"]
    assert (events[-1]["confirmed"], events[-1]["whole"]) == (2, 0)


SHOWN = """
import sys, time
from pathlib import Path
from autotune.cli.progress import BarWatcher
from tests import test_progress as here

told = here.times
def slowly(configuration, problem):
    time.sleep(0.01)
    return told(configuration, problem)
here.times = slowly
here.swept(Path(sys.argv[1]), BarWatcher())
"""


@pytest.mark.parametrize("columns", [80, 150])
def test_a_terminal_shows_time_left_the_best_so_far_and_which_problem_of_how_many(tmp_path: Path, columns: int) -> None:
    shown, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "PYTHONPATH": str(Path(__file__).parent.parent)}
    sweep = subprocess.Popen([sys.executable, "-c", SHOWN, str(tmp_path)], stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    written = b""
    while chunk := _read(shown):
        written += chunk
    os.close(shown)
    assert sweep.wait(timeout=60) == 0, written.decode()
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()))
    counted = [line for line in lines if re.search(r"\((1|2) of 2\).* \d+/30 +(\d+:\d\d|-:--|--:--)", line)]
    assert {line[line.index("(") :][:8] for line in counted} == {"(1 of 2)", "(2 of 2)"}
    assert any(" race " in line for line in counted)
    best = [line for line in lines if re.match(r"best [\d.,]+ us, \d+\.\d % of copy, all 2 done in about 0:0\d:\d\d", line)]
    assert best
    assert any(line.rstrip().endswith(", 2 wrong result") for line in best)
    assert max(map(len, counted + best)) <= columns


def _read(shown: int) -> bytes:
    try:
        return os.read(shown, 65536)
    except OSError:  # the other end is closed
        return b""
