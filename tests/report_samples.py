"""A database for tests of the report and of comparison: two GPUs, two dtypes, three versions, failures, and a device without a copy."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from autotune.choice import candidates, choose
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import EMULATOR, Device
from autotune.problem import Problem
from autotune.source import Source, identity
from autotune.trial import Check, Environment, Outcome, Round, TimingProtocol
from tests.database_samples import COLD, DEVICE, OTHER_DEVICE, WARM

CPU = TimingProtocol("cpu", 1, "time of one CPU")
SIZES = ((1, 1024), (64, 1024), (4096, 4096), (8192, 4095), (1024, 65536))
MARKUP = "</script><img src=x onerror=alert(1)> is how it failed"


def source(version: str) -> Source:
    text = f"template <typename T, int block> __device__ void softmax_{version}() {{}}"
    return Source(text, identity(text))


def configurations() -> Iterator[Configuration]:
    for version, block, vector in product(("v1", "v2", "v3"), (64, 256, 1024), (1, 4)):
        yield Configuration.of(version, block=block, vector=vector)


def measured(path: Path, slowdown: float = 1.0, driver: str = "580.1", warm: float = 0.0) -> Path:
    """A database whose times on the first device are `slowdown` times what they would be, and by the warm protocol `warm` times."""
    environment = Environment("0.1.0", "3.12", "Linux", driver=driver, cuda="13.0", compiler="nvcc 13.0", pycuda="2026.1")
    with Database(path, create=True) as db:
        for version in ("v1", "v2", "v3"):
            db.add_template("softmax", version, source(version))
        _run(db, environment, DEVICE, COLD, "float32", SIZES, slowdown)
        if warm:
            _run(db, environment, DEVICE, WARM, "float32", SIZES, warm)
        _run(db, environment, DEVICE, COLD, "bfloat16", SIZES[:3], slowdown)
        _run(db, environment, OTHER_DEVICE, COLD, "float32", SIZES[1:], 3.0)
        _run(db, environment, EMULATOR, CPU, "float32", SIZES[:2], 100.0)
    return path


def _run(
    db: Database,
    environment: Environment,
    device: Device,
    timing: TimingProtocol,
    dtype: str,
    sizes: tuple[tuple[int, int], ...],
    slowdown: float,
) -> None:
    run = db.begin_run(device, environment, timing, command="autotune sweep softmax")
    for rows, cols in sizes:
        problem = Problem("softmax", rows, cols, dtype)
        floor_us = 1.5 + rows * cols * 8 / 4.2e6
        with db.write():
            for configuration in configurations():
                _trial(db, run, problem, configuration, floor_us * slowdown)
            copy_us = None if device.is_emulator else floor_us
            if copy_us:
                db.record_copy(run, problem, copy_us)
            _settle(db, run, device, timing, problem, copy_us)
    db.end_run(run, "done")


def _trial(db: Database, run: int, problem: Problem, configuration: Configuration, floor_us: float) -> None:
    sha = source(configuration.version).sha
    version, block, vector = int(configuration.version[1:]), configuration.integer("block"), configuration.integer("vector")
    if vector == 4 and problem.cols % 4:
        db.record(run, problem, configuration, sha, Outcome.WRONG_RESULT, message="element 17 is off by 0.3")
    elif version == 1 and block == 1024:
        db.record(run, problem, configuration, sha, Outcome.LAUNCH_ERROR, message=MARKUP)
    else:
        wide = problem.cols > 8192
        time_us = floor_us * (1 + 0.4 / version * (4 / vector) ** 0.3 + (0.3 if wide != (block == 1024) else 0.02))
        samples = tuple(time_us * (1 + 0.001 * step) for step in range(-4, 5))
        db.record(run, problem, configuration, sha, Outcome.OK, check=Check(1e-6, time_us), rounds=[Round("final", samples, 16, 1980, "")])


def _settle(db: Database, run: int, device: Device, timing: TimingProtocol, problem: Problem, copy_us: float | None) -> None:
    trials = db.trials(device, timing, problem)
    choice = choose(candidates(trials, {c: place for place, c in enumerate(configurations())}))
    trial = next(t for t in trials if t.configuration == choice.configuration)
    settled = Settled(
        choice.configuration,
        trial.trial_id,
        choice.time_us,
        choice.low_us,
        choice.high_us,
        choice.spread,
        tried=len(trials),
        bytes_moved=problem.rows * problem.cols * 2 * problem.element_bytes,
        state="confirmed",
        runner_up=choice.runner_up,
        runner_up_us=choice.runner_up_us,
        gap=choice.gap,
        beyond_noise=choice.beyond_noise,
        copy_us=copy_us,
    )
    db.settle(run, device, timing, problem, settled)
