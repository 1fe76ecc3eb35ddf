"""How fast a database of a million trials answers: `python benchmarks/database_scale.py` writes results/database_scale.md and .json.

The database is built at --db (a temporary file when none is named) unless it exists, with 250 configurations on each problem. Every figure
is the median of several runs, by the wall clock and by the CPU time of the process, which a busy machine does not stretch: questions each
on a connection of their own, the promises and the report each in processes of their own.
"""

import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.catalogue import load, shipped
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import templates
from autotune.trial import Environment, Instance, Outcome, Round, TimingProtocol
from benchmarks.starting import started

Row = dict[str, Any]

DEVICE = Device("NVIDIA H200", (9, 0), 132, 60 << 20, 6144, 232448, 233472)
ENVIRONMENT = Environment("0.1.0", "3.11", "Linux", driver="580", cuda="13.0", compiler="nvcc 13.0")
COLD = TimingProtocol("cold", 1, "cold L2, median of samples")
OPERATION = load("softmax")
VERSIONS = ("v1", "v2", "v3", "v4")
CONFIGURATIONS = [c for c in OPERATION.configurations() if c.version in VERSIONS][:250]


def build(path: Path, trials: int) -> None:
    """One trial of each configuration on each problem; the first is recorded as a sweep does, the others are its copies."""
    with Database(path, create=True) as db:
        run = db.begin_run(DEVICE, ENVIRONMENT, COLD)
        shas = {}
        for name, source in templates(OPERATION):
            db.add_template("softmax", name, source)
            shas[name] = source.sha
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


# What is promised, each as code that a new process runs and times: before the clock starts, and while it runs.
PROMISES = {
    "import autotune, once NumPy is imported": (200, "import numpy", "import autotune"),
    "construct a dispatcher": (
        50,
        "import numpy, autotune; autotune.Dispatcher",
        "autotune.Dispatcher('softmax', db=path, device='emulator')",
    ),
    "inspect best, query": (1000, "from autotune.database import Database; db = Database(path, mode='read')", "db.best()"),
}
MORE = {
    "import what a dispatcher is made of": ("import numpy, autotune", "autotune.Dispatcher"),
    "first decision of a dispatcher (reads every best kernel)": (
        "from autotune.dispatch import explain; from autotune.problem import Problem; from autotune.device import Device; "
        f"device = {DEVICE!r}",
        "explain(Problem('softmax', 5, 4096), device, db=path)",
    ),
    "autotune inspect best, the whole command": (
        "import io, contextlib",
        "from autotune.cli import main\nwith contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['inspect', 'best', '--json', '--db', path])",
    ),
    "autotune report --html, the whole command": (
        "import io, contextlib, tempfile",
        "from autotune.cli import main\nwith tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), "
        "contextlib.suppress(SystemExit):\n    main(['report', '--html', folder + '/x.html', '--db', path])",
    ),
}
HEAVY = ("optuna", "sqlite_utils", "pandas", "rich", "pycuda", "cuda", "click")  # what `import autotune` must not bring


def timed(path: Path, ask: Callable[[Database], object]) -> tuple[float, float]:
    """Milliseconds by the wall clock and of CPU time that a question takes, opening the database included."""
    wall, cpu = time.perf_counter(), time.process_time()
    with Database(path, mode="read") as db:
        ask(db)
        return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def timed_alone(path: Path, before: str, code: str) -> tuple[float, float]:
    """The same of `code` in a process of its own that has run `before`."""
    text = f"import sys, time; path = sys.argv[1]\n{before}\nwall, cpu = time.perf_counter(), time.process_time()\n{code}\n"
    text += "print(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu), file=sys.stderr)"
    with_bytecode = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", text, str(path)], capture_output=True, text=True, check=True, env=with_bytecode)
    wall, cpu = done.stderr.splitlines()[-1].split()
    return float(wall), float(cpu)


def brought() -> list[str]:
    """Which of the heavy packages `import autotune` brings."""
    code = f"import sys, autotune; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def figure(name: str, runs: int, take: Callable[[], tuple[float, float]], limit_ms: float | None = None) -> Row:
    """One line of the table: medians of `runs` runs after one that does not count."""
    take()
    taken = [take() for _ in range(runs)]
    wall_ms, cpu_ms = (statistics.median(column) for column in zip(*taken, strict=True))
    print(f"{name:60} {wall_ms:10.2f} ms, CPU {cpu_ms:10.2f} ms", flush=True)
    return {"what": name, "wall_ms": round(wall_ms, 2), "cpu_ms": round(cpu_ms, 2), "runs": runs, "limit_ms": limit_ms}


def measure(path: Path, runs: int) -> Row:
    """All figures, and what they were taken on."""
    with Database(path, mode="read") as db:
        (counted,) = db.select("SELECT (SELECT count(*) FROM trials) AS trials, (SELECT count(*) FROM problems) AS problems")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "system": f"{platform.system()} {platform.machine()}"},
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: version(name) for name in ("pycuda-autotune", "numpy")},
        },
        **counted,
        "megabytes": round(path.stat().st_size / 1e6),
        "brought_by_import": brought(),
        "promises": [
            figure(name, runs, partial(timed_alone, path, before, code), limit) for name, (limit, before, code) in PROMISES.items()
        ],
        "commands": [figure(name, min(runs, 3), partial(timed_alone, path, before, code)) for name, (before, code) in MORE.items()],
        "questions": [figure(name, runs, partial(timed, path, ask)) for name, ask in QUESTIONS.items()],
    }


def page(found: Row) -> str:
    """The page that says it."""
    machine, versions = found["machine"], found["versions"]
    said = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        "# How a database of a million trials answers\n",
        f"Written by `python benchmarks/database_scale.py` on {found['date']}: {found['trials']:,} trials of "
        f"{found['problems']:,} problems in {found['megabytes']} MB, on {machine['cores']} cores with a load of {machine['load']} "
        f"({machine['system']}; {said}). Medians. "
        "Other work on the machine stretches the wall clock's times much and CPU time little.\n",
        f"`import autotune` brings {', '.join(found['brought_by_import']) or 'none'} of {', '.join(HEAVY)}.\n",
        "| promised | at most, ms | CPU ms | wall ms | runs | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found["promises"]:
        kept = "kept" if row["cpu_ms"] < row["limit_ms"] else "not kept"
        lines.append(f"| {row['what']} | {row['limit_ms']} | {row['cpu_ms']:.1f} | {row['wall_ms']:.1f} | {row['runs']} | {kept} |")
    for title, key in (("whole commands, in a process of their own", "commands"), ("question, opening the file included", "questions")):
        lines += ["", f"| {title} | CPU ms | wall ms | runs |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {row['what']} | {row['cpu_ms']:.1f} | {row['wall_ms']:.1f} | {row['runs']} |" for row in found[key]]
    return "\n".join([*lines, ""])


@click.command()
@click.option("--trials", type=click.IntRange(250), default=1_000_000, show_default=True)
@click.option("--db", type=click.Path(path_type=Path), help="Where to build the database, or where it is already.")
@click.option("--runs", type=click.IntRange(1), default=7, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=shipped("results"), help="The folder to write to.")
def main(trials: int, db: Path | None, runs: int, out: Path) -> None:
    """Measure how a database of many trials answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = db or Path(folder) / "million.sqlite"
        if not path.exists():
            build(path, trials)
        found = measure(path, runs)
    out.mkdir(parents=True, exist_ok=True)
    (out / "database_scale.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / "database_scale.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    started(main)
