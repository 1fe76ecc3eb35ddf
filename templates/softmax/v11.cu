// v11: one block, or a cluster of them, computes a row that it holds in shared memory, where it is copied past the registers.
//
// More bytes are on their way than registers could take, and a part of the row is summed while the rest of it is still coming.
// One read; the exponentials are computed twice. Each pack is copied and used by one thread, so that only sums need a barrier.

#include "common.cuh"
#include "batch.cuh"
#include "cluster.cuh"
#include "copy_async.cuh"
#include "partial.cuh"
#include "row.cuh"

template <class Element, int cluster, int block, Edges edges>
__device__ __forceinline__ void softmax_v11(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void*) {
    // Parameters
    constexpr int vector = 16 / sizeof(Element), warps = block / lanes_per_warp, stride = cluster * block, quarters = 4;
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    const int rank = cluster > 1 ? cluster_rank() : 0;
    const int warp = threadIdx.x / lanes_per_warp, lane = threadIdx.x % lanes_per_warp, first = rank * block + threadIdx.x;
    const Row<Element, vector, edges> row(output, input, blockIdx.x / cluster, rows, cols, output_stride, input_stride);
    const int items = (row.packs + stride - 1) / stride;
    DYNAMIC_SHARED(Packed, shared);
    Packed* const mine = shared + threadIdx.x;  // item i of this thread is mine[i * block]
    SHARED_ARRAY(Partial, partial, cluster * warps);
    SHARED_ARRAY(Inbox, inbox, 1);
    if constexpr (cluster > 1) {
        if (threadIdx.x == 0) inbox_open(inbox, sizeof(partial));
        cluster_arrive_relaxed();
    }

    // Load
#pragma unroll
    for (int q = 0; q < quarters; q++) {
#pragma unroll 4
        for (int i = items * q / quarters; i < items * (q + 1) / quarters; i++) {
            const int j = first + i * stride;
            if (row.whole(j))
                copy_async_16(mine + i * block, row.source + j);
            else
                mine[i * block] = Packed::nothing();
        }
        copy_async_commit();
    }

    // Reduce: each warp its part of a quarter of the row, against the largest element so far, as soon as it is there; then all parts
    float maximum = -INFINITY, sum = 0.0f;
    auto add_quarter = [&](int q) {
        const int begin = items * q / quarters, end = items * (q + 1) / quarters;
        if constexpr (edges == masked) {
#pragma unroll 1
            for (int i = begin; i < end; i++)
                if (row.edge(first + i * stride)) row.fill_edge(mine[i * block], first + i * stride);
        }
        unsigned largest = Packed::Of::minus_infinity;
#pragma unroll 4
        for (int i = begin; i < end; i++) largest = Packed::Of::max(largest, largest_word<Element, Packed::count>(mine[i * block].word));
        const float larger = warp_maximum(fmaxf(maximum, largest_value<Element>(largest)));
        sum = rescaled<PartExp>(sum, maximum, larger);
        maximum = larger;
        const PartExp exponential(maximum);
#pragma unroll 4
        for (int i = begin; i < end; i++) {
            const Packed pack = mine[i * block];
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential(pack.value(e));
            sum += fold_values<Sum, vector>(value);
        }
    };
    copy_async_wait<3>();
    add_quarter(0);
    copy_async_wait<2>();
    add_quarter(1);
    copy_async_wait<1>();
    add_quarter(2);
    copy_async_wait<0>();
    add_quarter(3);
    const Partial part = {maximum, combine_lanes<Sum, lanes_per_warp>(sum)};
    if constexpr (cluster > 1) {
        cluster_wait_acquire();  // every block has started and opened its inbox; by now this waits for nobody
        if (lane < cluster) inbox_send(inbox, &partial[rank * warps + warp], lane, part);
        inbox_wait(inbox);  // every part is written before any warp reads them all, and before a block that is written to ends
    } else {
        if (lane == 0) partial[warp] = part;
        __syncthreads();  // every part is written before any warp reads them all
    }
    const Partial all = combine_shared<PartExp, cluster * warps>(partial);

    // Write
    const PartExp exponential(all.maximum);
    const float scale = inverse_of(all.sum);
    auto result = [&](int i) {
        const Packed pack = mine[i * block];
        float value[vector];
#pragma unroll
        for (int e = 0; e < vector; e++) value[e] = exponential(pack.value(e)) * scale;
        return words_of<Element, vector>(value);
    };
#pragma unroll 4
    for (int i = 0; i < items; i++) row.store_whole(first + i * stride, result(i));
    if constexpr (edges == masked) {
#pragma unroll 1
        for (int i = 0; i < items; i++)
            if (row.edge(first + i * stride)) row.store_edge(first + i * stride, result(i));
    }
}
