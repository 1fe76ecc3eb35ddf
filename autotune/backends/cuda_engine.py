"""What runs in the worker child: the one process that holds a CUDA context. It loads instances, checks them and takes their times."""

import atexit
import statistics
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from autotune.backends.clocks import Clocks
from autotune.backends.cuda_check import Checker
from autotune.backends.cuda_kernel import Loader, failures, pycuda_driver
from autotune.backends.cuda_pairs import pair_count
from autotune.backends.cuda_setup import COPY, COPY_TILE, Setup, Support
from autotune.backends.cuda_timing import SAMPLE_US, Timer
from autotune.device import Device
from autotune.errors import UsageError
from autotune.guard import guarded
from autotune.problem import WIDEST_ACCESS_BYTES as ACCESS_BYTES
from autotune.problem import Problem
from autotune.source import loaded_alike
from autotune.trial import Check, Instance, Round, RoundKind

COPY_SAMPLES = 9


class Facts(NamedTuple):
    """The device, the versions of what reaches it, and where it is plugged in."""

    device: Device
    driver: str
    cuda: str
    pycuda: str
    bus_id: str


class Engine:
    """One GPU and, between `open` and `shut`, one problem on it. PyCUDA's exceptions leave it as failures.

    Raises UsageError when PyCUDA, the driver or the GPU is missing.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self._driver = pycuda_driver()
        card = _card(self._driver, ordinal)
        self._context = card.retain_primary_context()
        self._context.push()
        atexit.register(self.close)  # a context still on PyCUDA's stack when the process ends makes it abort
        self._facts = _facts(self._driver, card)
        self._clocks = Clocks(self._facts.bus_id)
        self._stream = self._driver.Stream()
        self._loader = Loader(self._driver)
        self._setup: Setup | None = None
        self._checker: Checker | None = None
        self._timer: Timer | None = None

    def facts(self) -> Facts:
        return self._facts._replace(driver=self._clocks.driver())

    def clocks(self) -> tuple[int | None, str | None, str]:
        """The SM clock in MHz, what throttles it, and why neither can be read ("" when they can)."""
        return self._clocks.sm_mhz(), self._clocks.throttled(), self._clocks.why_not

    def healthy(self) -> bool:
        """Whether the context still works: after an illegal address, among others, no call in it succeeds any more."""
        try:
            self._context.synchronize()
        except self._driver.Error:
            return False
        return True

    def open(
        self,
        operation: str,
        kernels: Path,
        definitions: Mapping[str, str],
        problem: Problem,
        seed: int,
        support: bytes,
        *,
        allowed_s: float,
        cold: bool,
    ) -> int:
        """Set `problem` up and return its number of pairs.

        Raises Failure(OUT_OF_MEMORY) when it does not fit, and UsageError when a function of the operation takes longer than `allowed_s`
        seconds.
        """
        self.shut()
        loaded = loaded_alike(operation, kernels, definitions)
        bytes_moved = loaded.bytes_moved(problem)
        pairs = pair_count(bytes_moved, self._facts.device.l2_bytes, problem) if cold else 1
        with failures(self._driver), guarded(allowed_s):
            try:
                kernels_of_ours = Support(self._driver, self._loader, support, self._facts.device)
                self._setup = Setup(
                    kernels_of_ours, self._loader, self._stream, self._facts.device, loaded, problem, pairs=pairs, seed=seed
                )
                self._timer = Timer(self._setup, self._clocks, cold=cold, bytes_moved=bytes_moved)
                self._checker = Checker(self._setup)
                self._timer.warm_up()
            except BaseException:
                self.shut()
                raise
        return pairs

    def shut(self) -> None:
        """Free what `open` set up."""
        if self._timer:
            self._timer.close()
        if self._setup:
            self._setup.close()
        self._setup = self._checker = self._timer = None

    def check(self, instance: Instance) -> Check:
        """Launch once on the poisoned output and compare all of it; see `autotune.backends.Bench.check`."""
        assert self._checker
        with failures(self._driver):
            return self._checker.check(instance)

    def sample(self, instance: Instance, kind: RoundKind, samples: int, *, single: bool) -> Round:
        """Samples of `instance`; see `autotune.backends.Bench.sample`."""
        setup, timer = self._setup, self._timer
        assert setup
        assert timer
        with failures(self._driver):
            kernel, workspace = setup.kernel(instance)
            arguments = cache(lambda pair: setup.arguments(pair, workspace))

            def enqueue(pair: int) -> None:
                kernel.launch(setup.stream, arguments(pair))

            return timer.round((instance.symbol, hash(instance.binary)), enqueue, kind, samples, single=single)

    def copy_us(self) -> float | None:
        """The time of a device copy that reads and writes as many bytes as the problem's matrices hold, by the same protocol.

        The median of the faster of two: a kernel of our own, and the driver's, which for many sizes takes 1.6 times as long as it could
        (on an H200 33,636,160 bytes take it 26 us, and 33,554,432 bytes 17 us).
        """
        setup, timer = self._setup, self._timer
        assert setup
        assert timer
        problem = setup.problem
        size = problem.rows * problem.bytes_per_row
        if problem.in_place and setup.pairs == 1:
            return None  # nowhere to copy to

        def source(pair: int) -> int:
            return setup.input((pair + 1) % setup.pairs if problem.in_place else pair)

        def by_driver(pair: int) -> None:
            self._driver.memcpy_dtod_async(setup.output(pair), source(pair), size, setup.stream)

        packs = (size - (ACCESS_BYTES - 1)) // ACCESS_BYTES  # whole ones, wherever within a pack the matrices begin

        def by_kernel(pair: int) -> None:
            to, come_from = (-(-address // ACCESS_BYTES) * ACCESS_BYTES for address in (setup.output(pair), source(pair)))
            setup.support.launch("autotune_copy", COPY.pack(to, come_from, packs), setup.stream, blocks=-(-packs // COPY_TILE))

        ways = {"copy": by_driver, "copy by a kernel": by_kernel} if packs >= COPY_TILE else {"copy": by_driver}
        with failures(self._driver):
            rounds = [timer.round(name, way, "final", COPY_SAMPLES, single=False).samples_us for name, way in ways.items()]
        return min(statistics.median(samples) for samples in rounds)

    def try_launch(self, support: bytes) -> str:
        """Launch a support kernel and a graph that holds it; says what was done. Raises Failure when it does not work."""
        from autotune.backends.cuda_graph import Graph

        with failures(self._driver):
            kernels = Support(self._driver, self._loader, support, self._facts.device)
            memory = self._driver.mem_alloc(1 << 20)
            fill = _fill_once(kernels, int(memory), self._stream)
            fill()
            graph = Graph(self._stream, fill)
            graph.launch()
            self._stream.synchronize()
            graph.destroy()
            memory.free()
        return "a kernel was launched, alone and in a CUDA graph"

    def close(self) -> None:
        """Free everything and take the context off PyCUDA's stack."""
        if self._context is None:
            return
        context, self._context = self._context, None
        try:
            self.shut()
        finally:
            context.pop()


