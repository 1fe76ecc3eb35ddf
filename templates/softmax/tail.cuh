// The last `cols % vector` elements of a row, which fill no pack: one thread each, kept in a register from load to store.
template <class Element, int block, int vector>
struct Tail {
    static_assert(vector <= block, "each element of the tail needs a thread");
    long long column;
    bool inside;
    float value = -INFINITY;

    __device__ __forceinline__ Tail(const Element* row, long long cols) {
        column = cols / vector * vector + threadIdx.x;
        inside = vector > 1 && column < cols;
        if (inside) value = static_cast<float>(row[column]);
    }
    __device__ __forceinline__ void store(Element* row, float result) const {
        if (inside) row[column] = Element(result);
    }
};
