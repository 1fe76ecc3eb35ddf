// v9: one block computes a tile of short rows that lie without gaps: loaded and stored as one range of aligned packs, whatever the rows
// are aligned to, and computed by `lanes` lanes per row, which hold their words of it in registers.

#include "common.cuh"
#include "copy_async.cuh"
#include "partial.cuh"
#include "words.cuh"

// One row of a tile, in shared memory. Of 16-bit elements its first and its last word may belong half to its neighbours.
template <class Element>
struct TileRow {
    using Of = Format<Element>;
    using Word = Words<Element, Of::per_word>;
    using Bits = typename Of::Bits;
    Word* word;
    int cols;
    int lead;  // elements of the first word that come before the row

    __device__ __forceinline__ TileRow(Word* tile, int begin, int cols)
        : word(tile + begin / Of::per_word), cols(cols), lead(begin % Of::per_word) {}

    __device__ __forceinline__ int words() const { return cols > 0 ? (lead + cols + Of::per_word - 1) / Of::per_word : 0; }
    __device__ __forceinline__ bool inside(int w, int e) const {
        return static_cast<unsigned>(w * Of::per_word + e - lead) < static_cast<unsigned>(cols);
    }

    // Word `w`, with -inf for what is not of this row.
    __device__ __forceinline__ Word load(int w) const {
        Word loaded = Word::nothing();
        if (w < words()) loaded = word[w];
        if constexpr (Of::per_word > 1) {
#pragma unroll
            for (int e = 0; e < Of::per_word; e++)
                if (!inside(w, e)) loaded.set_bits(e, static_cast<Bits>(Of::minus_infinity));
        }
        return loaded;
    }

    __device__ __forceinline__ void store(int w, Word stored) const {
        if (inside(w, 0) && inside(w, Of::per_word - 1))
            word[w] = stored;
        else if constexpr (Of::per_word > 1) {
            Bits* const element = reinterpret_cast<Bits*>(word + w);
#pragma unroll
            for (int e = 0; e < Of::per_word; e++)
                if (inside(w, e)) element[e] = stored.bits(e);
        }
    }
};

// `items` words of each row for each lane.
template <class Element, int warps, int lanes, int rows_per_group, int items>
__device__ __forceinline__ void softmax_v9(Element* output, const Element* input, long long rows, long long cols, long long, long long,
                                           void*) {
    // Parameters
    constexpr int block = warps * lanes_per_warp, vector = 16 / sizeof(Element), groups = block / lanes;
    constexpr int tile_rows = groups * rows_per_group;
    static_assert(tile_rows % vector == 0, "every tile must start where a pack does");
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    using Of = Format<Element>;
    using Word = Words<Element, Of::per_word>;
    using Bits = typename Of::Bits;
    const int width = static_cast<int>(cols), group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const long long first = static_cast<long long>(blockIdx.x) * tile_rows;
    const int here = static_cast<int>(rows - first < tile_rows ? rows - first : tile_rows);  // rows of this tile
    const int packs = here * width / vector, last = packs * vector + threadIdx.x;  // what fills no pack at the end of the matrix
    const bool has_last = last < here * width;
    const auto* source = reinterpret_cast<const Packed*>(input + first * cols);
    auto* target = reinterpret_cast<Packed*>(output + first * cols);
    DYNAMIC_SHARED(Packed, tile);
    Word* const words = reinterpret_cast<Word*>(tile);
    auto row_of = [&](int r) {
        const int row = r * groups + group;
        return TileRow<Element>(words, row * width, row < here ? width : 0);  // one beyond the last is left out, but its lanes are needed
    };

    // Load
    for (int j = threadIdx.x; j < packs; j += block) copy_async_16(tile + j, source + j);
    copy_async_commit();
    if (has_last) reinterpret_cast<Bits*>(tile)[last] = reinterpret_cast<const Bits*>(source)[last];
    copy_async_wait<0>();
    __syncthreads();  // the tile is there before any of its rows is read
    Word held[rows_per_group][items];
#pragma unroll
    for (int r = 0; r < rows_per_group; r++)
#pragma unroll
        for (int i = 0; i < items; i++) held[r][i] = row_of(r).load(lane + i * lanes);
    if constexpr (Of::per_word > 1) __syncthreads();  // words that two rows share are read before either is written

    // Reduce and write
#pragma unroll
    for (int r = 0; r < rows_per_group; r++) {
        unsigned largest[items];
#pragma unroll
        for (int i = 0; i < items; i++) largest[i] = held[r][i].word[0];
        const float mine = fmaxf(least_maximum, largest_value<Element>(largest_word<Element, items>(largest)));
        const PartExp exponential_of(lanes == lanes_per_warp ? warp_maximum(mine) : combine_lanes<Max, lanes>(mine));
        float exponential[items][Of::per_word], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < items; i++)
#pragma unroll
            for (int e = 0; e < Of::per_word; e++) sum += exponential[i][e] = exponential_of(held[r][i].value(e));
        const float scale = inverse_of(combine_lanes<Sum, lanes>(sum));
#pragma unroll
        for (int i = 0; i < items; i++) {
#pragma unroll
            for (int e = 0; e < Of::per_word; e++) exponential[i][e] *= scale;
            row_of(r).store(lane + i * lanes, words_of<Element, Of::per_word>(exponential[i]));
        }
    }
    __syncthreads();  // every row is written before packs, which cross rows, are read
    for (int j = threadIdx.x; j < packs; j += block) target[j] = tile[j];
    if (has_last) reinterpret_cast<Bits*>(target)[last] = reinterpret_cast<Bits*>(tile)[last];
}
