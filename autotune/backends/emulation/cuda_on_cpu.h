// The CUDA C++ vocabulary of our templates, for a host compiler.
//
// Force-included (g++ -x c++ -DAUTOTUNE_EMULATOR -include cuda_on_cpu.h), it lets the text that nvcc compiles for a GPU compile as
// C++. cuda_on_cpu.cpp runs it: every CUDA thread is a fiber, and every barrier, shuffle or wait is where a fiber waits for others.
// Work that a sanitizer must see (shared memory written by a copy or a peer) is done here, in instrumented code.
#pragma once
#include <cassert>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// A variable of a block: a host compiler has no word for it.
#define __shared__ _Pragma("GCC error \"in the emulator shared memory is SHARED_ARRAY(T, name, count) or DYNAMIC_SHARED(T, name), see common.cuh\"")

// ---- Entries, and the two ways to declare shared memory ----

#define CUDA_ON_CPU_ENTRY extern "C" __attribute__((visibility("default"))) int

// An entry for an instance of a template with the signature that all operations share.
#define INSTANCE(symbol, Element, threads, blocks_per_sm, cluster, ...)                                         \
    CUDA_ON_CPU_ENTRY symbol(const cuda_on_cpu::Launch* launch, void** arguments, int count) {                  \
        cuda_on_cpu::Kernel<Element> kernel = __VA_ARGS__;                                                      \
        return cuda_on_cpu::call(*launch, {threads, cluster}, arguments, count, kernel);                        \
    }

// An entry for a kernel with any signature and any block.
#define EMULATED_KERNEL(name, ...)                                                                              \
    CUDA_ON_CPU_ENTRY name(const cuda_on_cpu::Launch* launch, void** arguments, int count) {                    \
        return cuda_on_cpu::call(*launch, {0, 0}, arguments, count, __VA_ARGS__);                               \
    }

