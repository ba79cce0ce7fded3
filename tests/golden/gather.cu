typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
typedef short i16;
typedef signed char i8;

#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define SHUFFLE(value, mask) __shfl_xor(value, mask, 32)
#define SYNC_WARP() __builtin_amdgcn_wave_barrier()
__device__ __forceinline__ float widen_f16(const u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
__device__ __forceinline__ u16 narrow_f16(const float x) { return __builtin_bit_cast(u16, (_Float16)x); }
#else
#define SHUFFLE(value, mask) __shfl_xor_sync(0xffffffffu, value, mask, 32)
#define SYNC_WARP() __syncwarp()
__device__ __forceinline__ float widen_f16(const u16 h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
__device__ __forceinline__ u16 narrow_f16(const float x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#endif
__device__ __forceinline__ float widen_bf16(const u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 narrow_bf16(const float x) {
    const u32 bits = __float_as_uint(x);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return x != x ? (u16)((bits >> 16) | 0x40u) : h;
#else
    return x != x ? (u16)((bits >> 16) | 0x40u) : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
// Of folds: NaN if either side is NaN; which of two zeros is left open.
__device__ __forceinline__ float maximum(const float a, const float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return a > b || a != a ? a : b;
#endif
}
__device__ __forceinline__ float minimum(const float a, const float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return a < b || a != a ? a : b;
#endif
}
template <typename T> __device__ __forceinline__ T divide(const T a, const T b) {
    return b == 0 ? (T)0 : b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <typename T> __device__ __forceinline__ T remainder_of(const T a, const T b) {
    return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b);
}
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T v[N]; };

template <typename I> __device__ __forceinline__ void pick(const I position, float* out, const float* source, const i64* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i) {
    const i64 i = (i64)(position % (I)inner), rest = (i64)(position / (I)inner);
    const i64 k = (i64)((I)rest % (I)count), o = (i64)((I)rest / (I)count);
    const i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
    const bool bad = (u64)at >= (u64)limit;
    if (bad) *status = 1;
    out[o * o_o + k * o_k + i * o_i] = bad ? (float)0 : source[o * s_o + at * s_k + i * s_i];
}

extern "C" __global__ void __launch_bounds__(256) gather(float* out, const float* source, const i64* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i) {
    typedef Pack<float, 4> Chunk;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    const i64 total = outer * count * inner;
    if (total < 0x7fffffffLL && i_i == 0 && o_i == 1 && s_i == 1 && (inner | o_o | o_k | s_o | s_k) % 4 == 0 && ((u64)out | (u64)source) % 16 == 0) {
        const u32 across = (u32)inner / 4u;
        for (i64 p = first; p < total / 4; p += 4 * stride) {
            i64 from[4], to[4];
            Chunk found[4];
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const i64 q = p + j * stride;
                const bool inside = q < total / 4;
                const u32 row = inside ? (u32)q / across : 0u;
                const i64 i = (i64)(inside ? (u32)q % across : 0u) * 4;
                const i64 o = (i64)(row / (u32)count), k = (i64)(row % (u32)count);
                const i64 at = (i64)picks[o * i_o + k * i_k];
                const bool bad = (u64)at >= (u64)limit;
                if (bad) *status = 1;
                from[j] = bad ? -1 : o * s_o + at * s_k + i;
                to[j] = inside ? o * o_o + k * o_k + i : -1;
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                found[j] = Chunk{};
                if (from[j] >= 0) found[j] = *(const Chunk*)(source + from[j]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (to[j] >= 0) *(Chunk*)(out + to[j]) = found[j];
            }
        }
    } else if (total < 0x7fffffffLL) {
        for (i64 p = first; p < total; p += stride) pick<u32>((u32)p, out, source, picks, status, outer, count, inner, limit, o_o, o_k, o_i, s_o, s_k, s_i, i_o, i_k, i_i);
    } else {
        for (i64 p = first; p < total; p += stride) pick<i64>(p, out, source, picks, status, outer, count, inner, limit, o_o, o_k, o_i, s_o, s_k, s_i, i_o, i_k, i_i);
    }
}
