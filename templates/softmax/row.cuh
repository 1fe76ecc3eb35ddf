// A row as packs that are aligned to their size, whatever the row is aligned to.
//
// Where rows start or end inside a pack (`edges` is `masked`), the first and the last pack of a row reach into its neighbours. Such a
// pack is loaded whole, its outer elements are replaced by -inf, and only its inner elements are stored. What lies outside the matrix
// is never touched: rows less than a pack away from its ends load their edges element by element.
// Input and output must start at the same place within a pack, in every row.

#include "words.cuh"

enum Edges { exact, masked };

// An address in global memory that is computed where this stands. Otherwise it is computed under the condition of the load that it is for,
// after that is known, and a kernel that has little else to do loads later.
template <class T>
__device__ __forceinline__ const T* computed_here(const T* address) {
#ifdef AUTOTUNE_EMULATOR
    return address;
#else
    size_t global = __cvta_generic_to_global(address);
    asm volatile("" : "+l"(global));
    return static_cast<const T*>(__cvta_global_to_generic(global));
#endif
}

template <class Element, int vector, Edges edges>
struct Row {
    using Packed = Words<Element, vector>;
    using Bits = typename Packed::Bits;
    const Packed* source;
    Packed* target;
    int lead;   // elements of the first pack that come before the row
    int cols;
    int packs;
    bool outermost;
    bool exists;  // or it has no packs: where edges are masked their number says so, else this does, so that a load waits for one fact less

    __device__ __forceinline__ Row(Element* output, const Element* input, long long row, long long rows, long long cols,
                                   long long output_stride, long long input_stride, bool exists = true)
        : cols(static_cast<int>(cols)), exists(exists) {
        const Element* const x = input + row * input_stride;
        Element* const y = output + row * output_stride;
        lead = edges == masked ? static_cast<int>(reinterpret_cast<unsigned long long>(x) / sizeof(Element) % vector) : 0;
        source = reinterpret_cast<const Packed*>(x - lead);
        target = reinterpret_cast<Packed*>(y - lead);
        packs = edges == masked ? (lead + this->cols + vector - 1) / vector : this->cols / vector;
        if (edges == masked && !exists) this->cols = packs = 0;
        outermost = row * input_stride < vector || (rows - 1 - row) * input_stride < vector;
    }

    // Whether pack `j` reaches over an edge of the row.
    __device__ __forceinline__ bool edge(int j) const {
        return edges == masked && ((j == 0 && lead > 0) || (j == packs - 1 && (lead + cols) % vector != 0));
    }
    __device__ __forceinline__ bool inside(int j, int e) const {
        return static_cast<unsigned>(j * vector + e - lead) < static_cast<unsigned>(cols);
    }

    // Whether there is a pack `j`, and whether it is loaded by one instruction. If not, it is outside, or `fill_edge` loads it.
    __device__ __forceinline__ bool has(int j) const { return (edges == masked || exists) && j < packs; }
    __device__ __forceinline__ bool whole(int j) const { return has(j) && !(outermost && edge(j)); }

    // An edge pack, given as `whole` says: its elements outside the row become -inf.
    __device__ __forceinline__ void fill_edge(Packed& pack, int j) const {
        const Bits* const element = reinterpret_cast<const Bits*>(source + j);
#pragma unroll
        for (int e = 0; e < vector; e++) {
            if (!inside(j, e))
                pack.set_bits(e, static_cast<Bits>(Packed::Of::minus_infinity));
            else if (outermost)
                pack.set_bits(e, element[e]);
        }
    }

    __device__ __forceinline__ void store(int j, const Packed& pack) const {
        store_whole(j, pack);
        if (edge(j)) store_edge(j, pack);
    }
    __device__ __forceinline__ void store_whole(int j, const Packed& pack) const {
        if (has(j) && !edge(j)) target[j] = pack;
    }
    __device__ __forceinline__ void store_edge(int j, const Packed& pack) const {
        Bits* const element = reinterpret_cast<Bits*>(target + j);
#pragma unroll
        for (int e = 0; e < vector; e++)
            if (inside(j, e)) element[e] = pack.bits(e);
    }
};
