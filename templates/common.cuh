// What every template is written with: entries, shared memory, packs of elements and a fast exponential.
//
// Under AUTOTUNE_EMULATOR a host compiler reads this file, after a header that declares the CUDA vocabulary and the three macros below.

#ifndef AUTOTUNE_EMULATOR

#define CLUSTER_OF_1  // no attribute: GPUs older than Hopper know no clusters
#define CLUSTER_OF_2 __cluster_dims__(2, 1, 1)
#define CLUSTER_OF_4 __cluster_dims__(4, 1, 1)
#define CLUSTER_OF_8 __cluster_dims__(8, 1, 1)
#define CLUSTER_OF_16 __cluster_dims__(16, 1, 1)

// An entry called `symbol` that runs one instance of a device function template, which is the last argument, commas and all.
#define INSTANCE(symbol, Element, threads, blocks_per_sm, cluster, ...)                                                       \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) CLUSTER_OF_##cluster                                 \
        symbol(Element* output, const Element* input, long long rows, long long cols, long long output_stride,                \
               long long input_stride, void* workspace) {                                                                     \
        __VA_ARGS__(output, input, rows, cols, output_stride, input_stride, workspace);                                       \
    }

#define SHARED_ARRAY(T, name, count) __shared__ T name[count]

// All of the block's dynamic shared memory. An array of T itself would be aligned for T only, and could not be declared for two T.
#define DYNAMIC_SHARED(T, name)                                        \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    T* const name = reinterpret_cast<T*>(dynamic_shared)

#endif

constexpr int lanes_per_warp = 32;

// `vector` elements that are loaded and stored by one instruction.
template <class Element, int vector>
struct alignas(sizeof(Element) * vector) Pack {
    Element element[vector];
};

// 2^x to 2^-22.5 relative; results below 2^-126 are 0 (PTX ISA, ex2.approx.ftz).
__device__ __forceinline__ float exp2_fast(float x) {
#ifdef AUTOTUNE_EMULATOR
    return exp2f(x);
#else
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

// The two ways in which the values of a row are combined.
struct Max {
    static constexpr float identity = -INFINITY;
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    static constexpr float identity = 0.0f;
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
