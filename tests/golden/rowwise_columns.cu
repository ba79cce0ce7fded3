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
    return x != x ? (u16)((bits >> 16) | 0x40u) : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
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
__device__ __forceinline__ float fold0(float v, u64* room, const int lanes) {
    if (lanes == 1) return v;
    float* const part = (float*)room;
    part[threadIdx.x] = v;
    __syncthreads();
    v = part[threadIdx.x & 31];
    for (int w = 1; w < lanes; ++w) {
        const float other = part[w * 32 + (threadIdx.x & 31)];
        v = v + other;
    }
    __syncthreads();
    return v;
}
__device__ __forceinline__ void row(const i64 index, const i64 extent, const float r0, float& y0) {
    y0 = r0;
}

extern "C" __global__ void __launch_bounds__(1024) rowwise_columns(float* p0, const float* p1, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets) {
    __shared__ u64 room[1024];
    const int lanes = (int)lanes_;
    const int columns = (int)blockDim.x / lanes;
    const int lane = (int)threadIdx.x / columns, place = (int)threadIdx.x % columns;
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 total_columns = outer * inner;
    const i64 tiles = (total_columns + columns - 1) / columns;
    __shared__ u32 drawn;
    if (split) {
        const i64 tile = blockIdx.x / segments, s = blockIdx.x % segments;
        const i64 begin = s * length;
        const i64 end = begin + length < axis ? begin + length : axis;
        const i64 column = tile * columns + place;
        const bool inside = column < total_columns;
        const i64 o = inside ? column / inner : 0, c = inside ? column % inner : 0;
        float* const q0 = p0 + o * k0_0 + c * k0_2;
        const float* const q1 = p1 + o * k1_0 + c * k1_2;
        float v;
        v = 0.0f;
        if (inside) {
            #pragma unroll 8
            for (i64 i = begin + lane; i < end; i += lanes) {
                const float other = pass0(i, axis, q1[(i) * k1_1]);
                v = v + other;
            }
        }
        v = fold0(v, room, lanes);
        volatile float* const partial = (volatile float*)scratch;
        if (inside && lane == 0) partial[s * total_columns + column] = v;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) drawn = atomicAdd(tickets + tile, 1u);
        __syncthreads();
        if (drawn != (u32)segments - 1u) return;
        __threadfence();
        float total = 0.0f;
        if (inside) for (i64 t = lane; t < segments; t += lanes) {
            const float other = partial[t * total_columns + column];
            total = total + other;
        }
        const float r0 = fold0(total, room, lanes);
        if (inside && lane == 0) {
            float y0;
            row(0, axis, r0, y0);
            q0[0] = y0;
        }
        if (threadIdx.x == 0) tickets[tile] = 0u;
        return;
    }
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const i64 column = tile * columns + place;
        const bool inside = column < total_columns;
        const i64 o = inside ? column / inner : 0, c = inside ? column % inner : 0;
        float* const q0 = p0 + o * k0_0 + c * k0_2;
        const float* const q1 = p1 + o * k1_0 + c * k1_2;
        float r0 = 0.0f;
        {
            float v = 0.0f, total = 0.0f;
            for (i64 s = 0; s < segments; ++s) {
                const i64 begin = s * length;
                const i64 end = begin + length < axis ? begin + length : axis;
                v = 0.0f;
                if (inside) {
                    #pragma unroll 8
                    for (i64 i = begin + lane; i < end; i += lanes) {
                        const float other = pass0(i, axis, q1[(i) * k1_1]);
                        v = v + other;
                    }
                }
                v = fold0(v, room, lanes);
                if (lane == (s & (lanes - 1))) total = total + v;
            }
            r0 = segments == 1 ? v : fold0(total, room, lanes);
        }
        if (lanes > 1) __syncthreads();
        if (inside && lane == 0) {
            float y0;
            row(0, axis, r0, y0);
            q0[0] = y0;
        }
    }
}
