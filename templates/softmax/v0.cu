// v0: one thread computes one row. Three passes over the row, each thread on its own.

#include "common.cuh"
#include "batch.cuh"
#include "exponential.cuh"

template <class Element, int block>
__device__ __forceinline__ void softmax_v0(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    constexpr int unroll = 4, vector = 1, stride = 1;
    using Packed = Pack<Element, vector>;
    const long long row = static_cast<long long>(blockIdx.x) * block + threadIdx.x;
    if (row >= rows) return;
    const auto* x = reinterpret_cast<const Packed*>(input + row * input_stride);
    auto* y = reinterpret_cast<Packed*>(output + row * output_stride);

    // Load and reduce: the maximum, then the sum
    float maximum = Max::identity;
    for_each_batch<stride, unroll>(0, cols, [&](long long first, auto inside) {
        maximum = fmaxf(maximum, fold<Max>(load_batch<stride, unroll>(x + first, inside)));
    });
    const Exponential exponential(maximum);
    CompensatedSum sum;
    for_each_batch<stride, unroll>(0, cols, [&](long long first, auto inside) {
        sum.add(fold<Sum>(map(load_batch<stride, unroll>(x + first, inside), exponential)));
    });

    // Write
    const float scale = 1.0f / sum.total;
    for_each_batch<stride, unroll>(0, cols, [&](long long first, auto inside) {
        const auto batch = load_batch<stride, unroll>(x + first, inside);
        store_batch<stride>(y + first, map(batch, [&](float value) { return exponential(value) * scale; }), inside);
    });
}
