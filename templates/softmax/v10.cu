// v10: several blocks anywhere on the GPU compute one row that they hold in registers. One launch, one read.
//
// The blocks of a row publish their parts in the workspace and wait for those of the others. They usually run at the same time, but nothing
// promises that; so a block waits only for a while, and then reads the whole row itself. No launch hangs, whatever else the GPU does.
// A part is one 64-bit word; 0 means that it is not there yet, and no part is 0: against a maximum of 0.0 the sum is at least 1.
// The last block of a row to be done with its parts sets them to 0 again, for the next launch.

#include "common.cuh"
#include "grid.cuh"
#include "held.cuh"

constexpr int most_blocks = 264;   // of a row, as the definition says
constexpr int counter_bytes = 32;  // a counter has a sector of the L2 cache to itself
using Word = unsigned long long;

// The parts of all `split` blocks of a row put together by one warp; the sum of each is at most `most`. Returns whether all were there in time.
template <class PartExp, int most>
__device__ __forceinline__ bool gather(const Word* published, int split, Partial& all) {
    constexpr int count = 4;  // words a lane reads at once
    const int lane = threadIdx.x % lanes_per_warp;
    Partial part[count + 1];  // what the lane has read, and before
    part[count] = {least_maximum, 0.0f};
    for (int first = lane;; first += count * lanes_per_warp) {
        Word word[count];
#pragma unroll
        for (int i = 0; i < count; i++) word[i] = first + i * lanes_per_warp < split ? 0 : word_of({least_maximum, 0.0f});
        for (int tried = 0;; tried++) {
            bool complete = true;
#pragma unroll
            for (int i = 0; i < count; i++)
                if (word[i] == 0) word[i] = load_word(published + first + i * lanes_per_warp);
#pragma unroll
            for (int i = 0; i < count; i++) complete = complete && word[i] != 0;
            if (__all_sync(0xffffffffu, complete)) break;
            if (tried == patience) return false;
        }
#pragma unroll
        for (int i = 0; i < count; i++) part[i] = partial_of(word[i]);
        // A lane's sum is that of the parts that it has read, and of its share in those before: the less it may be, the finer the units.
        all = combine_partials<PartExp, lanes_per_warp, (count + most_blocks / lanes_per_warp + 1) * most>(part);
        if (first - lane + count * lanes_per_warp >= split) return true;
        part[count] = {all.maximum, all.sum * (1.0f / lanes_per_warp)};
    }
}

template <class Element, int block, int items, int vector, Hold hold, Edges edges>
__device__ __forceinline__ void softmax_v10(Element* output, const Element* input, long long rows, long long cols,
                                            long long output_stride, long long input_stride, void* workspace) {
    // Parameters. Rows go around the blocks, and each block has packs that lie together: what is loaded first depends on one division
    using Part = Held<Element, vector, items, hold, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int warps = block / lanes_per_warp;
    const int thread = threadIdx.x, warp = thread / lanes_per_warp;
    const unsigned count = static_cast<unsigned>(rows), rank = blockIdx.x / count, index = blockIdx.x - rank * count;
    const int split = gridDim.x / count, first = rank * block * items + thread;
    const Row<Element, vector, edges> row(output, input, index, rows, cols, output_stride, input_stride);
    char* const counters = static_cast<char*>(workspace);
    unsigned* const counter = reinterpret_cast<unsigned*>(counters + index * counter_bytes);
    Word* const published = reinterpret_cast<Word*>(counters + rows * counter_bytes) + index * split;

    // Load
    Part part;
    part.load(row, first, block);
    all_is_asked_for();

    // Reduce: the block's part as v7 does, then the row's by the first warp of each of its blocks
    const Partial mine = part.reduce();
    SHARED_ARRAY(Partial, partial, warps);
    SHARED_ARRAY(Partial, total, 1);
    SHARED_ARRAY(bool, gathered, 1);
    put_partial(&partial[warp], mine, thread % lanes_per_warp == 0);
    __syncthreads();  // every warp's part is written before the first warp reads them all
    if (warp == 0) {
        const Partial here = combine_shared<PartExp, warps, lanes_per_warp * Part::most>(partial);
        if (thread == 0) store_word(published + rank, word_of(here));
        Partial all;
        const bool complete = gather<PartExp, block * Part::most>(published, split, all);
        if (thread == 0) {
            total[0] = all;
            gathered[0] = complete;
        }
    }
    __syncthreads();  // the row's total is written before the other warps read it, and all parts are read before they are overwritten
    // Sent here, and its answer needed at the end only: nobody waits for it before the row is written.
    unsigned done = 0;
    if (thread == 0) done = atomicInc(counter, split - 1) + 1;
    Partial all = total[0];
    if (!gathered[0]) {
        const Partial again = stream<Element, vector, edges, block, 1>(row, thread);
        if (thread % lanes_per_warp == 0) partial[warp] = again;
        __syncthreads();  // every warp's part is written before any warp reads them all
        all = combine_shared<PartExp, warps, 0>(partial);
        part.load(row, first, block);  // again, so that its registers are free meanwhile
        part.reduce();
    }

    // Write
    part.store(row, first, block, all);
    if (warp == 0 && __shfl_sync(0xffffffffu, done, 0) == static_cast<unsigned>(split))
        for (int other = thread; other < split; other += lanes_per_warp) store_word(published + other, 0);
}
