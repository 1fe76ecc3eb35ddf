"""The dispatcher as a server uses it: many threads, ever new shapes, for as long as one likes.

    python benchmarks/dispatch_server.py --seconds 80 --json server.json

The whole run takes `--seconds`, imports and a tenth for a single thread included. On a GPU each thread works on torch tensors and a stream
of its own; `--device emulator` takes NumPy arrays on this CPU. Four calls of five have one of 50 common shapes, the fifth has a random one.
Prints how many calls were made and how long they took, against one thread alone, and what memory the process gained. Exit status 1 when a
promise is not held: a result was wrong, a thread failed, many threads do far less than one, or memory grows.

Whatever lets go of the interpreter's lock while it works, as each launch and each view of a tensor does, hands it to another thread, and
waits. That is so without us: torch's own softmax makes the same calls in the same loops, and ours may lose no more by many threads.
"""

import json
import random
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.dispatch import Dispatcher
from autotune.problem import parse_size
from benchmarks.dispatch_run import Deadline, about
from benchmarks.starting import require, require_gpu, started

KEPT = 1 << 16  # latencies per thread: the latest, in memory that is taken before the first call
STARTING_S, ENDING_S = 30.0, 4.0  # what the start may take at most; what is kept free for the last results and the percentiles
CHECKED = 50  # one result of so many is compared with the reference
LEAST_SHARE = 0.5  # of one thread's calls, that many do together, or as many as with torch's softmax: fewer stand in line for a lock
SHARES = {"ours": (0.1, 0.6), "torch": (0.1, 0.2)}  # of the time, for one thread and for many
NOISE = 0.05  # of a share: how far two runs of one loop differ
MOST_GAINED_MB = 32.0  # full tables of plans, and what an allocator keeps


class Library(Protocol):
    """Where a thread's arrays come from."""

    def matrices(self, rows: int, cols: int) -> tuple[Any, Any]: ...

    def right(self, x: Any, out: Any) -> bool: ...

    def settle(self) -> None:
        """Wait for what was queued, so that the launch queue never fills."""


class NumPyLibrary:
    """Arrays for the emulator."""

    def __init__(self, most: int, seed: int) -> None:
        self._x = np.random.default_rng(seed).normal(size=most).astype(np.float32)
        self._out = np.empty(most, np.float32)

    def matrices(self, rows: int, cols: int) -> tuple[Any, Any]:
        return self._x[: rows * cols].reshape(rows, cols), self._out[: rows * cols].reshape(rows, cols)

    def right(self, x: Any, out: Any) -> bool:
        e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        return bool(np.allclose(out, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-37))

    def settle(self) -> None:
        """The emulator leaves nothing to wait for."""


class TorchLibrary:
    """Tensors on a GPU, on a stream of the thread's own."""

    def __init__(self, most: int, seed: int) -> None:
        import torch

        self._torch = torch
        generator = torch.Generator("cuda").manual_seed(seed)
        self._x = torch.randn(most, device="cuda", generator=generator)
        self._out = torch.empty(most, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.set_stream(torch.cuda.Stream())

    def matrices(self, rows: int, cols: int) -> tuple[Any, Any]:
        return self._x[: rows * cols].view(rows, cols), self._out[: rows * cols].view(rows, cols)

    def right(self, x: Any, out: Any) -> bool:
        return bool(self._torch.allclose(out.double(), self._torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-37))

    def settle(self) -> None:
        self._torch.cuda.current_stream().synchronize()


@dataclass
class Report:
    """What so many threads did: calls, wrong results, errors, latencies in microseconds, memory in MB at the first and last tenth."""

    threads: int
    seconds: float
    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    latency_us: dict[str, float] = field(default_factory=dict)
    early_mb: float = 0.0
    late_mb: float = 0.0

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.seconds


def serve(
    softmax: Callable[[Any, Any], object],
    library: Callable[[int, int], Library],
    threads: int,
    seconds: float,
    most_rows: int,
    most_cols: int,
) -> Report:
    """Let `threads` threads dispatch random shapes for `seconds`."""
    report, lock = Report(threads, seconds), threading.Lock()
    ready, stop = threading.Barrier(threads + 1, timeout=STARTING_S), threading.Event()
    latencies: list[float] = []

    def work(seed: int) -> None:
        arrays, taken, done = library(most_rows * most_cols, seed), array("d", bytes(8 * KEPT)), 0
        shapes = shapes_of(seed, most_rows, most_cols)
        ready.wait()
        try:
            while not stop.is_set():
                x, out = arrays.matrices(*next(shapes))
                begun = time.perf_counter()
                softmax(x, out)
                taken[done % KEPT] = time.perf_counter() - begun
                done += 1
                if done % CHECKED == 0:
                    arrays.settle()
                    if not arrays.right(x, out):
                        report.wrong.append(f"{tuple(x.shape)}")
        except Exception as error:
            report.errors.append(f"{type(error).__name__}: {error}")
        with lock:
            report.calls += done
            latencies.extend(taken[: min(done, KEPT)])

    workers = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    time.sleep(seconds / 10)
    report.early_mb = resident_mb()
    time.sleep(seconds * 9 / 10)
    report.late_mb = resident_mb()
    stop.set()
    end = time.monotonic() + ENDING_S
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    hanging = sum(worker.is_alive() for worker in workers)
    report.errors += [f"{hanging} threads do not end"] * bool(hanging)
    if latencies:
        quantiles = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "most": 100.0}
        report.latency_us = {name: float(np.percentile(latencies, q)) * 1e6 for name, q in quantiles.items()}
    return report


