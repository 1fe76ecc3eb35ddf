// v4: one block computes one row. As v3, with the row stashed in shared memory, so that the input is read twice or once, not three times.

#include "common.cuh"
#include "batch.cuh"
#include "exponential.cuh"
#include "shuffle.cuh"
#include "tail.cuh"

// What is stashed: exponentials (by the second of two reads), or inputs (by the only read; their exponentials are computed twice).
enum Stash { exponentials, inputs };

template <class Element, Stash stash>
struct Stashed {
    using Type = Element;
};
template <class Element>
struct Stashed<Element, exponentials> {
    using Type = float;
};

template <class Element, int block, int vector, int unroll, Stash stash>
__device__ __forceinline__ void softmax_v4(Element* output, const Element* input, long long, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Packed = Pack<Element, vector>;
    using Kept = Pack<typename Stashed<Element, stash>::Type, vector>;
    static_assert(sizeof(Kept) <= 16, "no access is wider than 16 bytes");
    const long long row = blockIdx.x, packs = cols / vector;
    const auto* x = reinterpret_cast<const Packed*>(input + row * input_stride);
    auto* y = reinterpret_cast<Packed*>(output + row * output_stride);
    const Tail<Element, block, vector> tail(input + row * input_stride, cols);
    DYNAMIC_SHARED(Kept, kept);  // a thread reads only what it wrote itself, so no barrier stands between

    // Load and reduce: the maximum, then the sum
    float maximum = tail.value;
    for_each_batch<block, unroll>(threadIdx.x, packs, [&](long long first, auto inside) {
        const auto batch = load_batch<block, unroll>(x + first, inside);
        if constexpr (stash == inputs) store_batch<block>(kept + first, batch, inside);
        maximum = fmaxf(maximum, fold<Max>(batch));
    });
    const Exponential exponential(combine_shuffle<Max, block>(maximum));
    CompensatedSum sum;
    if (tail.inside) sum.add(exponential(tail.value));
    for_each_batch<block, unroll>(threadIdx.x, packs, [&](long long first, auto inside) {
        if constexpr (stash == inputs) {
            sum.add(fold<Sum>(map(load_batch<block, unroll>(kept + first, inside), exponential)));
        } else {
            const auto batch = map(load_batch<block, unroll>(x + first, inside), exponential);
            store_batch<block>(kept + first, batch, inside);
            sum.add(fold<Sum>(batch));
        }
    });
    const float scale = 1.0f / combine_shuffle<Sum, block>(sum.total);

    // Write
    for_each_batch<block, unroll>(threadIdx.x, packs, [&](long long first, auto inside) {
        const auto batch = load_batch<block, unroll>(kept + first, inside);
        const auto result = map(batch, [&](float value) { return (stash == inputs ? exponential(value) : value) * scale; });
        store_batch<block>(y + first, result, inside);
    });
    tail.store(output + row * output_stride, exponential(tail.value) * scale);
}
