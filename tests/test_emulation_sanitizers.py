"""What ThreadSanitizer and AddressSanitizer find in emulated kernels, whatever the schedule, and that correct ones are silent."""

from typing import Any, Literal

import numpy as np
import pytest

from autotune.backends.emulation.run import Argument, Launch
from autotune.backends.emulation.sanitize import Place, Report, sanitize

KERNELS = """
#line 1 "tests/kernels.cu"
template <bool first, bool last>
__global__ void reduce(float* out, const float* in) {
    SHARED_ARRAY(float, partial, 2);
    for (int round = 0; round < 2; round++) {
        float v = in[threadIdx.x];
        for (int bits = 16; bits > 0; bits /= 2) v += __shfl_xor_sync(0xffffffffu, v, bits);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;  // WRITE
        if (first) __syncthreads();
        out[blockIdx.x * 64 + threadIdx.x] = partial[0] + partial[1];  // READ
        if (last) __syncthreads();
    }
}
// No value is ever wrong here, whatever the schedule: all lanes write what all read.
__global__ void harmless(float* out) {
    SHARED_ARRAY(float, s, 1);
    s[0] = 1.0f;  // SAME
    out[threadIdx.x] = 1.0f;
}
template <bool synchronised>
__global__ void within_warp(float* out) {
    DYNAMIC_SHARED(float, s);
    s[threadIdx.x] = 1.0f;  // LANE
    if (synchronised) __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];  // OTHER LANE
}
__global__ void between_blocks(float* out) {
    if (threadIdx.x == blockIdx.x) out[0] = 1.0f;  // BLOCKS
}
template <bool fenced>
__global__ void handed_over(float* out, float* partial, unsigned* count) {
    if (threadIdx.x) return;
    partial[blockIdx.x] = 1.0f;  // PARTIAL
    if (fenced) __threadfence();
    bool last = atomicAdd(count, 1u) == gridDim.x - 1;
    if (fenced) __threadfence();
    if (last) for (unsigned i = 0; i < gridDim.x; i++) out[i] = partial[i];  // GATHERED
}
template <bool released>
__global__ void cluster(float* out) {
    SHARED_ARRAY(float, got, 1);
    cluster_arrive_relaxed();
    cluster_wait();
    if (threadIdx.x == 0) cluster_store(got, cluster_rank() ^ 1, 1.0f);  // STORE
    if (released) cluster_arrive_release(); else cluster_arrive_relaxed();
    cluster_wait_acquire();
    out[blockIdx.x * blockDim.x + threadIdx.x] = got[0];  // GOT
}
template <bool barrier>
__global__ void copied(uint4* out, const uint4* in) {
    SHARED_ARRAY(uint4, s, 64);
    copy_async_16(&s[threadIdx.x], &in[threadIdx.x]);  // COPY
    copy_async_commit();
    copy_async_wait<0>();  // LANDED
    if (barrier) __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 33];  // COPIED
}
__global__ void beyond(float* out, const float* in, int n) {
    for (int i = threadIdx.x; i < n; i += 32) out[i] = in[i];  // BEYOND
}
__global__ void above_shared(float* out, int n) {
    DYNAMIC_SHARED(float, s);
    s[n] = 1.0f;  // DYNAMIC
    out[0] = s[n];
}
__global__ void above_static(float* out, int n) {
    SHARED_ARRAY(float, s, 4);
    float* p = s;
    p[n] = 1.0f;  // STATIC
    out[0] = p[n];
}

EMULATED_KERNEL(reduce_, reduce<true, true>)
EMULATED_KERNEL(reduce_without_first, reduce<false, true>)
EMULATED_KERNEL(reduce_without_last, reduce<true, false>)
EMULATED_KERNEL(harmless_, harmless)
EMULATED_KERNEL(within_warp_, within_warp<true>)
EMULATED_KERNEL(within_warp_unsynchronised, within_warp<false>)
EMULATED_KERNEL(between_blocks_, between_blocks)
EMULATED_KERNEL(handed_over_, handed_over<true>)
EMULATED_KERNEL(handed_over_unfenced, handed_over<false>)
EMULATED_KERNEL(cluster_, cluster<true>)
EMULATED_KERNEL(cluster_unreleased, cluster<false>)
EMULATED_KERNEL(copied_, copied<true>)
EMULATED_KERNEL(copied_without_barrier, copied<false>)
EMULATED_KERNEL(beyond_, beyond)
EMULATED_KERNEL(above_shared_, above_shared)
EMULATED_KERNEL(above_static_, above_static)
"""


def place(marker: str) -> Place:
    return Place("tests/kernels.cu", next(i for i, line in enumerate(KERNELS.splitlines()) if f"// {marker}" in line) - 1)


