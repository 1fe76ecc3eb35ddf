// v2: one block computes one row. As v1, with maximum and sum combined by warp shuffles: one barrier each.

#include "common.cuh"
#include "batch.cuh"
#include "exponential.cuh"
#include "shuffle.cuh"

template <class Element, int block, int unroll>
__device__ __forceinline__ void softmax_v2(Element* output, const Element* input, long long, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Packed = Pack<Element, 1>;
    const long long row = blockIdx.x;
    const auto* x = reinterpret_cast<const Packed*>(input + row * input_stride);
    auto* y = reinterpret_cast<Packed*>(output + row * output_stride);

    // Load and reduce: the maximum, then the sum
    float maximum = Max::identity;
    for_each_batch<block, unroll>(threadIdx.x, cols, [&](long long first, auto inside) {
        maximum = fmaxf(maximum, fold<Max>(load_batch<block, unroll>(x + first, inside)));
    });
    const Exponential exponential(combine_shuffle<Max, block>(maximum));
    CompensatedSum sum;
    for_each_batch<block, unroll>(threadIdx.x, cols, [&](long long first, auto inside) {
        sum.add(fold<Sum>(map(load_batch<block, unroll>(x + first, inside), exponential)));
    });
    const float scale = 1.0f / combine_shuffle<Sum, block>(sum.total);

    // Write
    for_each_batch<block, unroll>(threadIdx.x, cols, [&](long long first, auto inside) {
        const auto batch = load_batch<block, unroll>(x + first, inside);
        store_batch<block>(y + first, map(batch, [&](float value) { return exponential(value) * scale; }), inside);
    });
}
