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

template <typename T, int N> __device__ __forceinline__ Pack<T, N> shifted(const T* const p) {
    const u32 past = (u32)(u64)p & 15u;
    const Pack<u32, 4>* const from = (const Pack<u32, 4>*)((u64)p - past);
    const Pack<u32, 4> low = from[0], high = from[past ? 1 : 0];
    u32 a[8] = {low.v[0], low.v[1], low.v[2], low.v[3], high.v[0], high.v[1], high.v[2], high.v[3]};
    #pragma unroll
    for (int k = 0; k < 6; ++k) a[k] = past & 8u ? a[k + 2] : a[k];
    #pragma unroll
    for (int k = 0; k < 5; ++k) a[k] = past & 4u ? a[k + 1] : a[k];
    union { u32 words[4]; Pack<T, N> whole; } made;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        made.words[k] = (u32)(((u64)a[k + 1] << 32 | a[k]) >> ((past & 3u) * 8u));
    }
    return made.whole;
}
__device__ __forceinline__ float pass0(const i64 index, const i64 extent, const float a0) {
    return a0;
}
__device__ __forceinline__ void row(const i64 index, const i64 extent, const float r0, float& y0) {
    y0 = r0;
}
__device__ __forceinline__ void fold0(float& v0, u64* const room, const int lanes) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        if (mask >= lanes) continue;
        const float other0 = SHUFFLE(v0, mask);
        v0 = maximum(v0, other0);
    }
    if (lanes <= 32) return;
    if ((threadIdx.x & 31) == 0) {
        ((float*)(room + 0))[threadIdx.x >> 5] = v0;
    }
    __syncthreads();
    const int begin = ((int)threadIdx.x & -lanes) >> 5;
    v0 = ((float*)(room + 0))[begin];
    for (int w = 1; w < lanes / 32; ++w) {
        const float other0 = ((float*)(room + 0))[begin + w];
        v0 = maximum(v0, other0);
    }
    __syncthreads();
}

