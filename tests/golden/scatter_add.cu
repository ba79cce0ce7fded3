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

#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define BALLOT(test) ((u32)(__ballot(test) >> (threadIdx.x & (unsigned)(__builtin_amdgcn_wavefrontsize() - 32))))
#else
#define BALLOT(test) __ballot_sync(0xffffffffu, test)
#endif

// Fold the queued rows in, in order. `to` and `from` are at this lane's elements, which `inside` says are there.
template <int N> __device__ __forceinline__ void fold_queued(
    u16* const to, const u16* const from, const i64 o_k, const i64 s_k,
    const i64* const rows, const i64* const targets, const int queued, const bool inside) {
    typedef Pack<u16, N> Chunk;
    for (int m = 0; m < queued; m += 4) {
        Chunk old[4], added[4];
        i64 at[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            at[j] = m + j < queued ? targets[m + j] : -1;
            if (inside && at[j] >= 0) {
                added[j] = *(const Chunk*)(from + rows[m + j] * s_k);
                old[j] = *(const Chunk*)(to + at[j] * o_k);
            }
        }
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (inside && at[j] >= 0) {
                #pragma unroll
                for (int e = 0; e < N; ++e) {
                    const float before = widen_f16(old[j].v[e]); const float more = widen_f16(added[j].v[e]); const u16 after = narrow_f16((before + more));
                    old[j].v[e] = after;
                }
                // A later row for the same target goes on from this, not from what was in memory.
                #pragma unroll
                for (int l = j + 1; l < 4; ++l) if (at[l] == at[j]) old[l] = old[j];
                *(Chunk*)(to + at[j] * o_k) = old[j];
            }
        }
    }
}

template <int N> __device__ __forceinline__ void fold_rows(
    u16* out, const u16* source, const i32* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i, const i64 owners, i64* const queue) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    i64* const rows = queue + warp * 576;
    i64* const targets = rows + 288;
    const i64 across = (inner + 32 * N - 1) / (32 * N);
    for (i64 job = blockIdx.x; job < outer * across * owners; job += gridDim.x) {
        const u32 owner = (u32)(job % owners) * 8u + (u32)warp;
        const i64 o = job / (across * owners), i = (job / owners % across * 32 + lane) * N;
        const bool inside = i < inner;
        u16* const to = out + o * o_o + i * o_i;
        const u16* const from = source + o * s_o + i * s_i;
        int queued = 0;
        for (i64 begin = 0; begin < count; begin += 32 * 8) {
            i64 at[8];
            #pragma unroll
            for (int s = 0; s < 8; ++s) {
                const i64 k = begin + s * 32 + lane;
                at[s] = k < count ? (i64)picks[o * i_o + k * i_k] : 0;
            }
            #pragma unroll
            for (int s = 0; s < 8; ++s) {
                const i64 k = begin + s * 32 + lane;
                const bool bad = (u64)at[s] >= (u64)limit;
                if (bad && k < count) *status = 1;
                const u32 hashed = __umulhi((u32)at[s] * 2654435761u, (u32)owners * 8u);
                const bool mine = k < count && !bad && hashed == owner;
                const u32 found = BALLOT(mine);
                if (mine) {
                    const int place = queued + __popc(found & ((1u << lane) - 1u));
                    rows[place] = k;
                    targets[place] = at[s];
                }
                queued += __popc(found);
            }
            if (queued < 32 && begin + 32 * 8 < count) continue;
            SYNC_WARP();
            fold_queued<N>(to, from, o_k, s_k, rows, targets, queued, inside);
            SYNC_WARP();
            queued = 0;
        }
    }
}

__device__ __forceinline__ void fold_columns(u16* out, const u16* source, const i32* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i, const i64 slices) {
    const i64 columns = outer * inner, across = (columns + 255) / 256;
    for (i64 job = blockIdx.x; job < across * slices; job += gridDim.x) {
        const i64 column = job % across * 256 + threadIdx.x, slice = job / across;
        if (column >= columns) continue;
        const i64 o = column / inner, i = column % inner;
        const i64 begin = limit * slice / slices, end = limit * (slice + 1) / slices;
        u16* const target = out + o * o_o + i * o_i;
        #pragma unroll 8
        for (i64 k = 0; k < count; ++k) {
            const i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
            if ((u64)at >= (u64)limit) *status = 1;
            if (at >= begin && at < end) {
                const float before = widen_f16(target[at * o_k]); const float more = widen_f16(source[o * s_o + k * s_k + i * s_i]); const u16 after = narrow_f16((before + more));
                target[at * o_k] = after;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scatter(
    u16* out, const u16* source, const i32* picks, i32* status, const i64 outer, const i64 count, const i64 inner, const i64 limit, const i64 o_o, const i64 o_k, const i64 o_i, const i64 s_o, const i64 s_k, const i64 s_i, const i64 i_o, const i64 i_k, const i64 i_i, const i64 owners, const i64 slices) {
    __shared__ i64 queue[4608];
    if (i_i != 0 && inner > 1) fold_columns(out, source, picks, status, outer, count, inner, limit, o_o, o_k, o_i, s_o, s_k, s_i, i_o, i_k, i_i, slices);
    else if (o_i == 1 && s_i == 1 && (inner | o_o | o_k | s_o | s_k) % 8 == 0 && ((u64)out | (u64)source) % 16 == 0) fold_rows<8>(out, source, picks, status, outer, count, inner, limit, o_o, o_k, o_i, s_o, s_k, s_i, i_o, i_k, i_i, owners, queue);
    else fold_rows<1>(out, source, picks, status, outer, count, inner, limit, o_o, o_k, o_i, s_o, s_k, s_i, i_o, i_k, i_i, owners, queue);
}
