// v10: several blocks anywhere on the GPU compute one row that they hold in registers, for few long rows. One launch, one read.
//
// The blocks of a row publish their parts in the workspace and wait for those of the others, so all must be resident.
// A part is one 64-bit word, seen whole or not at all; 0 means that it is not there yet, and no part is 0: against a maximum of 0.0
// the sum is at least 1. The last block to have read the parts of a row sets them to 0 again, for the next launch.

#include "common.cuh"
#include "grid.cuh"
#include "held.cuh"

constexpr int most_rows = 512;         // of a launch: their counters are the start of the workspace, whatever is launched
constexpr int counter_bytes = 32;      // a counter has a sector of the L2 cache to itself
using Word = unsigned long long;

template <class Element, int block, int items, int vector, Hold hold, Edges edges>
__device__ __forceinline__ void softmax_v10(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void* workspace) {
    // Parameters
    using Part = Held<Element, vector, items, hold, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int warps = block / lanes_per_warp;
    const int thread = threadIdx.x, warp = thread / lanes_per_warp, lane = thread % lanes_per_warp;
    const int split = static_cast<int>(gridDim.x / rows), rank = blockIdx.x % split, stride = split * block, first = rank * block + thread;
    const long long index = blockIdx.x / split;
    const Row<Element, vector, edges> row(output, input, index, rows, cols, output_stride, input_stride);
    char* const counters = static_cast<char*>(workspace);
    unsigned* const counter = reinterpret_cast<unsigned*>(counters + index * counter_bytes);
    Word* const published = reinterpret_cast<Word*>(counters + most_rows * counter_bytes) + index * split;

    // Load
    Part part;
    part.load(row, first, stride);

    // Reduce: the block's part as v7 does, then the row's by the first warp of each of its blocks
    const float maximum = combine_lanes<Max, lanes_per_warp>(part.maximum());
    const PartExp exponential(maximum);
    const Partial mine = {maximum, combine_lanes<Sum, lanes_per_warp>(part.sum(exponential))};
    SHARED_ARRAY(Partial, partial, warps);
    SHARED_ARRAY(Partial, total, 1);
    if (lane == 0) partial[warp] = mine;
    __syncthreads();  // every warp's part is written before the first warp reads them all
    bool last = false;
    if (warp == 0) {
        const Partial here = combine_shared<PartExp, warps>(partial);
        if (lane == 0) store_shared_word(published + rank, word_of(here));
        Partial all = {-INFINITY, 0.0f};
        for (int other = lane; other < split; other += lanes_per_warp) {
            Word word = 0;
            spin_until([&] { return (word = load_shared_word(published + other)) != 0; });
            all = combined<PartExp>(all, partial_of(word));
        }
        all = combine_partials<PartExp, lanes_per_warp>(all);
        if (lane == 0) {
            total[0] = all;
            // Its result is needed at the end only. It is not sent before the parts have come, since the loop above depends on them.
            last = atomicInc(counter, split - 1) == static_cast<unsigned>(split - 1);
        }
    }
    __syncthreads();  // the row's total is written before the other warps read it
    const Partial all = total[0];

    // Write
    part.store(row, first, stride, exponential, rescaled<PartExp>(1.0f / all.sum, maximum, all.maximum));
    if (last)
        for (int other = 0; other < split; other++) store_shared_word(published + other, 0);
}
