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

__device__ __forceinline__ void body(const i64 index, const float a0, const bool a1, float& y0) {
    const float t0 = -a0;
    const float t1 = a1 ? a0 : t0;
    y0 = t1;
}

extern "C" __global__ void __launch_bounds__(256) map_strided(u16* p0, const u16* p1, const u8* p2, const i64 z0, const i64 z1, const i64 k0_0, const i64 k0_1, const i64 k1_0, const i64 k1_1, const i64 k2_0, const i64 k2_1) {
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    const i64 total = z0 * z1;
    __shared__ u16 tile0[64][65];
    int d = -1;
    if (d < 0 && z0 >= 16 && k1_0 == 1) d = 0;
    if (d >= 0 && z1 >= 16) {
        const i64 n0 = d == 0 ? (z0 + 63) / 64 : z0;
        const i64 n1 = (z1 + 63) / 64;
        const i64 tiles = n0 * n1;
        for (i64 position = blockIdx.x; position < tiles; position += gridDim.x) {
            i64 rest = position;
            const i64 c1 = (rest % n1) * 64;
            rest /= n1;
            const i64 c0 = (rest) * (d == 0 ? 64 : 1);
            const i64 tall = z0 - c0, wide = z1 - c1;
            const i64 e0 = c0 * k0_0 + c1 * k0_1, h0 = k0_0;
            const i64 e1 = c0 * k1_0 + c1 * k1_1;
            const i64 e2 = c0 * k2_0 + c1 * k2_1, h2 = k2_0;
            #pragma unroll 4
            for (int y = (int)threadIdx.x / 64; y < 64; y += 4) {
                if (y < wide && (int)threadIdx.x % 64 < tall) tile0[y][(int)threadIdx.x % 64] = p1[e1 + y * k1_1 + (int)threadIdx.x % 64];
            }
            __syncthreads();
            const int x = (int)threadIdx.x % 64;
            #pragma unroll 4
            for (int y = (int)threadIdx.x / 64; y < 64; y += 4) {
                if (x >= wide || y >= tall) continue;
                float y0;
                body(0, widen_f16(tile0[x][y]), (p2[e2 + y * h2 + x * k2_1] != 0), y0);
                p0[e0 + y * h0 + x] = narrow_f16(y0);
            }
            __syncthreads();
        }
        return;
    }
    // 64-bit division is several times slower than 32-bit.
    if (total < 0x7fffffffLL && z1 % 16 == 0 && (u64)p0 % 16 == 0 && k0_0 % 16 == 0 && (u64)p2 % 16 == 0 && k2_0 % 16 == 0) {
        for (i64 c = first; c < total / 16; c += stride) {
            const u32 position = (u32)c * 16u;
            u32 rest = position;
            const u32 c1 = rest % (u32)z1;
            rest /= (u32)z1;
            const u32 c0 = rest;
            const i64 e0 = (i64)c0 * k0_0 + (i64)c1 * k0_1;
            const i64 e1 = (i64)c0 * k1_0 + (i64)c1 * k1_1;
            const i64 e2 = (i64)c0 * k2_0 + (i64)c1 * k2_1;
            Pack<u16, 16> w1;
            #pragma unroll
            for (int j = 0; j < 16; ++j) w1.v[j] = p1[e1 + j * k1_1];
            const Pack<u8, 16> w2 = *(const Pack<u8, 16>*)(p2 + e2);
            Pack<u16, 16> w0;
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
                float y0;
                body((i64)position + j, widen_f16(w1.v[j]), (w2.v[j] != 0), y0);
                w0.v[j] = narrow_f16(y0);
            }
            *(Pack<u16, 16>*)(p0 + e0) = w0;
        }
    } else if (total < 0x7fffffffLL) {
        for (i64 index = first; index < total; index += stride) {
            const u32 position = (u32)index;
            u32 rest = position;
            const u32 c1 = rest % (u32)z1;
            rest /= (u32)z1;
            const u32 c0 = rest;
            const i64 e0 = (i64)c0 * k0_0 + (i64)c1 * k0_1;
            const i64 e1 = (i64)c0 * k1_0 + (i64)c1 * k1_1;
            const i64 e2 = (i64)c0 * k2_0 + (i64)c1 * k2_1;
            float y0;
            body(index, widen_f16(p1[e1]), (p2[e2] != 0), y0);
            p0[e0] = narrow_f16(y0);
        }
    } else {
        for (i64 index = first; index < total; index += stride) {
            const i64 position = index;
            i64 rest = position;
            const i64 c1 = rest % (i64)z1;
            rest /= (i64)z1;
            const i64 c0 = rest;
            const i64 e0 = (i64)c0 * k0_0 + (i64)c1 * k0_1;
            const i64 e1 = (i64)c0 * k1_0 + (i64)c1 * k1_1;
            const i64 e2 = (i64)c0 * k2_0 + (i64)c1 * k2_1;
            float y0;
            body(index, widen_f16(p1[e1]), (p2[e2] != 0), y0);
            p0[e0] = narrow_f16(y0);
        }
    }
}
