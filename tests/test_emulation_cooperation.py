"""Blocks that wait for one another: clusters, cooperative grids, spin waits; and asynchronous copies."""

import re
from typing import Any

import numpy as np
import pytest

from autotune.backends.emulation import build
from autotune.backends.emulation.run import Argument, FaultError, HangError, Launch, Library

KERNELS = """
#line 1 "kernels.cu"
// Every block sends its rank to every other and sums what came.
template <bool wait>
__global__ void exchange(float* out) {
    SHARED_ARRAY(float, from, 8);
    cluster_arrive_relaxed();  // every block of the cluster has started
    cluster_wait();
    if (threadIdx.x < cluster_size()) cluster_store(&from[cluster_rank()], threadIdx.x, float(blockIdx.x));
    cluster_arrive_release();
    if (wait) cluster_wait_acquire();
    float sum = 0;
    for (unsigned i = 0; i < cluster_size(); i++) sum += from[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (!wait) cluster_wait_acquire();
}
__global__ void leaves_early(float* out) {
    DYNAMIC_SHARED(float, mine);
    if (cluster_rank() == 0) return;
    for (int i = 0; i < 40; i++) __syncwarp();
    out[0] = cluster_load(mine, 0);
}
__global__ void not_shared(float* out) { cluster_store(out, 0, 1.0f); }
__global__ void forgets_to_arrive() { if (threadIdx.x) cluster_arrive_release(); cluster_wait(); }
__global__ void returns_before_the_barrier(float* out) {
    if (cluster_rank() == 1) return;
    cluster_arrive_release();
    cluster_wait_acquire();
    out[blockIdx.x] = 1;
}

// All blocks add up; each waits for the total.
__global__ void total(float* out, unsigned* arrived, unsigned* sum, unsigned expected) {
    if (threadIdx.x == 0) {
        atomicAdd(sum, blockIdx.x);
        __threadfence();
        atomicAdd(arrived, 1u);
        spin_until([&] { return load_acquire(arrived) == expected; });
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = load_acquire(sum);
}

template <int in_flight>
__global__ void pipeline(float4* out, const float4* in, int tiles) {
    DYNAMIC_SHARED(float4, ring);  // two slots of one element per thread
    int t = threadIdx.x, n = blockDim.x;
    copy_async_16(&ring[t], &in[t]);
    copy_async_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) copy_async_16(&ring[(i + 1) % 2 * n + t], &in[(i + 1) * n + t]);
        copy_async_commit();
        copy_async_wait<in_flight>();
        __syncthreads();
        out[i * n + t] = ring[i % 2 * n + (t + 1) % n];
        __syncthreads();
    }
}
__global__ void small_copies(unsigned* out, const unsigned* in) {
    SHARED_ARRAY(uint2, pairs, 1);
    SHARED_ARRAY(unsigned, single, 1);
    copy_async_8(pairs, in);
    copy_async_4(single, in + 2);
    out[0] = pairs[0].x;
    copy_async_wait<0>();  // waits for no group that was committed
    out[1] = pairs[0].x;
    copy_async_commit();
    copy_async_wait<0>();
    out[2] = pairs[0].x;
    out[3] = pairs[0].y;
    out[4] = single[0];
}

EMULATED_KERNEL(exchange_, exchange<true>)
EMULATED_KERNEL(exchange_without_wait, exchange<false>)
EMULATED_KERNEL(leaves_early_, leaves_early)
EMULATED_KERNEL(not_shared_, not_shared)
EMULATED_KERNEL(forgets_to_arrive_, forgets_to_arrive)
EMULATED_KERNEL(returns_before_the_barrier_, returns_before_the_barrier)
EMULATED_KERNEL(total_, total)
EMULATED_KERNEL(pipeline_, pipeline<1>)
EMULATED_KERNEL(pipeline_without_wait, pipeline<2>)
EMULATED_KERNEL(small_copies_, small_copies)
"""
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


@pytest.fixture(scope="module")
def kernels() -> Library:
    return Library(build.library(KERNELS))


def launch(library: Library, symbol: str, *arguments: Argument, blocks: int, threads: int = 48, **rest: Any) -> None:
    library.launch(Launch(symbol, arguments, blocks, threads, **rest))


