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

__device__ __forceinline__ float pass0(const i64 index, const i64 extent, const float a0) {
    return a0;
}
__device__ __forceinline__ void row(const i64 index, const i64 extent, const float r0, float& y0) {
    y0 = r0;
}
template <int W> __device__ __forceinline__ void fold0(float* const v, u64* const room, const int lanes, const int across) {
    if (lanes == 1) return;
    float* const part = (float*)room;
    #pragma unroll
    for (int j = 0; j < W; ++j) part[j * blockDim.x + threadIdx.x] = v[j];
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < W; ++j) {
        const float* const mine = part + j * blockDim.x + threadIdx.x % across;
        v[j] = mine[0];
        for (int w = 1; w < lanes; ++w) {
            const float other = mine[w * across];
            v[j] = v[j] + other;
        }
    }
    __syncthreads();
}
template <int W> __device__ __forceinline__ void walk(float* p0, const float* p1, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets, const i64 tile, const i64 segments, const i64 total_columns, const int lanes, const int lane, const int across, const int place, u64* const room) {
    __shared__ u32 drawn;
    const i64 mine = blockIdx.x % segments;
    const i64 column = (tile * across + place) * W;
    const bool inside = column < total_columns;
    const i64 o = inside ? column / inner : 0, c = inside ? column % inner : 0;
    float* const q0 = p0 + o * k0_0 + c * k0_2;
    const float* const q1 = p1 + o * k1_0 + c * k1_2;
    float v0[W], total0[W];
    #pragma unroll
    for (int j = 0; j < W; ++j) {
        total0[j] = 0.0f;
    }
    for (i64 s = split ? mine : 0; s < (split ? mine + 1 : segments); ++s) {
        const i64 begin = s * length;
        const i64 end = begin + length < axis ? begin + length : axis;
        #pragma unroll
        for (int j = 0; j < W; ++j) v0[j] = 0.0f;
        if (inside) {
            #pragma unroll (W == 1 ? 8 : 4)
            for (i64 i = begin + lane; i < end; i += lanes) {
                const Pack<float, W> w0 = *(const Pack<float, W>*)(q1 + (i) * k1_1);
                #pragma unroll
                for (int j = 0; j < W; ++j) {
                    const float other0 = pass0(i, axis, w0.v[j]);
                    v0[j] = v0[j] + other0;
                }
            }
        }
        fold0<W>(v0, room, lanes, across);
        #pragma unroll
        for (int j = 0; j < W; ++j) if (lane == (s & (lanes - 1))) {
            total0[j] = total0[j] + v0[j];
        }
    }
    if (split) {
        volatile float* const partial0 = (volatile float*)scratch;
        if (inside && lane == 0) {
            #pragma unroll
            for (int j = 0; j < W; ++j) {
                partial0[(0 * segments + mine) * total_columns + column + j] = v0[j];
            }
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) drawn = atomicAdd(tickets + tile, 1u);
        __syncthreads();
        if (drawn != (u32)segments - 1u) return;
        __threadfence();
        #pragma unroll
        for (int j = 0; j < W; ++j) {
            total0[j] = 0.0f;
        }
        if (inside) for (i64 t = lane; t < segments; t += lanes) {
            #pragma unroll
            for (int j = 0; j < W; ++j) {
                const float other0 = partial0[(0 * segments + t) * total_columns + column + j];
                total0[j] = total0[j] + other0;
            }
        }
    }
    if (segments > 1) {
        fold0<W>(total0, room, lanes, across);
        #pragma unroll
        for (int j = 0; j < W; ++j) {
            v0[j] = total0[j];
        }
    }
    if (lanes > 1) __syncthreads();
    if (inside && lane == 0) {
        #pragma unroll
        for (int j = 0; j < W; ++j) {
            const float r0 = v0[j];
            float y0;
            row(0, axis, r0, y0);
            q0[j * k0_2] = y0;
        }
    }
    if (split && threadIdx.x == 0) tickets[tile] = 0u;
}

extern "C" __global__ void __launch_bounds__(256) rowwise_columns(float* p0, const float* p1, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets) {
    __shared__ u64 room[512];
    const int lanes = (int)lanes_;
    const int across = (int)blockDim.x / lanes;
    const int lane = (int)threadIdx.x / across, place = (int)threadIdx.x % across;
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 total_columns = outer * inner;
    const i64 tiles = (total_columns + across * 4 - 1) / (across * 4);
    const bool wide = inner % 4 == 0 && (u64)p1 % 16 == 0 && k1_0 % 4 == 0 && k1_1 % 4 == 0;
    for (i64 near = split ? blockIdx.x / segments : blockIdx.x; near < tiles; near += gridDim.x) {
        if (wide) walk<4>(p0, p1, outer, axis, inner, k0_0, k0_1, k0_2, k1_0, k1_1, k1_2, lanes_, length, split, scratch, tickets, near, segments, total_columns, lanes, lane, across, place, room);
        else for (int part = 0; part < 4; ++part) walk<1>(p0, p1, outer, axis, inner, k0_0, k0_1, k0_2, k1_0, k1_1, k1_2, lanes_, length, split, scratch, tickets, near * 4 + part, segments, total_columns, lanes, lane, across, place, room);
    }
}
