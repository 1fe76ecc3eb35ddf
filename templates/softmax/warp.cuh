// What all lanes of a warp have, combined by instructions that add or compare integers (PTX ISA, redux.sync): one of them takes the time of
// a shuffle or two, and shuffles, of which 32 lanes take five, wait for one another.

#include "shuffle.cuh"

// The largest of the values of all lanes, in all of them. As integers floats keep their order once the lower bits of negative ones are
// flipped; a NaN may win, and then its row is NaN, as it must be.
__device__ __forceinline__ float warp_maximum(float value) {
#ifdef AUTOTUNE_EMULATOR
    return combine_lanes<Max, lanes_per_warp>(value);
#else
    const int bits = __float_as_int(value);
    const int most = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
#endif
}

__host__ __device__ constexpr int bits_of(int value) {
    int bits = 0;
    while (1 << bits < value) bits++;
    return bits;
}
__host__ __device__ constexpr float power_of_two(int exponent) {
    float power = 1;
    for (; exponent > 0; exponent--) power *= 2;
    for (; exponent < 0; exponent++) power /= 2;
    return power;
}

__device__ __forceinline__ unsigned warp_sum_of_integers(unsigned value) {
#ifdef AUTOTUNE_EMULATOR
    for (int distance = lanes_per_warp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
#else
    return __reduce_add_sync(0xffffffffu, value);
#endif
}

// The sum of the values, from 0 to twice `most`, of `width` neighbouring lanes, each group of them the same ones; in all lanes of the warp.
//
// Each value becomes two integers: so many times 2^-coarse, and what is left as so many times 2^-fine, 44 bits in all. Added to 1.5 * 2^23
// of its units, a float has that integer in its lower bits. No order of the lanes changes the sum. With `most` 0 nothing is known of them.
//
// Of exponentials `most` is their number: none is more than 2. The product of a maximum with log2(e) is rounded, by half an ulp at most, which
// is 1 where a maximum of 16 bits is largest and is still multiplied (`PartExponential`), and exp(maximum - maximum) is 2 to that power.
template <int width, int most>
__device__ __forceinline__ float warp_sum(float value) {
    if constexpr (width < 16 || most == 0) {
        return combine_lanes<Sum, width>(value);
    } else {
        constexpr int coarse = 21 - bits_of(most), fine = coarse + 23;
        constexpr float to_coarse = 1.5f * power_of_two(23 - coarse), to_fine = 1.5f * power_of_two(23 - fine);
        constexpr float share = float(width) / lanes_per_warp;
        auto sum_of = [](float moved, float by) {
            return static_cast<int>(warp_sum_of_integers(__float_as_uint(moved)) - lanes_per_warp * __float_as_uint(by));
        };
        const float shifted = value + to_coarse, left = value - (shifted - to_coarse);
        const bool sick = __any_sync(0xffffffffu, value != value);
        const int high = sum_of(shifted, to_coarse), low = sum_of(left + to_fine, to_fine);
        const float sum = fmaf(float(low), share * power_of_two(-fine), float(high) * (share * power_of_two(-coarse)));
        return sick ? NAN : sum;
    }
}
