"""Cases that run in a child process whose CUDA driver is the double: `python -m tests.driver_double.cases NAME DATABASE`."""

import ctypes
import gc
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.configuration import Configuration
from autotune.dispatch import Dispatcher
from autotune.dispatch.repeats import MOST_READY, Repeats
from autotune.errors import AutotuneError, KernelError, UsageError
from tests.dispatch_cases import SOFTMAX, V3, Array, damage_binaries, normal, softmax64, write_database

CAPTURING_STREAM = 77


class Last(ctypes.Structure):
    """What the double remembers (`double_last` in libcuda.c)."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("launches", "loads", "ptx_loads", "allocations", "contexts_pushed", "events")),
        *((name, ctypes.c_uint) for name in ("blocks", "threads", "shared_bytes", "cooperative")),
        ("stream", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("device", ctypes.c_int),
        ("symbol", ctypes.c_char * 201),
    )


LAST: Any = Last.in_dll(ctypes.CDLL("libcuda.so.1"), "double_last")


class OnGpu:
    """An array of some library that has the CUDA array interface, in memory that the double takes for a GPU's."""

    def __init__(self, array: Array, stream: int | None = None) -> None:
        self.array = array
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = dict(self.array.__array_interface__)
        return {
            "shape": described["shape"],
            "strides": described["strides"],
            "typestr": described["typestr"],
            "data": described["data"],
            "stream": self.stream,
            "version": 3,
        }


def check(softmax: Dispatcher, x: Array, out: Array | None = None, **more: Any) -> None:
    y = np.empty_like(x) if out is None else out
    result = OnGpu(y)
    assert softmax(OnGpu(x), out=result, **more) is result
    assert np.allclose(y, softmax64(x), rtol=1e-5)


def in_threads(work: Callable[[int], None], count: int) -> None:
    """`work(0)`, `work(1)`, ... each in a thread of its own, at once; raises what one of them raised."""
    together = threading.Barrier(count)

    def begin(number: int) -> None:
        together.wait(60)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))


