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

// Neighbouring threads take neighbouring addresses: along k where that is the unit stride, else along the other side.
__device__ __forceinline__ void fetch(
    i32 (&tile)[16][64 + 4], const i32* from, const i64 row, const i64 rows,
    const i64 k, const i64 depth, const i64 by_row, const i64 by_k) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int flat = e * 256 + (int)threadIdx.x;
        const int r = by_k == 1 ? flat / 16 : flat % 64;
        const int d = by_k == 1 ? flat % 16 : flat / 64;
        const bool inside = row + r < rows && k + d < depth;
        tile[d][r] = inside ? from[(row + r) * by_row + (k + d) * by_k] : 0;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) contract(i32* out, const i32* a, const i32* b, const i64 zx, const i64 zy, const i64 zm, const i64 zn, const i64 zk, const i64 o_x, const i64 o_y, const i64 o_m, const i64 o_n, const i64 a_x, const i64 a_y, const i64 a_m, const i64 a_k, const i64 b_x, const i64 b_y, const i64 b_k, const i64 b_n) {
    __shared__ i32 left_tile[16][64 + 4], right_tile[16][64 + 4];
    const i64 across = (zn + 63) / 64, down = (zm + 63) / 64;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (i64 job = blockIdx.x; job < zx * zy * down * across; job += gridDim.x) {
        const i64 n = job % across * 64, m = job / across % down * 64;
        const i64 y = job / (across * down) % zy, x = job / (across * down * zy);
        const i32* const left_from = a + x * a_x + y * a_y;
        const i32* const right_from = b + x * b_x + y * b_y;
        i32 sum[4][4] = {};
        for (i64 k = 0; k < zk; k += 16) {
            __syncthreads();
            fetch(left_tile, left_from, m, zm, k, zk, a_m, a_k);
            fetch(right_tile, right_from, n, zn, k, zk, b_n, b_k);
            __syncthreads();
            #pragma unroll
            for (int d = 0; d < 16; ++d) {
                i32 left[4], right[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) left[i] = left_tile[d][ty * 4 + i];
                #pragma unroll
                for (int j = 0; j < 4; ++j) right[j] = right_tile[d][tx * 4 + j];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) sum[i][j] = (i32)((u32)sum[i][j] + (u32)left[i] * (u32)right[j]);
                }
            }
        }
        for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 4; ++j) {
                const i64 r = m + ty * 4 + i, q = n + tx * 4 + j;
                if (r < zm && q < zn) out[x * o_x + y * o_y + r * o_m + q * o_n] = sum[i][j];
            }
        }
    }
}
