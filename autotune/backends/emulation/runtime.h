// What the runtime (cuda_on_cpu.cpp) offers to the CUDA vocabulary (cuda_on_cpu.h).
#pragma once
#include <cstddef>
#include <utility>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};

// Set by the runtime whenever it resumes a thread. One launch runs at a time, on one OS thread, so these are plain globals.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace cuda_on_cpu {

// How ctypes asks for a launch; `autotune.backends.emulation.run` has the same layout.
struct Fence {
    size_t begin, end;   // what can be touched only by mistake,
    size_t first, last;  // but for the matrix in it
    const char* name;
};
struct Launch {
    unsigned blocks, threads, cluster, cooperative, seed;
    size_t shared_bytes;
    const Fence* fences;
    size_t fence_count;
};

// What a kernel was compiled for; 0 means anything.
struct Compiled {
    unsigned threads, cluster;
};

enum Status { kDone = 0, kRefused = 1, kHang = 2, kFault = 3 };

using Body = void (*)(void* closure);

// Runs every block; on anything but kDone, cuda_on_cpu_message() says what happened.
Status run(const Launch& launch, const Compiled& compiled, Body body, void* closure);
Status refuse(const char* message);
[[noreturn]] void fail(const char* message);

int lane();
void sync_block();
void sync_warp(unsigned mask);
// Publishes `size` <= 16 bytes to the warp, waits for the lanes in `mask`, and reads those of lane `source`.
void exchange(unsigned mask, int source, const void* mine, void* theirs, size_t size);
unsigned ballot(unsigned mask, bool vote);

// What shared memory holds until it is written, and what a lane that is not there sends: NaN of every floating-point type, also where two of
// them share it, and not the NaN that an output holds until it is written (0xffff in autotune/check.py), to tell a wrong element from none.
constexpr unsigned long long kUnwritten[2] = {0x7ffb7ffb7ffb7ffb, 0x7ffb7ffb7ffb7ffb};

// This block's memory for the declaration marked by `site`, allocated and filled with kUnwritten at its first use.
void* shared_array(const void* site, size_t bytes);
void* dynamic_shared();

unsigned cluster_rank();
unsigned cluster_size();
void cluster_arrive(bool release);
void cluster_wait();
// The address in the shared memory of block `rank` of this cluster that corresponds to `mine` in this block's.
void* peer_address(const void* mine, unsigned rank);

// A thread that finds its condition unfulfilled waits; one that finds it fulfilled reports progress.
void spin_wait();
void spin_done();

// Memory order, for ThreadSanitizer alone: atomics order nothing by themselves; fences before and after them do.
void fence();
void before_atomic(const void* address);
void after_atomic(const void* address);
void release(const void* address);
void acquire(const void* address);

// An asynchronous copy: its bytes were read when it was issued and land when its group is waited for.
struct Copy {
    void* destination;
    unsigned bytes, group;
    alignas(16) unsigned char value[16];
};
Copy& copy_issue();
void copy_commit();
const Copy* copy_landing(unsigned groups_in_flight);  // the next copy that must land, or nullptr

template <class... Parameters, size_t... I>
Status call(const Launch& launch, const Compiled& compiled, void** arguments, void (*kernel)(Parameters...), std::index_sequence<I...>) {
    auto body = [&] { kernel(*static_cast<Parameters*>(arguments[I])...); };
    return run(launch, compiled, [](void* closure) { (*static_cast<decltype(body)*>(closure))(); }, &body);
}

template <class... Parameters>
Status call(const Launch& launch, const Compiled& compiled, void** arguments, int count, void (*kernel)(Parameters...)) {
    if (count != int(sizeof...(Parameters))) return refuse("the kernel takes another number of arguments");
    return call(launch, compiled, arguments, kernel, std::index_sequence_for<Parameters...>{});
}

template <class Element>
using Kernel = void (*)(Element* output, const Element* input, long long rows, long long cols, long long output_stride,
                        long long input_stride, void* workspace);

}  // namespace cuda_on_cpu
