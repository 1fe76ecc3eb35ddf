// IEEE binary16 under CUDA's names; found instead of the toolkit's <cuda_fp16.h>.
#pragma once
#include "cuda_on_cpu.h"

namespace cuda_on_cpu {
inline unsigned short half_bits(float value) {  // round to nearest, ties to even
    unsigned bits = bit_cast<unsigned>(value);
    unsigned sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return 0x7fff;                        // NaN, in CUDA's canonical form
    if (bits >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // 65520 and more round to infinity
    if (bits < 0x38800000u)  // a subnormal half: floats from 0.5 to 1 are as far apart, so the addition rounds
        return (unsigned short)(sign | (bit_cast<unsigned>(bit_cast<float>(bits) + 0.5f) - 0x3f000000u));
    bits += 0xfffu + (bits >> 13 & 1u);
    return (unsigned short)(sign | (bits - 0x38000000u) >> 13);
}
inline float half_value(unsigned short half) {
    unsigned sign = unsigned(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
    if (exponent == 0) return bit_cast<float>(sign | bit_cast<unsigned>(float(fraction) * 0x1p-24f));
    if (exponent == 31) return bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    return bit_cast<float>(sign | (exponent + 112u) << 23 | fraction << 13);
}
}  // namespace cuda_on_cpu

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float value) : bits(cuda_on_cpu::half_bits(value)) {}
    operator float() const { return cuda_on_cpu::half_value(bits); }
};
using half = __half;
struct alignas(4) __half2 {
    __half x, y;
};
using half2 = __half2;

inline float __half2float(__half h) { return h; }
inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half2 __float2half2_rn(float f) { return {__half(f), __half(f)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 f) { return {__half(f.x), __half(f.y)}; }
inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
inline float __low2float(__half2 h) { return h.x; }
inline float __high2float(__half2 h) { return h.y; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) {
    __half h;
    h.bits = bits;
    return h;
}
