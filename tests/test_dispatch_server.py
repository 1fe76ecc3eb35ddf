"""The dispatcher under many threads for a while: right results, bounded tables, nothing left over."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from autotune.device import EMULATOR
from autotune.dispatch import Dispatcher, plans
from autotune.dispatch.plan import Plan
from benchmarks.dispatch_server import NumPyLibrary, Report, promises, serve, shapes_of
from tests.dispatch_cases import V2, V3, normal, softmax64, write_database


@pytest.fixture
def softmax(tmp_path: Path) -> Dispatcher:
    path = write_database(tmp_path / "db.sqlite", [(8, 64, V3), (4, 33, V2)], device=EMULATOR)
    return Dispatcher("softmax", db=path, device="emulator")


def test_a_server_s_threads_get_right_results_and_hold_no_one_up(softmax: Dispatcher) -> None:
    report = serve(softmax, NumPyLibrary, threads=16, seconds=2.0, most_rows=3, most_cols=60)
    assert (report.wrong, report.errors) == ([], [])
    counted = sum(softmax.stats().hits.values())  # without a lock
    assert 0.99 * report.calls <= counted <= report.calls > 16
    assert report.latency_us["p50"] <= report.latency_us["p99"] <= report.latency_us["most"]
    assert softmax.stats().loads <= 3


def test_many_threads_may_lose_as_much_as_torch_s_softmax_loses_in_the_same_loops() -> None:
    def share_is_enough(share: float, torchs: float | None) -> bool:
        alone, many = Report(1, 1.0, calls=10_000), Report(16, 1.0, calls=int(10_000 * share))
        beside = None if torchs is None else [alone, Report(16, 1.0, calls=int(10_000 * torchs))]
        return list(promises(alone, many, beside))[2][0]

    assert [share_is_enough(share, None) for share in (0.6, 0.4)] == [True, False]
    assert [share_is_enough(0.4, torchs) for torchs in (0.38, 0.41, 0.45, 0.9)] == [True, True, False, False]
    assert share_is_enough(0.6, 0.9)


def test_ever_new_shapes_fill_a_table_no_further_than_its_bound(softmax: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PLANS", 8)
    for cols in range(1, 30):
        softmax(normal(1, cols))
    stats = softmax.stats()
    assert (stats.plans, stats.misses, sum(stats.hits.values())) == (5, 29, 29)
    assert softmax._plans._flights == {}


def test_a_reload_in_the_midst_of_calls_leaves_no_plan_of_the_old_databases(softmax: Dispatcher) -> None:
    stop, failed = threading.Event(), []

    def work(seed: int) -> None:
        shapes = shapes_of(seed, 3, 40)
        while not stop.is_set():
            x = normal(*next(shapes))
            if not np.allclose(softmax(x), softmax64(x), rtol=1e-5, atol=1e-37):
                failed.append(x.shape)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        time.sleep(0.1)
        softmax.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    softmax.reload()
    assert softmax.stats().plans == 0


def test_a_plan_decided_before_a_reload_is_not_kept_after_it(softmax: Dispatcher) -> None:
    table = softmax._plans.table()
    softmax(normal(8, 64))
    (plan,) = softmax._plans.all()

    def overtaken() -> tuple[Plan, bool]:
        softmax.reload()
        return plan, True

    assert softmax._plans.get(table, "layout", overtaken) is plan
    assert softmax.stats().plans == 0
    assert softmax._plans.get(table, "layout", lambda: (plan, True)) is plan
    assert softmax.stats().plans == 1


def test_a_plan_that_cannot_be_made_holds_no_one_up(softmax: Dispatcher) -> None:
    table = softmax._plans.table()

    def impossible() -> tuple[Plan, bool]:
        raise ValueError("no plan")

    for _ in range(2):
        with pytest.raises(ValueError, match="no plan"):
            softmax._plans.get(table, "layout", impossible)
    assert softmax._plans._flights == {}
