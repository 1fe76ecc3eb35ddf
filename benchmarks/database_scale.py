"""How fast a database of a million trials answers.

    python benchmarks/database_scale.py [TRIALS] [PATH]

Builds the database at PATH (a temporary file when none is named) unless it exists, with 250 configurations on each problem, and
prints the time of each question in milliseconds: the median of five, each on a connection of its own.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import Source, identity
from autotune.trial import Environment, Instance, Outcome, Round, TimingProtocol

DEVICE = Device("NVIDIA H200", (9, 0), 132, 60 << 20, 6144, 232448, 233472)
ENVIRONMENT = Environment("0.1.0", "3.11", "Linux", driver="580", cuda="13.0", compiler="nvcc 13.0")
COLD = TimingProtocol("cold", 1, "cold L2, median of samples")
VERSIONS = 5
CONFIGURATIONS = [Configuration.of(f"v{i % VERSIONS}", block=32 * (1 + i // VERSIONS), vector=1) for i in range(250)]


def build(path: Path, trials: int) -> None:
    """One trial of each configuration on each problem; the first is recorded as a sweep does, the others are its copies."""
    with Database(path, create=True) as db:
        run = db.begin_run(DEVICE, ENVIRONMENT, COLD)
        shas = {}
        for version in range(VERSIONS):
            text = f"__global__ void softmax_v{version}();"
            db.add_template("softmax", f"v{version}", Source(text, identity(text)))
            shas[f"v{version}"] = identity(text)
        problems = [Problem("softmax", 1 + i // 64, 64 * (1 + i % 64)) for i in range(max(1, trials // len(CONFIGURATIONS)))]
        with db.write():
            for configuration in CONFIGURATIONS:
                _record(db, run, problems[0], configuration, shas[configuration.version])
        with db.write() as connection:
            connection.execute("PRAGMA cache_size = -1000000")
            for problem in problems[1:]:
                connection.execute(
                    "INSERT INTO problems (operation, rows, cols, dtype, input_stride, output_stride, input_alignment, output_alignment, "
                    "in_place) VALUES ('softmax', ?, ?, 'float32', ?, ?, 16, 16, 0)",
                    (problem.rows, problem.cols, problem.cols, problem.cols),
                )
            connection.execute(
                "INSERT INTO trials (run, number, problem, configuration, template, instance, outcome, max_error, first_us, message, "
                "replayed) SELECT t.run, t.number + (p.id - 1) * 250, p.id, t.configuration, t.template, t.instance, "
                "CASE WHEN (t.id * 31 + p.id) % 40 = 0 THEN 'timeout' ELSE 'ok' END, t.max_error, t.first_us, '', 0 "
                "FROM problems p JOIN trials t ON t.problem = 1 WHERE p.id > 1 ORDER BY p.id, t.id"
            )
            connection.execute(
                "INSERT INTO rounds (trial, number, kind, median_us, time_us, samples_us, launches_per_sample, sm_clock_mhz, throttled) "
                "SELECT t.id, r.number, r.kind, r.median_us + p.id % 97, r.median_us + p.id % 97, json_array(r.median_us + p.id % 97), 16, "
                "1980, '' FROM trials t JOIN problems p ON p.id = t.problem JOIN rounds r ON r.trial = t.configuration "
                "WHERE t.problem > 1 AND t.outcome = 'ok'"
            )
        with db.write():
            for number, problem in enumerate(problems):
                chosen, second = CONFIGURATIONS[number % 250], CONFIGURATIONS[(number + 1) % 250]
                settled = Settled(
                    chosen,
                    number * 250 + number % 250 + 1,
                    40.0,
                    39.0,
                    41.0,
                    0.01,
                    250,
                    1 << 20,
                    "confirmed",
                    second,
                    41.0,
                    0.02,
                    True,
                    36.0,
                )
                db.settle(run, DEVICE, COLD, problem, settled)
        db.end_run(run, "done")


def _record(db: Database, run: int, problem: Problem, configuration: Configuration, sha: str) -> None:
    binary = b"\x7fELF" + str(configuration).encode() * 500
    instance = Instance(configuration, "float32", "sm_90", f"softmax_{configuration.version}", sha, "-O3", "nvcc 13.0", binary, None)
    rounds = [Round("screen", (40.0 + configuration.integer("block"),), 16), Round("final", (39.0 + configuration.integer("block"),), 16)]
    db.record(run, problem, configuration, sha, Outcome.OK, instance=instance, rounds=rounds)
    db.store_binary(instance)


QUESTIONS: dict[str, Callable[[Database], object]] = {
    "open to read": lambda db: None,
    "inspect best": lambda db: db.best(),
    "inspect best, one size": lambda db: db.best("softmax", 2, 4096),
    "best per version, one size": lambda db: db.best_per_version("softmax", 2, 4096),
    "inspect trials, one size": lambda db: db.trial_rows("softmax", 2, 4096),
    "inspect trials, the newest 100": lambda db: db.trial_rows(limit=100),
    "inspect trials, 100 failures": lambda db: db.trial_rows(outcome="timeout", limit=100),
    "inspect problems": lambda db: db.problems(),
    "inspect devices": lambda db: db.devices(),
    "inspect versions": lambda db: db.versions(),
    "coverage": lambda db: db.select("SELECT * FROM coverage"),
    "what a sweep knows of a size": lambda db: db.trials(DEVICE, COLD, Problem("softmax", 2, 4096)),
    "the problems measured": lambda db: db.problems_measured("softmax", DEVICE, COLD),
    "all that a dispatcher reads": lambda db: db.select("SELECT * FROM dispatchable") + db.select("SELECT * FROM stored_instances"),
    "best per version, all sizes": lambda db: db.best_per_version(),
}


def main(trials: int, path: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = path or Path(folder) / "million.sqlite"
        if not path.exists():
            started = time.perf_counter()
            build(path, trials)
            print(f"built in {time.perf_counter() - started:.0f} s")
        with Database(path, mode="read") as db:
            counted = db.select("SELECT count(*) AS trials FROM trials")[0]["trials"]
        print(f"{counted} trials, {path.stat().st_size / 1e6:.0f} MB")
        for name, ask in QUESTIONS.items():
            print(f"{name:32} {1e3 * statistics.median(timed(path, ask) for _ in range(5)):9.2f} ms", flush=True)


def timed(path: Path, ask: Callable[[Database], object]) -> float:
    started = time.perf_counter()
    with Database(path, mode="read") as db:
        ask(db)
        return time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
