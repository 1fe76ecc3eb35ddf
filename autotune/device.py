"""The hardware that a measured time belongs to."""

from dataclasses import dataclass

# More than these a kernel may use where the device has it, but must be opted in to (CUDA C++ Programming Guide, "Shared Memory" and
# "Thread Block Clusters").
SHARED_BYTES_WITHOUT_ASKING = 48 << 10  # dynamic and static ones of a block together
PORTABLE_CLUSTER = 8  # blocks of a cluster


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device, not one card: two H200s are the same `Device`. Sizes are in bytes.

    `shared_bytes_per_block` is the most dynamic plus static shared memory that one block can have after opting in.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    bus_bits: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    registers_per_sm: int = 65536
    threads_per_sm: int = 2048
    threads_per_block: int = 1024

    @property
    def arch(self) -> str:
        """The compiler's name of this device's architecture, such as "sm_90"."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def is_emulator(self) -> bool:
        return self.name == EMULATOR.name


# The emulator claims Hopper's limits so that the same configurations are applicable to it as to the GPU the shipped results are from.
EMULATOR = Device(
    name="emulator",
    compute_capability=(9, 0),
    sm_count=1,
    l2_bytes=32 << 20,
    bus_bits=64,
    shared_bytes_per_block=232448,
    shared_bytes_per_sm=233472,
)