@SEEDS
@pytest.mark.parametrize("cluster", [1, 2, 8])
def test_blocks_of_a_cluster_exchange_shared_memory(kernels: Library, cluster: int, seed: int) -> None:
    out = np.zeros((16, 48), np.float32)
    launch(kernels, "exchange_", out, blocks=16, cluster=cluster, seed=seed)
    sums = np.arange(16).reshape(-1, cluster).sum(axis=1).repeat(cluster)
    np.testing.assert_array_equal(out, np.broadcast_to(sums[:, None], out.shape))


@SEEDS
def test_a_missing_cluster_barrier_shows_in_every_schedule(kernels: Library, seed: int) -> None:
    out = np.zeros((16, 48), np.float32)
    launch(kernels, "exchange_without_wait", out, blocks=16, cluster=4, seed=seed)
    assert np.isnan(out).any()


def test_reaching_into_a_block_that_has_returned_is_a_fault(kernels: Library) -> None:
    with pytest.raises(FaultError, match="shared memory of a block that has already returned"):
        launch(kernels, "leaves_early_", np.zeros(1, np.float32), blocks=2, cluster=2, shared_bytes=64)


def test_a_cluster_store_to_memory_that_is_not_shared_is_a_fault(kernels: Library) -> None:
    with pytest.raises(FaultError, match="not in this block's shared memory"):
        launch(kernels, "not_shared_", np.zeros(1, np.float32), blocks=2, cluster=2)


def test_waiting_at_the_cluster_barrier_without_arriving_is_a_fault(kernels: Library) -> None:
    with pytest.raises(FaultError, match="without having arrived"):
        launch(kernels, "forgets_to_arrive_", blocks=2, cluster=2)


@SEEDS
def test_a_block_that_returned_counts_as_arrived_at_the_cluster_barrier(kernels: Library, seed: int) -> None:
    out = np.zeros(2, np.float32)
    launch(kernels, "returns_before_the_barrier_", out, blocks=2, cluster=2, seed=seed)
    np.testing.assert_array_equal(out, [1, 0])


@SEEDS
def test_blocks_of_a_cooperative_launch_may_wait_for_one_another(kernels: Library, seed: int) -> None:
    out, counters = np.zeros((9, 48), np.float32), np.zeros(2, np.uint32)
    launch(kernels, "total_", out, counters, counters[1:], np.uint32(9), blocks=9, cooperative=True, seed=seed)
    assert (out == sum(range(9))).all()


@pytest.mark.parametrize(("cooperative", "expected", "waiting"), [(False, 9, 47), (True, 10, 47)])
def test_waiting_for_a_block_that_never_comes_is_a_hang(kernels: Library, cooperative: bool, expected: int, waiting: int) -> None:
    out, counters = np.zeros((9, 48), np.float32), np.zeros(2, np.uint32)
    message = f"block 0 hangs: of its 48 running threads {waiting} wait at __syncthreads(), 1 wait at a condition"
    with pytest.raises(HangError, match=re.escape(message)):
        launch(kernels, "total_", out, counters, counters[1:], np.uint32(expected), blocks=9, cooperative=cooperative)


@SEEDS
def test_an_asynchronous_copy_lands_when_it_is_waited_for_and_not_before(kernels: Library, seed: int) -> None:
    x = np.arange(5 * 48 * 4, dtype=np.float32).reshape(5, 48, 4)
    out = np.zeros_like(x)
    launch(kernels, "pipeline_", out, x, 5, blocks=1, shared_bytes=2 * 48 * 16, seed=seed)
    np.testing.assert_array_equal(out, np.roll(x, -1, axis=1))
    launch(kernels, "pipeline_without_wait", out, x, 5, blocks=1, shared_bytes=2 * 48 * 16, seed=seed)
    assert np.isnan(out).any()


def test_copies_of_8_and_4_bytes_wait_for_their_own_group(kernels: Library) -> None:
    out = np.zeros(5, np.uint32)
    launch(kernels, "small_copies_", out, np.array([1, 2, 3], np.uint32), blocks=1, threads=1)
    np.testing.assert_array_equal(out, [0x7FFB7FFB, 0x7FFB7FFB, 1, 2, 3])