def shapes_of(seed: int, most_rows: int, most_cols: int) -> Iterator[tuple[int, int]]:
    """Four of five are common to all threads, the fifth is random."""
    common, own = random.Random(0), random.Random(seed)
    popular = [(common.randint(1, most_rows), common.randint(1, most_cols)) for _ in range(50)]
    while True:
        for _ in range(4):
            yield own.choice(popular)
        yield own.randint(1, most_rows), own.randint(1, most_cols)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@click.command()
@click.option("--device", type=click.Choice(["cuda", "emulator"]), default="cuda", show_default=True)
@click.option("--threads", default=16, show_default=True)
@click.option("--seconds", default=80.0, show_default=True, help="The whole run ends by then, imports included.")
@click.option("--most", default="512x4096", show_default=True, help="The largest shape.")
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the figures are written.")
def main(device: str, threads: int, seconds: float, most: str, db: Path | None, path: Path | None) -> None:
    """Print what one thread and then many get done."""
    deadline = Deadline(seconds)
    rows, cols = parse_size(most)
    if device != "emulator":
        require("torch")
        require_gpu()
    softmax = Dispatcher("softmax", db=db, device=device)
    library: Callable[[int, int], Library] = NumPyLibrary if device == "emulator" else TorchLibrary
    softmax(*library(1, 0).matrices(1, 1))  # whatever is loaded at the first use
    time_s = deadline.left_s(2 * len(SHARES) * ENDING_S)
    calls: dict[str, Callable[[Any, Any], object]] = {"torch": torchs_softmax()} if device == "cuda" else {}
    calls["ours"] = softmax  # last, when memory has settled
    served: dict[str, list[Report]] = {}
    for name, call in calls.items():
        some = zip((1, threads), SHARES[name], strict=True)
        served[name] = [serve(call, library, count, share * time_s, rows, cols) for count, share in some]
    alone, together = served["ours"]
    if path is not None:
        run = about(softmax.explain(rows, cols).device.name) | {"seconds": seconds, "most": most, "stats": asdict(softmax.stats())}
        told = {"reports" if name == "ours" else name: [asdict(report) for report in some] for name, some in served.items()}
        path.write_text(json.dumps(run | told, indent=2) + "\n")
    print(softmax.stats())
    for name, report in [(name, report) for name, some in served.items() for report in some]:
        show(name, report)
    held = list(promises(alone, together, served.get("torch")))
    for met, promise in held:
        print(f"{'met' if met else 'NOT MET'}: {promise}")
    sys.exit(not all(met for met, _ in held))


def torchs_softmax() -> Callable[[Any, Any], object]:
    """What the same loops do without us."""
    import torch

    return lambda x, out: torch.softmax(x, -1, out=out)


def show(name: str, report: Report) -> None:
    told = ", ".join(f"{quantile} {us:.1f}" for quantile, us in report.latency_us.items())
    print(f"{name}, {report.threads} threads, {report.seconds:.0f} s: {report.calls_per_s:.0f} calls/s; latency in us: {told}")
    print(f"    memory {report.early_mb:.0f} MB early, {report.late_mb:.0f} MB late; {len(report.wrong)} wrong", end="")
    print(f"; {len(report.errors)} threads failed: {report.errors[0]}" if report.errors else "")


def share_of(alone: Report, together: Report) -> float:
    """How many times the calls of one thread many do."""
    return together.calls_per_s / max(alone.calls_per_s, 1e-9)


def promises(alone: Report, together: Report, torchs: list[Report] | None = None) -> Iterator[tuple[bool, str]]:
    """Whether each promise to a server is held, and what it is; `torchs` are the reports of the same loops with torch's softmax."""
    calls, wrong = alone.calls + together.calls, alone.wrong + together.wrong
    yield not wrong, f"{len(wrong)} of {calls // CHECKED} checked results are wrong, of {calls} calls; none may be"
    yield not alone.errors and not together.errors, f"{len(alone.errors + together.errors)} threads failed; none may"
    share, least, beside = share_of(alone, together), LEAST_SHARE, ""
    if torchs:
        with_torchs = share_of(*torchs)
        least, beside = min(LEAST_SHARE, with_torchs * (1 - NOISE)), f"; with torch's softmax they do {with_torchs:.2f}"
    yield share >= least, f"{together.threads} threads do {share:.2f} times the calls of one, and may do no fewer than {least:.2f}{beside}"
    gained_mb = together.late_mb - together.early_mb
    yield (
        gained_mb <= MOST_GAINED_MB,
        f"the process gained {gained_mb:.0f} MB after the first tenth, from {together.early_mb:.0f} MB, and may gain {MOST_GAINED_MB:.0f}",
    )


if __name__ == "__main__":
    started(main)
