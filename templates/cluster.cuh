// Blocks of a cluster: their ranks, their barrier, and stores into one another's shared memory. Compute capability 9.0 and newer.
//
// Without cooperative groups, whose headers make a compilation three times as long. Sources: PTX ISA, barrier.cluster, mapa, st.

#ifndef AUTOTUNE_EMULATOR

__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Arrive without making anything visible, with all that came before, and wait for the arrival of all threads of all blocks.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait_acquire() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Writes `value` to where `mine` lies, but in the shared memory of block `rank`.
template <class T>
__device__ __forceinline__ void cluster_store(T* mine, unsigned rank, T value) {
    static_assert(sizeof(T) == 8, "one store of 8 bytes");
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(mine));
    unsigned there;
    unsigned long long bits;
    memcpy(&bits, &value, sizeof(bits));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(there), "l"(bits) : "memory");
}

#endif