def launch(symbol: str, *arguments: Argument, blocks: int = 1, threads: int = 64, **rest: Any) -> Launch:
    return Launch(symbol, arguments, blocks, threads, **rest)


def found(sanitizer: Literal["thread", "address"], *launches: Launch) -> list[Report]:
    return sanitize(sanitizer, KERNELS, launches)


def words(n: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.zeros(n, np.uint32)


def test_correct_kernels_are_silent_under_thread_sanitizer() -> None:
    out = np.zeros(512, np.float32)
    launches = [
        launch(symbol, *arguments, seed=seed, **rest)
        for seed in (0, 1)
        for symbol, arguments, rest in (
            ("reduce_", (out, np.ones(64, np.float32)), {"blocks": 3}),
            ("within_warp_", (out,), {"shared_bytes": 256}),
            ("handed_over_", (out, np.zeros(5, np.float32), words(1)), {"blocks": 5}),
            ("cluster_", (out,), {"blocks": 4, "cluster": 2}),
            ("copied_", (words(256), words(256)), {}),
        )
    ]
    assert found("thread", *launches) == []


RACES = {
    "reduce<false, true>": (launch("reduce_without_first", np.zeros(64, np.float32), np.ones(64, np.float32)), {"WRITE", "READ"}),
    "reduce<true, false>": (launch("reduce_without_last", np.zeros(64, np.float32), np.ones(64, np.float32)), {"WRITE", "READ"}),
    "harmless": (launch("harmless_", np.zeros(64, np.float32)), {"SAME"}),
    "within_warp<false>": (launch("within_warp_unsynchronised", np.zeros(64, np.float32), shared_bytes=256), {"LANE", "OTHER LANE"}),
    "between_blocks": (launch("between_blocks_", np.zeros(64, np.float32), blocks=2), {"BLOCKS"}),
    "handed_over<false>": (
        launch("handed_over_unfenced", np.zeros(5, np.float32), np.zeros(5, np.float32), words(1), blocks=5),
        {"PARTIAL", "GATHERED"},
    ),
    "cluster<false>": (launch("cluster_unreleased", np.zeros(128, np.float32), blocks=2, cluster=2), {"STORE", "GOT"}),
    "copied<false>": (launch("copied_without_barrier", words(256), words(256)), {"COPY", "LANDED", "COPIED"}),
}


@pytest.fixture(scope="module")
def races() -> list[Report]:
    return found("thread", *(race for race, _ in RACES.values()))


@pytest.mark.parametrize("kernel", RACES)
def test_a_race_is_reported_with_both_lines(races: list[Report], kernel: str) -> None:
    reports = [report for report in races if f" {kernel}(" in report.text]
    assert {report.kind for report in reports} == {"data race"}
    assert {p for report in reports for p in report.places} == {place(marker) for marker in RACES[kernel][1]}


@pytest.mark.parametrize(
    ("wrong", "marker"),
    [
        (launch("beyond_", np.zeros(65, np.float32), np.zeros(64, np.float32), 65, threads=32), "BEYOND"),
        (launch("beyond_", np.zeros(64, np.float32), np.zeros(65, np.float32), 65, threads=32), "BEYOND"),
        (launch("above_shared_", np.zeros(1, np.float32), 8, threads=1, shared_bytes=32), "DYNAMIC"),
        (launch("above_static_", np.zeros(1, np.float32), 4, threads=1), "STATIC"),
        (launch("above_static_", np.zeros(1, np.float32), -1, threads=1), "STATIC"),
    ],
    ids=["reads past the input", "writes past the output", "dynamic shared memory", "shared array, above", "shared array, below"],
)
def test_an_access_out_of_bounds_is_reported_with_its_line(wrong: Launch, marker: str) -> None:
    (report,) = found("address", wrong)
    assert report.kind == "heap-buffer-overflow"
    assert report.places[0] == place(marker)


def test_correct_kernels_are_silent_under_address_sanitizer() -> None:
    x = np.zeros(128, np.float32)
    assert (
        found(
            "address",
            launch("beyond_", x, np.ones(128, np.float32), 128, threads=32),
            launch("above_shared_", x, 7, threads=1, shared_bytes=32),
            launch("above_static_", x, 3, threads=1),
            launch("cluster_", np.zeros(256, np.float32), blocks=4, cluster=2, seed=1),
        )
        == []
    )


def test_what_the_emulator_itself_finds_is_reported_too() -> None:
    unaligned = np.zeros(257 * 4 + 4, np.uint8)[4:].view(np.uint32)
    (report,) = found("address", launch("copied_", unaligned, words(256)))
    assert report.kind == "fault"
    assert "misaligned access" in report.text


def test_arrays_of_the_caller_stay_as_they_are() -> None:
    out = np.zeros(64, np.float32)
    assert found("address", launch("harmless_", out)) == []
    assert not out.any()
