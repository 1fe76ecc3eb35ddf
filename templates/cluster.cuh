// Blocks of a cluster: their ranks, their barrier, and what they send into one another's shared memory. Compute capability 9.0 and newer.
//
// Without cooperative groups, whose headers make a compilation three times as long. Sources: PTX ISA, barrier.cluster, mapa, st.async, mbarrier.

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

__device__ __forceinline__ unsigned shared_address(const void* mine) { return static_cast<unsigned>(__cvta_generic_to_shared(mine)); }
__device__ __forceinline__ unsigned shared_address(const void* mine, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(mine)), "r"(rank));
    return there;
}

// Counts the bytes that the blocks of the cluster send into this block's shared memory (an mbarrier, used once). A barrier of the cluster
// would do, but makes every warp wait until all that it has read and written has been so for the whole GPU (MEMBAR.ALL.GPU).
using Inbox = unsigned long long;

// By one thread, before it arrives at the barrier that everyone who sends will have waited at.
__device__ __forceinline__ void inbox_open(Inbox* inbox) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(inbox)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Says how many bytes will come. By the thread that opened it, after that barrier; what has come before is counted too.
__device__ __forceinline__ void inbox_expect(Inbox* inbox, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(inbox)), "r"(bytes) : "memory");
}

// Writes `value` to where `mine` lies, but in the shared memory of block `rank`, whose `inbox` counts it when it is there.
template <class T>
__device__ __forceinline__ void inbox_send(Inbox* inbox, T* mine, unsigned rank, T value) {
    static_assert(sizeof(T) == 8, "one store of 8 bytes");
    unsigned long long bits;
    memcpy(&bits, &value, sizeof(bits));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(shared_address(mine, rank)), "l"(bits),
                 "r"(shared_address(inbox, rank))
                 : "memory");
}

// Waits until all bytes are there, for this thread to read.
__device__ __forceinline__ void inbox_wait(const Inbox* inbox) {
    asm volatile(
        "{.reg .pred there;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], 0;\n"
        "@!there bra again;}" ::"r"(shared_address(inbox))
        : "memory");
}

#endif
