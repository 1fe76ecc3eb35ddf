"""The benchmark of selection: what it measures by, the sizes it names, and the page it wrote."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.catalogue import shipped
from autotune.problem import Problem, parse_size
from autotune.trial import Round
from benchmarks import selection_regret, selection_report, selection_rules
from benchmarks.selection_sizes import held_out, training
from tests.dispatch_cases import H200, SOFTMAX, V2, V3, V4

ROOT = Path(__file__).parent.parent


def test_the_samples_of_a_kernel_are_halved_by_rounds_and_the_screening_counts_only_alone() -> None:
    screen, *raced = Round("screen", (99.0,), 1), Round("race", (1.0, 3.0), 1), Round("race", (10.0, 30.0), 1), Round("final", (5.0,), 1)
    assert selection_regret.halved([screen, *raced]) == (3.5, 20.0)
    assert selection_regret.halved([screen, raced[0]]) == (1.0, 3.0)
    assert selection_regret.halved([screen]) == (99.0, 99.0)


def test_regret_is_against_what_was_best_by_the_other_half_and_below_the_noise_floor_it_is_none() -> None:
    problem = Problem("softmax", 64, 1024)
    halves = {problem: {V2: (1.0, 1.1), V3: (1.05, 1.0), V4: (2.0, 2.2)}}
    recorded = selection_regret.Recorded(SOFTMAX, H200, "float32", halves, 0)
    assert list(recorded.oracle(problem)) == pytest.approx([1.1, 1.1])  # V2, which was lucky in the first half
    assert recorded.ratio(problem, V3) == 1.0
    assert recorded.ratio(problem, V4) == pytest.approx(2.0)


def test_sizes_held_out_are_never_trained_on_and_all_fit_a_gpu() -> None:
    trained, unseen = set(training()), [size for sizes in held_out().values() for size in sizes]
    assert not trained & set(unseen)
    assert len(unseen) == len(set(unseen))
    assert 60 <= len(trained) <= 110
    assert 60 <= len(unseen) <= 100
    assert max(rows * cols * 4 for rows, cols in [*trained, *unseen]) <= 2 << 30


def test_each_way_to_judge_trains_on_nothing_that_it_is_judged_by() -> None:
    problems = [Problem("softmax", rows, cols) for rows, cols in [*training(), *held_out()["hard"]]]
    names = []
    for name, parts in selection_regret.splits(problems):
        names.append(name)
        for trained, judged in parts:
            assert judged
            assert not set(trained) & set(judged)
    assert names == ["one size left out", "a band of rows left out", "a band of columns left out", "never tuned: hard"]


def test_every_rule_names_configurations_for_a_size_that_it_never_saw() -> None:
    sizes = [(64, 1024), (4096, 1024), (64, 4096), (4096, 4096), (64, 100), (1, 9999)]
    times = {Problem("softmax", *size): {V2: 2.0, V3: 1.0 + (size[1] < 2000), V4: 1.5, SOFTMAX.safe: 3.0} for size in sizes}
    tuned = selection_rules.Tuned(SOFTMAX, H200, times)
    for name, make in selection_rules.RULES.items():
        assert list(make(tuned)(Problem("softmax", 500, 3000))), name
    nearest_product = selection_rules.product_distance(tuned)(Problem("softmax", 1024, 64))
    assert next(iter(nearest_product)) == V4  # 64x1024 has as many elements, and nothing else in common


def test_the_sizes_worth_measuring_are_written_for_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    command = [sys.executable, "benchmarks/selection_regret.py", "--sizes-file", str(path), "--which", "held-out"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [parse_size(line) for line in lines] == [size for sizes in held_out().values() for size in sizes]


def test_the_page_is_what_the_figures_say() -> None:
    found = json.loads((shipped("results") / "selection_regret.json").read_text(encoding="utf-8"))
    page = (shipped("results") / "selection_regret.md").read_text(encoding="utf-8")
    database = page.split("selection_regret.py ")[1].split("`")[0]  # the whole recording, of which the shipped file is a part
    assert page == selection_report.page(database, found)
