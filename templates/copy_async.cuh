// Copies from global to shared memory that pass by the registers: issued now, waited for in groups. Compute capability 8.0 and newer.
//
// A thread that waits for its own copies sees them; other threads do after a barrier. Source: PTX ISA, cp.async.

#ifndef AUTOTUNE_EMULATOR

// 16 bytes, which the first-level cache does not keep.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// Makes one group of all copies that this thread issued since the last group.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups but the `groups_in_flight` latest.
template <int groups_in_flight>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_in_flight) : "memory");
}

#endif
