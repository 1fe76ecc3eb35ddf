// Combines one value of each thread of a block by warp shuffles, and once through shared memory.
//
// Every warp combines all the warps' values itself, so no second barrier is needed to hand the result out.
// Call it once per operation and block: each operation has an array of its own, which nothing guards against a second call.

// The combined value of each `width` neighbouring lanes, in all of them.
template <class Operation, int width>
__device__ __forceinline__ float combine_lanes(float value) {
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

__host__ __device__ constexpr int next_power_of_two(int value) {
    int power = 1;
    while (power < value) power *= 2;
    return power;
}

template <class Operation, int block>
__device__ __forceinline__ float combine_shuffle(float value) {
    static_assert(block % lanes_per_warp == 0, "a shuffle needs all lanes of its warp");
    constexpr int warps = block / lanes_per_warp;
    value = combine_lanes<Operation, lanes_per_warp>(value);
    if constexpr (warps > 1) {
        SHARED_ARRAY(float, partial, warps);
        constexpr int width = next_power_of_two(warps);
        const int warp = threadIdx.x / lanes_per_warp, lane = threadIdx.x % lanes_per_warp;
        if (lane == 0) partial[warp] = value;
        __syncthreads();  // every warp's value is written before any warp reads them all
        value = lane % width < warps ? partial[lane % width] : Operation::identity;
        value = combine_lanes<Operation, width>(value);
    }
    return value;
}
