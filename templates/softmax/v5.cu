// v5: one block computes one row of any length in two reads, with a running maximum and sum (Milakov and Gimelshein, arXiv 1805.02867).
//
// The second read goes backwards: what was read last is still in a cache.

#include "common.cuh"
#include "batch.cuh"
#include "stream.cuh"

template <class Element, int block, int vector, int unroll, Edges edges>
__device__ __forceinline__ void softmax_v5(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    constexpr int warps = block / lanes_per_warp, step = block * unroll;
    const int thread = threadIdx.x;
    const Row<Element, vector, edges> row(output, input, blockIdx.x, rows, cols, output_stride, input_stride);

    // Load and reduce: each thread its part of the row against the largest element so far, then the warp's parts, then all
    const Partial mine = stream<Element, vector, edges, block, unroll>(row, thread);
    SHARED_ARRAY(Partial, partial, warps);
    put_partial(&partial[thread / lanes_per_warp], mine, thread % lanes_per_warp == 0);
    __syncthreads();  // every warp's part is written before any warp reads them all
    const Partial all = combine_shared<PartExp, warps, 0>(partial);

    // Write
    const float scale = inverse_of(all.sum);
    const PartExp exponential(all.maximum);
#pragma unroll 1
    for (int j = thread + (row.packs - 1) / step * step; j >= 0; j -= step) {
        Packed pack[unroll];
        load_packs<unroll>(pack, row, j, block);
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential(pack[u].value(e)) * scale;
            row.store(j + u * block, words_of<Element, vector>(value));
        }
    }
}
