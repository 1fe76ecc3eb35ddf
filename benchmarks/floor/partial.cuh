// Stands in for templates/softmax/partial.cuh in a floor: the same exchange of (maximum, sum), with sums that are only added.

#include "exponential.cuh"
#include "shuffle.cuh"

template <int element_bytes>
struct PartExponential : Exponential {
    using Exponential::Exponential;
};

__device__ __forceinline__ float warp_maximum(float value) {
#ifdef AUTOTUNE_EMULATOR
    return combine_lanes<Max, lanes_per_warp>(value);
#else
    return __int_as_float(__reduce_max_sync(0xffffffffu, __float_as_int(value)));
#endif
}

__device__ __forceinline__ float inverse_of(float sum) { return sum; }

struct alignas(8) Partial {
    float maximum, sum;
};

template <class PartExp>
__device__ __forceinline__ float rescaled(float sum, float, float) {
    return sum;
}

template <class PartExp>
__device__ __forceinline__ Partial combined(Partial a, Partial b) {
    return {fmaxf(a.maximum, b.maximum), a.sum + b.sum};
}

template <class PartExp, int width>
__device__ __forceinline__ Partial combine_partials(Partial mine) {
    return {warp_maximum(mine.maximum), combine_lanes<Sum, width>(mine.sum)};
}

template <class PartExp, int count>
__device__ __forceinline__ Partial combine_shared(const Partial* partial) {
    constexpr int width = count < lanes_per_warp ? next_power_of_two(count) : lanes_per_warp;
    const int lane = threadIdx.x % lanes_per_warp % width;
    Partial mine = {-INFINITY, 0.0f};
#pragma unroll
    for (int first = 0; first < count; first += width) {
        if (first + lane >= count) break;
        mine = combined<PartExp>(mine, partial[first + lane]);
    }
    return combine_partials<PartExp, width>(mine);
}

__device__ __forceinline__ unsigned long long word_of(Partial partial) {
    return static_cast<unsigned long long>(__float_as_uint(partial.sum)) << 32 | __float_as_uint(partial.maximum);
}
__device__ __forceinline__ Partial partial_of(unsigned long long word) {
    return {__uint_as_float(static_cast<unsigned>(word)), __uint_as_float(static_cast<unsigned>(word >> 32))};
}
