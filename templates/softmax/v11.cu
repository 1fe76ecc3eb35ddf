// v11: blocks, or clusters of them, that stay on their SM and compute row after row from shared memory while the next rows are copied.
//
// One read; the exponentials are computed twice. What a row waits for at its barrier is hidden by the copies of the rows after it.

#include "common.cuh"
#include "batch.cuh"
#include "cluster.cuh"
#include "partial.cuh"
#include "ring.cuh"

// `kilobytes` is the shared memory of a block, `idle` how many SMs the launch leaves alone.
template <class Element, int cluster, int block, int kilobytes, int idle, Edges edges>
__device__ __forceinline__ void softmax_v11(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void*) {
    // Parameters
    constexpr int warps = block / lanes_per_warp, stride = cluster * block, unroll = edges == masked ? 2 : 4;
    using Slots = Ring<Element, block, kilobytes * 1024 / (block * 16), stride, edges>;
    using Packed = typename Slots::Packed;
    using PartExp = PartExponential<sizeof(Element)>;
    constexpr int vector = Slots::vector;
    const int rank = cluster > 1 ? cluster_rank() : 0;
    const int warp = threadIdx.x / lanes_per_warp, lane = threadIdx.x % lanes_per_warp;
    const long long step = gridDim.x / cluster;
    long long index = blockIdx.x / cluster;
    auto row_at = [&](long long index) { return Row<Element, vector, edges>(output, input, index, rows, cols, output_stride, input_stride); };
    DYNAMIC_SHARED(Packed, shared);
    SHARED_ARRAY(Partial, exchanged, 2 * cluster * warps);  // for even and for odd rows, so that one barrier a row is enough
    if constexpr (cluster > 1) cluster_arrive_relaxed();

    // Load
    Slots ring(shared, rank * block + threadIdx.x, cols);
    ring.start([&](int k) { return row_at(index + k * step); });
    if constexpr (cluster > 1) cluster_wait_acquire();  // every block has started, so its shared memory is there

    for (int parity = 0; index < rows; index += step, parity ^= 1) {
        const auto row = row_at(index);
        ring.wait(row);

        // Reduce: each warp its part of the row against its own maximum, then all parts
        unsigned largest = Packed::Of::minus_infinity;
#pragma unroll 4
        for (int i = 0; i < ring.items; i++) largest = Packed::Of::max(largest, largest_word<Element, Packed::count>(ring[i].word));
        const float maximum = warp_maximum(largest_value<Element>(largest));
        const PartExp exponential(maximum);
        float sum = 0.0f;
#pragma unroll 4
        for (int i = 0; i < ring.items; i++) {
            const Packed pack = ring[i];
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential(pack.value(e));
            sum += fold_values<Sum, vector>(value);
        }
        const Partial mine = {maximum, combine_lanes<Sum, lanes_per_warp>(sum)};
        Partial* const partial = exchanged + parity * cluster * warps;
        if constexpr (cluster > 1) {
            if (lane < cluster) cluster_store(&partial[rank * warps + warp], lane, mine);
            cluster_arrive_release();
            cluster_wait_acquire();  // every part is written before any warp reads them all, and before a block that is written to ends
        } else {
            if (lane == 0) partial[warp] = mine;
            __syncthreads();  // every part is written before any warp reads them all
        }
        const Partial all = combine_shared<PartExp, cluster * warps>(partial);

        // Write, and load what comes next
        const PartExp against_all(all.maximum);
        const float scale = inverse_of(all.sum);
        auto result = [&](const Packed& pack) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = against_all(pack.value(e)) * scale;
            return words_of<Element, vector>(value);
        };
        ring.for_each_edge(row, [&](int j, const Packed& pack) { row.store_edge(j, result(pack)); });
        const auto after = row_at(index + ring.ahead * step), beyond = row_at(index + (ring.ahead + 1) * step);
        ring.template replace<unroll>(after, beyond, [&](int i, const Packed& pack) { row.store_whole(ring.first + i * stride, result(pack)); });
        ring.advance();
    }
}