// The static variable's address tells one declaration from another; its memory belongs to the running block.
#define SHARED_ARRAY(T, name, count)                                                                            \
    static char name##_site;                                                                                    \
    T(&name)[count] = *static_cast<T(*)[count]>(cuda_on_cpu::shared_array(&name##_site, sizeof(T) * (count)))

#define DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(cuda_on_cpu::dynamic_shared())

// ---- Vectors ----

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };
struct alignas(16) double2 { double x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- Barriers, shuffles, votes ----

constexpr int warpSize = 32;

namespace cuda_on_cpu {
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
T shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 16, "a shuffle moves at most 16 bytes here");
    T result;
    exchange(mask, source, &value, &result, sizeof(T));
    return result;
}

// Lanes talk only inside their own group of `width`; a source outside it means "keep mine".
inline int in_group(int source, int width) { return source >= 0 && source / width == lane() / width ? source : lane(); }
}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::sync_block(); }
inline void __syncwarp(unsigned mask = cuda_on_cpu::kAllLanes) { cuda_on_cpu::sync_warp(mask); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::lane() / width * width + (source & (width - 1)));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::in_group(cuda_on_cpu::lane() + int(delta), width));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::in_group(cuda_on_cpu::lane() - int(delta), width));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
    return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::in_group(cuda_on_cpu::lane() ^ bits, width));
}
inline unsigned __ballot_sync(unsigned mask, int vote) { return cuda_on_cpu::ballot(mask, vote); }
inline int __any_sync(unsigned mask, int vote) { return cuda_on_cpu::ballot(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return cuda_on_cpu::ballot(mask, !vote) == 0; }

// ---- Memory ----

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcg(T* p, T value) { *p = value; }
template <class T> void __stcs(T* p, T value) { *p = value; }
template <class T> void __stwt(T* p, T value) { *p = value; }

inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() { cuda_on_cpu::fence(); }

namespace cuda_on_cpu {
// Fibers interleave only where they wait, so a plain read and write would do; the atomic builtins tell ThreadSanitizer.
template <class T, class Update>
T atomic(T* address, Update update) {
    before_atomic(address);
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    __atomic_store_n(address, update(old), __ATOMIC_RELAXED);
    after_atomic(address);
    return old;
}
}  // namespace cuda_on_cpu

template <class T> T atomicAdd(T* p, T v) { return cuda_on_cpu::atomic(p, [&](T old) { return T(old + v); }); }
template <class T> T atomicMax(T* p, T v) { return cuda_on_cpu::atomic(p, [&](T old) { return old < v ? v : old; }); }
template <class T> T atomicMin(T* p, T v) { return cuda_on_cpu::atomic(p, [&](T old) { return v < old ? v : old; }); }
template <class T> T atomicOr(T* p, T v) { return cuda_on_cpu::atomic(p, [&](T old) { return T(old | v); }); }
template <class T> T atomicExch(T* p, T v) { return cuda_on_cpu::atomic(p, [&](T) { return v; }); }
template <class T> T atomicCAS(T* p, T expected, T v) {
    return cuda_on_cpu::atomic(p, [&](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned last) {
    return cuda_on_cpu::atomic(p, [&](unsigned old) { return old >= last ? 0u : old + 1; });
}
template <class T> T load_acquire(const T* p) {
    T value = __atomic_load_n(p, __ATOMIC_RELAXED);
    cuda_on_cpu::acquire(p);
    return value;
}
template <class T> void store_release(T* p, T value) {
    cuda_on_cpu::release(p);
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
inline unsigned add_release(unsigned* p, unsigned value) {
    cuda_on_cpu::release(p);
    return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}

// Waits for what another thread, block or cluster does; `condition` is asked again whenever no thread can run on.
template <class Condition>
void spin_until(Condition condition) {
    while (!condition()) cuda_on_cpu::spin_wait();
    cuda_on_cpu::spin_done();
}

// ---- Clusters ----

inline unsigned cluster_rank() { return cuda_on_cpu::cluster_rank(); }
inline unsigned cluster_size() { return cuda_on_cpu::cluster_size(); }
inline void cluster_arrive_relaxed() { cuda_on_cpu::cluster_arrive(false); }
inline void cluster_arrive_release() { cuda_on_cpu::cluster_arrive(true); }
inline void cluster_wait_acquire() { cuda_on_cpu::cluster_wait(); }
inline void cluster_wait() { cuda_on_cpu::cluster_wait(); }
template <class T> void cluster_store(T* mine, unsigned rank, T value) {
    *static_cast<T*>(cuda_on_cpu::peer_address(mine, rank)) = value;
}
template <class T> T cluster_load(const T* mine, unsigned rank) {
    return *static_cast<const T*>(cuda_on_cpu::peer_address(mine, rank));
}

// How many bytes are still to come, and one more as long as nobody has said how many there are. What was sent is there for whoever has
// seen none left.
using Inbox = unsigned;
inline void inbox_open(Inbox* inbox) {
    *inbox = 1;
    cuda_on_cpu::fence();
}
inline void inbox_expect(Inbox* inbox, unsigned bytes) { add_release(inbox, bytes - 1); }
template <class T> void inbox_send(Inbox* inbox, T* mine, unsigned rank, T value) {
    cluster_store(mine, rank, value);
    add_release(static_cast<Inbox*>(cuda_on_cpu::peer_address(inbox, rank)), -unsigned(sizeof(T)));
}
inline void inbox_wait(const Inbox* inbox) {
    spin_until([inbox] { return load_acquire(inbox) == 0; });
}

// ---- Asynchronous copies (cp.async) ----

namespace cuda_on_cpu {
template <class Word>
void copy_async(void* destination, const void* source) {
    Word value = *static_cast<const Word*>(source);
    Copy& copy = copy_issue();
    copy.destination = destination;
    copy.bytes = sizeof(Word);
    memcpy(copy.value, &value, sizeof(Word));
    memcpy(&value, kUnwritten, sizeof(Word));
    *static_cast<Word*>(destination) = value;  // NaN until the copy lands
}
template <class Word>
void land(const Copy& copy) {
    Word value;
    memcpy(&value, copy.value, sizeof(Word));
    *static_cast<Word*>(copy.destination) = value;
}
}  // namespace cuda_on_cpu

inline void copy_async_16(void* shared, const void* global) { cuda_on_cpu::copy_async<uint4>(shared, global); }
inline void copy_async_8(void* shared, const void* global) { cuda_on_cpu::copy_async<uint2>(shared, global); }
inline void copy_async_4(void* shared, const void* global) { cuda_on_cpu::copy_async<unsigned>(shared, global); }
inline void copy_async_commit() { cuda_on_cpu::copy_commit(); }
template <int groups_in_flight>
void copy_async_wait() {
    while (const cuda_on_cpu::Copy* copy = cuda_on_cpu::copy_landing(groups_in_flight)) {
        if (copy->bytes == 16) cuda_on_cpu::land<uint4>(*copy);
        else if (copy->bytes == 8) cuda_on_cpu::land<uint2>(*copy);
        else cuda_on_cpu::land<unsigned>(*copy);
    }
}

// ---- Arithmetic ----

namespace cuda_on_cpu {
template <class To, class From>
To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
}  // namespace cuda_on_cpu

inline int __float_as_int(float x) { return cuda_on_cpu::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_on_cpu::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::bit_cast<float>(x); }

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }  // 0 for NaN, as there
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline int __float2int_rn(float x) { return int(rintf(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline float __int2float_rn(int x) { return float(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }

[[noreturn]] inline void __trap() { __builtin_trap(); }
// Nanoseconds instead of cycles: neither is a GPU's.
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// By value and on the common type, as CUDA's are, so that min(int, unsigned) and min(int, long long) compile as there.
template <class A, class B> constexpr auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B> constexpr auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

#include "cuda_bf16.h"
#include "cuda_fp16.h"
