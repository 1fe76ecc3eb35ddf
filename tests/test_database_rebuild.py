"""The best is what the trials say: made again it is the same, and what no longer holds is stale and told why."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import catalogue, source
from autotune.configuration import Configuration
from autotune.database import Database, Rebuilt
from autotune.operation import Operation
from autotune.trial import Check, Outcome, Round
from tests.database_samples import COLD, DEVICE, ENVIRONMENT, PROBLEM, WARM, instance

DEFINITION = '''"""v3: stands for a kernel."""
from autotune.definition import Bounds, Launch, Verdict
TEMPLATE = "v3.cu"
PARAMETERS = {"block": (128, 256, 512)}
DTYPES = ("float32",)
IN_PLACE = True
def bounds(configuration): return Bounds(configuration.integer("block"))
def applicable(configuration, problem, device): return Verdict()
def launch(configuration, problem, device): return Launch(problem.rows)
'''
OPERATION = '''"""softmax: stands for an operation."""
from autotune.operation import Tolerance
TOLERANCES = {"float32": Tolerance(1e-5, 1e-6)}
SAFE = ("v3", {"block": 128})
def reference(matrix): return matrix
def bytes_moved(problem): return 2 * problem.rows * problem.bytes_per_row
'''
A, B, C = (Configuration.of("v3", block=block) for block in (128, 256, 512))


@pytest.fixture
def operation(tmp_path: Path) -> Operation:
    folder = tmp_path / "kernels" / "softmax"
    folder.mkdir(parents=True)
    (folder / "operation.py").write_text(OPERATION)
    (folder / "v3.py").write_text(DEFINITION)
    (folder / "v3.cu").write_text("template <typename T, int block> __device__ void softmax_v3() {}\n")
    return catalogue.load("softmax", tmp_path / "kernels")


@pytest.fixture
def db(tmp_path: Path, operation: Operation) -> Iterator[Database]:
    with Database(tmp_path / "mine.sqlite", create=True) as db:
        db.add_template("softmax", "v3", source.read(operation.version("v3")))
        yield db


def measure(db: Database, operation: Operation, configuration: Configuration, kind: str, *times_us: float, replayed: bool = False) -> int:
    run = db.begin_run(DEVICE, ENVIRONMENT, COLD)
    sha = source.read(operation.version("v3")).sha
    built = replace(instance(configuration), template_sha=sha)
    rounds = [Round(kind, times_us, 16)]  # type: ignore[arg-type]
    return db.record(run, PROBLEM, configuration, sha, Outcome.OK, instance=built, check=Check(0.0, 90.0), rounds=rounds, replayed=replayed)


def test_rebuilding_chooses_the_fastest_and_doing_it_again_changes_nothing(db: Database, operation: Operation) -> None:
    for configuration, time_us in ((A, 50.0), (B, 40.0), (C, 45.0)):
        measure(db, operation, configuration, "screen", time_us)
    assert db.rebuild({"softmax": operation}) == Rebuilt(settled=1, stale=0, unknown=0)
    settled = db.settled(DEVICE, COLD, PROBLEM)
    assert settled is not None
    assert (settled.configuration, settled.runner_up, settled.tried, settled.state) == (B, C, 3, "provisional")
    assert settled.bytes_moved == 2 * 4096 * 4096 * 4
    before = db.content_hash()
    db.rebuild({"softmax": operation})
    assert db.content_hash() == before


def test_finals_outrank_faster_screening_and_make_the_choice_confirmed(db: Database, operation: Operation) -> None:
    measure(db, operation, A, "screen", 30.0)
    measure(db, operation, B, "final", 41.0, 40.0, 42.0)
    measure(db, operation, C, "final", 45.0, 44.0, 46.0)
    db.rebuild({"softmax": operation})
    settled = db.settled(DEVICE, COLD, PROBLEM)
    assert settled is not None
    assert (settled.configuration, settled.time_us, settled.state) == (B, 41.0, "confirmed")


def test_failed_blocked_and_replayed_trials_are_not_chosen(db: Database, operation: Operation) -> None:
    db.finish(measure(db, operation, A, "screen", 10.0), Outcome.CRASHED)
    measure(db, operation, B, "screen", 20.0)
    db.block(DEVICE, "softmax", B, source.read(operation.version("v3")).sha, "float32", "by hand")
    measure(db, operation, C, "screen", 45.0)
    measure(db, operation, A, "screen", 5.0, replayed=True)
    db.rebuild({"softmax": operation})
    assert [row["parameters"] for row in db.best()] == [{"block": 512}]


def test_a_lost_best_comes_back_from_the_trials(db: Database, operation: Operation) -> None:
    measure(db, operation, B, "final", 40.0)
    db.rebuild({"softmax": operation})
    before = {name: value for name, value in db.best()[0].items() if name != "updated"}
    with db.write() as connection:
        connection.execute("DELETE FROM best")
    db.rebuild({"softmax": operation})
    assert {name: value for name, value in db.best()[0].items() if name != "updated"} == before


def test_a_changed_template_makes_its_times_stale_and_keeps_them(db: Database, operation: Operation) -> None:
    measure(db, operation, B, "screen", 40.0)
    db.rebuild({"softmax": operation})
    assert db.stale(operation) == []
    template = operation.version("v3").template
    template.write_text("// only a comment is new\n" + template.read_text())
    source.expanded.cache_clear()
    assert db.stale(operation) == []
    template.write_text(template.read_text() + "__device__ int changed;\n")
    source.expanded.cache_clear()
    assert [(row["parameters"], row["state"], row["why"]) for row in db.stale(operation)] == [
        ({"block": 256}, "stale", "the template or its definition has changed since")
    ]
    assert db.rebuild({"softmax": operation}) == Rebuilt(settled=0, stale=1, unknown=0)
    assert [(row["state"], row["time_us"]) for row in db.best()] == [("stale", 40.0)]
    assert len(db.trials(DEVICE, COLD)) == 1


def test_another_compiler_or_driver_makes_a_best_stale_with_the_reason(db: Database, operation: Operation) -> None:
    measure(db, operation, B, "screen", 40.0)
    db.rebuild({"softmax": operation})
    assert db.stale(operation, ENVIRONMENT) == []
    (row,) = db.stale(operation, replace(ENVIRONMENT, compiler="nvcc 14.0"))
    assert row["why"] == "compiler nvcc 14.0 is in use and it was measured with nvcc 13.0"
    (row,) = db.stale(operation, replace(ENVIRONMENT, driver="590.0"))
    assert row["why"] == "driver 590.0 is in use and it was measured with 580.1"


def test_an_operation_that_is_not_here_keeps_its_best(db: Database, operation: Operation) -> None:
    problem = replace(PROBLEM, operation="nowhere")
    run = db.begin_run(DEVICE, ENVIRONMENT, WARM)
    db.add_template("nowhere", "v3", source.read(operation.version("v3")))
    db.record(run, problem, A, source.read(operation.version("v3")).sha, Outcome.OK, rounds=[Round("screen", (1.0,), 1)])
    assert db.rebuild() == Rebuilt(settled=0, stale=0, unknown=1)
