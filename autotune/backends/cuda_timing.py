"""Takes times on the GPU: whole laps over all pairs in one CUDA graph between two events, cold unless asked otherwise.

A sample under the cold protocol: read three times the L2 of other memory, unless a lap itself moves as much; record an event; launch
the graph; record an event. Only what lies between the events is timed.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from autotune.backends.clocks import Clocks, lowest
from autotune.backends.cuda_graph import Graph
from autotune.backends.cuda_pairs import FLUSH_OF_L2, needs_flush
from autotune.backends.cuda_setup import FLUSH, Setup
from autotune.trial import Round, RoundKind

SAMPLE_US = 2000.0  # an event's clock ticks every half microsecond or so: a sample this long is exact to well below 0.1 %
MOST_LAUNCHES = 2000  # in one graph; capturing one costs the host about six microseconds
GRAPHS_KEPT = 64
IDLE_S = 1.0  # after this long without work the clocks may have fallen

Enqueue = Callable[[int], None]  # puts one launch on pair i onto the setup's stream


class Timer:
    """Times launches on the pairs of one setup; `cold`, or with whatever the launch before left in the cache."""

    def __init__(self, setup: Setup, clocks: Clocks, *, cold: bool, bytes_moved: int) -> None:
        self._setup = setup
        self._clocks = clocks
        self._cold = cold
        # A lap this small is run once per sample, after a flush: a second one would find its data in the cache.
        self._once = cold and needs_flush(bytes_moved, setup.pairs, setup.device.l2_bytes)
        self._start, self._end = setup.driver.Event(), setup.driver.Event()
        self._flushed_bytes = FLUSH_OF_L2 * setup.device.l2_bytes // 16 * 16
        self._other = setup.allocate(self._flushed_bytes)
        self._sink = setup.allocate(16)
        setup.driver.memset_d8_async(self._other, 0x3E, self._flushed_bytes, setup.stream)
        self._graphs: OrderedDict[Hashable, tuple[Graph, int]] = OrderedDict()
        self._last_work = -math.inf

    def flush(self) -> None:
        """Enqueue the read of three times the L2 of other memory."""
        arguments = FLUSH.pack(self._other, self._flushed_bytes // 16, math.nan, self._sink)
        self._setup.support.launch("autotune_flush", arguments, self._setup.stream)

    def warm_up(self) -> None:
        """Run real work until the SM clock is up, when the GPU has been idle."""
        if time.monotonic() - self._last_work > IDLE_S:
            self._clocks.warm_up(self._work)
            self._last_work = time.monotonic()

    def round(self, name: Hashable, enqueue: Enqueue, kind: RoundKind, samples: int, *, single: bool) -> Round:
        """`samples` samples of what `enqueue` launches. A graph made for `name` before is used again."""
        self.warm_up()
        if single:
            launches = 1
            pairs = iter(range(1 << 62))
            run: Callable[[], None] = lambda: enqueue(next(pairs) % self._setup.pairs)  # noqa: E731
            if not self._cold:
                run()
        else:
            graph, launches = self._graph(name, enqueue)
            run = graph.launch
        clock = self._clocks.sm_mhz()
        times = []
        for _ in range(samples):
            times.append(self._sample(run, flush=self._once or (single and self._cold)) / launches)
            if self._clocks.cheap:
                clock = lowest(clock, self._clocks.sm_mhz())
        clock = lowest(clock, self._clocks.sm_mhz())
        self._last_work = time.monotonic()
        return Round(kind, tuple(times), launches, clock, self._clocks.throttled())

    def close(self) -> None:
        for graph, _ in self._graphs.values():
            graph.destroy()
        self._graphs.clear()

    def _sample(self, run: Callable[[], None], *, flush: bool) -> float:
        """Microseconds between the events around `run`."""
        stream = self._setup.stream
        if flush:
            self.flush()
        self._start.record(stream)
        run()
        self._end.record(stream)
        self._end.synchronize()
        return float(self._end.time_since(self._start)) * 1e3

    def _graph(self, name: Hashable, enqueue: Enqueue) -> tuple[Graph, int]:
        """The graph of whole laps for `name`, launched once already, and how many launches it holds."""
        if name in self._graphs:
            self._graphs.move_to_end(name)
            return self._graphs[name]
        enqueue(0)  # whatever the driver puts off until a first launch happens outside the capture
        graph, laps = self._capture(enqueue, 1), 1
        self._sample(graph.launch, flush=False)  # the first launch of a graph also uploads it
        lap_us = self._sample(graph.launch, flush=False)
        if not self._once and lap_us < SAMPLE_US:
            laps = max(1, min(MOST_LAUNCHES // self._setup.pairs, math.ceil(SAMPLE_US / max(lap_us, 1e-3))))
        if laps > 1:
            graph.destroy()
            graph = self._capture(enqueue, laps)
            self._sample(graph.launch, flush=False)
        self._graphs[name] = (graph, laps * self._setup.pairs)
        if len(self._graphs) > GRAPHS_KEPT:
            _, (oldest, _) = self._graphs.popitem(last=False)
            oldest.destroy()
        return self._graphs[name]

    def _capture(self, enqueue: Enqueue, laps: int) -> Graph:
        def all_laps() -> None:
            for _ in range(laps):
                for pair in range(self._setup.pairs):
                    enqueue(pair)

        return Graph(self._setup.stream, all_laps)

    def _work(self) -> None:
        for _ in range(20):
            self.flush()
        self._setup.stream.synchronize()
