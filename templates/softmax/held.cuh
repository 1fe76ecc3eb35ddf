// The part of a row that one thread holds in registers from its only load to its store: packs first, first + stride, ...

#include "stream.cuh"

// What is held: the exponentials as floats, or the inputs, whose exponentials are computed twice. Of 16-bit elements the inputs take
// half the registers, so that more of them are in flight.
enum Hold { exponentials, inputs };

// Packs of a thread that are summed against a maximum of their own, as soon as they are there and while later ones are still coming.
__host__ __device__ constexpr int most_at_once(Hold hold, int items) { return hold == inputs ? 32 : items <= 16 ? 8 : 4; }

// After all loads of a thread: the compiler, which otherwise delays later ones until earlier packs are summed, keeps that order.
// What it stops at lets a kernel start that was launched as a dependent of this one (PTX ISA, griddepcontrol), and is nothing to others;
// but an SM starts a block every 0.16 us with it and every 0.08 without (v7, 876436x3), so it is for blocks that have much to do.
__device__ __forceinline__ void all_is_asked_for() {
#if !defined(AUTOTUNE_EMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class Element, int vector, int items, Hold hold, Edges edges>
struct Held {
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    static constexpr int size = items * vector;
    static constexpr int at_once = most_at_once(hold, items), chunk = items < at_once ? items : at_once;
    static constexpr int chunks = (items + chunk - 1) / chunk;
    // What a lane's sum is at most. 0, which has lanes summed by shuffles, where they were the faster way: 256x262144 133.5 us, not 139.8.
    static constexpr int most = size < 64 ? size : 0;
    Packed pack[items];
    float exponential[hold == exponentials ? size : 1];
    float against[chunks];  // the maximum that each chunk was summed against

    __device__ __forceinline__ void load(const Row<Element, vector, edges>& row, int first, int stride) {
        load_packs<items>(pack, row, first, stride);
    }

    // The warp's part, of which this thread's was loaded; in all lanes.
    __device__ __forceinline__ Partial reduce() {
        Partial part[chunks];
        reduce_chunks<0>(part, 0);
        return combine_partials<PartExp, lanes_per_warp, most>(part);
    }

    // The largest element, or the least finite number.
    __device__ __forceinline__ float maximum() const {
        unsigned largest[items];
#pragma unroll
        for (int i = 0; i < items; i++) largest[i] = largest_word<Element, Packed::count>(pack[i].word);
        return fmaxf(least_maximum, largest_value<Element>(largest_word<Element, items>(largest)));
    }

    // The sum of the exponentials of items first, first + 1, ...
    template <int first = 0, int count = items>
    __device__ __forceinline__ float sum(const PartExp& exponential_of) {
        float each[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential_of(pack[first + i].value(e));
            each[i] = fold_values<Sum, vector>(value);
            if constexpr (hold == exponentials) {
#pragma unroll
                for (int e = 0; e < vector; e++) exponential[(first + i) * vector + e] = value[e];
            }
        }
        return fold_values<Sum, count>(each);
    }

    // Writes this thread's part of a row that is `all`.
    //
    // Inputs must not look like those that were summed: what it sees computed twice, floats or exponentials, the compiler rather keeps,
    // in registers that it has not. No sum is negative, which it does not know.
    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, Partial all) {
        const float inverse = inverse_of(all.sum);
        if constexpr (hold == exponentials) {
            float scale[chunks];
#pragma unroll
            for (int c = 0; c < chunks; c++) scale[c] = inverse * PartExp::factor(against[c], all.maximum);
            store(row, first, stride, [&](int i, int e) { return exponential[i * vector + e] * scale[i / chunk]; });
        } else {
            const PartExp exponential_of(all.maximum);
            const unsigned zero = zero_of(all.sum);
#pragma unroll
            for (int i = 0; i < items; i++)
#pragma unroll
                for (int w = 0; w < Packed::count; w++) pack[i].word[w] ^= zero;
            store(row, first, stride, [&](int i, int e) { return exponential_of(pack[i].value(e)) * inverse; });
        }
    }

    // Writes value_of(i, e) as element `e` of item `i`.
    template <class ValueOf>
    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, ValueOf value_of) const {
#pragma unroll
        for (int i = 0; i < items; i++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = value_of(i, e);
            row.store(first + i * stride, words_of<Element, vector>(value));
        }
    }

private:
    // 0, which the compiler does not know: no sum is negative.
    static __device__ __forceinline__ unsigned zero_of(float sum) { return __float_as_int(sum) >> 31; }

    // Packs after the first chunk are not looked at before `zero` is known, so that what is already there is summed while they are coming.
    template <int c>
    __device__ __forceinline__ void reduce_chunks(Partial* part, unsigned zero) {
        constexpr int first = c * chunk, count = items - first < chunk ? items - first : chunk;
        unsigned largest[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            const unsigned* const word = pack[first + i].word;
            if constexpr (c > 0)
                largest[i] = largest_word_after<Element, Packed::count>(Packed::Of::minus_infinity | zero, word);
            else
                largest[i] = largest_word<Element, Packed::count>(word);
        }
        against[c] = fmaxf(least_maximum, largest_value<Element>(largest_word<Element, count>(largest)));
        part[c] = {against[c], sum<first, count>(PartExp(against[c]))};
        if constexpr (c + 1 < chunks) reduce_chunks<c + 1>(part, zero_of(part[c].sum));
    }
};
