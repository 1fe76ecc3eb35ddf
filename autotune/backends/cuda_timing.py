"""Takes times on the GPU: whole laps over all pairs in one CUDA graph between two events, cold unless asked otherwise.

A sample under the cold protocol: read three times the L2 of other memory, unless a lap itself moves as much; record an event; launch
the graph; record an event. Only what lies between the events is timed.

Screening need not wait for whole laps of a configuration that is slow: it takes as many launches as last for one sample, after that read.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import cycle, islice

from autotune.backends.clocks import Clocks, lowest
from autotune.backends.cuda_graph import Graph
from autotune.backends.cuda_pairs import FLUSH_OF_L2, needs_flush
from autotune.backends.cuda_setup import FLUSH, Setup
from autotune.trial import Round, RoundKind

SAMPLE_US = 2000.0  # an event's clock ticks every half microsecond or so: a sample this long is exact to well below 0.1 %
MOST_LAUNCHES = 2000  # in one graph; capturing one costs the host about six microseconds
LAUNCHES_KEPT = 64 * MOST_LAUNCHES  # in all graphs together, which may take some hundred megabytes
# A lap moves four times the L2 or as many pairs as there may be: one that takes longer than this is far from what the memory can do, so
# that it makes no difference to its time whether what earlier launches wrote has yet to leave the cache.
SLOW_LAP_US = 2 * SAMPLE_US
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
        self._lap_us: dict[Hashable, float] = {}
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
        few = self._few(enqueue) if kind == "screen" and not single else 0
        if single:
            run, launches, flush = self._one_by_one(enqueue), 1, self._cold
        elif few:
            graph = self._capture(enqueue, few)
            run, launches, flush = graph.launch, few, self._cold
        else:
            graph, launches = self._graph(name, enqueue)
            run, flush = graph.launch, self._once
        clock = self._clocks.sm_mhz()
        times = []
        for _ in range(samples):
            times.append(self._sample(run, flush=flush) / launches)
            if self._clocks.cheap:
                clock = lowest(clock, self._clocks.sm_mhz())
        clock = lowest(clock, self._clocks.sm_mhz())
        if few:
            graph.destroy()
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

    def _few(self, enqueue: Enqueue) -> int:
        """How many launches are as long as a sample, where a lap is far longer; 0 where it is not."""
        enqueue(0)  # whatever the driver puts off until a first launch
        # With a read before it, which keeps the GPU busy until the launch is enqueued, so that the launch alone is timed.
        launch_us = self._sample(lambda: enqueue(0), flush=self._cold)
        slow = launch_us * self._setup.pairs > SLOW_LAP_US
        return math.ceil(SAMPLE_US / launch_us) if slow else 0

    def _one_by_one(self, enqueue: Enqueue) -> Callable[[], None]:
        """Enqueues one launch each time, on pair after pair."""
        pairs = cycle(range(self._setup.pairs))
        if not self._cold:
            enqueue(0)
        return lambda: enqueue(next(pairs))

    def _graph(self, name: Hashable, enqueue: Enqueue) -> tuple[Graph, int]:
        """The graph of whole laps for `name`, launched once already, and how many launches it holds."""
        if name not in self._graphs:
            graph = None
            if name not in self._lap_us:
                enqueue(0)  # whatever the driver puts off until a first launch happens outside the capture
                graph = self._capture(enqueue, self._setup.pairs)
                self._lap_us[name] = self._sample(graph.launch, flush=False)
            laps = self._laps(self._lap_us[name])
            if graph is None or laps > 1:
                if graph is not None:
                    graph.destroy()
                graph = self._capture(enqueue, laps * self._setup.pairs)
            self._keep(name, graph, laps * self._setup.pairs)
        self._graphs.move_to_end(name)
        return self._graphs[name]

    def _laps(self, lap_us: float) -> int:
        if self._once or lap_us >= SAMPLE_US:
            return 1
        return max(1, min(MOST_LAUNCHES // self._setup.pairs, math.ceil(SAMPLE_US / max(lap_us, 1e-3))))

    def _keep(self, name: Hashable, graph: Graph, launches: int) -> None:
        self._graphs[name] = (graph, launches)
        while len(self._graphs) > 1 and sum(held for _, held in self._graphs.values()) > LAUNCHES_KEPT:
            _, (oldest, _) = self._graphs.popitem(last=False)
            oldest.destroy()

    def _capture(self, enqueue: Enqueue, launches: int) -> Graph:
        """A graph of that many launches on pair after pair, launched once: a graph's first launch also uploads it."""

        def enqueue_all() -> None:
            for pair in islice(cycle(range(self._setup.pairs)), launches):
                enqueue(pair)

        graph = Graph(self._setup.stream, enqueue_all)
        self._sample(graph.launch, flush=False)
        return graph

    def _work(self) -> None:
        for _ in range(20):
            self.flush()
        self._setup.stream.synchronize()
