// v8: a cluster of blocks computes one row that it holds in registers. As v7, with every warp pushing its part to every block.

#include "common.cuh"
#include "cluster.cuh"
#include "held.cuh"

template <class Element, int cluster, int block, int items, int vector, Hold hold, Edges edges>
__device__ __forceinline__ void softmax_v8(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    using Part = Held<Element, vector, items, hold, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int warps = block / lanes_per_warp, parts = cluster * warps, stride = cluster * block;
    const unsigned rank = cluster_rank();
    const int warp = threadIdx.x / lanes_per_warp, lane = threadIdx.x % lanes_per_warp, first = rank * block + threadIdx.x;
    const Row<Element, vector, edges> row(output, input, blockIdx.x / cluster, rows, cols, output_stride, input_stride);
    SHARED_ARRAY(Partial, partial, parts);
    SHARED_ARRAY(Inbox, inbox, 1);
    if (threadIdx.x == 0) inbox_open(inbox);
    cluster_arrive_relaxed();

    // Load
    Part part;
    part.load(row, first, stride);
    if constexpr (items > 16) all_is_asked_for();
    cluster_wait_acquire();  // every block has started and opened its inbox

    // Reduce
    const Partial mine = part.reduce();
    if (threadIdx.x == 0) inbox_expect(inbox, sizeof(partial));
    if (lane < cluster) inbox_send(inbox, &partial[rank * warps + warp], lane, mine);
    inbox_wait(inbox);  // every part is written before any warp reads them all, and before a block that is written to ends
    const Partial all = combine_shared<PartExp, parts, lanes_per_warp * Part::most>(partial);

    // Write
    part.store(row, first, stride, all);
}
