// v9: one block computes a tile of short rows that lie without gaps: loaded and stored as one range of aligned packs, whatever the rows
// are aligned to, and computed from shared memory by `lanes` lanes per row.

#include "common.cuh"
#include "copy_async.cuh"
#include "exponential.cuh"
#include "shuffle.cuh"
#include "words.cuh"

// The elements of 4 bytes, or of 16 bits, in shared memory.
template <class Element, int warps, int lanes, int rows_per_group>
__device__ __forceinline__ void softmax_v9(Element* output, const Element* input, long long rows, long long cols, long long, long long,
                                           void*) {
    // Parameters
    constexpr int block = warps * lanes_per_warp, vector = 16 / sizeof(Element), groups = block / lanes;
    constexpr int tile_rows = groups * rows_per_group;
    static_assert(tile_rows % vector == 0, "every tile must start where a pack does");
    using Packed = Words<Element, vector>;
    using Of = Format<Element>;
    using Bits = typename Of::Bits;
    const int width = static_cast<int>(cols), group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const long long first = static_cast<long long>(blockIdx.x) * tile_rows;
    const int here = static_cast<int>(rows - first < tile_rows ? rows - first : tile_rows);  // rows of this tile
    const int packs = here * width / vector, last = packs * vector + threadIdx.x;  // what fills no pack at the end of the matrix
    const bool has_last = last < here * width;
    const auto* source = reinterpret_cast<const Packed*>(input + first * cols);
    auto* target = reinterpret_cast<Packed*>(output + first * cols);
    DYNAMIC_SHARED(Packed, tile);
    Bits* const element = reinterpret_cast<Bits*>(tile);

    // Load
    for (int j = threadIdx.x; j < packs; j += block) copy_async_16(tile + j, source + j);
    copy_async_commit();
    if (has_last) element[last] = reinterpret_cast<const Bits*>(source)[last];
    copy_async_wait<0>();
    __syncthreads();  // the tile is there before any of its rows is read

    // Reduce and write. A row beyond the last is left out, but its lanes are needed by the shuffles
    auto value_of = [&](Bits bits) { return Of::value(bits, 0); };
    for (int r = group; r < tile_rows; r += groups) {
        Bits* const row = element + r * width;
        const int count = r < here ? width : 0;
        float maximum = Max::identity;
        for (int c = lane; c < count; c += lanes) maximum = fmaxf(maximum, value_of(row[c]));
        const Exponential exponential(combine_lanes<Max, lanes>(maximum));
        float sum = 0.0f;
        for (int c = lane; c < count; c += lanes) sum += exponential(value_of(row[c]));
        const float scale = 1.0f / combine_lanes<Sum, lanes>(sum);
        for (int c = lane; c < count; c += lanes) {
            const float result[2] = {exponential(value_of(row[c])) * scale, 0.0f};
            row[c] = static_cast<Bits>(Of::word(result));
        }
    }
    __syncthreads();  // every row is written before packs, which cross rows, are read
    for (int j = threadIdx.x; j < packs; j += block) target[j] = tile[j];
    if (has_last) reinterpret_cast<Bits*>(target)[last] = element[last];
}
