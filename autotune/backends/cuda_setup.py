"""One problem in device memory: pairs of inputs and outputs, the support kernels that fill and judge them, and launches on a pair."""

import struct
from typing import Any

import numpy as np

from autotune.backends.cuda_kernel import ARGUMENTS, Kernel, Loader
from autotune.backends.cuda_pairs import Slots, input_slots, output_slots
from autotune.check import AROUND_INPUT
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Failure, Instance, Outcome

THREADS = 256
BLOCKS_PER_SM = 8
UNWRITTEN = 0xFF  # every byte of an output, and around it, before it is checked; see templates/autotune/compare.cu
MEMORY_KEPT_FREE = 256 << 20  # for modules, graphs and whoever else uses the GPU

FILL = struct.Struct("PqqqQP")
FLUSH = struct.Struct("PqfP")
COPY = struct.Struct("PPq")
COPY_TILE = 4 * THREADS  # packs of 16 bytes that a block of autotune_copy moves


class Support:
    """The kernels of templates/autotune (and an operation's reference) for one element type, each launched on a grid that fills the GPU."""

    def __init__(self, driver: Any, loader: Loader, binary: bytes, device: Device) -> None:
        self.driver = driver
        self._loader = loader
        self._binary = binary
        self.blocks = BLOCKS_PER_SM * device.sm_count

    @property
    def warps(self) -> int:
        """The warps of a whole grid."""
        return self.blocks * THREADS // 32

    def launch(self, symbol: str, arguments: bytes, stream: Any, blocks: int | None = None) -> None:
        function = self._loader.function(self._binary, symbol)
        function._launch_kernel((blocks or self.blocks, 1, 1), (THREADS, 1, 1), arguments, 0, stream)


class Setup:
    """`pairs` pairs of `problem`, inputs random and outputs unwritten. Everything is enqueued on `stream`.

    Raises Failure(OUT_OF_MEMORY), naming what is needed and what there is, when the pairs do not fit.
    """

    def __init__(
        self,
        support: Support,
        loader: Loader,
        stream: Any,
        device: Device,
        operation: Operation,
        problem: Problem,
        *,
        pairs: int,
        seed: int,
    ) -> None:
        self.support, self.loader, self.stream, self.device = support, loader, stream, device
        self.driver = support.driver
        self.operation, self.problem, self.pairs, self.seed = operation, problem, pairs, seed
        self.outputs: Slots = output_slots(problem, pairs)
        self.inputs: Slots = self.outputs if problem.in_place else input_slots(problem, pairs)
        reference_bytes = 8 * problem.rows * problem.cols
        self._require((1 if problem.in_place else 2) * self.outputs.arena_bytes + reference_bytes)
        self._allocations: list[Any] = []
        self.output_arena = self.allocate(self.outputs.arena_bytes)
        self.input_arena = self.output_arena if problem.in_place else self.allocate(self.inputs.arena_bytes)
        self._workspace = (0, 0)
        self.driver.memset_d8_async(self.output_arena, UNWRITTEN, self.outputs.arena_bytes, stream)
        if not problem.in_place:
            self.driver.memset_d16_async(self.input_arena, AROUND_INPUT, self.inputs.arena_bytes // 2, stream)
        for pair in range(pairs):
            self.fill(pair)

    def _require(self, needed: int) -> None:
        free, _ = self.driver.mem_get_info()
        if needed + MEMORY_KEPT_FREE > free:
            gib = 1 << 30
            raise Failure(
                Outcome.OUT_OF_MEMORY, f"{self.problem} needs {needed / gib:.2f} GiB on the GPU, of which {free / gib:.2f} GiB are free"
            )

    def allocate(self, size: int) -> int:
        """The address of `size` bytes that live as long as this setup."""
        allocation = self.driver.mem_alloc(max(int(size), 1))
        self._allocations.append(allocation)
        return int(allocation)

    def input(self, pair: int) -> int:
        return self.input_arena + self.inputs.matrix(pair)

    def output(self, pair: int) -> int:
        return self.output_arena + self.outputs.matrix(pair)

    def fill(self, pair: int) -> None:
        """Write the pair's random input, the same each time."""
        self._fill(pair, counts=0)

    def count_changed(self, pair: int, counts: int) -> None:
        """Have each warp of a support grid count, at address `counts`, the elements of the pair's input that `fill` did not write."""
        self._fill(pair, counts)

    def _fill(self, pair: int, counts: int) -> None:
        p = self.problem
        seed = (self.seed * 1_000_003 + pair) % 2**64
        arguments = FILL.pack(self.input(pair), p.rows, p.cols, p.input_stride, seed, counts)
        self.support.launch("autotune_fill", arguments, self.stream)

    def poison(self, pair: int) -> None:
        """Set the pair's output and the guard zones around it to what no kernel writes."""
        self.driver.memset_d8_async(self.output_arena + self.outputs.slot(pair), UNWRITTEN, self.outputs.pitch, self.stream)

    def kernel(self, instance: Instance, problem: Problem | None = None) -> tuple[Kernel, int]:
        """`instance` ready for this problem (or for `problem`, of the same kind), and the address of a zeroed workspace, 0 for none."""
        version = self.operation.version(instance.configuration.version)
        launch = version.launch(instance.configuration, problem or self.problem, self.device)
        kernel = self.loader.kernel(instance, launch, version.bounds(instance.configuration))
        return kernel, self._zeroed_workspace(launch.workspace_bytes)

    def _zeroed_workspace(self, size: int) -> int:
        if size == 0:
            return 0
        address, have = self._workspace
        if size > have:
            address = self.allocate(size)
            self._workspace = (address, size)
        self.driver.memset_d8_async(address, 0, size, self.stream)
        return address

    def arguments(self, pair: int, workspace: int) -> bytes:
        """What a kernel is given to compute pair `pair`."""
        p = self.problem
        return ARGUMENTS.pack(self.output(pair), self.input(pair), p.rows, p.cols, p.output_stride, p.input_stride, workspace)

    def download(self, address: int, count: int, dtype: Any) -> "np.ndarray[Any, Any]":
        """`count` numbers from device memory, after everything enqueued so far."""
        self.stream.synchronize()
        host = np.empty(count, dtype)
        self.driver.memcpy_dtoh(host, address)
        return host

    def close(self) -> None:
        """Free the memory."""
        for allocation in self._allocations:
            allocation.free()
        self._allocations.clear()
