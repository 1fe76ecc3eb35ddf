// Elements as the 32-bit words that they are loaded and stored in: one float, or two elements of 16 bits.

// Declared by CUDA's headers where they are the element type, and complete only there.
struct __half;
struct __nv_bfloat16;

// How a word of elements is read and written as floats.
template <class Element>
struct Format;

template <>
struct Format<float> {
    using Bits = unsigned;
    static constexpr int per_word = 1;
    static constexpr unsigned minus_infinity = 0xff800000u;  // in every element of a word
    static __device__ __forceinline__ float value(unsigned word, int) { return __uint_as_float(word); }
    static __device__ __forceinline__ unsigned word(const float* value) { return __float_as_uint(value[0]); }
    static __device__ __forceinline__ unsigned max(unsigned a, unsigned b) {
        return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
    }
};

#ifdef AUTOTUNE_EMULATOR

template <class Element, unsigned negative_infinity>
struct TwoPerWord {
    using Bits = unsigned short;
    static constexpr int per_word = 2;
    static constexpr unsigned minus_infinity = negative_infinity << 16 | negative_infinity;
    static float value(unsigned word, int place) {
        const Bits bits = Bits(word >> 16 * place);
        Element element;
        memcpy(&element, &bits, sizeof(bits));
        return static_cast<float>(element);
    }
    static unsigned word(const float* value) {
        const Element both[2] = {Element(value[0]), Element(value[1])};
        unsigned word;
        memcpy(&word, both, sizeof(word));
        return word;
    }
    static unsigned max(unsigned a, unsigned b) {
        const float largest[2] = {fmaxf(value(a, 0), value(b, 0)), fmaxf(value(a, 1), value(b, 1))};
        return word(largest);
    }
};
template <>
struct Format<__half> : TwoPerWord<__half, 0xfc00u> {};
template <>
struct Format<__nv_bfloat16> : TwoPerWord<__nv_bfloat16, 0xff80u> {};

#else

// In PTX, because CUDA's functions convert and pack one element at a time: three instructions where one does.
template <>
struct Format<__half> {
    using Bits = unsigned short;
    static constexpr int per_word = 2;
    static constexpr unsigned minus_infinity = 0xfc00fc00u;
    static __device__ __forceinline__ float value(unsigned word, int place) {
        float value;
        if (place == 0)
            asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(word));
        else
            asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(value) : "r"(word));
        return value;
    }
    static __device__ __forceinline__ unsigned word(const float* value) {
        unsigned word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value[1]), "f"(value[0]));
        return word;
    }
    static __device__ __forceinline__ unsigned max(unsigned a, unsigned b) {
        unsigned largest;
        asm("max.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
        return largest;
    }
};
template <>
struct Format<__nv_bfloat16> {
    using Bits = unsigned short;
    static constexpr int per_word = 2;
    static constexpr unsigned minus_infinity = 0xff80ff80u;
    static __device__ __forceinline__ float value(unsigned word, int place) {
        return __uint_as_float(place == 0 ? word << 16 : word & 0xffff0000u);
    }
    static __device__ __forceinline__ unsigned word(const float* value) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value[1]), "f"(value[0]));
        return word;
    }
    static __device__ __forceinline__ unsigned max(unsigned a, unsigned b) {
        unsigned largest;
        asm("max.bf16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
        return largest;
    }
};

#endif

// `vector` elements that are loaded and stored by one instruction, as words.
template <class Element, int vector>
struct alignas(sizeof(Element) * vector) Words {
    static_assert(sizeof(Element) * vector >= 4 && sizeof(Element) * vector <= 16, "an access has 4, 8 or 16 bytes");
    using Of = Format<Element>;
    using Bits = typename Of::Bits;
    static constexpr int count = vector / Of::per_word;
    unsigned word[count];

    // Every element -inf: it changes no maximum, and its exponential is 0.
    static __device__ __forceinline__ Words nothing() {
        Words words;
#pragma unroll
        for (int w = 0; w < count; w++) words.word[w] = Of::minus_infinity;
        return words;
    }
    __device__ __forceinline__ float value(int e) const { return Of::value(word[e / Of::per_word], e % Of::per_word); }
    __device__ __forceinline__ Bits bits(int e) const { return Bits(word[e / Of::per_word] >> shift(e)); }
    __device__ __forceinline__ void set_bits(int e, Bits bits) {
        unsigned& w = word[e / Of::per_word];
        w = (w & ~(unsigned(Bits(-1)) << shift(e))) | unsigned(bits) << shift(e);
    }
    static __device__ __forceinline__ int shift(int e) { return e % Of::per_word * 16; }
};

// The words of `vector` floats.
template <class Element, int vector>
__device__ __forceinline__ Words<Element, vector> words_of(const float* value) {
    using Of = Format<Element>;
    Words<Element, vector> words;
#pragma unroll
    for (int w = 0; w < words.count; w++) words.word[w] = Of::word(value + w * Of::per_word);
    return words;
}

// The largest element of `count` words, combined in pairs, and those in pairs. NaNs are left out.
template <class Element, int count>
__device__ __forceinline__ unsigned largest_word(const unsigned* word) {
    if constexpr (count == 1)
        return word[0];
    else
        return Format<Element>::max(largest_word<Element, count / 2>(word), largest_word<Element, count - count / 2>(word + count / 2));
}

// The largest element of them and of `least`, one after another: what comes later than `least` is not looked at before.
template <class Element, int count>
__device__ __forceinline__ unsigned largest_word_after(unsigned least, const unsigned* word) {
#pragma unroll
    for (int i = 0; i < count; i++) least = Format<Element>::max(least, word[i]);
    return least;
}
template <class Element>
__device__ __forceinline__ float largest_value(unsigned word) {
    using Of = Format<Element>;
    return Of::per_word == 1 ? Of::value(word, 0) : fmaxf(Of::value(word, 0), Of::value(word, Of::per_word - 1));
}
