// Rows whose parts are summed apart, each against its own maximum, and put together once: one exchange where two reductions need two.
//
// A part that is empty, or nothing but -inf, has maximum -inf and sum 0 and must change nothing: 2^(-inf - -inf) would make its row NaN.

#include "exponential.cuh"
#include "shuffle.cuh"

// exp(x - maximum) where `maximum` is that of a part: 0 stands for one of -inf, against which no finite number can be held.
template <int element_bytes>
struct PartExponential : Exponential {
    __device__ __forceinline__ explicit PartExponential(float maximum) : Exponential(maximum == -INFINITY ? 0.0f : maximum) {}

    // What a sum against the maximum `from` must be multiplied with to be one against `to`: the roundings of both offsets cancel.
    static __device__ __forceinline__ float factor(float from, float to) {
        const Exponential a(from), b(to);
        return exp2_fast(fmaf(a.shift - b.shift, log2_e, __fsub_rn(a.offset, b.offset)));
    }
};

// Of 16 bits, elements of 2^24 and more are 2^16 and more apart, so only those that equal the maximum count. A product with 2^-8 is
// exact and tells them apart; that with log2(e) rounds by up to half an ulp, which must stay small beside 1, or overflows.
// So nothing needs to be subtracted first, which is one instruction in thirteen.
template <>
struct PartExponential<2> {
    float scale, offset;

    __device__ __forceinline__ explicit PartExponential(float maximum) {
        if (maximum == -INFINITY) maximum = 0.0f;
        scale = small(maximum) ? Exponential::log2_e : 0x1p-8f;
        offset = __fmul_rn(maximum, scale);
    }
    __device__ __forceinline__ float operator()(float x) const { return exp2_fast(fmaf(x, scale, -offset)); }

    // The products are rounded one by one, as the offsets were: fused into the difference, one would not be, and nothing would cancel.
    static __device__ __forceinline__ float factor(float from, float to) {
        if (!small(from) || !small(to)) return from == to ? 1.0f : 0.0f;
        return exp2_fast(__fsub_rn(__fmul_rn(from, Exponential::log2_e), __fmul_rn(to, Exponential::log2_e)));
    }
    static __device__ __forceinline__ bool small(float maximum) { return fabsf(maximum) < 0x1p24f; }
};

// The largest of the values of all lanes of a warp, in all of them, by one instruction (PTX ISA, redux.sync) instead of five shuffles
// that wait for one another. As integers floats keep their order once the lower bits of negative ones are flipped; a NaN may win, and then
// its row is NaN, as it must be.
__device__ __forceinline__ float warp_maximum(float value) {
#ifdef AUTOTUNE_EMULATOR
    return combine_lanes<Max, lanes_per_warp>(value);
#else
    const int bits = __float_as_int(value);
    const int most = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
#endif
}

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

// The maximum of a part of a row, and the sum of exp(x - maximum) over it.
struct alignas(8) Partial {
    float maximum, sum;
};

// A sum, or the inverse of one, against the maximum `from` as one against `to`.
template <class PartExp>
__device__ __forceinline__ float rescaled(float sum, float from, float to) {
    return from == -INFINITY ? sum : sum * PartExp::factor(from, to);
}

// Two parts put together.
template <class PartExp>
__device__ __forceinline__ Partial combined(Partial a, Partial b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum, rescaled<PartExp>(a.sum, a.maximum, maximum) + rescaled<PartExp>(b.sum, b.maximum, maximum)};
}

// The parts that `width` neighbouring lanes have, each group of them the same ones, put together in all lanes of the warp.
template <class PartExp, int width>
__device__ __forceinline__ Partial combine_partials(Partial mine) {
    const float maximum = warp_maximum(mine.maximum);
    return {maximum, combine_lanes<Sum, width>(rescaled<PartExp>(mine.sum, mine.maximum, maximum))};
}

// `count` parts in shared memory put together, in all lanes of every warp that calls this.
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

// A part as the 64 bits that are exchanged, and back.
__device__ __forceinline__ unsigned long long word_of(Partial partial) {
    return static_cast<unsigned long long>(__float_as_uint(partial.sum)) << 32 | __float_as_uint(partial.maximum);
}
__device__ __forceinline__ Partial partial_of(unsigned long long word) {
    return {__uint_as_float(static_cast<unsigned>(word)), __uint_as_float(static_cast<unsigned>(word >> 32))};
}
