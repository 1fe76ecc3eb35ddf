// 64-bit words through which blocks anywhere on the GPU tell one another something: seen whole or not at all, and read anew each time.

#ifndef AUTOTUNE_EMULATOR

__device__ __forceinline__ unsigned long long load_word(const unsigned long long* word) {
    unsigned long long value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ void store_word(unsigned long long* word, unsigned long long value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// How often a word is read in vain before one stops to wait for it: about half a millisecond.
constexpr int patience = 1024;

#else

inline unsigned long long load_word(const unsigned long long* word) { return load_acquire(word); }
inline void store_word(unsigned long long* word, unsigned long long value) { store_release(word, value); }
constexpr int patience = 16;

#endif
