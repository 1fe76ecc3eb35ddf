"""How the GPU backend judges an instance, with host memory for the GPU's, its support kernels in the emulator and kernels in NumPy."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends.cuda_check import COMPARE, Checker
from autotune.backends.cuda_compile import support_source
from autotune.backends.cuda_kernel import ARGUMENTS
from autotune.backends.cuda_setup import FILL, Setup
from autotune.backends.emulation import build
from autotune.backends.emulation.run import Launch, Library
from autotune.configuration import Configuration
from autotune.declared import checked_reference
from autotune.definition import all_of
from autotune.device import EMULATOR
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.trial import Failure, Instance, Outcome
from tests.elementwise import elementwise

Array = np.ndarray[Any, np.dtype[Any]]
Kernel = Callable[[Array], Array]
BLOCKS, THREADS = 2, 64
PACKED = {"autotune_fill": FILL, "autotune_compare": COMPARE}


class Memory:
    """Some bytes of the host, as PyCUDA hands out those of a GPU."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros(size + 256, np.uint8)

    def __int__(self) -> int:
        return -(-int(self._bytes.ctypes.data) // 256) * 256

    def free(self) -> None:
        pass


class Driver:
    """What a setup asks of PyCUDA's driver."""

    mem_alloc = Memory

    def mem_get_info(self) -> tuple[int, int]:
        return 1 << 40, 1 << 40

    def memset_d8_async(self, address: int, value: int, count: int, stream: Any) -> None:
        ctypes.memset(address, value, count)

    def memset_d16_async(self, address: int, value: int, count: int, stream: Any) -> None:
        pattern = np.full(count, value, np.uint16)
        ctypes.memmove(address, pattern.ctypes.data, pattern.nbytes)

    def memcpy_htod(self, address: int, source: Array) -> None:
        assert source.flags.c_contiguous
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def memcpy_dtoh(self, target: Array, address: int) -> None:
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    class Event:
        def record(self, stream: Any) -> None:
            pass

        def synchronize(self) -> None:
            pass

        def time_since(self, start: Any) -> float:
            return 0.001


class Stream:
    def synchronize(self) -> None:
        pass


class Support:
    """The support kernels of an operation, run by the emulator."""

    warps = BLOCKS * THREADS // 32

    def __init__(self, operation: Operation) -> None:
        self.driver = Driver()
        exports = "".join(f"EMULATED_KERNEL(emulated_{name}, {name})\n" for name in PACKED)
        self._library = Library(build.library(support_source("float32", operation) + exports))

    def launch(self, symbol: str, arguments: bytes, stream: Any) -> None:
        packed = PACKED[symbol]
        given = [np.float64(a) if isinstance(a, float) else a for a in packed.unpack(arguments)]
        self._library.launch(Launch(f"emulated_{symbol}", given, BLOCKS, THREADS))


@dataclass
class Loader:
    """Loads one kernel, whatever is asked for: a function of the input's rows; remembers how many rows each launch had."""

    kernel_of_rows: Kernel
    launched: list[int]

    def kernel(self, instance: Instance, launch: Any, bounds: Any) -> "Loader":
        return self

    def launch(self, stream: Any, arguments: bytes) -> None:
        output, source, rows, cols, output_stride, input_stride, _ = ARGUMENTS.unpack(arguments)
        self.launched.append(rows)
        x, y = matrix(source, rows, cols, input_stride), matrix(output, rows, cols, output_stride)
        y[:] = self.kernel_of_rows(x.copy())


def matrix(address: int, rows: int, cols: int, stride: int) -> Array:
    whole = (ctypes.c_float * ((rows - 1) * stride + cols)).from_address(address)
    return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(whole), (rows, cols), (4 * stride, 4))


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Operation:
    return elementwise(tmp_path_factory.mktemp("kernels"), "twice", "", factor=2, tolerance=1e-6)


def checked(operation: Operation, problem: Problem, kernel: Kernel) -> list[int]:
    """The rows of each launch of a check that `kernel` passes."""
    loader: Any = Loader(kernel, [])
    support: Any = Support(operation)
    setup = Setup(support, loader, Stream(), EMULATOR, operation, problem, pairs=1, seed=0)
    Checker(setup).check(Instance(Configuration.of("v0", bug=0), "float32", "", "", "", "", "", b"", None))
    launched: list[int] = loader.launched
    return launched


def doubled(x: Array) -> Array:
    return 2 * x


def wrong_for_nan(x: Array) -> Array:
    return np.where(np.isnan(x), 0, 2 * x)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_every_kind_of_row_is_met_however_few_rows_there_are_and_named_where_it_is_wrong(rows: int, twice: Operation) -> None:
    problem = Problem("twice", rows, 40, output_stride=44)
    assert checked(twice, problem, doubled) == [rows, 9, 9]
    with pytest.raises(Failure) as caught:
        checked(twice, problem, wrong_for_nan)
    assert caught.value.outcome is Outcome.WRONG_RESULT
    said = caught.value.message
    assert said.startswith("hard rows: 1 of 360 elements are wrong, the first at row 5 (whose values include one NaN), column ")
    assert said.endswith(", which is 0 instead of nan")


def test_rows_that_are_given_one_by_one_are_named_too_and_the_tolerance_with_them(twice: Operation) -> None:
    version = replace(twice.version("v0"), own_applicable=lambda c, problem, device: all_of((problem.rows == 1, "rows")))
    one_by_one, problem = replace(twice, versions={"v0": version}), Problem("twice", 1, 40)
    assert checked(one_by_one, problem, doubled) == [1] * 19
    with pytest.raises(Failure) as caught:
        checked(one_by_one, problem, lambda x: np.where(x > 9000, x, 2 * x))
    said = caught.value.message
    assert said.startswith(
        "hard rows: 40 of 40 elements are wrong, the first at row 0 (whose values are shifted by 1e4), column 0, which is "
    )
    assert said.endswith(" within 0.02 (relative 1e-06 + absolute 1e-06)")


def test_a_reference_of_another_shape_ends_it_before_any_instance_is_blamed(twice: Operation) -> None:
    summing = replace(twice, reference=checked_reference(Path("operation.py"), lambda x: x.sum(axis=1)))
    with pytest.raises(UsageError, match=r"^<lambda> of operation.py returns an array of 4 float64 for an array of 4x8 float64; return an"):
        checked(summing, Problem("twice", 4, 8), doubled)