def a_launch_is_packed_as_the_kernel_reads_it(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    wide, out = normal(64, 200), np.zeros((64, 148), np.float32)
    check(softmax, wide[:, 4:132], out[:, 8:136])
    assert (LAST.blocks, LAST.threads, LAST.stream, LAST.cooperative) == (64, 256, 0, 0)
    assert LAST.symbol == b"softmax_v3_float32_block256_vector4_unroll1"
    check(softmax, wide[:, 3:131], out[:, 8:136])
    assert LAST.symbol == b"softmax_v2_float32_block256_unroll1", LAST.symbol
    assert softmax.stats().hits == {"exact": 1, "safe": 1}


def shared_memory_beyond_48_kib_is_asked_for(db: str) -> None:
    check(Dispatcher("softmax", db=db), normal(4, 20000))
    assert LAST.symbol.startswith(b"softmax_v4")
    assert LAST.shared_bytes == 80000


def a_cluster_of_16_blocks_is_asked_for(db: str) -> None:
    v8 = Configuration.of("v8", cluster=16, block=128, items=16, vector=4, hold="exponentials", edges="exact")
    check(Dispatcher("softmax", db=write_database(Path(db).with_name("v8.sqlite"), [(4, 131072, v8)])), normal(4, 131072))
    assert LAST.symbol.startswith(b"softmax_v8_float32_cluster16")
    assert LAST.blocks == 64


def threads_never_share_a_launch_s_arguments(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(300):
            check(softmax, random.normal(size=(8, 128)).astype(np.float32))

    in_threads(work, 8)
    assert LAST.launches == 2400
    assert LAST.loads == softmax.stats().loads == 1


def forbidden(output: int, source: int, stream: int) -> None:
    raise AssertionError("this call should have been ready")


def memory_that_comes_again_has_a_launch_of_its_own(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x, out = normal(64, 128), np.zeros((64, 128), np.float32)
    for _ in range(3):
        check(softmax, x, out)
    (plan,) = softmax._plans.all()
    long_way, plan.launch = plan.launch, forbidden
    for seed in range(3):
        x[...], out[...] = np.random.default_rng(seed).normal(size=x.shape), 0
        check(softmax, x, out)
    with pytest.raises(AssertionError, match="should have been ready"):
        check(softmax, x, out, stream=9)
    with pytest.raises(AssertionError, match="should have been ready"):
        check(softmax, normal(64, 128), out)
    plan.launch = long_way
    for step in range(12):
        check(softmax, x, out, stream=5 + step % 3)
        assert LAST.stream == 5 + step % 3
    assert softmax.stats().hits == {"exact": 18}
    for _ in range(3):
        check(softmax, x, x.copy())
        check(softmax, x.reshape(128, 64), out.reshape(128, 64))
        check(softmax, x.reshape(2, 32, 128), out.reshape(2, 32, 128))
    softmax.reload()
    assert softmax.stats().plans == 0
    check(softmax, x, out)
    assert (softmax.stats().plans, LAST.launches) == (1, 18 + 9 + 1)


def a_ready_launch_that_needs_a_context_gets_that_of_the_array(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x, out = normal(64, 128), np.zeros((64, 128), np.float32)
    for _ in range(3):
        check(softmax, x, out)

    def work(_: int) -> None:
        for _ in range(2):
            check(softmax, x, out)

    in_threads(work, 1)


def threads_share_what_is_ready(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    shared = [(normal(64, 128), np.zeros((64, 128), np.float32)) for _ in range(3)]

    def work(seed: int) -> None:
        own = (np.random.default_rng(seed).normal(size=(64, 128)).astype(np.float32), np.zeros((64, 128), np.float32))
        for step in range(100):
            x, out = shared[step % 3]
            softmax(OnGpu(x), out=OnGpu(out))  # all threads write the same there, so it is looked at when they have ended
            own[1][...] = 0
            check(softmax, *own, stream=seed)

    in_threads(work, 8)
    assert all(np.allclose(out, softmax64(x), rtol=1e-5) for x, out in shared)
    assert LAST.launches == 1600


def memory_that_never_comes_again_leaves_nothing_behind(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    memory = np.zeros(1 << 20, np.float32)
    memory[...] = np.random.default_rng(0).normal(size=memory.shape)
    out = np.zeros((1, 128), np.float32)
    for _ in range(2):
        for start in range(0, 40_000, 4):
            softmax(OnGpu(memory[start : start + 128].reshape(1, 128)), out=OnGpu(out))
    assert np.allclose(out, softmax64(memory[start : start + 128].reshape(1, 128)), rtol=1e-5)
    held = [one for one in gc.get_objects() if isinstance(one, Repeats)]
    assert held
    assert all(len(one.of) <= MOST_READY and len(one._changes) <= MOST_READY for one in held)


def a_launch_that_depends_on_more_than_its_memory_is_never_ready(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x, out = normal(1, 4096), np.zeros((1, 4096), np.float32)
    for _ in range(4):
        check(softmax, x, out)
    (plan,) = softmax._plans.all()
    assert (plan.configuration and plan.configuration.version, plan.fix) == ("v10", None)


def a_thread_without_a_context_gets_that_of_the_array(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x = normal(64, 128)
    check(softmax, x)
    in_threads(lambda _: check(softmax, x), 1)


def a_damaged_binary_is_passed_over_with_one_warning(db: str) -> None:
    damage_binaries(Path(db), V3)
    softmax = Dispatcher("softmax", db=db)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(softmax, normal(64, 128))
        check(softmax, normal(60, 128))
    assert softmax.stats().hits == {"nearest": 2}
    (warning,) = caught
    assert "v3 block 256, vector 4, unroll 1 is passed over: binary of softmax_v3" in str(warning.message)


def code_that_the_driver_refuses_is_passed_over(db: str) -> None:
    os.environ["DOUBLE_REFUSED"] = "softmax_v3"
    softmax = Dispatcher("softmax", db=db)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(softmax, normal(64, 128))
    assert softmax.stats().hits == {"nearest": 1}
    assert "cuLibraryGetKernel failed with CUDA_ERROR_NOT_FOUND" in str(caught[0].message)


def nothing_is_loaded_while_a_stream_is_captured(db: str) -> None:
    softmax, unready, cold = (Dispatcher("softmax", db=db) for _ in range(3))
    softmax.warm([(64, 128)])
    unready.warm([(64, 127)])
    loads = LAST.loads
    os.environ["DOUBLE_CAPTURING"] = "1"
    check(softmax, normal(64, 128), stream=CAPTURING_STREAM)
    assert LAST.symbol == b"softmax_v3_float32_block256_vector4_unroll1"
    check(softmax, normal(60, 128), stream=CAPTURING_STREAM)
    assert LAST.symbol == b"softmax_v3_float32_block256_vector4_unroll1"
    check(softmax, normal(64, 127), stream=CAPTURING_STREAM)
    assert LAST.symbol == b"softmax_v2_float32_block256_unroll1"  # the safe kernel, which warm brings with it
    with pytest.raises(KernelError) as refused:
        check(cold, normal(64, 127), stream=CAPTURING_STREAM)
    assert "the stream is being captured and no kernel that is loaded runs softmax 64x127 float32; call warm([(64, 127)])" in str(
        refused.value
    )
    assert (LAST.loads, LAST.launches) == (loads, 3)
    assert softmax.stats().hits == {"exact": 1, "nearest": 1, "safe": 1}  # the best answers, all of them loaded, serve later calls too
    x, out = normal(64, 128), np.zeros((64, 128), np.float32)
    for _ in range(4):
        check(unready, x, out, stream=CAPTURING_STREAM)
        assert LAST.symbol == b"softmax_v2_float32_block256_unroll1"
    assert unready.stats().hits == {}
    del os.environ["DOUBLE_CAPTURING"]
    check(softmax, normal(64, 127), stream=CAPTURING_STREAM)
    check(softmax, normal(64, 128), stream=CAPTURING_STREAM)
    assert softmax.stats().hits == {"exact": 2, "nearest": 1, "safe": 2}
    check(unready, x, out, stream=CAPTURING_STREAM)
    assert LAST.symbol == b"softmax_v3_float32_block256_vector4_unroll1"


def each_capture_has_a_workspace_of_its_own(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x = normal(1, 4096)

    def workspaces(stream: int) -> set[int]:
        found = set()
        for _ in range(2):
            check(softmax, x, stream=stream)
            found.add(LAST.workspace)
        return found

    outside, beside = workspaces(CAPTURING_STREAM), workspaces(78)
    captured = []
    for number in ("1", "2"):
        os.environ["DOUBLE_CAPTURING"] = number
        captured.append(workspaces(CAPTURING_STREAM))
    assert LAST.symbol.startswith(b"softmax_v10")
    del os.environ["DOUBLE_CAPTURING"]
    every = [outside, beside, *captured]
    assert [len(some) for some in every] == [1, 1, 1, 1]
    assert len(set().union(*every)) == LAST.allocations == 4
    assert workspaces(CAPTURING_STREAM) == outside


def a_newer_gpu_than_any_cubin_runs_the_ptx(db: str) -> None:
    os.environ["DOUBLE_CAPABILITY"], os.environ["DOUBLE_NAME"] = "10", "NVIDIA B200"
    with pytest.raises(AutotuneError) as refused:
        check(Dispatcher("softmax", db=db), normal(64, 128))
    assert str(refused.value).endswith(
        "no compiled instance of it for sm_100 is stored; store one by `autotune compile softmax --arch sm_100 --dtype float32 --safe` on "
        "a machine with nvcc"
    )
    write_database(Path(db), stored=[SOFTMAX.safe], arch="compute_90", code=b".version 8.0\n")
    softmax = Dispatcher("softmax", db=db)
    check(softmax, normal(64, 128))
    assert (LAST.ptx_loads, softmax.stats().loads) == (1, 1)
    os.environ["DOUBLE_CAPABILITY"], os.environ["DOUBLE_NAME"] = "9", "NVIDIA H200"
    check(Dispatcher("softmax", db=db), normal(64, 128))
    assert LAST.ptx_loads == 1  # the cubin is there for it


def without_compilers_and_pycuda() -> None:
    os.environ["PATH"] = "/nonexistent"
    sys.modules["pycuda"] = None  # type: ignore[assignment]
    assert [shutil.which(compiler) for compiler in ("nvcc", "g++", "gcc", "cc")] == [None] * 4


def the_shipped_database_serves_a_machine_without_compilers_and_pycuda(db: str) -> None:
    without_compilers_and_pycuda()
    softmax = Dispatcher("softmax")
    for shape in ((256, 4096), (7, 1023), (3, 5)):
        check(softmax, normal(*shape))
    assert softmax.stats().loads > 0


def a_sweep_s_database_serves_a_machine_without_compilers_and_an_empty_one_says_what_fills_it(db: str) -> None:
    without_compilers_and_pycuda()
    softmax = Dispatcher("softmax", db=db)
    for shape in ((64, 128), (60, 128), (7, 1023)):
        check(softmax, normal(*shape))
    assert softmax.stats().hits == {"exact": 1, "nearest": 1, "safe": 1}
    damage_binaries(Path(db), SOFTMAX.safe)
    softmax = Dispatcher("softmax", db=db)
    with pytest.warns(RuntimeWarning, match="v2 block 256, unroll 1 is passed over"), pytest.raises(AutotuneError) as refused:
        check(softmax, normal(7, 1023))
    assert "and it could not be loaded: binary of softmax_v2_float32_block256_unroll1 in " in str(refused.value)
    empty = Dispatcher("softmax", db=write_database(Path(db).with_name("empty.sqlite")))
    for _ in range(2):
        with pytest.raises(AutotuneError) as refused:
            check(empty, normal(64, 128))
        assert str(refused.value) == (
            "no kernel is left for softmax 64x128 float32 on NVIDIA H200: v2 block 256, unroll 1 is the last resort, and no compiled "
            "instance of it for sm_90 is stored; store one by `autotune compile softmax --arch sm_90 --dtype float32 --safe` on a machine "
            "with nvcc"
        )


def placed(device: int) -> Array:
    """An array in a page that the double takes for memory of `device`."""
    memory = np.zeros(16384, np.uint8)
    start = -memory.ctypes.data % 8192 + 4096 * device
    return memory[start : start + 4096].view(np.float32).reshape(8, 128)


def an_array_on_another_gpu_is_computed_there_and_the_current_context_comes_back(db: str) -> None:
    os.environ["DOUBLE_DEVICES"] = "2"
    softmax = Dispatcher("softmax", db=db)
    for device in (0, 1, 0, 1):
        x, out = placed(device), placed(device)
        x[...] = normal(8, 128)
        check(softmax, x, out)
        assert LAST.device == device
    assert LAST.contexts_pushed > 0
    assert softmax.explain(8, 128).device.name == "NVIDIA H200"
    with pytest.raises(UsageError) as refused:
        softmax(OnGpu(placed(0)), out=OnGpu(placed(1)))
    assert str(refused.value) == "out is on GPU 1 and the input on GPU 0; both must be on one"


def a_forked_process_is_told_that_cuda_is_gone(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    check(softmax, normal(64, 128))
    child = os.fork()
    if child == 0:
        try:
            check(softmax, normal(64, 128))
        except KernelError as error:
            os._exit(0 if "forked after the GPU was in use" in str(error) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def arrays_in_memory_of_the_cpu_are_refused(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    with pytest.raises(UsageError) as refused:
        softmax(normal(64, 128))
    assert str(refused.value) == "the NumPy array is in memory of the CPU; a GPU takes arrays in its own memory: copy it there first"


def work_follows_the_stream_that_an_array_comes_from(db: str) -> None:
    softmax = Dispatcher("softmax", db=db)
    x, out = OnGpu(normal(64, 128), stream=5), OnGpu(np.empty((64, 128), np.float32))
    softmax(x, out=out)
    assert (LAST.stream, LAST.events) == (5, 0)
    softmax(x, out=out, stream=9)
    assert (LAST.stream, LAST.events) == (9, 2)
    softmax(x, out=out, stream=5)
    assert (LAST.stream, LAST.events) == (5, 2)


def an_array_without_memory_is_refused(db: str) -> None:
    class Freed(OnGpu):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return super().__cuda_array_interface__ | {"data": (0, False)}

    softmax = Dispatcher("softmax", db=db)
    x = normal(64, 128)
    check(softmax, x)
    for source, target in ((Freed(x), OnGpu(x.copy())), (OnGpu(x), Freed(x)), (Freed(x), Freed(x))):
        for _ in range(2):
            with pytest.raises(UsageError) as refused:
                softmax(source, out=target)
            assert str(refused.value) == "the Freed has no memory; pass one whose elements are there"
    empty = Freed(normal(0, 128))
    assert softmax(empty, out=empty) is empty
    assert (LAST.launches, softmax.stats().hits) == (1, {"exact": 1, "empty": 1})


def an_array_whose_library_is_unknown_needs_an_output(db: str) -> None:
    with pytest.raises(UsageError) as refused:
        Dispatcher("softmax", db=db)(OnGpu(normal(64, 128)))
    assert str(refused.value) == "no OnGpu can be made for the result; pass one as out="


def an_array_of_pycuda_is_recognised_without_importing_it(db: str) -> None:
    class GPUArray:
        def __init__(self, shape: tuple[int, ...], dtype: Any, allocator: Any = None) -> None:
            self.array = np.empty(shape, dtype)
            self.allocator = allocator
            self.shape, self.strides, self.dtype = self.array.shape, self.array.strides, self.array.dtype

        @property
        def gpudata(self) -> int:
            return self.array.ctypes.data

    GPUArray.__module__ = "pycuda.gpuarray"
    x = GPUArray((2, 32, 128), np.dtype(np.float32))
    x.array[...] = normal(2, 32, 128)
    y = Dispatcher("softmax", db=db)(x, stream=3)
    assert isinstance(y, GPUArray)
    assert np.allclose(y.array, softmax64(x.array), rtol=1e-5)
    assert (LAST.stream, LAST.blocks, "pycuda" in sys.modules) == (3, 64, False)


def without_a_gpu_the_error_says_what_to_do(db: str) -> None:
    os.environ["DOUBLE_BROKEN"] = "1"
    with pytest.raises(UsageError) as refused:
        Dispatcher("softmax", db=db)
    assert "the CUDA driver does not start" in str(refused.value)
    assert "use device='emulator' on a machine without a GPU" in str(refused.value)


def main(name: str, database: str) -> None:
    if "shipped" not in name:  # what is shipped for the double's GPU would answer too
        pytest.MonkeyPatch().setattr("autotune.dispatch.store.shipped_databases", list)
    globals()[name](database)


if __name__ == "__main__":
    main(*sys.argv[1:])
