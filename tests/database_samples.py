"""A device, a protocol, a template and trials for the tests of the database."""

from collections.abc import Iterable

from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.device import Device
from autotune.problem import Problem
from autotune.source import Source, identity
from autotune.trial import Check, Environment, Instance, Outcome, Resources, Round, TimingProtocol

DEVICE = Device("Test GPU", (9, 0), 132, 60 << 20, 6144, 232448, 233472)
OTHER_DEVICE = Device("Other GPU", (8, 0), 108, 40 << 20, 5120, 166912, 167936)
ENVIRONMENT = Environment("0.1.0", "3.11.7", "Linux", driver="580.1", cuda="13.0", compiler="nvcc 13.0", pycuda="2026.1")
COLD = TimingProtocol("cold", 1, "cold L2, median of samples")
WARM = TimingProtocol("warm", 1, "warm L2, median of samples")
TEXT = "template <typename T, int block> __device__ void softmax_v3() {}"
SOURCE = Source(TEXT, identity(TEXT))
PROBLEM = Problem("softmax", 4096, 4096)
CUBIN = b"\x7fELF" + bytes(range(256)) * 8
FAST, SLOW = Configuration.of("v3", block=256), Configuration.of("v3", block=512)


def screen(*samples_us: float) -> Round:
    return Round("screen", samples_us, 16, 1980, "")


def instance(configuration: Configuration, binary: bytes = CUBIN, arch: str = "sm_90") -> Instance:
    symbol = f"softmax_v3_float32_block{configuration['block']}"
    return Instance(configuration, "float32", arch, symbol, SOURCE.sha, "-O3", "nvcc 13.0", binary, Resources(32, 0, 0, 128))


def begin(db: Database, device: Device = DEVICE, timing: TimingProtocol = COLD) -> int:
    """Begin a run, with the template of all trials in place."""
    db.add_template("softmax", "v3", SOURCE)
    return db.begin_run(device, ENVIRONMENT, timing, command="autotune sweep softmax", seed=7)


def record(db: Database, run: int, configuration: Configuration, rounds: Iterable[Round] = (), problem: Problem = PROBLEM) -> int:
    """Record a trial that was right, with its instance."""
    return db.record(
        run, problem, configuration, SOURCE.sha, Outcome.OK, instance=instance(configuration), check=Check(1e-6, 90.0), rounds=rounds
    )


def settle(db: Database, run: int, trial: int, configuration: Configuration, time_us: float, state: str = "confirmed") -> Settled:
    """Settle the usual problem for `configuration`."""
    settled = Settled(
        configuration,
        trial,
        time_us,
        time_us - 0.5,
        time_us + 0.5,
        spread=0.01,
        tried=2,
        bytes_moved=2 * 4096 * 4096 * 4,
        state="confirmed" if state == "confirmed" else "provisional",
        runner_up=SLOW,
        runner_up_us=42.0,
        gap=0.05,
        beyond_noise=True,
        copy_us=36.0,
        space_sha="space",
    )
    db.settle(run, DEVICE, COLD, PROBLEM, settled)
    return settled
