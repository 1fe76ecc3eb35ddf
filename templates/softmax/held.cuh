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

    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, const PartExp& exponential_of,
                                          float scale) {
        if constexpr (hold == inputs) forget_exponentials();
#pragma unroll
        for (int i = 0; i < items; i++) {
            float value[vector];
#pragma unroll
            for (int e = 0; e < vector; e++)
                value[e] = (hold == exponentials ? exponential[i * vector + e] : exponential_of(pack[i].value(e))) * scale;
            row.store(first + i * stride, words_of<Element, vector>(value));
        }
    }

private:
    // The compiler sees the same exponentials computed twice, and would rather keep them all than compute them again.
    __device__ __forceinline__ void forget_exponentials() {
#ifndef AUTOTUNE_EMULATOR
#pragma unroll
        for (int i = 0; i < items; i++)
#pragma unroll
            for (int w = 0; w < Packed::count; w++) asm volatile("" : "+r"(pack[i].word[w]));
#endif
    }
};
