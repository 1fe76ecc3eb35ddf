// A part of a row as it is exchanged between warps and blocks.

// The maximum of a part of a row, and the sum of exp(x - maximum) over it.
struct alignas(8) Partial {
    float maximum, sum;
};

// Writes a part to shared memory, in one lane of a warp. Without a branch: lanes that part would have to be brought together again, and
// only in the branch it would be asked where the array lies.
__device__ __forceinline__ void put_partial(Partial* where, Partial value, bool by_me) {
#ifdef AUTOTUNE_EMULATOR
    if (by_me) *where = value;
#else
    asm volatile("{.reg .pred by_me;\n setp.ne.u32 by_me, %3, 0;\n @by_me st.shared.v2.f32 [%0], {%1, %2};}" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(where))),
                 "f"(value.maximum), "f"(value.sum), "r"(static_cast<unsigned>(by_me))
                 : "memory");
#endif
}

// A part as the 64 bits that are exchanged, and back.
__device__ __forceinline__ unsigned long long word_of(Partial partial) {
    return static_cast<unsigned long long>(__float_as_uint(partial.sum)) << 32 | __float_as_uint(partial.maximum);
}
__device__ __forceinline__ Partial partial_of(unsigned long long word) {
    return {__uint_as_float(static_cast<unsigned>(word)), __uint_as_float(static_cast<unsigned>(word >> 32))};
}
