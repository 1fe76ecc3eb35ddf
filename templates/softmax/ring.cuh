// Rows on their way through shared memory: copied while earlier rows are computed, each pack by the thread that alone uses it.
//
// A thread has `depth` slots. Rows follow each other through them: as many whole rows as fit (`ahead`, the one being computed among
// them) and the head of one more. A slot is filled again as soon as its pack is written out, so copies never stop.
// Per row there are two groups of copies, its head and its tail: what is waited for must not include the head of a later row.

#include "copy_async.cuh"
#include "row.cuh"

template <class Element, int block, int depth, int stride, Edges edges>
struct Ring {
    static constexpr int vector = 16 / sizeof(Element), most_ahead = 3;
    using Packed = Words<Element, vector>;
    using Rows = Row<Element, vector, edges>;
    Packed* const mine;  // slot s of this thread is mine[s * block]
    const int first;     // this thread's first pack of each row
    int items, ahead, head, slots;
    int base = 0;  // the slot of item 0 of the row that is being computed

    __device__ __forceinline__ Ring(Packed* shared, int first, long long cols) : mine(shared + threadIdx.x), first(first) {
        const int most_packs = static_cast<int>((cols + (edges == masked ? 2 * (vector - 1) : 0)) / vector);
        items = (most_packs + stride - 1) / stride;
        ahead = min(depth / items, most_ahead);
        head = ahead < most_ahead ? depth - ahead * items : 0;
        slots = ahead * items + head;
    }

    // Item `i` of the row being computed.
    __device__ __forceinline__ Packed& operator[](int i) const { return mine[wrapped(base + i) * block]; }

    // The next row's turn.
    __device__ __forceinline__ void advance() { base = wrapped(base + items); }

    // Starts copying the rows that fit: `row_at(k)` is the k-th that this thread is going to compute.
    template <class RowAt>
    __device__ __forceinline__ void start(RowAt row_at) {
        for (int k = 0; k < ahead; k++) {
            const Rows row = row_at(k);
            for (int i = 0; i < items; i++) copy(row, i, k * items + i);
            copy_async_commit();  // one group stands for the head as well, which nobody waits for alone
            copy_async_commit();
        }
        const Rows row = row_at(ahead);
        for (int i = 0; i < head; i++) copy(row, i, ahead * items + i);
        copy_async_commit();
    }

    // Waits until the row to be computed is there, and puts -inf beyond its edges.
    __device__ __forceinline__ void wait(const Rows& row) const {
        if (ahead == 1)
            copy_async_wait<1>();
        else if (ahead == 2)
            copy_async_wait<3>();
        else
            copy_async_wait<5>();
        for_each_edge(row, [&](int j, Packed& pack) { row.fill_edge(pack, j); });
    }

    // Calls body(j, pack) for the packs of this thread that reach over an edge of the row being computed.
    template <class Body>
    __device__ __forceinline__ void for_each_edge(const Rows& row, Body body) const {
        if constexpr (edges == masked) {
            const int last = row.packs - 1;
            if (row.edge(first)) body(first, (*this)[0]);
            if (last > first && last % stride == first && row.edge(last)) body(last, (*this)[last / stride]);
        }
    }

    // Calls write(i, pack) for each item of the row being computed, and fills its slot with what comes next: first the tail of the row
    // `ahead` rows later, then the head of the one after it.
    template <int unroll, class Write>
    __device__ __forceinline__ void replace(const Rows& after, const Rows& beyond, Write write) const {
        const int tail = items - head;
        replace<unroll>(0, tail, after, head, write);
        copy_async_commit();
        replace<unroll>(tail, items, beyond, -tail, write);
        copy_async_commit();
    }

private:
    template <int unroll, class Write>
    __device__ __forceinline__ void replace(int i, int end, const Rows& row, int offset, Write write) const {
#pragma unroll 1
        for (; i + unroll <= end; i += unroll) replace_batch<unroll>(i, row, offset, write);
#pragma unroll 1
        for (; i < end; i++) replace_batch<1>(i, row, offset, write);
    }
    // All packs are read before any is written out, and written before their slots are filled: a copy must not overtake a read.
    template <int count, class Write>
    __device__ __forceinline__ void replace_batch(int i, const Rows& row, int offset, Write write) const {
        Packed pack[count];
#pragma unroll
        for (int u = 0; u < count; u++) pack[u] = (*this)[i + u];
#pragma unroll
        for (int u = 0; u < count; u++) write(i + u, pack[u]);
#pragma unroll
        for (int u = 0; u < count; u++) copy(row, i + u + offset, wrapped(base + i + u));
    }
    __device__ __forceinline__ int wrapped(int slot) const { return slot < slots ? slot : slot - slots; }

    __device__ __forceinline__ void copy(const Rows& row, int item, int slot) const {
        const int j = first + item * stride;
        if (row.whole(j))
            copy_async_16(mine + slot * block, row.source + j);
        else
            mine[slot * block] = Packed::nothing();
    }
};
