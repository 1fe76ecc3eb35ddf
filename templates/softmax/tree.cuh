// Combines one value of each thread of a block through shared memory, halving the number of values at each step.
//
// Call it once per operation and block: each operation has an array of its own, which nothing guards against a second call.
template <class Operation, int block>
__device__ __forceinline__ float combine_tree(float value) {
    static_assert((block & (block - 1)) == 0, "halving loses values unless the block is a power of two");
    SHARED_ARRAY(float, partial, block);
    const int thread = threadIdx.x;
    partial[thread] = value;
    __syncthreads();  // every thread's value is written before another thread combines it
#pragma unroll
    for (int half = block / 2; half > 0; half /= 2) {
        if (thread < half) partial[thread] = Operation::of(partial[thread], partial[thread + half]);
        __syncthreads();  // this step's values are written before the next step, or the return, reads them
    }
    return partial[0];
}