def expected_s(pairs: int, samples: int, launch_us: float) -> float:
    """How long a round may take that is not hanging, in seconds: its laps, those that size the graph, and as much again."""
    lap_us = max(pairs * launch_us, 2 * SAMPLE_US)
    return 2e-6 * lap_us * (samples + 4)


def _fill_once(kernels: Support, memory: int, stream: Any) -> Callable[[], None]:
    from autotune.backends.cuda_setup import FILL

    return lambda: kernels.launch("autotune_fill", FILL.pack(memory, 16, 1000, 1024, 0, 0), stream)


def _card(driver: Any, ordinal: int) -> Any:
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        raise UsageError(f"no NVIDIA GPU can be reached ({error}); use --device emulator or --device recorded without one") from None
    if count == 0:
        raise UsageError("no NVIDIA GPU is visible; use --device emulator or --device recorded without one")
    if not 0 <= ordinal < count:
        raise UsageError(f"there is no GPU {ordinal}; the driver sees {count}, numbered from 0")
    return driver.Device(ordinal)


def _facts(driver: Any, card: Any) -> Facts:
    import pycuda

    ask, attribute = card.get_attribute, driver.device_attribute
    device = Device(
        name=card.name(),
        compute_capability=tuple(card.compute_capability()),
        sm_count=ask(attribute.MULTIPROCESSOR_COUNT),
        l2_bytes=ask(attribute.L2_CACHE_SIZE),
        bus_bits=ask(attribute.GLOBAL_MEMORY_BUS_WIDTH),
        shared_bytes_per_block=ask(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        shared_bytes_per_sm=ask(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        registers_per_sm=ask(attribute.MAX_REGISTERS_PER_MULTIPROCESSOR),
        threads_per_sm=ask(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
        threads_per_block=ask(attribute.MAX_THREADS_PER_BLOCK),
    )
    version = driver.get_driver_version()
    cuda = f"{version // 1000}.{version % 1000 // 10}"
    return Facts(device, driver="", cuda=cuda, pycuda=str(pycuda.VERSION_TEXT), bus_id=card.pci_bus_id())
