// Stands in for templates/softmax/held.cuh in a floor: what was loaded is exchanged about as always, and stored as it is.
//
// The exchange waits for all loads because its maximum depends on every word, by one instruction for two of them; the stores wait for the
// exchange because its outcome decides whether there are any, by two comparisons a thread.

#include "stream.cuh"

enum Hold { exponentials, inputs };

__device__ __forceinline__ void all_is_asked_for() {}

template <class Element, int vector, int items, Hold hold, Edges edges>
struct Held {
    using Packed = Words<Element, vector>;
    using PartExp = PartExponential<sizeof(Element)>;
    static constexpr int size = items * vector, most = size < 64 ? size : 0;
    static constexpr unsigned impossible = 0x7f812345u;
    Packed pack[items];
    float exponential[items * vector];  // the first one stands for all

    __device__ __forceinline__ void load(const Row<Element, vector, edges>& row, int first, int stride) {
        load_packs<items>(pack, row, first, stride);
    }

    // As without a floor, but all packs at once.
    __device__ __forceinline__ Partial reduce() {
        const float largest = maximum();
        const Partial part[1] = {{largest, sum(PartExp(largest))}};
        return combine_partials<PartExp, lanes_per_warp, most>(part);
    }

    __device__ __forceinline__ float maximum() const {
        unsigned any = 0;
#pragma unroll
        for (int i = 0; i < items; i++) any |= largest_word<Element, Packed::count>(pack[i].word);
        return largest_value<Element>(any);
    }

    // 1, unless the first word and the maximum have bits that they never have together, which the compiler does not know. That both decide
    // keeps the sum of all lanes: it would not be taken of what is the same in all of them.
    __device__ __forceinline__ float sum(const PartExp& exponential_of) {
        exponential[0] = (pack[0].word[0] ^ __float_as_uint(exponential_of.maximum)) == impossible ? 0.0f : 1.0f;
        return exponential[0];
    }

    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, Partial all) const {
        if (__float_as_uint(all.sum) != impossible && __float_as_uint(all.maximum) != impossible) store_all(row, first, stride);
    }
    template <class ValueOf>
    __device__ __forceinline__ void store(const Row<Element, vector, edges>& row, int first, int stride, ValueOf value_of) const {
        if (__float_as_uint(value_of(0, 0)) != impossible) store_all(row, first, stride);
    }
    __device__ __forceinline__ void store_all(const Row<Element, vector, edges>& row, int first, int stride) const {
#pragma unroll
        for (int i = 0; i < items; i++) row.store(first + i * stride, pack[i]);
    }
};
