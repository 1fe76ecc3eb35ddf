// v12: part of a warp, a warp or a block computes a row that it holds in registers, element by element, so that it matters not where the
// row starts. One read, one barrier at most.

#include "common.cuh"
#include "partial.cuh"

template <class Element, int threads, int items>
__device__ __forceinline__ void softmax_v12(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void*) {
    // Parameters
    using PartExp = PartExponential<sizeof(Element)>;
    constexpr int block = threads < lanes_per_warp ? lanes_per_warp : threads, warps = block / lanes_per_warp;
    const int lane = threadIdx.x % threads;
    const long long row = static_cast<long long>(blockIdx.x) * (block / threads) + threadIdx.x / threads;
    const int width = row < rows ? static_cast<int>(cols) : 0;  // one beyond the last has no elements, but its lanes are needed by the shuffles
    const Element* const x = input + row * input_stride;
    Element* const y = output + row * output_stride;

    // Load
    float value[items];
#pragma unroll
    for (int i = 0; i < items; i++) {
        value[i] = -INFINITY;
        if (lane + i * threads < width) value[i] = static_cast<float>(x[lane + i * threads]);
    }

    // Reduce: each warp, or what a row has of it, against its own maximum, then the warps' parts
    const float mine = fmaxf(least_maximum, fold_values<Max, items>(value));
    const float maximum = threads < lanes_per_warp ? combine_lanes<Max, threads>(mine) : warp_maximum(mine);
    const PartExp exponential_of(maximum);
#pragma unroll
    for (int i = 0; i < items; i++) value[i] = exponential_of(value[i]);
    const float part = fold_values<Sum, items>(value);
    const float sum = threads < lanes_per_warp ? combine_lanes<Sum, threads>(part) : warp_sum<lanes_per_warp, items>(part);
    float scale;
    if constexpr (warps == 1) {
        scale = inverse_of(sum);
    } else {
        SHARED_ARRAY(Partial, partial, warps);
        put_partial(&partial[lane / lanes_per_warp], {maximum, sum}, lane % lanes_per_warp == 0);
        __syncthreads();  // every warp's part is written before any warp reads them all
        const Partial all = combine_shared<PartExp, warps, lanes_per_warp * items>(partial);
        scale = inverse_of(all.sum) * PartExp::factor(maximum, all.maximum);
    }

    // Write
#pragma unroll
    for (int i = 0; i < items; i++)
        if (lane + i * threads < width) y[lane + i * threads] = Element(value[i] * scale);
}
