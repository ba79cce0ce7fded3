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
template <typename T>
__device__ __forceinline__ void note(const T size, const T infinity, const u32 bit, u32* const flag) {
    if (size >= infinity) atomicOr(flag, size == infinity ? 2u * bit : bit);
}
__device__ __forceinline__ float noted(const float x, const u32 bit, u32* const flag) {
    note(__float_as_uint(x) & 0x7fffffffu, 0x7f800000u, bit, flag);
    return x;
}
__device__ __forceinline__ double noted(const double x, const u32 bit, u32* const flag) {
    note((u64)__double_as_longlong(x) & 0x7fffffffffffffffULL, 0x7ff0000000000000ULL, bit, flag);
    return x;
}
__device__ __forceinline__ u16 noted_f16(const u16 x, const u32 bit, u32* const flag) {
    note(x & 0x7fffu, 0x7c00u, bit, flag);
    return x;
}
__device__ __forceinline__ u16 noted_bf16(const u16 x, const u32 bit, u32* const flag) {
    note(x & 0x7fffu, 0x7f80u, bit, flag);
    return x;
}

__device__ __forceinline__ float pass0(const i64 index, const i64 extent, const float a0) {
    return a0;
}
__device__ __forceinline__ float fold0(float v, u64* room, const int lanes) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        if (mask >= lanes) continue;
        const float other = SHUFFLE(v, mask);
        v = (v > other || v != v ? v : other);
    }
    if (lanes <= 32) return v;
    float* const part = (float*)room;
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < lanes / 32; ++w) {
        const float other = part[w];
        v = (v > other || v != v ? v : other);
    }
    __syncthreads();
    return v;
}
__device__ __forceinline__ void row(const i64 index, const i64 extent, const float r0, float& y0) {
    y0 = r0;
}

extern "C" __global__ void __launch_bounds__(1024) rowwise_axis(float* p0, const float* p1, u32* const flag, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets) {
    __shared__ u64 room[32];
    const int lanes = (int)lanes_;
    const int lane = (int)threadIdx.x & (lanes - 1);
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const int place = lanes < 32 ? ((int)threadIdx.x & 31) / lanes : 0;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes - place;
    const i64 step = (i64)gridDim.x * blockDim.x / lanes;
    const bool wide = (u64)p1 % 16 == 0 && (outer == 1 || k1_0 % 4 == 0);
    __shared__ u32 drawn;
    if (split) {
        const i64 o = blockIdx.x / segments, s = blockIdx.x % segments;
        const i64 begin = s * length;
        const i64 end = begin + length < axis ? begin + length : axis;
        float* const q0 = p0 + o * k0_0;
        const float* const q1 = p1 + o * k1_0;
        float v;
        float m[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) m[j] = __uint_as_float(0xff800000u);
        const i64 whole = end - (end - begin) % 4;
        i64 i = begin + lane * 4;
        if (wide) {
            #pragma unroll 4
            for (; i < whole; i += lanes * 4) {
                const Pack<float, 4> w1 = *(const Pack<float, 4>*)(q1 + i);
                #pragma unroll
                for (int j = 0; j < 4; ++j) { const float other = pass0(i + j, axis, w1.v[j]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
            }
        } else {
            for (; i < whole; i += lanes * 4) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) { const float other = pass0(i + j, axis, q1[(i + j) * k1_1]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
            }
        }
        if (i < end) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) if (i + j < end) { const float other = pass0(i + j, axis, q1[(i + j) * k1_1]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
        }
        #pragma unroll
        for (int h = 2; h > 0; h >>= 1) {
            #pragma unroll
            for (int j = 0; j < h; ++j) m[j] = (m[j] > m[j + h] || m[j] != m[j] ? m[j] : m[j + h]);
        }
        v = m[0];
        v = fold0(v, room, lanes);
        volatile float* const partial = (volatile float*)scratch;
        if (lane == 0) partial[o * segments + s] = v;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) drawn = atomicAdd(tickets + o, 1u);
        __syncthreads();
        if (drawn != (u32)segments - 1u) return;
        __threadfence();
        float total = __uint_as_float(0xff800000u);
        for (i64 t = lane; t < segments; t += lanes) {
            const float other = partial[o * segments + t];
            total = (total > other || total != total ? total : other);
        }
        const float r0 = fold0(total, room, lanes);
        if (lane == 0) {
            float y0;
            row(0, axis, r0, y0);
            q0[0] = noted(y0, 1u, flag);
        }
        if (threadIdx.x == 0) tickets[o] = 0u;
        return;
    }
    for (i64 near = first; near < outer; near += step) {
        const bool inside = near + place < outer;
        const i64 o = inside ? near + place : outer - 1;
        float* const q0 = p0 + o * k0_0;
        const float* const q1 = p1 + o * k1_0;
        float r0 = __uint_as_float(0xff800000u);
        {
            float v = __uint_as_float(0xff800000u), total = __uint_as_float(0xff800000u);
            for (i64 s = 0; s < segments; ++s) {
                const i64 begin = s * length;
                const i64 end = begin + length < axis ? begin + length : axis;
                float m[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) m[j] = __uint_as_float(0xff800000u);
                const i64 whole = end - (end - begin) % 4;
                i64 i = begin + lane * 4;
                if (wide) {
                    #pragma unroll 4
                    for (; i < whole; i += lanes * 4) {
                        const Pack<float, 4> w1 = *(const Pack<float, 4>*)(q1 + i);
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) { const float other = pass0(i + j, axis, w1.v[j]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
                    }
                } else {
                    for (; i < whole; i += lanes * 4) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) { const float other = pass0(i + j, axis, q1[(i + j) * k1_1]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
                    }
                }
                if (i < end) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) if (i + j < end) { const float other = pass0(i + j, axis, q1[(i + j) * k1_1]); m[j] = (m[j] > other || m[j] != m[j] ? m[j] : other); }
                }
                #pragma unroll
                for (int h = 2; h > 0; h >>= 1) {
                    #pragma unroll
                    for (int j = 0; j < h; ++j) m[j] = (m[j] > m[j + h] || m[j] != m[j] ? m[j] : m[j + h]);
                }
                v = m[0];
                v = fold0(v, room, lanes);
                if (lane == (s & (lanes - 1))) total = (total > v || total != total ? total : v);
            }
            r0 = segments == 1 ? v : fold0(total, room, lanes);
        }
        if (lanes > 32) __syncthreads(); else SYNC_WARP();
        if (inside && lane == 0) {
            float y0;
            row(0, axis, r0, y0);
            q0[0] = noted(y0, 1u, flag);
        }
    }
}
