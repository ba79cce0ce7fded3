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

__device__ __forceinline__ float step(const float r0, const bool a0, const i64 index) {
    const float t0 = (float)a0;
    const float t1 = r0 + t0;
    return t1;
}

extern "C" __global__ void __launch_bounds__(64) scan(u16* out, const u8* in0, const i64 outer, const i64 axis, const i64 inner, const i64 o_o, const i64 o_k, const i64 o_i, const i64 x0_o, const i64 x0_k, const i64 x0_i) {
    const i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 p = (i64)blockIdx.x * blockDim.x + threadIdx.x; p < outer * inner; p += stride) {
        const i64 o = p / inner, i = p % inner;
        const i64 from_o = o * o_o + i * o_i;
        const i64 from_x0 = o * x0_o + i * x0_i;
        float state = 0.0f;
        i64 k = 0;
        for (; k + 8 <= axis; k += 8) {
            bool v0[8];
            #pragma unroll
            for (int n = 0; n < 8; ++n) {
                v0[n] = (in0[from_x0 + (k + n) * x0_k] != 0);
            }
            #pragma unroll
            for (int n = 0; n < 8; ++n) {
                state = step(state, v0[n], (k + n));
                out[from_o + (k + n) * o_k] = narrow_f16(state);
            }
        }
        for (; k < axis; ++k) {
            state = step(state, (in0[from_x0 + k * x0_k] != 0), k);
            out[from_o + k * o_k] = narrow_f16(state);
        }
    }
}
