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

#define FAR (-(1 << 29))
#define NONE (-1LL)
struct Sizes { i64 n; i64 groups; i64 m; i64 c; i64 parts; i64 pixels[2]; i64 window[2]; i64 image[2]; i64 stride[2]; i64 dilation[2]; i64 before[2]; };
struct Place { int at[2]; i64 offset; };
struct Phase { int remainder[2], first[2], step[2], count[2]; };

__device__ __forceinline__ i64 product(const i64 (&sizes)[2]) {
    i64 total = 1;
    for (int d = 0; d < 2; ++d) total *= sizes[d];
    return total;
}

// Take a row-major position apart, the last dimension first; the rest is returned.
template <typename T>
__device__ __forceinline__ i64 split(i64 left, const T (&sizes)[2], int (&at)[2]) {
    for (int d = 2 - 1; d >= 0; --d) {
        at[d] = (int)(left % sizes[d]);
        left /= sizes[d];
    }
    return left;
}

__device__ __forceinline__ Place far_place() {
    Place place;
    for (int d = 0; d < 2; ++d) place.at[d] = FAR;
    place.offset = 0;
    return place;
}

// The channel and the tap of a position in (channels, window), as a place in the image.
__device__ __forceinline__ Place tap_place(const Sizes& z, const i64 position) {
    Place place;
    const i64 channel = split(position, z.window, place.at);
    for (int d = 0; d < 2; ++d) place.at[d] *= (int)z.dilation[d];
    place.offset = channel * product(z.image);
    return place;
}

// The pixel of a position in (n, pixels), as a place in the images of all groups.
__device__ __forceinline__ Place pixel_place(const Sizes& z, const i64 position) {
    Place place;
    const i64 image = split(position, z.pixels, place.at);
    for (int d = 0; d < 2; ++d)
        place.at[d] = place.at[d] * (int)z.stride[d] - (int)z.before[d];
    place.offset = image * z.groups * z.c * product(z.image);
    return place;
}

__device__ __forceinline__ float value_at(const float* from, const i64 at) { return from[at]; }
// The taps p with remainder + before - p * dilation a multiple of the stride.
__device__ __forceinline__ Phase phase_of(const Sizes& z, i64 number) {
    Phase phase;
    for (int d = 0; d < 2; ++d) {
        const int stride = (int)z.stride[d], by = (int)(z.dilation[d] % stride);
        phase.remainder[d] = (int)(number % stride);
        number /= stride;
        const int want = (int)((phase.remainder[d] + z.before[d]) % stride);
        int first = 0, step = 1;
        while (first < stride && first * by % stride != want) ++first;
        while (step * by % stride != 0) ++step;
        phase.first[d] = first;
        phase.step[d] = step;
        const bool met = first < stride && first < z.window[d];
        phase.count[d] = met ? (int)((z.window[d] - 1 - first) / step + 1) : 0;
    }
    return phase;
}
__device__ __forceinline__ i64 reached(const Sizes& z, i64 (&counts)[2]) {
    for (int d = 0; d < 2; ++d) counts[d] = (z.image[d] + z.stride[d] - 1) / z.stride[d];
    return product(counts);
}
__device__ __forceinline__ i64 count_of(const Sizes& z) { return product(z.stride); }
__device__ __forceinline__ i64 rows_of(const Sizes& z) { return z.c; }
__device__ __forceinline__ i64 columns_of(const Sizes& z) {
    i64 counts[2];
    return z.n * reached(z, counts);
}
__device__ __forceinline__ i64 depth_of(const Sizes& z, const Phase& phase) {
    i64 total = z.m;
    for (int d = 0; d < 2; ++d) total *= phase.count[d];
    return total;
}
__device__ __forceinline__ i64 row_at(const Sizes& z, const i64 g, const i64 row) {
    return (g * z.m * z.c + row) * product(z.window);
}
__device__ __forceinline__ Place column_at(
    const Sizes& z, const Phase& phase, const i64 g, const i64 column) {
    Place place;
    i64 counts[2];
    reached(z, counts);
    const i64 image = split(column, counts, place.at);
    place.offset = (image * z.groups + g) * z.m * product(z.pixels);
    return place;
}
__device__ __forceinline__ Place k_at(const Sizes& z, const Phase& phase, const i64 k, i64& weight) {
    Place place;
    const i64 channel = split(k, phase.count, place.at);
    i64 tap = 0;
    for (int d = 0; d < 2; ++d) {
        const int p = phase.first[d] + phase.step[d] * place.at[d];
        tap = tap * z.window[d] + p;
        place.at[d] = (phase.remainder[d] + (int)z.before[d] - p * (int)z.dilation[d]) / (int)z.stride[d];
    }
    weight = channel * z.c * product(z.window) + tap;
    place.offset = channel * product(z.pixels);
    return place;
}
__device__ __forceinline__ i64 out_at(
    const Sizes& z, const Phase& phase, const i64 number, const i64 g, const i64 column) {
    int at[2];
    i64 counts[2], linear = 0;
    reached(z, counts);
    const i64 image = split(column, counts, at);
    for (int d = 0; d < 2; ++d) {
        const i64 here = phase.remainder[d] + z.stride[d] * at[d];
        if (here >= z.image[d]) return NONE;
        linear = linear * z.image[d] + here;
    }
    return (image * z.groups + g) * z.c * product(z.image) + linear;
}
__device__ __forceinline__ i64 out_step(const Sizes& z) { return product(z.image); }
__device__ __forceinline__ i64 extent(const Sizes& z, const int d) { return z.pixels[d]; }
// The pixel at the sum of two places, 0 outside of the image.
__device__ __forceinline__ float pixel_at(
    const Sizes& z, const float* from, const Place& column, const Place& k) {
    i64 at = 0;
    bool inside = true;
    #pragma unroll
    for (int d = 0; d < 2; ++d) {
        const int here = column.at[d] + k.at[d];
        inside = inside && here >= 0 && here < extent(z, d);
        at = at * extent(z, d) + here;
    }
    return inside ? value_at(from, column.offset + k.offset + at) : 0.0f;
}

