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
template <typename T> __device__ __forceinline__ T divide(const T a, const T b) {
    return b == 0 ? (T)0 : b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <typename T> __device__ __forceinline__ T remainder_of(const T a, const T b) {
    return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b);
}
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T v[N]; };

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
// The chunk at element i of a row; zeros outside of [0, end).
template <typename T, int N> __device__ __forceinline__ void take(
    Pack<T, N>& w, const T* const row, const i64 i, const i64 end, const bool aligned) {
    if (i >= 0 && i + N <= end) {
        if (aligned) w = *(const Pack<T, N>*)(row + i);
        else if (sizeof(w) == 16) w = shifted<T, N>(row + i);
        else {
            #pragma unroll
            for (int j = 0; j < N; ++j) w.v[j] = row[i + j];
        }
    } else {
        #pragma unroll
        for (int j = 0; j < N; ++j) w.v[j] = i + j >= 0 && i + j < end ? row[i + j] : (T)0;
    }
}
__device__ __forceinline__ float pass0(const i64 index, const i64 extent, const float a0) {
    return a0;
}
__device__ __forceinline__ float pass1(const i64 index, const i64 extent, const float a0, const float r0) {
    const float t0 = a0 - r0;
    const float t1 = expf(t0);
    return t1;
}
__device__ __forceinline__ void element(const i64 index, const i64 extent, const float a0, const float r0, const float r1, float& y0) {
    const float t0 = a0 - r0;
    const float t1 = expf(t0);
    const float t2 = t1 / r1;
    y0 = t2;
}
__device__ __forceinline__ void fold0(float& v0, u64* const room, const int lanes) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        if (mask >= lanes) continue;
        const float other0 = SHUFFLE(v0, mask);
        v0 = (v0 > other0 || v0 != v0 ? v0 : other0);
    }
    if (lanes <= 32) return;
    if ((threadIdx.x & 31) == 0) {
        ((float*)(room + 0))[threadIdx.x >> 5] = v0;
    }
    __syncthreads();
    v0 = ((float*)(room + 0))[0];
    for (int w = 1; w < lanes / 32; ++w) {
        const float other0 = ((float*)(room + 0))[w];
        v0 = (v0 > other0 || v0 != v0 ? v0 : other0);
    }
    __syncthreads();
}
__device__ __forceinline__ void fold1(float& v1, u64* const room, const int lanes) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        if (mask >= lanes) continue;
        const float other1 = SHUFFLE(v1, mask);
        v1 = v1 + other1;
    }
    if (lanes <= 32) return;
    if ((threadIdx.x & 31) == 0) {
        ((float*)(room + 0))[threadIdx.x >> 5] = v1;
    }
    __syncthreads();
    v1 = ((float*)(room + 0))[0];
    for (int w = 1; w < lanes / 32; ++w) {
        const float other1 = ((float*)(room + 0))[w];
        v1 = v1 + other1;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(512) rowwise_axis(float* p0, const float* p1, const i64 outer, const i64 axis, const i64 inner, const i64 k0_0, const i64 k0_1, const i64 k0_2, const i64 k1_0, const i64 k1_1, const i64 k1_2, const i64 lanes_, const i64 length) {
    __shared__ u64 room[16];
    const int lanes = (int)lanes_;
    const int lane = (int)threadIdx.x & (lanes - 1);
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 tile = (i64)lanes * 16;
    const bool resident = axis <= tile;
    const int place = lanes < 32 ? ((int)threadIdx.x & 31) / lanes : 0;
    i64 next = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes - place;
    const i64 step = (i64)gridDim.x * blockDim.x / lanes;
    for (i64 near = next; near < outer; near += step) {
        const bool inside = near + place < outer;
        const i64 o = inside ? near + place : outer - 1;
        float* const q0 = p0 + o * k0_0;
        const float* const q1 = p1 + o * k1_0;
        Pack<float, 4> w0[4];
        const bool even0 = (u64)(q1) % 16 == 0;
        if (resident) {
            #pragma unroll
            for (int u = 0; u < 4; ++u) {
                const i64 i = 0 + (i64)(u * lanes + lane) * 4;
                take<float, 4>(w0[u], q1, i, axis, even0);
            }
        }
        float r0 = __uint_as_float(0xff800000u);
        {
            float v0 = __uint_as_float(0xff800000u), total0 = __uint_as_float(0xff800000u);
            for (i64 s = 0; s < segments; ++s) {
                const i64 begin = s * length;
                const i64 end = begin + length < axis ? begin + length : axis;
                float m0[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) m0[j] = __uint_as_float(0xff800000u);
                for (i64 first = begin; first < end; first += tile) {
                    if (!resident) {
                        #pragma unroll
                        for (int u = 0; u < 4; ++u) {
                            const i64 i = first + (i64)(u * lanes + lane) * 4;
                            take<float, 4>(w0[u], q1, i, end, even0);
                        }
                    }
                    #pragma unroll
                    for (int u = 0; u < 4; ++u) {
                        const i64 i = first + (i64)(u * lanes + lane) * 4;
                        const int left = end - i < 4 ? (int)(end - i) : 4;
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const float other0 = pass0(i + j, axis, w0[u].v[j]);
                            m0[j] = j < left ? (m0[j] > other0 || m0[j] != m0[j] ? m0[j] : other0) : m0[j];
                        }
                    }
                }
                #pragma unroll
                for (int h = 2; h > 0; h >>= 1) {
                    #pragma unroll
                    for (int j = 0; j < h; ++j) m0[j] = (m0[j] > m0[j + h] || m0[j] != m0[j] ? m0[j] : m0[j + h]);
                }
                v0 = m0[0];
                fold0(v0, room, lanes);
                if (lane == (s & (lanes - 1))) {
                    total0 = (total0 > v0 || total0 != total0 ? total0 : v0);
                }
            }
            if (segments > 1) fold0(total0, room, lanes);
            r0 = segments > 1 ? total0 : v0;
        }
        float r1 = 0.0f;
        {
            float v1 = 0.0f, total1 = 0.0f;
            for (i64 s = 0; s < segments; ++s) {
                const i64 begin = s * length;
                const i64 end = begin + length < axis ? begin + length : axis;
                float m1[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) m1[j] = 0.0f;
                for (i64 first = begin; first < end; first += tile) {
                    if (!resident) {
                        #pragma unroll
                        for (int u = 0; u < 4; ++u) {
                            const i64 i = first + (i64)(u * lanes + lane) * 4;
                            take<float, 4>(w0[u], q1, i, end, even0);
                        }
                    }
                    #pragma unroll
                    for (int u = 0; u < 4; ++u) {
                        const i64 i = first + (i64)(u * lanes + lane) * 4;
                        const int left = end - i < 4 ? (int)(end - i) : 4;
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const float other1 = pass1(i + j, axis, w0[u].v[j], r0);
                            m1[j] = j < left ? m1[j] + other1 : m1[j];
                        }
                    }
                }
                #pragma unroll
                for (int h = 2; h > 0; h >>= 1) {
                    #pragma unroll
                    for (int j = 0; j < h; ++j) m1[j] = m1[j] + m1[j + h];
                }
                v1 = m1[0];
                fold1(v1, room, lanes);
                if (lane == (s & (lanes - 1))) {
                    total1 = total1 + v1;
                }
            }
            if (segments > 1) fold1(total1, room, lanes);
            r1 = segments > 1 ? total1 : v1;
        }
        const int back = (int)((u64)q0 / 4 % 4);
        for (i64 first = 0; first < axis + back; first += tile) {
            if (!resident || back) {
                #pragma unroll
                for (int u = 0; u < 4; ++u) {
                    const i64 i = first - back + (i64)(u * lanes + lane) * 4;
                    take<float, 4>(w0[u], q1, i, axis, (u64)(q1 - back) % 16 == 0);
                }
            }
            #pragma unroll
            for (int u = 0; u < 4; ++u) {
                const i64 i = first - back + (i64)(u * lanes + lane) * 4;
                if (!inside || i >= axis) continue;
                Pack<float, 4> x0;
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float y0;
                    element(i + j, axis, w0[u].v[j], r0, r1, y0);
                    x0.v[j] = y0;
                }
                if (i >= 0 && i + 4 <= axis && (u64)(q0 - back) % 16 == 0) *(Pack<float, 4>*)(q0 + i) = x0;
                else {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) { if (i + j >= 0 && i + j < axis) q0[(i + j) * k0_1] = x0.v[j]; }
                }
            }
        }
    }
}
