// v7: one block computes one row that it holds in registers. One read, one exchange of (maximum, sum) between the warps, one barrier.

#include "common.cuh"
#include "held.cuh"

template <class Element, int block, int items, int vector, Hold hold, Edges edges>
__device__ __forceinline__ void softmax_v7(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Part = Held<Element, vector, items, hold, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int warps = block / lanes_per_warp;
    const int thread = threadIdx.x;
    const Row<Element, vector, edges> row(output, input, blockIdx.x, rows, cols, output_stride, input_stride);

    // Load
    Part part;
    part.load(row, thread, block);

    // Reduce: each warp its part of the row against its own maximum, then the warps' parts
    const Partial mine = part.reduce();
    SHARED_ARRAY(Partial, partial, warps);
    put_partial(&partial[thread / lanes_per_warp], mine, thread % lanes_per_warp == 0);
    __syncthreads();  // every warp's part is written before any warp reads them all
    const Partial all = combine_shared<PartExp, warps, lanes_per_warp * Part::most>(partial);

    // Write
    part.store(row, thread, block, all);
}
