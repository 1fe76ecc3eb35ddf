// Blocks that wait for one another across the grid. Only for cooperative launches: all blocks must be resident, or none ends.

#ifndef AUTOTUNE_EMULATOR

// 64 bits that other blocks write or read: seen whole, and read anew each time.
__device__ __forceinline__ unsigned long long load_shared_word(const unsigned long long* word) {
    unsigned long long value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ void store_shared_word(unsigned long long* word, unsigned long long value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Returns once `condition` holds, which some other block makes true.
template <class Condition>
__device__ __forceinline__ void spin_until(Condition condition) {
    while (!condition()) {
    }
}

#else

inline unsigned long long load_shared_word(const unsigned long long* word) { return load_acquire(word); }
inline void store_shared_word(unsigned long long* word, unsigned long long value) { store_release(word, value); }

#endif
