"""What the dispatcher's tests start from: an H200, databases with tuned sizes and binaries in them, float64 softmax."""

import sqlite3
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from autotune import source
from autotune.catalogue import load
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import Device
from autotune.dispatch.knowledge import Tuned
from autotune.problem import Problem
from autotune.trial import Environment, Instance, Outcome, Round, TimingProtocol

Array = np.ndarray[Any, np.dtype[Any]]

H200 = Device("NVIDIA H200", (9, 0), 132, 62914560, 6144, 232448, 233472)
SOFTMAX = load("softmax")
CUBIN = b"\x7fELF a cubin of nothing"
COLD = TimingProtocol("cold", 1, "for tests")

V2 = Configuration.of("v2", block=128, unroll=2)
V3 = Configuration.of("v3", block=256, vector=4, unroll=1)
V4 = Configuration.of("v4", block=512, vector=4, unroll=1, stash="inputs")
V10 = Configuration.of("v10", block=128, items=1, vector=4, hold="exponentials", edges="exact")


def tuned(rows: int, cols: int, configuration: Configuration, time_us: float = 10.0, device: Device = H200, **layout: Any) -> Tuned:
    problem = Problem("softmax", rows, cols, **layout)
    return Tuned(
        device.name,
        problem.dtype,
        rows,
        cols,
        problem.input_stride,
        problem.output_stride,
        problem.input_alignment,
        problem.output_alignment,
        problem.in_place,
        configuration,
        "sha",
        time_us,
        "confirmed",
        "local",
        Path("test.sqlite"),
    )


def write_database(
    path: Path,
    sizes: Iterable[tuple[int, int, Configuration]] = (),
    *,
    device: Device = H200,
    stored: Iterable[Configuration] = (),
    arch: str = "",
    code: bytes = CUBIN,
    stale: bool = False,
) -> Path:
    """A database in which each of `sizes` has a best, and binaries for those and for `stored`, as a sweep leaves it."""
    sizes = list(sizes)
    with Database(path, create=True) as db:
        run = db.begin_run(device, Environment("0", "3", "linux"), COLD)
        shas = {}
        for name, version in SOFTMAX.versions.items():
            text = source.read(version)
            if stale:
                text = source.Source(text.text + "int changed;", source.identity(text.text + "int changed;"))
            db.add_template("softmax", name, text)
            shas[name] = text.sha
        for rows, cols, configuration in sizes:
            problem = Problem("softmax", rows, cols)
            trial = db.record(
                run,
                problem,
                configuration,
                shas[configuration.version],
                Outcome.OK,
                instance=_instance(configuration, shas, arch or device.arch, code),
                rounds=[Round("final", (10.0, 10.1, 10.2), 4)],
            )
            db.settle(run, device, COLD, problem, Settled(configuration, trial, 10.0, 9.9, 10.2, 0.01, 5, 2 * rows * cols * 4, "confirmed"))
        for configuration in dict.fromkeys([*(c for _, _, c in sizes), *stored]):
            if not device.is_emulator:
                db.store_binary(_instance(configuration, shas, arch or device.arch, code))
        db.end_run(run, "done")
    return path


def _instance(configuration: Configuration, shas: dict[str, str], arch: str, code: bytes) -> Instance:
    version = SOFTMAX.version(configuration.version)
    symbol = source.symbol(version, configuration, "float32")
    # A byte of its own for each, as every real cubin has.
    return Instance(configuration, "float32", arch, symbol, shas[configuration.version], "", "nvcc", code + symbol.encode(), None)


def damage_binaries(path: Path, configuration: Configuration) -> None:
    """Replace the code of a configuration's binaries, keeping the hashes: what a bad disk or a bad person does."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER binaries_are_only_added")
    connection.execute(
        "UPDATE binaries SET packed = ? WHERE sha IN (SELECT binary_sha FROM stored_instances WHERE version = ? AND parameters = ?)",
        (zlib.compress(b"\x7fELF something else"), configuration.version, configuration.to_json()),
    )
    connection.commit()
    connection.close()


def softmax64(x: Array) -> Array:
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
