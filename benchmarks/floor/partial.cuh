// Stands in for templates/softmax/partial.cuh in a floor: the same exchange of (maximum, sum), with sums that are only added.

#include "exponential.cuh"
#include "part.cuh"
#include "warp.cuh"

constexpr float least_maximum = -0x1.fffffep127f;

template <int element_bytes>
struct PartExponential : Exponential {
    using Exponential::Exponential;
    static __device__ __forceinline__ float factor(float, float) { return 1.0f; }
};

__device__ __forceinline__ float inverse_of(float sum) { return sum; }

template <class PartExp, int width, int most, int count>
__device__ __forceinline__ Partial combine_partials(const Partial (&part)[count]) {
    float maximum = part[0].maximum, sum = part[0].sum;
#pragma unroll
    for (int i = 1; i < count; i++) {
        maximum = fmaxf(maximum, part[i].maximum);
        sum += part[i].sum;
    }
    return {width > 1 ? warp_maximum(maximum) : maximum, warp_sum<width, most>(sum)};
}

template <class PartExp, int count, int elements>
__device__ __forceinline__ Partial combine_shared(const Partial* partial) {
    constexpr int width = count <= 4 ? 1 : count < lanes_per_warp ? next_power_of_two(count) : lanes_per_warp;
    constexpr int each = (count + width - 1) / width;
    const int lane = threadIdx.x % width;
    Partial part[each];
#pragma unroll
    for (int i = 0; i < each; i++) {
        part[i] = {least_maximum, 0.0f};
        if (i * width + lane < count) part[i] = partial[i * width + lane];
    }
    return combine_partials<PartExp, width, elements * each>(part);
}
