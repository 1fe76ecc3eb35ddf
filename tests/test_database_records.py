"""What is recorded is read back equal, and what follows from it is shown in plain rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import Source, identity
from autotune.trial import Check, Environment, Instance, Outcome, Resources, Round, TimingProtocol

DEVICE = Device("Test GPU", (9, 0), 132, 60 << 20, 6144, 232448, 233472)
ENVIRONMENT = Environment("0.1.0", "3.11.7", "Linux", driver="580.1", cuda="13.0", compiler="nvcc 13.0", pycuda="2026.1")
COLD = TimingProtocol("cold", 1, "cold L2, median of samples")
TEXT = "template <typename T, int block> __device__ void softmax_v3() {}"
SOURCE = Source(TEXT, identity(TEXT))
PROBLEM = Problem("softmax", 4096, 4096)
CUBIN = b"\x7fELF" + bytes(range(256)) * 8


def screen(*samples_us: float) -> Round:
    return Round("screen", samples_us, 16, 1980, "")


def instance(configuration: Configuration, binary: bytes = CUBIN) -> Instance:
    return Instance(configuration, "float32", "sm_90", "softmax_v3_b256", SOURCE.sha, "-O3", "nvcc 13.0", binary, Resources(32, 0, 0, 128))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "fresh.sqlite", create=True) as fresh:
        fresh.add_template("softmax", "v3", SOURCE)
        yield fresh


@pytest.fixture
def run(db: Database) -> int:
    return db.begin_run(DEVICE, ENVIRONMENT, COLD, command="autotune sweep softmax", seed=7)


def test_a_trial_is_read_back_as_it_was_recorded(db: Database, run: int) -> None:
    configuration = Configuration.of("v3", unroll=2, block=256)
    trial = db.record(
        run,
        PROBLEM,
        configuration,
        SOURCE.sha,
        Outcome.OK,
        instance=instance(configuration),
        check=Check(1e-6, 90.0),
        rounds=[screen(51.0, 50.0, 49.0)],
    )
    db.add_rounds({trial: Round("race", (40.1, 40.2), 8, None, None)})
    (stored,) = db.trials(DEVICE, COLD, PROBLEM)
    assert stored.configuration == configuration
    assert stored.rounds == (screen(51.0, 50.0, 49.0), Round("race", (40.1, 40.2), 8, None, None))
    assert (stored.max_error, stored.first_us, stored.outcome, stored.trial_id) == (1e-6, 90.0, Outcome.OK, trial)
    assert stored.time_us == pytest.approx(40.15)


def test_best_shows_what_was_settled(db: Database, run: int) -> None:
    winner, second = Configuration.of("v3", block=256), Configuration.of("v3", block=512)
    trial = db.record(run, PROBLEM, winner, SOURCE.sha, Outcome.OK, instance=instance(winner), rounds=[screen(40.0)])
    db.store_binary(instance(winner))
    bytes_moved = 2 * 4096 * 4096 * 4
    settled = Settled(winner, trial, 40.0, 39.5, 40.5, 0.01, 2, bytes_moved, "confirmed", second, 42.0, 0.05, True, 36.0, "space")
    db.settle(run, DEVICE, COLD, PROBLEM, settled)
    (row,) = db.best("softmax", 4096, 4096, "float32")
    assert row["gb_per_s"] == pytest.approx(bytes_moved / 40e-6 / 1e9)
    assert row["fraction_of_copy"] == pytest.approx(0.9)
    assert row["runner_up"] == {"version": "v3", "parameters": {"block": 512}}
    assert (row["parameters"], row["trials"], row["state"], row["device"]) == ({"block": 256}, 2, "confirmed", "Test GPU")
    (entry,) = db.select("SELECT * FROM dispatchable")
    assert db.load_binary(entry["binary_sha"]) == CUBIN
    assert entry["symbol"] == "softmax_v3_b256"
    assert db.best_per_version("softmax", version="v3")[0]["time_us"] == 40.0
    assert db.trial_rows(outcome="ok")[0]["registers"] == 32
