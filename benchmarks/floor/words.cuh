// Stands in for templates/softmax/words.cuh in a floor: words are stored as they were loaded, never unpacked, converted or compared.

struct __half;
struct __nv_bfloat16;

template <int bytes>
struct BitsOf {
    using Type = unsigned;
};
template <>
struct BitsOf<2> {
    using Type = unsigned short;
};

template <class Element>
struct Format {
    using Bits = typename BitsOf<sizeof(Element)>::Type;
    static constexpr int per_word = 4 / sizeof(Element);
    static constexpr unsigned minus_infinity = per_word == 1 ? 0xff800000u : 0xff80ff80u;
    static __device__ __forceinline__ float value(unsigned word, int) { return __uint_as_float(word); }
    static __device__ __forceinline__ unsigned word(const float* value) { return __float_as_uint(value[0]); }
    static __device__ __forceinline__ unsigned max(unsigned a, unsigned b) { return a | b; }
};

template <class Element, int vector>
struct alignas(sizeof(Element) * vector) Words {
    using Of = Format<Element>;
    using Bits = typename Of::Bits;
    static constexpr int count = vector / Of::per_word;
    unsigned word[count];

    static __device__ __forceinline__ Words nothing() {
        Words words;
#pragma unroll
        for (int w = 0; w < count; w++) words.word[w] = Of::minus_infinity;
        return words;
    }
    __device__ __forceinline__ float value(int e) const { return Of::value(word[e / Of::per_word], 0); }
    __device__ __forceinline__ Bits bits(int e) const { return Bits(word[e / Of::per_word] >> shift(e)); }
    __device__ __forceinline__ void set_bits(int e, Bits bits) {
        unsigned& w = word[e / Of::per_word];
        w = (w & ~(unsigned(Bits(-1)) << shift(e))) | unsigned(bits) << shift(e);
    }
    static __device__ __forceinline__ int shift(int e) { return e % Of::per_word * 16; }
};

template <class Element, int vector>
__device__ __forceinline__ Words<Element, vector> words_of(const float* value) {
    using Of = Format<Element>;
    Words<Element, vector> words;
#pragma unroll
    for (int w = 0; w < words.count; w++) words.word[w] = Of::word(value + w * Of::per_word);
    return words;
}

template <class Element, int count>
__device__ __forceinline__ unsigned largest_word(const unsigned* word) {
    unsigned any = word[0];
#pragma unroll
    for (int w = 1; w < count; w++) any |= word[w];
    return any;
}
template <class Element>
__device__ __forceinline__ float largest_value(unsigned word) {
    return __uint_as_float(word);
}
template <class Element, int count>
__device__ __forceinline__ unsigned largest_word_after(unsigned least, const unsigned* word) {
    return least | largest_word<Element, count>(word);
}
