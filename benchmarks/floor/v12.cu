// Stands in for templates/softmax/v12.cu in a floor: elements are stored as they were loaded, after the same exchange.
//
// As in held.cuh, the exchange waits for all loads, by one instruction an element, and its outcome decides whether there are stores.

#include "common.cuh"
#include "partial.cuh"

#include "words.cuh"

template <class Element, int threads, int items>
__device__ __forceinline__ void softmax_v12(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void*) {
    using Bits = typename Format<Element>::Bits;
    using PartExp = PartExponential<sizeof(Element)>;
    constexpr int block = threads < lanes_per_warp ? lanes_per_warp : threads, warps = block / lanes_per_warp;
    constexpr unsigned impossible = 0x7f812345u;
    const int lane = threadIdx.x % threads;
    const long long row = static_cast<long long>(blockIdx.x) * (block / threads) + threadIdx.x / threads;
    const int width = row < rows ? static_cast<int>(cols) : 0;
    const Bits* const x = reinterpret_cast<const Bits*>(input + row * input_stride);
    Bits* const y = reinterpret_cast<Bits*>(output + row * output_stride);

    Bits value[items];
    unsigned any = 0;
#pragma unroll
    for (int i = 0; i < items; i++) {
        value[i] = 0;
        if (lane + i * threads < width) value[i] = x[lane + i * threads];
    }
#pragma unroll
    for (int i = 0; i < items; i++) any |= value[i];

    const float mine = __uint_as_float(any);
    const float maximum = threads < lanes_per_warp ? combine_lanes<Max, threads>(mine) : warp_maximum(mine);
    const float part = (any ^ __float_as_uint(maximum)) == impossible ? 0.0f : 1.0f;
    Partial all = {maximum, threads < lanes_per_warp ? combine_lanes<Sum, threads>(part) : warp_sum<lanes_per_warp, items>(part)};
    if constexpr (warps > 1) {
        SHARED_ARRAY(Partial, partial, warps);
        put_partial(&partial[lane / lanes_per_warp], all, lane % lanes_per_warp == 0);
        __syncthreads();
        all = combine_shared<PartExp, warps, lanes_per_warp * items>(partial);
    }

    if (__float_as_uint(all.sum) == impossible || __float_as_uint(all.maximum) == impossible) return;
#pragma unroll
    for (int i = 0; i < items; i++)
        if (lane + i * threads < width) y[lane + i * threads] = value[i];
}
