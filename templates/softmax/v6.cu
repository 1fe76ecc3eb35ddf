// v6: a warp, or a part of one, computes a row that it holds in registers. One read, no shared memory, no barrier.

#include "common.cuh"
#include "held.cuh"

template <class Element, int lanes, int rows_per_group, int items, int vector, int warps, Edges edges>
__device__ __forceinline__ void softmax_v6(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Part = Held<Element, vector, items, exponentials, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int groups = warps * lanes_per_warp / lanes;
    const int group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const long long first = static_cast<long long>(blockIdx.x) * groups * rows_per_group + group;
    auto row_of = [&](int r) {  // one beyond the last has no packs, but its lanes are needed by the shuffles
        const long long row = first + r * groups;
        return Row<Element, vector, edges>(output, input, row, rows, cols, output_stride, input_stride, row < rows);
    };

    // Load: all rows of the group before any is used
    Part part[rows_per_group];
#pragma unroll
    for (int r = 0; r < rows_per_group; r++)
        part[r].load(row_of(r), lane, lanes);

    // Reduce and write
#pragma unroll
    for (int r = 0; r < rows_per_group; r++) {
        const float mine = part[r].maximum();
        const float maximum = lanes == lanes_per_warp ? warp_maximum(mine) : combine_lanes<Max, lanes>(mine);
        const float sum = part[r].sum(PartExp(maximum));
        const float all = lanes == lanes_per_warp ? warp_sum<lanes_per_warp, Part::size>(sum) : combine_lanes<Sum, lanes>(sum);
        const float scale = inverse_of(all);
        part[r].store(row_of(r), lane, lanes, [&](int i, int e) { return part[r].exponential[i * vector + e] * scale; });
    }
}
