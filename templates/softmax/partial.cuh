// Rows whose parts are summed apart, each against its own maximum, and put together once: one exchange where two reductions need two.
//
// A part that is empty, or nothing but -inf, has the least finite maximum and sum 0: exp(-inf - least) is 0, and so is what it changes.
// Were its maximum -inf, exp(-inf - -inf) would make its row NaN. A row of nothing else has sum 0 and is NaN by 0 / 0.

#include "batch.cuh"
#include "exponential.cuh"
#include "part.cuh"
#include "warp.cuh"

constexpr float least_maximum = -0x1.fffffep127f;

// exp(x - maximum) where `maximum` is that of a part, and not -inf. The difference comes first: nothing overflows, however large they are,
// and between the maximum and what needs it there is nothing to do, which counts where a warp has little to load.
template <int element_bytes>
struct PartExponential {
    float maximum;

    __device__ __forceinline__ explicit PartExponential(float maximum) : maximum(maximum) {}
    __device__ __forceinline__ float operator()(float x) const { return exp2_fast((x - maximum) * Exponential::log2_e); }

    // What a sum against the maximum `from` must be multiplied with to be one against `to`.
    static __device__ __forceinline__ float factor(float from, float to) { return PartExponential(to)(from); }
};

// Of 16 bits, elements of 2^24 and more are 2^16 and more apart, so only those that equal the maximum count. A product with 2^-8 is
// exact and tells them apart; that with log2(e) rounds by up to half an ulp, which must stay small beside 1, or overflows.
// So nothing needs to be subtracted first, which is one instruction in thirteen.
template <>
struct PartExponential<2> {
    float scale, offset;

    __device__ __forceinline__ explicit PartExponential(float maximum) {
        scale = small(maximum) ? Exponential::log2_e : 0x1p-8f;
        offset = __fmul_rn(maximum, scale);
    }
    __device__ __forceinline__ float operator()(float x) const { return exp2_fast(fmaf(x, scale, -offset)); }

    // The products are rounded one by one, as the offsets were: fused into the difference, one would not be, and nothing would cancel.
    static __device__ __forceinline__ float factor(float from, float to) {
        const float power = exp2_fast(__fsub_rn(__fmul_rn(from, Exponential::log2_e), __fmul_rn(to, Exponential::log2_e)));
        const float equal = from == to ? 1.0f : 0.0f;
        return small(from) && small(to) ? power : equal;
    }
    static __device__ __forceinline__ bool small(float maximum) { return fabsf(maximum) < 0x1p24f; }
};

// 1 / sum to one unit in the last place (PTX ISA, rcp.approx); no sum of a row is denormal.
__device__ __forceinline__ float inverse_of(float sum) {
#ifdef AUTOTUNE_EMULATOR
    return 1.0f / sum;
#else
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));
    return inverse;
#endif
}

// `count` parts that each lane has, of which each group of `width` neighbouring lanes of a warp has the same ones, put together in all
// lanes. The maximum comes first, so that all are brought to it at the same time. No lane's sum is more than `most`.
template <class PartExp, int width, int most, int count>
__device__ __forceinline__ Partial combine_partials(const Partial (&part)[count]) {
    float largest[count], sum[count];
#pragma unroll
    for (int i = 0; i < count; i++) largest[i] = part[i].maximum;
    float maximum = fold_values<Max, count>(largest);
    if constexpr (width > 1) maximum = warp_maximum(maximum);
#pragma unroll
    for (int i = 0; i < count; i++) sum[i] = part[i].sum * PartExp::factor(part[i].maximum, maximum);
    return {maximum, warp_sum<width, most>(fold_values<Sum, count>(sum))};
}

// `count` parts of up to `elements` in shared memory put together, in all lanes of every warp that calls this. Four are read by every
// lane, which takes less time than shuffles do; of more, the warps of a block would wait for one another's exponentials.
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
