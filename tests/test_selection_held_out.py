"""What the shipped database chooses at sizes that were never tuned is as good as it was: their recorded times, replayed."""

from pathlib import Path

import numpy as np
import pytest

from autotune.catalogue import shipped
from autotune.database import Database
from autotune.problem import Problem
from autotune.search import Budget
from autotune.selector import Regret
from autotune.sweeping import sweep
from benchmarks import selection_held_out, selection_matrix
from benchmarks.selection_sizes import held_out
from tests.dispatch_cases import H200, SOFTMAX
from tests.fake import FakeBackend
from tests.imagined_gpu import time_us

RECORDED = shipped("results") / "nvidia-h200.sqlite"
FILE = Path(__file__).parent / "data" / "held_out_h200.json.xz"
MATRIX = selection_matrix.read(FILE)

of_todays_kernels = pytest.mark.skipif(
    not MATRIX.current, reason="the times are of other templates; benchmarks/selection_matrix.py makes a new file from a recording"
)


def test_the_sizes_are_those_held_out_whole_and_none_that_is_shipped() -> None:
    sizes = {size for part in held_out().values() for size in part}
    assert {(p.rows, p.cols, p.dtype) for p in MATRIX.times} == {(*size, dtype) for size in sizes for dtype in SOFTMAX.dtypes}
    with Database(RECORDED, mode="read") as database:
        tuned = {(row["rows"], row["cols"]) for row in database.best("softmax")}
    assert not sizes & tuned
    assert FILE.stat().st_size < 1 << 20


@of_todays_kernels
@pytest.mark.parametrize("dtype", SOFTMAX.dtypes)
def test_all_that_may_be_chosen_but_for_the_article_s_versions_was_timed(dtype: str) -> None:
    everything = [c for c in SOFTMAX.configurations() if c.version in MATRIX.templates]
    for problem in [p for p in MATRIX.times if p.dtype == dtype][::8]:
        assert {c for c in everything if SOFTMAX.applicable(c, problem, MATRIX.device)} <= MATRIX.times[problem].keys()


@of_todays_kernels
@pytest.mark.parametrize(
    ("dtype", "group", "most"),
    [
        ("float32", "all", (1.005, 1.033, 1.054)),
        ("float32", "all but extrapolation", (1.006, 1.043, 1.054)),
        ("float16", "all", (1.012, 1.078, 1.224)),
        ("float16", "all but extrapolation", (1.011, 1.078, 1.224)),
        ("bfloat16", "all", (1.011, 1.073, 1.223)),
        ("bfloat16", "all but extrapolation", (1.011, 1.073, 1.223)),
    ],
)
def test_regret_of_the_shipped_file_at_sizes_never_tuned_is_no_worse_than_it_was(
    dtype: str, group: str, most: tuple[float, float, float]
) -> None:
    problems = selection_held_out.groups(MATRIX, dtype)[group]
    costs = selection_held_out.costs(MATRIX, problems, selection_held_out.dispatched(RECORDED, MATRIX))
    regret = Regret.of(costs)
    named = [
        (p.size, round(float(np.exp(cost)), 3)) for cost, p in sorted(zip(costs, problems, strict=True), key=lambda pair: -pair[0])[:8]
    ]
    assert all(np.array([regret.geomean, regret.p95, regret.worst]) <= most), (str(regret), named)


def test_a_recording_becomes_a_file_that_says_the_same(tmp_path: Path) -> None:
    sizes = [next(iter(part)) for part in held_out().values()]
    problems = [Problem("softmax", rows, cols) for rows, cols in sizes if rows * cols < 1 << 20]
    with Database(tmp_path / "a.sqlite", create=True) as database:
        sweep(
            SOFTMAX,
            [*problems, Problem("softmax", 3, 5)],
            FakeBackend(time_us, device=H200),
            database,
            budget=Budget(trials=6),
            learn=False,
        )
        timed = {p: {t.configuration: t.time_us for t in database.trials(H200, FakeBackend(time_us).timing, p)} for p in problems}
    made = selection_matrix.measured([tmp_path / "a.sqlite"], SOFTMAX)
    selection_matrix.write(made, tmp_path / "a.json.xz")
    again = selection_matrix.read(tmp_path / "a.json.xz")
    assert again == made
    assert again.device == H200
    assert again.current
    assert set(again.times) == set(problems)
    for problem in problems:
        assert again.times[problem] == pytest.approx({c: t for c, t in timed[problem].items() if t}, rel=1e-3)


@of_todays_kernels
@pytest.mark.parametrize("dtype", SOFTMAX.dtypes)
@pytest.mark.parametrize("size", [(1, 1 << 20), (7, 777_777), (32, 400_000)], ids=str)
def test_few_rows_longer_than_any_tuned_one_are_read_once_without_any_measurement(dtype: str, size: tuple[int, int]) -> None:
    problem = Problem("softmax", *size, dtype)
    default = next(c for c in SOFTMAX.defaults(problem, MATRIX.device) if SOFTMAX.applicable(c, problem, MATRIX.device))
    assert MATRIX.times[problem][default] <= 1.15 * min(MATRIX.times[problem].values())
