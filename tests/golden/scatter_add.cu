typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

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
    return x != x ? (u16)((bits >> 16) | 0x40u) : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
template <typename T> __device__ __forceinline__ T divide(const T a, const T b) {
    return b == 0 ? (T)0 : b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <typename T> __device__ __forceinline__ T remainder_of(const T a, const T b) {
    return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b);
}

extern "C" __global__ void __launch_bounds__(256) scatter_add(u16* out, const u16* source, const i32* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i) {
    const i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const i64 o = column / inner, i = column % inner;
    const i64 from = limit * blockIdx.y / gridDim.y, to = limit * (blockIdx.y + 1) / gridDim.y;
    u16* const target = out + o * o_o + i * o_i;
    #pragma unroll 8
    for (i64 k = 0; k < count; ++k) {
        i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
        if (at < -limit || at >= limit) *status = 1;
        if (at < 0) at += limit;
        if (at >= from && at < to) {
            const float before = widen_f16(target[at * o_k]);
            const float more = widen_f16(source[o * s_o + k * s_k + i * s_i]);
            target[at * o_k] = narrow_f16((before + more));
        }
    }
}