__device__ __forceinline__ void put_place(
    const Sizes& z, const Phase& phase, const i64 k, const i64 end, Place& place, i64& weight) {
    if (k < end) {
        place = k_at(z, phase, k, weight);
    } else {
        place = far_place();
        weight = NONE;
    }
}

__device__ __forceinline__ void one_result(
    const Sizes& z, const Phase& phase, const i64 number, const i64 g, const i64 row,
    const i64 column, const i64 first, const i64 end, float* out, const float* weights,
    const float* image) {
    const i64 there = out_at(z, phase, number, g, column);
    if (there == NONE) return;
    const Place from = column_at(z, phase, g, column);
    const i64 start = row_at(z, g, row);
    float sum = 0.0f;
    for (i64 k = first; k < end; ++k) {
        i64 weight;
        const Place place = k_at(z, phase, k, weight);
        sum = fmaf(value_at(weights, start + weight), pixel_at(z, image, from, place), sum);
    }
    out[there + row * out_step(z)] = sum;
}

extern "C" __global__ void __launch_bounds__(256) convolve(float* out, const float* a, const float* b, const i64 n, const i64 groups, const i64 m, const i64 c, const i64 pixels0, const i64 pixels1, const i64 window0, const i64 window1, const i64 image0, const i64 image1, const i64 stride0, const i64 stride1, const i64 dilation0, const i64 dilation1, const i64 before0, const i64 before1, const i64 parts) {
    __shared__ float weight_tile[16][64 + 4], pixel_tile[16][64 + 4];
    __shared__ Place places[2][16];
    __shared__ i64 offsets[2][16];
    const Sizes z = {n, groups, m, c, parts, {pixels0, pixels1}, {window0, window1}, {image0, image1}, {stride0, stride1}, {dilation0, dilation1}, {before0, before1}};
    const float* const weights = b;
    const float* const image = a;
    const int lane = (int)threadIdx.x, tx = lane % 16, ty = lane / 16;
    const i64 rows = rows_of(z), columns = columns_of(z);
    const bool few = rows <= 8;
    const i64 down = few ? rows : (rows + 64 - 1) / 64;
    const i64 wide = few ? 256 : 64;
    const i64 across = (columns + wide - 1) / wide;
    for (i64 job = blockIdx.x; job < count_of(z) * groups * down * across; job += gridDim.x) {
        const i64 number = job / (down * across * groups), g = job / (down * across) % groups;
        const Phase phase = phase_of(z, number);
        const i64 depth = depth_of(z, phase);
        const i64 length = (depth + 1 - 1) / 1;
        const i64 first = 1 == 1 ? 0 : number * length;
        const i64 end = first + length < depth ? first + length : depth;
        if (few) {
            const i64 column = job / down % across * 256 + lane;
            if (column < columns)
                one_result(
                    z, phase, number, g, job % down, column, first, end, out, weights, image);
            continue;
        }
        const i64 row = job % down * 64, column = job / down % across * 64;
        // A thread reads one column of z, and one k of the weights.
        const i64 mine = column + lane % 64;
        const Place from = mine < columns ? column_at(z, phase, g, mine) : far_place();
        float sums[4][4] = {};
        __syncthreads();
        if (lane < 16)
            put_place(z, phase, first + lane, end, places[0][lane], offsets[0][lane]);
        int side = 0;
        for (i64 start = first; start < end; start += 16) {
            __syncthreads();
            const i64 weight = offsets[side][tx];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const i64 r = row + ty + 16 * e;
                const bool inside = r < rows && weight != NONE;
                weight_tile[tx][ty + 16 * e] =
                    inside ? value_at(weights, row_at(z, g, r) + weight) : 0.0f;
                const int k = lane / 64 + 4 * e;
                pixel_tile[k][lane % 64] = pixel_at(z, image, from, places[side][k]);
            }
            side = 1 - side;
            if (lane < 16)
                put_place(
                    z, phase, start + 16 + lane, end, places[side][lane], offsets[side][lane]);
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < 16; ++k) {
                float left[4], right[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) left[i] = weight_tile[k][ty * 4 + i];
                #pragma unroll
                for (int j = 0; j < 4; ++j) right[j] = pixel_tile[k][tx * 4 + j];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
                }
            }
        }
        for (int j = 0; j < 4; ++j) {
            const i64 here = column + tx * 4 + j;
            const i64 there = here < columns ? out_at(z, phase, number, g, here) : NONE;
            for (int i = 0; i < 4; ++i) {
                const i64 r = row + ty * 4 + i;
                const float sum = sums[i][j];
                if (there != NONE && r < rows) out[there + r * out_step(z)] = sum;
            }
        }
    }
}
