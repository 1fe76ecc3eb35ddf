// Compares a whole output with its float64 reference. ELEMENT is the element type, BITS the unsigned integer of its size.
//
// Before the launch under test every byte of the output, of the gaps between its rows and of a guard zone on both sides was set to
// 0xff. That is a NaN of every element type that no arithmetic produces, so an element that still has it was never written.

struct AutotuneMistakes {  // of one warp
    long long wrong;      // elements outside the tolerance, or never written
    long long first;      // index of the first of them as row * cols + column, -1 for none
    long long strayed;    // elements outside the matrix that were written
    double max_error;     // largest |y - r| / |r| over finite r that are not tiny against the tolerance
};

extern "C" __global__ void autotune_compare(AutotuneMistakes* mistakes, const ELEMENT* output, const double* reference, long long rows,
                                            long long cols, long long stride, long long guard, double relative, double absolute) {
    long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    AutotuneMistakes mine = {0, -1, 0, 0.0};
    for (long long i = thread - guard; i < rows * stride + guard; i += step) {
        BITS bits = reinterpret_cast<const BITS*>(output)[i];
        bool untouched = bits == static_cast<BITS>(-1);
        long long row = i < 0 ? rows : i / stride;
        long long col = i - row * stride;
        if (row >= rows || col >= cols) {
            mine.strayed += !untouched;
            continue;
        }
        double expected = reference[row * cols + col];
        double got = static_cast<double>(static_cast<float>(output[i]));
        bool both_nan = expected != expected && got != got;
        bool right = both_nan || got == expected;
        if (!right) {
            double off = fabs(got - expected);
            double size = fabs(expected);
            right = size < INFINITY && off <= absolute + relative * size;  // false for a NaN on one side only
            if (off < INFINITY && size * relative > absolute && off / size > mine.max_error) mine.max_error = off / size;
        }
        if (!right || untouched) {
            if (mine.wrong == 0) mine.first = row * cols + col;
            mine.wrong += 1;
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        mine.wrong += __shfl_xor_sync(0xffffffffu, mine.wrong, offset);
        mine.strayed += __shfl_xor_sync(0xffffffffu, mine.strayed, offset);
        mine.max_error = fmax(mine.max_error, __shfl_xor_sync(0xffffffffu, mine.max_error, offset));
        long long first = __shfl_xor_sync(0xffffffffu, mine.first, offset);
        if (mine.first < 0 || (first >= 0 && first < mine.first)) mine.first = first;
    }
    if (threadIdx.x % 32 == 0) mistakes[thread / 32] = mine;
}
