"""What one launch in the emulator computes, refuses and finds."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends.emulation import build
from autotune.backends.emulation.memory import Matrix
from autotune.backends.emulation.run import Argument, FaultError, HangError, Launch, Library
from autotune.check import numpy_dtype
from autotune.errors import CompileError, KernelError, UsageError

KERNELS = """
#line 1 "kernels.cu"
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__global__ void lanes(float* out, int width) {
    int t = threadIdx.x;
    float v = t;
    out[t] = __shfl_xor_sync(0xffffffffu, v, 1, width);
    out[64 + t] = __shfl_down_sync(0xffffffffu, v, 3, width);
    out[128 + t] = __shfl_up_sync(0xffffffffu, v, 3, width);
    out[192 + t] = __shfl_sync(0xffffffffu, v, 2, width);
}
__global__ void votes(unsigned* out) {
    int t = threadIdx.x;
    out[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
    out[32 + t] = __any_sync(0xffffffffu, t == 7);
    out[64 + t] = __all_sync(0xffffffffu, t < 31);
    if (t < 8) out[96 + t] = __ballot_sync(0x000000ffu, t & 1);
}
__global__ void absent(float* out) { out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 16); }
__global__ void stranger() { __syncwarp(0x2u); }
__global__ void crossed() { if (threadIdx.x) __syncwarp(); else __shfl_sync(0xffffffffu, 1, 0); }
__global__ void missing_lanes() { if (threadIdx.x < 8) __syncwarp(); else __syncthreads(); }
__global__ void unwritten(float* out) {
    SHARED_ARRAY(float, fixed, 4);
    DYNAMIC_SHARED(float, dynamic);
    out[blockIdx.x] = fixed[1] + dynamic[0];
    if (!(out[blockIdx.x] == out[blockIdx.x])) out[blockIdx.x] = -1.0f;
    fixed[1] = dynamic[0] = 1.0f;
}
template <bool barrier>
__global__ void neighbour(float* out) {
    SHARED_ARRAY(float, s, 64);
    s[threadIdx.x] = threadIdx.x;
    if (barrier) __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[(threadIdx.x + 1) % 64];
}
template <bool syncwarp>
__global__ void halves(float* out) {
    SHARED_ARRAY(float, s, 32);
    s[threadIdx.x] = threadIdx.x;
    __syncwarp();
    for (int h = 16; h > 0; h /= 2) {
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
        if (syncwarp) __syncwarp();
    }
    __syncwarp();
    out[threadIdx.x] = s[0];
}
__global__ void wide(float4* out, const float* in) { out[0] = *(const float4*)(in); }  // MISALIGNED
__global__ void outside(float* out, int i) {
    SHARED_ARRAY(float, s, 32);
    s[i] = 1.0f;  // OUTSIDE
    out[0] = s[i];
}
__global__ void narrow(float* out, int row, int stride) { out[0] = row * stride; }  // OVERFLOW
__global__ void far(float* out, const float* in, long long stride) { out[threadIdx.x] = in[threadIdx.x * stride]; }
__global__ void counters(unsigned* out) {
    atomicAdd(out, 2u);
    atomicInc(out + 1, 4u);
    atomicMax(out + 2, threadIdx.x);
    atomicMin(out + 3, threadIdx.x);
    atomicOr(out + 4, 1u << threadIdx.x % 32);
    if (atomicCAS(out + 5, 0u, 7u) == 7u) atomicExch(out + 6, 8u);
}
__global__ void from_half(float* out, const __half* in, long long n) { for (int i = 0; i < n; i++) out[i] = __half2float(in[i]); }
__global__ void to_half(__half* out, const float* in, long long n) { for (int i = 0; i < n; i++) out[i] = __float2half_rn(in[i]); }
__global__ void from_bfloat(float* out, const __nv_bfloat16* in, long long n) {
    for (int i = 0; i < n; i++) out[i] = __bfloat162float(in[i]);
}
__global__ void to_bfloat(__nv_bfloat16* out, const float* in, long long n) {
    for (int i = 0; i < n; i++) out[i] = __float2bfloat16_rn(in[i]);
}
template <class Element, int block>
__global__ void copy_rows(Element* output, const Element* input, long long rows, long long cols, long long output_stride,
                          long long input_stride, void*) {
    for (long long i = threadIdx.x; i < cols; i += block) output[blockIdx.x * output_stride + i] = input[blockIdx.x * input_stride + i];
}

