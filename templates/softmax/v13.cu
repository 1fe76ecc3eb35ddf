// v13: one thread computes all rows of its packs, each of which holds several rows. One read, nothing is exchanged.

#include "common.cuh"
#include "partial.cuh"
#include "words.cuh"

template <class Element, int width, int block, int items>
__device__ __forceinline__ void softmax_v13(Element* output, const Element* input, long long rows, long long, long long, long long, void*) {
    // Parameters
    constexpr int vector = 16 / sizeof(Element);
    static_assert(vector % width == 0, "packs hold whole rows");
    using Packed = Words<Element, vector>;
    using Bits = typename Packed::Bits;
    using PartExp = PartExponential<sizeof(Element)>;
    const long long packs = rows * width / vector, first = static_cast<long long>(blockIdx.x) * block * items + threadIdx.x;
    const int left = static_cast<int>(rows * width - packs * vector);  // elements at the end that fill no pack
    const auto* source = reinterpret_cast<const Packed*>(input);
    auto* target = reinterpret_cast<Packed*>(output);

    // Load
    Packed pack[items];
#pragma unroll
    for (int i = 0; i < items; i++) {
        const long long j = first + i * block;
        pack[i] = Packed::nothing();
        if (j < packs)
            pack[i] = source[j];
        else if (j == packs)
            for (int e = 0; e < vector; e++)
                if (e < left) pack[i].set_bits(e, reinterpret_cast<const Bits*>(source + j)[e]);
    }

    // Reduce and write
#pragma unroll
    for (int i = 0; i < items; i++) {
        const long long j = first + i * block;
        float value[vector];
#pragma unroll
        for (int e = 0; e < vector; e++) value[e] = pack[i].value(e);
#pragma unroll
        for (int r = 0; r < vector; r += width) {
            const PartExp exponential_of(fmaxf(least_maximum, fold_values<Max, width>(value + r)));
#pragma unroll
            for (int e = r; e < r + width; e++) value[e] = exponential_of(value[e]);
            const float scale = inverse_of(fold_values<Sum, width>(value + r));
#pragma unroll
            for (int e = r; e < r + width; e++) value[e] *= scale;
        }
        const Packed made = words_of<Element, vector>(value);
        if (j < packs)
            target[j] = made;
        else if (j == packs)
            for (int e = 0; e < vector; e++)
                if (e < left) reinterpret_cast<Bits*>(target + j)[e] = made.bits(e);
    }
}
