// Empties the L2 cache of whatever a timed launch could find there: reads other memory and writes none, so that no dirty line of ours
// is written back inside the timed window.
extern "C" __global__ void autotune_flush(const float4* memory, long long count, float never, float* sink) {
    long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    float sum = 0.0f;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        float4 v = memory[i];
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == never) *sink = sum;  // keeps the compiler from dropping the loads; `never` is a NaN
}
