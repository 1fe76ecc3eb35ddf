// bfloat16 under CUDA's names; found instead of the toolkit's <cuda_bf16.h>.
#pragma once
#include "cuda_on_cpu.h"

namespace cuda_on_cpu {
inline unsigned short bfloat16_bits(float value) {  // round to nearest, ties to even
    unsigned bits = bit_cast<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, in CUDA's canonical form
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
}  // namespace cuda_on_cpu

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits(cuda_on_cpu::bfloat16_bits(value)) {}
    operator float() const { return cuda_on_cpu::bit_cast<float>(unsigned(bits) << 16); }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 b) { return b; }
inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return {__nv_bfloat16(f), __nv_bfloat16(f)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return {__nv_bfloat16(f.x), __nv_bfloat16(f.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 b) { return {b.x, b.y}; }
inline float __low2float(__nv_bfloat162 b) { return b.x; }
inline float __high2float(__nv_bfloat162 b) { return b.y; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16 b;
    b.bits = bits;
    return b;
}
