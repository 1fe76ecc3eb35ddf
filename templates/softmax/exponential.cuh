// exp(x - maximum) and its sum, exact enough for every row that has a finite maximum.

// exp(x - maximum) as 2^(x * log2(e) - maximum * log2(e)), the second product rounded once per row.
//
// That rounding is common to every term of the row, so it cancels when they are divided by their sum; the fused multiply-add is
// what makes it common. It may be half an ulp of the product, which must stay small beside 1, and the product must not overflow:
// rows with a large maximum subtract it first instead, which is exact for every x whose exponential is not 0.
// A maximum of -inf or +inf gives NaN for that x, and so for the sum and the whole row, as in torch.
struct Exponential {
    float shift, offset;

    __device__ __forceinline__ explicit Exponential(float maximum) {
        const bool small = fabsf(maximum) < 65536.0f;
        shift = small ? 0.0f : maximum;
        offset = small ? maximum * log2_e : 0.0f;
    }
    __device__ __forceinline__ float operator()(float x) const { return exp2_fast(fmaf(x - shift, log2_e, -offset)); }

    static constexpr float log2_e = 1.44269504f;
};

// A running sum whose error does not grow with the number of terms (Kahan, Communications of the ACM 8(1), 1965).
//
// One thread may add 131072 terms; plain float addition of as many equal ones is off by 2e-4.
struct CompensatedSum {
    float total = 0.0f, excess = 0.0f;

    __device__ __forceinline__ void add(float term) {
        const float wanted = term - excess;
        const float next = total + wanted;
        excess = (next - total) - wanted;
        total = next;
    }
};
