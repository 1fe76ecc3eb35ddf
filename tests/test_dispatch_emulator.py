"""The dispatcher from arrays to results, on the emulator: the kernels that a GPU runs, executed here."""

import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends.emulation import build
from autotune.database import Database
from autotune.device import EMULATOR
from autotune.dispatch import Dispatcher
from autotune.dispatch.arrays import stream_handle
from autotune.errors import AutotuneError, KernelError, UsageError
from tests.dispatch_cases import SOFTMAX, V2, V3, Array, normal, softmax64, write_database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = [(8, 64, V3), (4, 33, V2)]
    return write_database(tmp_path_factory.mktemp("dispatch") / "tuned.sqlite", sizes, device=EMULATOR)


@pytest.fixture
def softmax(database: Path) -> Dispatcher:
    return Dispatcher("softmax", db=database, device="emulator")


def same(y: Array, x: Array) -> bool:
    return bool(np.allclose(y, softmax64(x), rtol=1e-5, atol=1e-37))


@pytest.mark.parametrize("shape", [(64,), (8, 64), (2, 4, 64), (1, 2, 1, 4, 64), (8, 1), (3, 33)])
def test_the_last_axis_of_an_array_of_any_shape_sums_to_one(softmax: Dispatcher, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    y = softmax(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert same(y, x)


def test_tiers_are_those_of_the_database(softmax: Dispatcher) -> None:
    softmax(normal(8, 64)), softmax(normal(4, 33)), softmax(normal(8, 128))
    assert softmax.stats().hits == {"exact": 2, "nearest": 1}
    assert softmax.explain(8, 64).chosen.configuration == V3  # type: ignore[union-attr]


def test_a_slice_of_columns_is_read_and_written_in_place_of_a_copy(softmax: Dispatcher) -> None:
    wide, out = normal(8, 100), np.full((8, 120), 7, np.float32)
    x = wide[:, 3:67]
    assert softmax(x, out=out[:, 10:74]).base is out
    assert same(out[:, 10:74], x)
    assert (out[:, :10] == 7).all()
    assert (out[:, 74:] == 7).all()


@pytest.mark.parametrize("offset", range(4))
def test_every_alignment_of_the_input_gives_the_right_result(softmax: Dispatcher, offset: int) -> None:
    x = normal(8 * 64 + 4)[offset : offset + 512].reshape(8, 64)
    assert same(softmax(x), x)


def test_in_place_overwrites_the_input(softmax: Dispatcher) -> None:
    x = normal(8, 64)
    expected = softmax64(x)
    assert softmax(x, out=x) is x
    assert np.allclose(x, expected, rtol=1e-5)


def test_two_sets_of_columns_of_one_matrix_do_not_overlap(softmax: Dispatcher) -> None:
    both = normal(8, 128)
    x = both[:, :64].copy()
    softmax(both[:, :64], out=both[:, 64:])
    assert same(both[:, 64:], x)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: (m[:7], m[1:]),
        lambda m: (m[:, :64], m[:, 32:96]),
        lambda m: (m.reshape(-1)[:512].reshape(8, 64), m.reshape(-1)[1:513].reshape(8, 64)),
        lambda m: (m[:4].reshape(8, 64), m[:, :64]),
    ],
)
def test_an_output_that_overlaps_the_input_in_part_is_refused_at_the_first_call_and_at_later_ones(softmax: Dispatcher, make: Any) -> None:
    x, out = make(normal(8, 128))
    for _ in range(2):
        with pytest.raises(UsageError, match="must be the input itself or not overlap it"):
            softmax(x, out=out)


def test_zero_sizes_return_at_once(softmax: Dispatcher) -> None:
    for shape in [(0,), (0, 8), (8, 0), (2, 0, 4)]:
        assert softmax(np.empty(shape, np.float32)).shape == shape
    assert softmax.stats().hits == {"empty": 4}
    assert softmax.stats().loads == 0


