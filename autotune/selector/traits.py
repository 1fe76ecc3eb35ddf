"""What a regression sees of a kernel on a problem: numbers of the problem, of the configuration, and of how the one fills the other."""

from math import ceil, log2

from autotune.configuration import Configuration, Value
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import WIDEST_ACCESS_BYTES, Problem

SEGMENT_BYTES = 128  # of memory that a GPU fetches together
OTHER_REGISTERS = 30  # of a thread, beside those that hold elements: about what the compilers take
MOST_REGISTERS = 255
MOST_BLOCKS_PER_SM = 32  # resident at a time on compute capability 8.0, 9.0 and 10.0; others have 16 or 24
MOST_TAIL = 4.0
ABSENT = -1.0  # the logarithm of a number that a configuration lacks: less than that of any value
ZERO = -0.5  # what stands for the logarithm of 0: less than that of 1

Traits = tuple[float, ...]


class Sight:
    """Looks at the kernels of one operation on one device. All versions see the same columns; a trait is a logarithm where it is a size."""

    def __init__(self, operation: Operation, device: Device) -> None:
        self._operation, self._device = operation, device
        self._order = {name: float(place) for place, name in enumerate(sorted(operation.versions))}
        declared = [item for name in sorted(operation.versions) for item in operation.versions[name].parameters.items()]
        each = [(name, value) for name, values in declared for value in values]
        self._numbers = sorted({name for name, value in each if isinstance(value, int)})
        self._names = sorted({(name, value) for name, value in each if isinstance(value, str)})

    def traits(self, configuration: Configuration, problem: Problem) -> Traits:
        """Of `configuration`, which must be applicable, on `problem`."""
        given = dict(configuration.parameters)
        return (
            self._order[configuration.version],
            *(_logarithm(given.get(name)) for name in self._numbers),
            *(float(given.get(name) == value) for name, value in self._names),
            log2(problem.rows),
            log2(problem.cols),
            log2(problem.rows * problem.bytes_per_row),
            log2(problem.alignment_bytes),
            float(problem.bytes_per_row % WIDEST_ACCESS_BYTES),
            float(problem.bytes_per_row % SEGMENT_BYTES),
            *self._filling(configuration, problem),
        )

    def _filling(self, configuration: Configuration, problem: Problem) -> Traits:
        """Threads, blocks, elements a thread and over what it holds, and how many waves of blocks on the GPU that makes."""
        device, version = self._device, self._operation.versions[configuration.version]
        bounds, launch = version.bounds(configuration), version.launch(configuration, problem, device)
        given = dict(configuration.parameters)
        held = _count(given.get("items")) * _count(given.get("vector"))
        each = problem.rows * problem.cols / (launch.blocks * bounds.threads)
        registers = min(held * (problem.element_bytes / 4 if given.get("hold") == "inputs" else 1) + OTHER_REGISTERS, MOST_REGISTERS)
        fitting = (device.threads_per_sm // bounds.threads, int(device.registers_per_sm / (bounds.threads * registers)))
        resident = max(1, min(*fitting, MOST_BLOCKS_PER_SM))
        shares = launch.blocks / device.sm_count
        waves = shares / resident
        return (
            log2(bounds.threads),
            log2(launch.blocks),
            log2(each * problem.element_bytes),
            log2(each / held),
            float(held * problem.element_bytes),
            log2(shares),
            min(MOST_TAIL, ceil(shares) / shares),
            log2(waves),
            min(MOST_TAIL, ceil(waves) / waves),
            launch.shared_bytes / 1024,
        )


def _logarithm(value: Value | None) -> float:
    """Of a parameter's number; another version may give a parameter of that name names."""
    if not isinstance(value, int):
        return ABSENT
    return log2(value) if value else ZERO


def _count(value: Value | None) -> int:
    """`value` where it is a number of things; 1 where it is something else of that name, or is not there."""
    return value if isinstance(value, int) and value else 1
