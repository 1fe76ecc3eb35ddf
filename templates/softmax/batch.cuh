// The part of a row that one thread takes at a time: `unroll` packs, `stride` packs apart.
//
// Neighbouring threads take neighbouring packs, and no load of a batch waits for another. Values are float from load to store.

template <int unroll, int vector>
struct Batch {
    static constexpr int size = unroll * vector;
    float value[size];
};

// Which packs of a batch lie inside the row: all of them, known when compiling, or those below `left` elements of the first one.
struct AllInside {
    __device__ __forceinline__ bool operator()(int) const { return true; }
};
struct SomeInside {
    long long left;
    __device__ __forceinline__ bool operator()(int offset) const { return offset < left; }
};

// Calls body(first, inside) for each batch of the thread whose first pack is `first`, in a row of `count` packs.
template <int stride, int unroll, class Body>
__device__ __forceinline__ void for_each_batch(long long first, long long count, Body body) {
#pragma unroll 1  // `unroll` says how much, not the compiler
    for (; first + (unroll - 1) * stride < count; first += unroll * stride) body(first, AllInside{});
    if (first < count) body(first, SomeInside{count - first});
}

// Packs outside the row read as -inf: it changes no maximum, and its exponential is 0.
template <int stride, int unroll, int vector, class Source, class Inside>
__device__ __forceinline__ Batch<unroll, vector> load_batch(const Pack<Source, vector>* first, Inside inside) {
    Batch<unroll, vector> batch;
#pragma unroll
    for (int i = 0; i < batch.size; i++) batch.value[i] = -INFINITY;
#pragma unroll
    for (int i = 0; i < unroll; i++)
        if (inside(i * stride)) {
            const Pack<Source, vector> pack = first[i * stride];
#pragma unroll
            for (int e = 0; e < vector; e++) batch.value[i * vector + e] = static_cast<float>(pack.element[e]);
        }
    return batch;
}

template <int stride, int unroll, int vector, class Target, class Inside>
__device__ __forceinline__ void store_batch(Pack<Target, vector>* first, const Batch<unroll, vector>& batch, Inside inside) {
#pragma unroll
    for (int i = 0; i < unroll; i++) {
        Pack<Target, vector> pack;
#pragma unroll
        for (int e = 0; e < vector; e++) pack.element[e] = Target(batch.value[i * vector + e]);
        if (inside(i * stride)) first[i * stride] = pack;
    }
}

// The values of a batch with `function` applied to each.
template <int unroll, int vector, class Function>
__device__ __forceinline__ Batch<unroll, vector> map(Batch<unroll, vector> batch, Function function) {
#pragma unroll
    for (int i = 0; i < batch.size; i++) batch.value[i] = function(batch.value[i]);
    return batch;
}

// `size` values combined in pairs, and those in pairs: a chain of log2(size) operations.
template <class Operation, int size>
__device__ __forceinline__ float fold_values(const float* value) {
    if constexpr (size == 1)
        return value[0];
    else
        return Operation::of(fold_values<Operation, size / 2>(value), fold_values<Operation, size - size / 2>(value + size / 2));
}

template <class Operation, int unroll, int vector>
__device__ __forceinline__ float fold(const Batch<unroll, vector>& batch) {
    return fold_values<Operation, unroll * vector>(batch.value);
}