template <bool WHOLE> __device__ __forceinline__ void walk(float* p0, const float* p1, u32* const flag, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets, u64* const room) {
    const int lanes = (int)lanes_;
    const int lane = (int)threadIdx.x & (lanes - 1);
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 tile = (i64)lanes * 32;
    const bool resident = WHOLE || axis <= tile;
    const int bits = __popc(lanes - 1);  // lanes is a power of two
    i64 near = ((i64)blockIdx.x * blockDim.x + threadIdx.x) >> bits;
    __shared__ u32 drawn;
    const i64 mine = blockIdx.x % segments;
    if (split) near = blockIdx.x / segments;
    const bool inside = near < outer;
    const i64 o = inside ? near : outer - 1;
    float* const q0 = p0 + o * k0_0;
    const float* const q1 = p1 + o * k1_0;
    Pack<float, 4> w0[8];
    if (resident) {
        const i64 here = 0;
        const int low = 0, high = (int)axis;
        const float* const f0 = q1 + here;
        if (WHOLE || ((u64)(q1) % 16 == 0)) {
            #pragma unroll
            for (int u = 0; u < 8; ++u) {
                const int at = (u * lanes + lane) * 4;
                const bool whole = at >= low && at + 4 <= high;
                w0[u] = Pack<float, 4>{};
                if (whole) w0[u] = ((const Pack<float, 4>*)f0)[u * lanes + lane];
            }
        } else {
            #pragma unroll
            for (int u = 0; u < 8; ++u) {
                const int at = (u * lanes + lane) * 4;
                const bool whole = at >= low && at + 4 <= high;
                w0[u] = Pack<float, 4>{};
                if (whole) w0[u] = shifted<float, 4>(f0 + at);
            }
        }
        if (!WHOLE && (low | (high % 4))) {
            #pragma unroll
            for (int u = 0; u < 8; ++u) {
                const int at = (u * lanes + lane) * 4;
                if (at >= low && at + 4 <= high) continue;
                #pragma unroll
                for (int j = 0; j < 4; ++j) if (at + j >= low && at + j < high) { w0[u].v[j] = f0[at + j]; }
            }
        }
    }
    float r0 = __uint_as_float(0xff800000u);
    {
        float v0 = __uint_as_float(0xff800000u), total0 = __uint_as_float(0xff800000u);
        for (i64 s = split ? mine : 0; s < (split ? mine + 1 : segments); ++s) {
            const i64 begin = s * length;
            const i64 end = begin + length < axis ? begin + length : axis;
            float m0[4];
            #pragma unroll
            for (int j = 0; j < 4; ++j) m0[j] = __uint_as_float(0xff800000u);
            for (i64 first = begin; WHOLE || first < end; first += tile) {
                const i64 here = first;
                const int high = end - here < tile ? (int)(end - here) : (int)tile;
                if (!resident) {
                    const int low = 0;
                    const float* const f0 = q1 + here;
                    if (WHOLE || ((u64)(q1) % 16 == 0)) {
                        #pragma unroll
                        for (int u = 0; u < 8; ++u) {
                            const int at = (u * lanes + lane) * 4;
                            const bool whole = at >= low && at + 4 <= high;
                            w0[u] = Pack<float, 4>{};
                            if (whole) w0[u] = ((const Pack<float, 4>*)f0)[u * lanes + lane];
                        }
                    } else {
                        #pragma unroll
                        for (int u = 0; u < 8; ++u) {
                            const int at = (u * lanes + lane) * 4;
                            const bool whole = at >= low && at + 4 <= high;
                            w0[u] = Pack<float, 4>{};
                            if (whole) w0[u] = shifted<float, 4>(f0 + at);
                        }
                    }
                    if (!WHOLE && (low | (high % 4))) {
                        #pragma unroll
                        for (int u = 0; u < 8; ++u) {
                            const int at = (u * lanes + lane) * 4;
                            if (at >= low && at + 4 <= high) continue;
                            #pragma unroll
                            for (int j = 0; j < 4; ++j) if (at + j >= low && at + j < high) { w0[u].v[j] = f0[at + j]; }
                        }
                    }
                }
                #pragma unroll
                for (int u = 0; u < 8; ++u) {
                    const int at = (u * lanes + lane) * 4;
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float other0 = pass0(here + at + j, axis, w0[u].v[j]);
                        if (at + j < high) m0[j] = maximum(m0[j], other0);
                    }
                }
                if (WHOLE) break;
            }
            #pragma unroll
            for (int h = 2; h > 0; h >>= 1) {
                #pragma unroll
                for (int j = 0; j < h; ++j) m0[j] = maximum(m0[j], m0[j + h]);
            }
            v0 = m0[0];
            fold0(v0, room, lanes);
            if (lane == (s & (lanes - 1))) {
                total0 = maximum(total0, v0);
            }
        }
        if (split) {
            volatile float* const partial0 = (volatile float*)scratch;
            if (lane == 0) { partial0[(0 * outer + o) * segments + mine] = v0; }
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) drawn = atomicAdd(tickets + o, 1u);
            __syncthreads();
            if (drawn != (u32)segments - 1u) return;
            __threadfence();
            total0 = __uint_as_float(0xff800000u);
            for (i64 t = lane; t < segments; t += lanes) {
                const float other0 = partial0[(0 * outer + o) * segments + t];
                total0 = maximum(total0, other0);
            }
        }
        if (segments > 1) fold0(total0, room, lanes);
        r0 = segments > 1 ? total0 : v0;
    }
    if (lanes > 32) __syncthreads(); else SYNC_WARP();
    if (inside && lane == 0) {
        float y0;
        row(0, axis, r0, y0);
        q0[0] = noted(y0, 1u, flag);
        if (split) tickets[o] = 0u;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) rowwise_axis(float* p0, const float* p1, u32* const flag, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length, const i64 split, u64* scratch, u32* tickets) {
    __shared__ u64 room[8];
    if (axis <= lanes_ * 32 && axis % 4 == 0 && (u64)p1 % 16 == 0 && k1_0 % 4 == 0) walk<true>(p0, p1, flag, outer, axis, inner, k0_0, k0_1, k0_2, k1_0, k1_1, k1_2, lanes_, length, split, scratch, tickets, room);
    else walk<false>(p0, p1, flag, outer, axis, inner, k0_0, k0_1, k0_2, k1_0, k1_1, k1_2, lanes_, length, split, scratch, tickets, room);
}
