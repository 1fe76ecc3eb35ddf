// Inputs made on the GPU: three times a standard normal value, a pure function of (seed, index), so that what a kernel read can be
// checked afterwards without a second copy. ELEMENT is the element type; one grid of any size covers any matrix.

__device__ inline unsigned long long autotune_mix(unsigned long long x) {
    // The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ inline ELEMENT autotune_value(unsigned long long seed, unsigned long long index) {
    unsigned long long bits = autotune_mix(autotune_mix(seed) ^ index);
    float radius_from = static_cast<float>((bits >> 40) + 1) * 0x1p-24f;  // in (0, 1], so its logarithm is finite
    float turn = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    return static_cast<ELEMENT>(3.0f * sqrtf(-2.0f * logf(radius_from)) * cosf(6.2831853f * turn));
}

// Writes the input or, with `counts`, adds up how many elements are not what it wrote: one count per warp of the grid. One kernel does
// both, so that both evaluate the very same instructions.
extern "C" __global__ void autotune_fill(ELEMENT* matrix, long long rows, long long cols, long long stride, unsigned long long seed,
                                         long long* counts) {
    long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    long long changed = 0;
    for (long long i = thread; i < rows * cols; i += step) {
        ELEMENT value = autotune_value(seed, i);
        ELEMENT* place = matrix + i / cols * stride + i % cols;
        if (counts == nullptr) {
            *place = value;
        } else {
            changed += !(static_cast<float>(*place) == static_cast<float>(value));
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) changed += __shfl_xor_sync(0xffffffffu, changed, offset);
    if (counts != nullptr && threadIdx.x % 32 == 0) counts[thread / 32] = changed;
}
