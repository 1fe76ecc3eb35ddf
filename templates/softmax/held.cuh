// The part of a row that one thread holds in registers from its only load to its store: packs first, first + stride, ...

#include "stream.cuh"

// What is held: the exponentials as floats, or the inputs, whose exponentials are computed twice. Of 16-bit elements the inputs take
// half the registers, so that more of them are in flight.
enum Hold { exponentials, inputs };

template <class Element, int vector, int items, Hold hold, Edges edges>
struct Held {
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    static constexpr int size = items * vector;
    Packed pack[items];
    float exponential[hold == exponentials ? size : 1];

    __device__ __forceinline__ void load(const Row<Element, vector, edges>& row, int first, int stride) {
        load_packs<items>(pack, row, first, stride);
    }

    __device__ __forceinline__ float maximum() const {
        unsigned largest[items];
#pragma unroll
        for (int i = 0; i < items; i++) largest[i] = largest_word<Element, Packed::count>(pack[i].word);
        return largest_value<Element>(largest_word<Element, items>(largest));
    }

    // The sum of the exponentials of this thread's part.
    __device__ __forceinline__ float sum(const PartExp& exponential_of) {
        float each[items];
#pragma unroll
        for (int i = 0; i < items; i++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++) value[e] = exponential_of(pack[i].value(e));
            each[i] = fold_values<Sum, vector>(value);
            if constexpr (hold == exponentials) {
#pragma unroll
                for (int e = 0; e < vector; e++) exponential[i * vector + e] = value[e];
            }
        }
        return fold_values<Sum, items>(each);
    }

    // Writes this thread's part, whose sum was taken against `maximum`, of a row that is `all`.
    //
    // Inputs must not look like those that were summed: what it sees computed twice, floats or exponentials, the compiler rather keeps,
    // in registers that it has not. No sum is negative, which it does not know.
    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, float maximum, Partial all) {
        if constexpr (hold == exponentials) {
            const float scale = rescaled<PartExp>(inverse_of(all.sum), maximum, all.maximum);
            store(row, first, stride, [&](int i, int e) { return exponential[i * vector + e] * scale; });
        } else {
            const PartExp exponential_of(all.maximum);
            const float scale = inverse_of(all.sum);
            const unsigned zero = __float_as_int(all.sum) >> 31;
#pragma unroll
            for (int i = 0; i < items; i++)
#pragma unroll
                for (int w = 0; w < Packed::count; w++) pack[i].word[w] ^= zero;
            store(row, first, stride, [&](int i, int e) { return exponential_of(pack[i].value(e)) * scale; });
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
};