REFUSED = [
    (np.float32(1).reshape(()), "the NumPy array has no axis"),
    (np.zeros((4, 4), np.float64), "the NumPy array holds float64; softmax takes float32"),
    (np.zeros((4, 4), ">f4"), "holds float32 of foreign byte order"),
    (np.zeros((4, 4), np.float32).T[:, :], r"strides \(1, 4\) in elements; its last axis must be contiguous"),
    (np.zeros((4, 8), np.float32)[:, ::2], "last axis must be contiguous"),
    (np.zeros((4, 8), np.float32)[::-1], "rows must not overlap"),
    (np.broadcast_to(np.zeros(4, np.float32), (3, 4)), "rows of 4 elements that start 0 elements apart"),
    (np.zeros((3, 5, 8), np.float32)[:, :4], "leading axes must follow each other at one row stride"),
    ([[1.0, 2.0]], "what came is a list; accepted are PyCUDA, torch.*; a dispatcher with device='emulator' takes NumPy arrays"),
    (None, "what came is a NoneType"),
]


@pytest.mark.parametrize(("x", "sentence"), REFUSED, ids=[sentence[:30] for _, sentence in REFUSED])
def test_what_cannot_be_taken_is_one_sentence_that_says_why(softmax: Dispatcher, x: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        softmax(x)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("x", ["numpy.zeros((2, 3), numpy.float32)", "[1.0]"])
def test_without_a_gpu_the_function_names_what_takes_numpy_arrays(x: str) -> None:
    program = f"import autotune, numpy; autotune.softmax({x})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    last = done.stderr.splitlines()[-1]
    assert last.startswith("autotune.errors.UsageError: ")
    assert re.search(r'Dispatcher\("softmax", device="emulator"\)|dispatcher with device=.emulator. takes NumPy arrays', last), last


def test_an_output_of_another_shape_dtype_or_kind_is_refused(softmax: Dispatcher) -> None:
    x = normal(8, 64)
    with pytest.raises(UsageError, match="out is 64x8 of float32 and the input is 8x64 of float32"):
        softmax(x, out=np.empty((64, 8), np.float32))
    with pytest.raises(UsageError, match="holds float64"):
        softmax(x, out=np.empty((8, 64)))
    frozen = np.empty((8, 64), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(UsageError, match="read-only"):
        softmax(x, out=frozen)


def test_a_layout_that_was_seen_is_not_decided_again(softmax: Dispatcher) -> None:
    x, out = normal(8, 64), np.empty((8, 64), np.float32)
    for _ in range(5):
        softmax(x, out=out)
    stats = softmax.stats()
    assert (stats.misses, stats.plans, stats.loads, stats.hits) == (1, 1, 1, {"exact": 5})


def test_threads_that_ask_for_the_same_and_for_other_shapes_all_get_right_results(softmax: Dispatcher) -> None:
    wrong: list[tuple[int, int]] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(12):
            rows, cols = int(random.integers(1, 9)), int(random.integers(1, 80))
            x = random.normal(size=(rows, cols)).astype(np.float32)
            if not same(softmax(x), x):
                wrong.append((rows, cols))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert softmax.stats().loads <= 3


def test_warm_loads_so_that_a_frozen_dispatcher_answers_and_loads_no_more(softmax: Dispatcher) -> None:
    softmax.warm([(8, 64)], ["float32"])
    softmax.freeze()
    loaded = softmax.stats().loads
    assert loaded == 1 + len(SOFTMAX.version(SOFTMAX.safe.version).dtypes)
    x, odd = normal(8, 64), normal(4, 33)
    assert same(softmax(x), x)
    assert same(softmax(odd), odd)  # v2 of block 128 is not loaded, the safe kernel is
    assert softmax.stats().loads == loaded
    assert softmax.stats().hits == {"exact": 1, "safe": 1}


def test_reload_sees_what_was_tuned_since(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(8, 64, V3)], device=EMULATOR)
    softmax = Dispatcher("softmax", db=path, device="emulator")
    softmax(normal(4, 33))
    write_database(path, [(4, 33, V2)], device=EMULATOR)
    softmax(normal(4, 33))
    assert softmax.stats().hits == {"safe": 2}  # a running dispatcher does not change its answers by itself
    softmax.reload()
    softmax(normal(4, 33))
    assert softmax.stats().hits == {"safe": 2, "exact": 1}


def test_sizes_without_an_answer_of_their_own_are_noted_once_for_the_next_sweep(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db.sqlite", [(8, 64, V3)], device=EMULATOR)
    softmax = Dispatcher("softmax", db=path, device="emulator")
    for cols in (64, 128, 128, 33):
        softmax(normal(8, cols))
    assert softmax.note_misses() == 2
    assert softmax.note_misses() == 0
    with Database(path, mode="read") as db:
        misses = db.select("SELECT rows, cols, tier, count FROM misses JOIN problems ON problems.id = misses.problem ORDER BY cols")
    assert [tuple(row.values()) for row in misses] == [(8, 33, "safe", 1), (8, 128, "nearest", 2)]


def test_a_dispatcher_without_any_database_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.sqlite"))
    x = normal(5, 7)
    assert same(Dispatcher("softmax", device="emulator")(x), x)


def test_without_a_compiler_the_emulator_says_what_it_needs(softmax: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    for remembered in (build.compiler, build.compiler_version):
        remembered.cache_clear()
    for _ in range(2):
        with warnings.catch_warnings(record=True), pytest.raises(AutotuneError) as refused:
            softmax(normal(8, 64))
        assert str(refused.value).endswith(
            "could not be loaded: no C++ compiler g++ was found; the emulator needs one: install g++ or set CXX"
        )


def test_a_stream_is_taken_from_whatever_library_made_it() -> None:
    class Speaking:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 11)

    class Handle:
        handle = 12

    class Torch:
        cuda_stream = 13

    class CuPy:
        ptr = 14

    assert [stream_handle(s) for s in (Speaking(), Handle(), Torch(), CuPy(), 15)] == [11, 12, 13, 14, 15]
    with pytest.raises(UsageError, match="stream is a str; pass a PyCUDA, torch, CuPy or Numba stream"):
        stream_handle("main")


class Foreign:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_an_array_that_speaks_dlpack_is_read_where_it_lies_and_let_go(softmax: Dispatcher) -> None:
    wide, out = normal(8, 100), normal(8, 64)
    references = sys.getrefcount(wide)
    x = wide[:, 8:72]
    result = Foreign(out)
    assert softmax(Foreign(x), out=result) is result
    assert same(out, x)
    del x
    assert sys.getrefcount(wide) == references
    with pytest.raises(UsageError, match="the Foreign holds float64; softmax takes"):
        softmax(Foreign(np.zeros((2, 2))), out=Foreign(np.zeros((2, 2))))
    with pytest.raises(UsageError, match="the Foreign holds int32"):
        softmax(Foreign(np.zeros((2, 2), np.int32)), out=Foreign(np.zeros((2, 2), np.int32)))
    with pytest.raises(UsageError, match="no Foreign can be made for the result; pass one as out="):
        softmax(Foreign(out))


def test_unknown_devices_and_databases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="device 'tpu' is not known to the dispatcher; use 'cuda' or 'emulator'"):
        Dispatcher("softmax", device="tpu")
    with pytest.raises(UsageError, match="does not exist"):
        Dispatcher("softmax", device="emulator", db=tmp_path / "typo.sqlite")
    with pytest.raises(UsageError, match="operation 'softmin' is not known"):
        Dispatcher("softmin", device="emulator")


def test_a_frozen_dispatcher_with_nothing_that_runs_says_to_warm(softmax: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "_frozen", True)  # as if the safe kernel could not be loaded
    with pytest.raises(
        KernelError, match=r"the dispatcher is frozen and no kernel that is loaded runs .* call warm\(\[\(8, 64\)\]\) before"
    ):
        softmax(normal(8, 64))
