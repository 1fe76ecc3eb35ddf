// What a device copy can reach: 16 bytes at a time, a tile of 64 bytes per thread and no more, so that no block is late.
extern "C" __global__ void autotune_copy(uint4* to, const uint4* from, long long packs) {
    constexpr int unroll = 4;
    const long long first = static_cast<long long>(blockIdx.x) * (blockDim.x * unroll) + threadIdx.x;
    uint4 pack[unroll];
#pragma unroll
    for (int i = 0; i < unroll; i++)
        if (first + i * blockDim.x < packs) pack[i] = from[first + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < unroll; i++)
        if (first + i * blockDim.x < packs) to[first + i * blockDim.x] = pack[i];
}
