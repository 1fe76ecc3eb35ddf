// Softmax in float64, a warp per row: what outputs are compared with on the GPU. ELEMENT is the element type.
// Itself compared with the NumPy reference of the operation each time a problem is set up.
extern "C" __global__ void softmax_reference(double* output, const ELEMENT* input, long long rows, long long cols,
                                             long long output_stride, long long input_stride, void*) {
    long long row = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const ELEMENT* x = input + row * input_stride;
    double* y = output + row * output_stride;

    double most = -INFINITY;
    bool nan = false;  // fmax drops NaNs, so they are kept apart
    for (long long c = lane; c < cols; c += 32) {
        double v = static_cast<double>(static_cast<float>(x[c]));
        nan = nan || v != v;
        most = fmax(most, v);
    }
    for (int offset = 16; offset > 0; offset /= 2) most = fmax(most, __shfl_xor_sync(0xffffffffu, most, offset));

    double sum = 0.0;
    for (long long c = lane; c < cols; c += 32) sum += exp(static_cast<double>(static_cast<float>(x[c])) - most);
    if (nan) sum = NAN;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);

    for (long long c = lane; c < cols; c += 32) y[c] = exp(static_cast<double>(static_cast<float>(x[c])) - most) / sum;
}
