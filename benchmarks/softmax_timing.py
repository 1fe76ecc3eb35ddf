"""How `softmax_peers.py` takes times: the tuner's cold protocol, on torch's tensors, for several contestants in turn.

Everything runs on torch's default stream, as the tuner's launches are all on one. What a launch costs differs between processes by up to
a third of a microsecond (docs/kernels.md), so that all contestants share one. A graph is captured on another stream, but nothing runs
there.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Container, Mapping

import torch

from autotune.backends.cuda_pairs import needs_flush, pair_count
from autotune.definition import Version
from autotune.dispatch.cuda_launcher import CudaFunction, CudaLauncher
from autotune.problem import Problem
from autotune.trial import Instance

Call = Callable[[torch.Tensor, torch.Tensor], object]  # (input, output) -> the output where the contestant makes its own

MOST_LAUNCHES, SAMPLES, SAMPLES_OF_ONE_LAP, SAMPLES_BEHIND = 2000, 11, 25, 4
SAMPLE_US, LAUNCH_US, BYTES_PER_US = 2500.0, 1.0, 4e6  # what a sample should take; how long a launch does, by which it is sized
FAR_BEHIND = 1.5  # whoever takes so many times as long as the fastest need not be known as well


class Buffers:
    """The pairs of one problem, and how often a sample takes all of them."""

    def __init__(self, problem: Problem, l2_bytes: int) -> None:
        dtype, shape = getattr(torch, problem.dtype), (problem.rows, problem.cols)
        bytes_moved = 2 * problem.rows * problem.bytes_per_row
        count = pair_count(bytes_moved, l2_bytes, problem)
        self.inputs = [torch.randn(shape, device="cuda", dtype=dtype) * 3 for _ in range(count)]
        self.outputs = [torch.full(shape, math.nan, device="cuda", dtype=dtype) for _ in range(count)]
        one_lap = needs_flush(bytes_moved, count, l2_bytes)  # a second one would find its data in the cache
        lap_us = count * (LAUNCH_US + bytes_moved / BYTES_PER_US)
        self.laps = 1 if one_lap else max(1, min(MOST_LAUNCHES // count, round(SAMPLE_US / lap_us)))
        self.samples = SAMPLES_OF_ONE_LAP if one_lap else SAMPLES


class Timed:
    """One contestant on one problem, captured: `sample` is its time per launch in microseconds.

    Before each sample `flush` is read, outside the timed window: it takes the place of what the contestant before left in the cache, and
    the host launches the graph meanwhile.
    """

    def __init__(self, call: Call, buffers: Buffers, flush: torch.Tensor) -> None:
        self._flush = flush
        pairs = list(zip(buffers.inputs, buffers.outputs, strict=True))
        self._launches = buffers.laps * len(pairs)
        self._before, self._after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for pair in pairs[:3]:
            call(*pair)
        self._graph = torch.cuda.CUDAGraph()
        made: deque[object] = deque(maxlen=len(pairs))  # what a contestant allocates: as many outputs as the others have
        with torch.cuda.graph(self._graph):
            for _ in range(buffers.laps):
                for pair in pairs:
                    made.append(call(*pair))
        self.sample()
        self.about_us = self.sample()

    def sample(self) -> float:
        self._flush.sum()
        self._flush.max()
        self._before.record()
        self._graph.replay()
        self._after.record()
        self._after.synchronize()
        return float(self._before.elapsed_time(self._after)) * 1e3 / self._launches


def in_turn(
    timed: Mapping[str, Timed], known: Container[str], rounds: int, seed: int, after: Callable[[], object]
) -> dict[str, list[float]]:
    """Samples of each, taken in `rounds` rounds in which all have their turn, each time in another order.

    Of those far behind the fastest there are only a few, except of those in `known`. `after` is called after each round.
    """
    samples: dict[str, list[float]] = {name: [] for name in timed}
    order, generator = list(timed), random.Random(seed)
    fastest_us = min((one.about_us for name, one in timed.items() if name not in known), default=math.inf)
    for done in range(rounds):
        generator.shuffle(order)
        for name in order:
            if done < SAMPLES_BEHIND or name in known or timed[name].about_us < FAR_BEHIND * fastest_us:
                samples[name].append(timed[name].sample())
        after()
    return samples


def instance_call(launcher: CudaLauncher, version: Version, instance: Instance, problem: Problem) -> Call:
    """An instance on `problem`, loaded and launched as the dispatcher does it, on torch's current stream."""
    library = launcher.cuda.call("cuLibraryLoadData", instance.binary, [], [], 0, [], [], 0)
    kernel = launcher.cuda.call("cuLibraryGetKernel", library, instance.symbol.encode())
    launcher.cuda.call("cuKernelGetFunction", kernel)  # loads it now, not in the midst of a capture
    function = CudaFunction(launcher, kernel, version.bounds(instance.configuration))
    launch = function.bind(problem, version.launch(instance.configuration, problem, launcher.device))
    return lambda x, y: launch(y.data_ptr(), x.data_ptr(), torch.cuda.current_stream().cuda_stream)
