// Stands in for templates/softmax/v13.cu in a floor: packs are stored as they were loaded, as nothing is exchanged.

#include "common.cuh"

#include "words.cuh"

template <class Element, int width, int block, int items>
__device__ __forceinline__ void softmax_v13(Element* output, const Element* input, long long rows, long long, long long, long long, void*) {
    constexpr int vector = 16 / sizeof(Element);
    using Packed = Words<Element, vector>;
    using Bits = typename Packed::Bits;
    const long long packs = rows * width / vector, first = static_cast<long long>(blockIdx.x) * block * items + threadIdx.x;
    const int left = static_cast<int>(rows * width - packs * vector);
    const auto* source = reinterpret_cast<const Packed*>(input);
    auto* target = reinterpret_cast<Packed*>(output);

    Packed pack[items];
#pragma unroll
    for (int i = 0; i < items; i++) {
        const long long j = first + i * block;
        if (j < packs) pack[i] = source[j];
    }
#pragma unroll
    for (int i = 0; i < items; i++) {
        const long long j = first + i * block;
        if (j < packs)
            target[j] = pack[i];
        else if (j == packs)
            for (int e = 0; e < left; e++) reinterpret_cast<Bits*>(target + j)[e] = reinterpret_cast<const Bits*>(source + j)[e];
    }
}
