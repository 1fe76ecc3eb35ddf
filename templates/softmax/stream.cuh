// A row read once by a whole block, whatever its length: the maximum and the sum as they go.

#include "batch.cuh"
#include "partial.cuh"
#include "row.cuh"

// Packs j, j + stride, ... of a row, -inf where there is none. No load waits for another.
template <int count, class Element, int vector, Edges edges>
__device__ __forceinline__ void load_packs(Words<Element, vector>* pack, const Row<Element, vector, edges>& row, int j, int stride) {
    const auto* const source = edges == exact ? computed_here(row.source + j) : row.source + j;
#pragma unroll
    for (int i = 0; i < count; i++) {
        pack[i] = Words<Element, vector>::nothing();
        if (row.whole(j + i * stride)) pack[i] = source[i * stride];
    }
    if constexpr (edges == masked) {
#pragma unroll
        for (int i = 0; i < count; i++)
            if (row.edge(j + i * stride)) row.fill_edge(pack[i], j + i * stride);
    }
}

// The warp's part of `row`, of which this thread takes packs thread, thread + block, ..., `unroll` at a time; in all lanes of the warp.
template <class Element, int vector, Edges edges, int block, int unroll>
__device__ __forceinline__ Partial stream(const Row<Element, vector, edges>& row, int thread) {
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    float maximum = least_maximum;
    PartExp exponential(maximum);
    CompensatedSum sum;  // one thread may add a million terms
#pragma unroll 1
    for (int j = thread; j < row.packs; j += block * unroll) {
        Packed pack[unroll];
        load_packs<unroll>(pack, row, j, block);
        unsigned largest = Packed::Of::minus_infinity;
#pragma unroll
        for (int u = 0; u < unroll; u++) largest = Packed::Of::max(largest, largest_word<Element, Packed::count>(pack[u].word));
        const float larger = fmaxf(maximum, largest_value<Element>(largest));
        if (larger > maximum) {
            const float factor = PartExp::factor(maximum, larger);
            sum.total *= factor;
            sum.excess *= factor;
            maximum = larger;
            exponential = PartExp(maximum);
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential(pack[u].value(e));
            sum.add(fold_values<Sum, vector>(value));
        }
    }
    const Partial mine[1] = {{maximum, sum.total}};
    return combine_partials<PartExp, lanes_per_warp, 0>(mine);
}
