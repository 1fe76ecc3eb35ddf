// v8: a cluster of blocks computes one row that it holds in registers. As v7, with every warp pushing its part to every block.
// Where all rows are in flight at once, a cluster takes two: the second is still coming while the first one is written.

#include "common.cuh"
#include "cluster.cuh"
#include "held.cuh"

template <class Element, int cluster, int block, int items, int rows_per_cluster, Hold hold, Edges edges>
__device__ __forceinline__ void softmax_v8(Element* output, const Element* input, long long rows, long long cols,
                                           long long output_stride, long long input_stride, void*) {
    // Parameters
    constexpr int vector = 16 / sizeof(Element);
    using Part = Held<Element, vector, items, hold, edges>;
    using PartExp = typename Part::PartExp;
    constexpr int warps = block / lanes_per_warp, parts = cluster * warps, stride = cluster * block;
    const unsigned rank = cluster_rank();
    const int warp = threadIdx.x / lanes_per_warp, lane = threadIdx.x % lanes_per_warp, first = rank * block + threadIdx.x;
    const int clusters = gridDim.x / cluster;
    auto row = [&](int r) {
        return Row<Element, vector, edges>(output, input, blockIdx.x / cluster + r * clusters, rows, cols, output_stride, input_stride);
    };
    SHARED_ARRAY(Partial, partial, rows_per_cluster * parts);
    SHARED_ARRAY(Inbox, inbox, rows_per_cluster);
    if (threadIdx.x == 0)
        for (int r = 0; r < rows_per_cluster; r++) inbox_open(inbox + r);
    cluster_arrive_relaxed();

    // Load: all rows before any is used. One beyond the last has no packs
    Part part[rows_per_cluster];
#pragma unroll
    for (int r = 0; r < rows_per_cluster; r++) part[r].load(row(r), first, stride);
    all_is_asked_for();
    cluster_wait_acquire();  // every block has started and opened its inboxes

    // Reduce and write
    Partial all = {};
#pragma unroll
    for (int r = 0; r < rows_per_cluster; r++) {
        const Partial mine = r == 0 ? part[r].reduce() : part[r].template reduce<true>(all.sum);
        if (threadIdx.x == 0) inbox_expect(inbox + r, parts * sizeof(Partial));
        if (lane < cluster) inbox_send(inbox + r, &partial[r * parts + rank * warps + warp], lane, mine);
        inbox_wait(inbox + r);  // every part is written before any warp reads them all, and before a block that is written to ends
        all = combine_shared<PartExp, parts, lanes_per_warp * Part::size>(partial + r * parts);
        part[r].store(row(r), first, stride, all);
    }
}