EMULATED_KERNEL(lanes_, lanes)
EMULATED_KERNEL(votes_, votes)
EMULATED_KERNEL(absent_, absent)
EMULATED_KERNEL(stranger_, stranger)
EMULATED_KERNEL(crossed_, crossed)
EMULATED_KERNEL(missing_lanes_, missing_lanes)
EMULATED_KERNEL(unwritten_, unwritten)
EMULATED_KERNEL(neighbour_, neighbour<true>)
EMULATED_KERNEL(neighbour_unsynchronised, neighbour<false>)
EMULATED_KERNEL(halves_, halves<true>)
EMULATED_KERNEL(halves_unsynchronised, halves<false>)
EMULATED_KERNEL(wide_, wide)
EMULATED_KERNEL(outside_, outside)
EMULATED_KERNEL(narrow_, narrow)
EMULATED_KERNEL(far_, far)
EMULATED_KERNEL(counters_, counters)
EMULATED_KERNEL(from_half_, from_half)
EMULATED_KERNEL(to_half_, to_half)
EMULATED_KERNEL(from_bfloat_, from_bfloat)
EMULATED_KERNEL(to_bfloat_, to_bfloat)
INSTANCE(copy_rows_float, float, 32, 1, 1, copy_rows<float, 32>)
"""


def line_of(marker: str) -> int:
    return next(i for i, line in enumerate(KERNELS.splitlines()) if marker in line) - 1


@pytest.fixture(scope="module")
def kernels() -> Library:
    return Library(build.library(KERNELS))


def launch(library: Library, symbol: str, *arguments: Argument, blocks: int = 1, threads: int = 32, **rest: Any) -> None:
    library.launch(Launch(symbol, arguments, blocks, threads, **rest))


def floats(n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full(n, np.nan, np.float32)


@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shuffles_move_values_as_the_programming_guide_says(kernels: Library, width: int, seed: int) -> None:
    out = floats(256)
    launch(kernels, "lanes_", out, width, threads=64, seed=seed)
    t = np.arange(64)
    group = t // width * width
    np.testing.assert_array_equal(out[:64], t ^ 1)
    np.testing.assert_array_equal(out[64:128], np.where(t + 3 < group + width, t + 3, t))
    np.testing.assert_array_equal(out[128:192], np.where(t - 3 >= group, t - 3, t))
    np.testing.assert_array_equal(out[192:], group + 2)


def test_votes_count_the_lanes_of_their_mask(kernels: Library) -> None:
    out = np.zeros(128, np.uint32)
    launch(kernels, "votes_", out, seed=3)
    assert set(out[:32]) == {sum(1 << t for t in range(0, 32, 3))}
    assert set(out[32:64]) == {1}
    assert set(out[64:96]) == {0}
    assert set(out[96:104]) == {0b10101010}


def test_a_lane_that_is_not_there_sends_nan(kernels: Library) -> None:
    out = floats(24)
    launch(kernels, "absent_", out, threads=24)
    np.testing.assert_array_equal(np.isnan(out[:16]), np.arange(16) >= 8)


def test_shared_memory_is_nan_at_the_start_of_each_block(kernels: Library) -> None:
    out = floats(3)
    launch(kernels, "unwritten_", out, blocks=3, threads=1, shared_bytes=4)
    np.testing.assert_array_equal(out, [-1, -1, -1])


def test_atomics_lose_no_update(kernels: Library) -> None:
    out = np.array([0, 0, 0, 99, 0, 0, 0], np.uint32)
    launch(kernels, "counters_", out, blocks=3, threads=64, seed=1)
    np.testing.assert_array_equal(out, [384, 192 % 5, 63, 0, 0xFFFFFFFF, 7, 8])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_missing_barrier_shows_in_every_schedule(kernels: Library, seed: int) -> None:
    right = np.tile((np.arange(64) + 1) % 64, 4)
    out = floats(256)
    launch(kernels, "neighbour_", out, blocks=4, threads=64, seed=seed)
    np.testing.assert_array_equal(out, right)
    launch(kernels, "neighbour_unsynchronised", out, blocks=4, threads=64, seed=seed)
    assert (out != right).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_missing_syncwarp_shows_in_every_schedule(kernels: Library, seed: int) -> None:
    out = floats(32)
    launch(kernels, "halves_", out, seed=seed)
    assert set(out) == {31 * 16}
    launch(kernels, "halves_unsynchronised", out, seed=seed)
    assert set(out) != {31 * 16}


def test_a_schedule_is_replayed_by_its_seed(kernels: Library) -> None:
    outs = [floats(256) for _ in range(3)]
    for out, seed in zip(outs, [5, 5, 6], strict=True):
        launch(kernels, "neighbour_unsynchronised", out, blocks=4, threads=64, seed=seed)
    np.testing.assert_array_equal(outs[0], outs[1])
    assert not np.array_equal(outs[0], outs[2], equal_nan=True)


def test_a_hang_says_how_many_threads_wait_where(kernels: Library) -> None:
    expected = "block 0 hangs: of its 50 running threads 42 wait at __syncthreads(), 8 wait at a warp operation whose mask names lanes"
    with pytest.raises(HangError, match=re.escape(expected)):
        launch(kernels, "missing_lanes_", threads=50)


def test_a_warp_operation_needs_a_mask_that_names_its_caller(kernels: Library) -> None:
    with pytest.raises(FaultError, match="lane 0 of block 0 calls a warp operation whose mask 0x00000002 does not name it"):
        launch(kernels, "stranger_", threads=2)


def test_lanes_do_not_meet_at_different_operations(kernels: Library) -> None:
    with pytest.raises(FaultError, match="at different warp operations"):
        launch(kernels, "crossed_")


def test_a_misaligned_vector_access_is_a_fault_with_its_line(kernels: Library) -> None:
    matrix, out = Matrix(1, 8, np.dtype(np.float32), alignment=8).values, np.zeros(4, np.float32)
    aligned = Matrix(1, 8, np.dtype(np.float32))
    with pytest.raises(FaultError, match=rf"kernels.cu:{line_of('MISALIGNED')}: misaligned access: .*16-byte alignment and lies 8 bytes"):
        launch(kernels, "wide_", out, matrix, threads=1)
    aligned.values[:] = 3
    launch(kernels, "wide_", out, aligned.values, threads=1)
    assert set(out) == {3}


@pytest.mark.parametrize("index", [-1, 32])
def test_an_index_outside_a_shared_array_is_a_fault_with_its_line(kernels: Library, index: int) -> None:
    with pytest.raises(FaultError, match=rf"kernels.cu:{line_of('OUTSIDE')}: index {index} is out of bounds for 'float \[32\]'"):
        launch(kernels, "outside_", floats(1), index, threads=1)


def test_a_row_offset_that_needs_64_bits_is_a_fault_in_32(kernels: Library) -> None:
    with pytest.raises(FaultError, match=rf"kernels.cu:{line_of('OVERFLOW')}: multiplication overflows 'int'"):
        launch(kernels, "narrow_", floats(1), 3, 1 << 30, threads=1)


def test_the_process_is_unharmed_after_a_fault(kernels: Library) -> None:
    with pytest.raises(FaultError):
        launch(kernels, "outside_", floats(1), 32, threads=1)
    out = floats(64)
    launch(kernels, "neighbour_", out, threads=64)
    np.testing.assert_array_equal(out, (np.arange(64) + 1) % 64)


def test_rows_may_lie_further_apart_than_memory_is_large(kernels: Library) -> None:
    stride = (1 << 31) + 7
    matrix, out = Matrix(5, 4, np.dtype(np.float32), stride), floats(5)
    matrix.values[:, 0] = np.arange(5)
    launch(kernels, "far_", out, matrix.values, stride, threads=5)
    np.testing.assert_array_equal(out, np.arange(5))
    assert not matrix.strayed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 64}, "compiled for blocks of 32 threads and is launched with 64"),
        ({"threads": 0}, "1 to 1024 threads"),
        ({"blocks": 0}, "at least one block"),
        ({"cluster": 2, "blocks": 2}, "compiled for clusters of 1 blocks and is launched with 2"),
        ({"symbol": "copy_rows_double"}, "no kernel 'copy_rows_double'"),
        ({"arguments": (None,)}, "another number of arguments"),
    ],
)
def test_a_launch_that_the_instance_was_not_compiled_for_is_refused(kernels: Library, changes: dict[str, Any], message: str) -> None:
    x = floats(32)
    good: dict[str, Any] = {"symbol": "copy_rows_float", "arguments": (x, x, 1, 32, 32, 32, None), "blocks": 1, "threads": 32}
    kernels.launch(Launch(**good))
    with pytest.raises(KernelError, match=message):
        kernels.launch(Launch(**(good | changes)))


@pytest.mark.parametrize(("name", "dtype"), [("half", "float16"), ("bfloat", "bfloat16")])
def test_every_16_bit_value_converts_exactly_and_back(kernels: Library, name: str, dtype: str) -> None:
    kind = numpy_dtype(dtype)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    wide = floats(1 << 16)
    launch(kernels, f"from_{name}_", wide, every, 1 << 16, threads=1)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    back = np.zeros(1 << 16, kind)
    launch(kernels, f"to_{name}_", back, wide, 1 << 16, threads=1)
    number = ~np.isnan(wide)
    np.testing.assert_array_equal(back.view(np.uint16)[number], every.view(np.uint16)[number])
    assert np.isnan(back.astype(np.float32)[~number]).all()


@pytest.mark.parametrize(("name", "dtype"), [("half", "float16"), ("bfloat", "bfloat16")])
def test_conversion_rounds_to_nearest_and_ties_to_even(kernels: Library, name: str, dtype: str) -> None:
    kind = numpy_dtype(dtype)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    finite = np.sort(every[np.isfinite(every)])
    middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
    out = np.zeros(len(values), kind)
    launch(kernels, f"to_{name}_", out, values, len(values), threads=1)
    np.testing.assert_array_equal(out.view(np.uint16), values.astype(kind).view(np.uint16))


WORDS = """
#include <math_constants.h>
#include <cuda_fp16.h>
__global__ void words(float* out, float x) {
    assert(x == 0.25f);
    if (x < 0) printf("not here");
    const float value[] = {__sinf(x), __cosf(x), __tanf(x), __powf(x, 3.0f), __exp10f(x), __log10f(x), __saturatef(5 * x), __frsqrt_rn(x),
                           float(__float2int_rn(10 * x)), float(__popcll(~0ull)), __low2float(__float2half2_rn(x)), CUDART_INF_F,
                           float(isnan(CUDART_NAN_F)), float(isinf(x)), float(isfinite(x)), float(signbit(-x)), float(clock64() > 0)};
    for (int i = 0; i < 17; i++) out[i] = value[i];
}
EMULATED_KERNEL(words, words)
"""


def test_what_kernels_call_beside_arithmetic_is_known() -> None:
    out = np.zeros(17, np.float32)
    kernels = Library(build.library(WORDS))
    kernels.launch(Launch("words", (out, np.float32(0.25)), 1, 1))
    of_x = [np.sin(0.25), np.cos(0.25), np.tan(0.25), 0.25**3, 10**0.25, np.log10(0.25), 1, 2, 2, 64, 0.25, np.inf]
    np.testing.assert_allclose(out, [*of_x, 1, 0, 1, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("declared", ["__shared__ float tile[4];", "extern __shared__ float tile[];"])
def test_shared_memory_in_cudas_words_is_told_the_words_of_both(declared: str) -> None:
    with pytest.raises(CompileError, match=r"SHARED_ARRAY\(T, name, count\) or DYNAMIC_SHARED\(T, name\), see common.cuh"):
        build.library(f"__global__ void shared() {{ {declared} }}")


def test_a_compile_error_is_the_compilers_first_line() -> None:
    with pytest.raises(CompileError, match=r"^wrong.cu:3:\d+: error: .*undeclared_name"):
        build.library('#line 2 "wrong.cu"\n\nvoid f() { undeclared_name(); }\nvoid g() { another(); }\n')


def test_a_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    first = build.library("int a;")
    written = first.stat().st_mtime_ns
    assert build.library("int a;") == first
    assert first.stat().st_mtime_ns == written
    assert build.library("int b;") != first
    assert {path.suffix for path in (tmp_path / "emulator").iterdir()} == {".so"}


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"^the cache folder .* cannot be written \(Not a directory\); set AUTOTUNE_CACHE to another$"):
        build.library("int a;")


def test_without_a_compiler_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"^no C\+\+ compiler no-such-compiler was found; .*install g\+\+ or set CXX$"):
            build.library("int a;")
    finally:
        build.compiler.cache_clear()
