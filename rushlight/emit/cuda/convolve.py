"""Convolve as CUDA C: implicit matrix products, whose second factor is read from the image in place.

Used where no library takes over. The matrices are those of Note [Convolutions in WGSL]: "weights"
writes `parts` partial sums in the compute type, which the device adds. A block of 256 threads makes
64 by 64 results, each thread 4 by 4, from tiles of 16 along k in shared memory; 16 of its threads
find the places of the next 16 k. Where a matrix has few rows a thread makes one result. Both add in
ascending k.
"""

from __future__ import annotations

from rushlight.core.dtypes import compute_type
from rushlight.emit.cuda.scalar import COMPUTED, STORED, constant, load, store
from rushlight.kernel.shapes import Convolve

TILE = 64
DEPTH = 16
THREADS = 256
FEW = 8  # rows up to which a thread makes one result


def convolve(kernel: Convolve) -> str:
    dims = range(kernel.rank)
    runs = ("pixels", "window", "image", "stride", "dilation", "before")
    sizes = [f"const i64 {name}" for name in ("n", "groups", "m", "c")]
    sizes += [f"const i64 {name}{d}" for name in runs for d in dims]
    stored, kind = STORED[kernel.dtype], COMPUTED[compute_type(kernel.dtype)]
    written = kind if kernel.of == "weights" else stored
    declared = ", ".join(
        [f"{written}* out", f"const {stored}* a", f"const {stored}* b", *sizes, "const i64 parts"]
    )
    fields = [f"i64 {name};" for name in ("n", "groups", "m", "c", "parts")]
    fields += [f"i64 {name}[{kernel.rank}];" for name in runs]
    filled = [f"{{{', '.join(f'{name}{d}' for d in dims)}}}" for name in runs]
    result = "sum" if kernel.of == "weights" else store(kernel.dtype, "sum")
    weight, image = ("a", "b") if kernel.of == "weights" else ("b", "a")
    text = f"{_COMMON}{_KINDS[kernel.of]}{_ENTRY}"
    replaced = {
        "RANK": str(kernel.rank),
        "FIELDS": " ".join(fields),
        "STORED": stored,
        "WRITTEN": written,
        "KIND": kind,
        "DECLARED": declared,
        "FILLED": ", ".join(["n", "groups", "m", "c", "parts", *filled]),
        "RESULT": result,
        "LOADED": load(kernel.dtype, "from[at]"),
        "ZERO": constant(0, compute_type(kernel.dtype)),
        "FMA": "fmaf" if compute_type(kernel.dtype).itemsize == 4 else "fma",
        "WEIGHTS": weight,
        "IMAGE": image,
        "THREADS": str(THREADS),
        "TILE": str(TILE),
        "DEPTH": str(DEPTH),
        "FEW": str(FEW),
        "PARTS": "parts" if kernel.of == "weights" else "1",
    }
    for name in sorted(replaced, key=len, reverse=True):
        text = text.replace(f"@{name}", replaced[name])
    return text


# A place has coordinates and an offset; FAR puts it outside of the image, NONE is no offset.
_COMMON = """\
#define FAR (-(1 << 29))
#define NONE (-1LL)
struct Sizes { @FIELDS };
struct Place { int at[@RANK]; i64 offset; };
struct Phase { int remainder[@RANK], first[@RANK], step[@RANK], count[@RANK]; };

__device__ __forceinline__ i64 product(const i64 (&sizes)[@RANK]) {
    i64 total = 1;
    for (int d = 0; d < @RANK; ++d) total *= sizes[d];
    return total;
}

// Take a row-major position apart, the last dimension first; the rest is returned.
template <typename T>
__device__ __forceinline__ i64 split(i64 left, const T (&sizes)[@RANK], int (&at)[@RANK]) {
    for (int d = @RANK - 1; d >= 0; --d) {
        at[d] = (int)(left % sizes[d]);
        left /= sizes[d];
    }
    return left;
}

__device__ __forceinline__ Place far_place() {
    Place place;
    for (int d = 0; d < @RANK; ++d) place.at[d] = FAR;
    place.offset = 0;
    return place;
}

// The channel and the tap of a position in (channels, window), as a place in the image.
__device__ __forceinline__ Place tap_place(const Sizes& z, const i64 position) {
    Place place;
    const i64 channel = split(position, z.window, place.at);
    for (int d = 0; d < @RANK; ++d) place.at[d] *= (int)z.dilation[d];
    place.offset = channel * product(z.image);
    return place;
}

// The pixel of a position in (n, pixels), as a place in the images of all groups.
__device__ __forceinline__ Place pixel_place(const Sizes& z, const i64 position) {
    Place place;
    const i64 image = split(position, z.pixels, place.at);
    for (int d = 0; d < @RANK; ++d)
        place.at[d] = place.at[d] * (int)z.stride[d] - (int)z.before[d];
    place.offset = image * z.groups * z.c * product(z.image);
    return place;
}

__device__ __forceinline__ @KIND value_at(const @STORED* from, const i64 at) { return @LOADED; }
"""

_IMAGE = """\
__device__ __forceinline__ Phase phase_of(const Sizes& z, i64 number) { return Phase(); }
__device__ __forceinline__ i64 count_of(const Sizes& z) { return 1; }
__device__ __forceinline__ i64 rows_of(const Sizes& z) { return z.m; }
__device__ __forceinline__ i64 columns_of(const Sizes& z) { return z.n * product(z.pixels); }
__device__ __forceinline__ i64 depth_of(const Sizes& z, const Phase& phase) {
    return z.c * product(z.window);
}
__device__ __forceinline__ i64 row_at(const Sizes& z, const i64 g, const i64 row) {
    return (g * z.m + row) * z.c * product(z.window);
}
__device__ __forceinline__ Place column_at(
    const Sizes& z, const Phase& phase, const i64 g, const i64 column) {
    Place place = pixel_place(z, column);
    place.offset += g * z.c * product(z.image);
    return place;
}
__device__ __forceinline__ Place k_at(const Sizes& z, const Phase& phase, const i64 k, i64& weight) {
    weight = k;
    return tap_place(z, k);
}
__device__ __forceinline__ i64 out_at(
    const Sizes& z, const Phase& phase, const i64 number, const i64 g, const i64 column) {
    const i64 pixels = product(z.pixels);
    return (column / pixels * z.groups + g) * z.m * pixels + column % pixels;
}
__device__ __forceinline__ i64 out_step(const Sizes& z) { return product(z.pixels); }
__device__ __forceinline__ i64 extent(const Sizes& z, const int d) { return z.image[d]; }
"""

_WEIGHTS = """\
__device__ __forceinline__ Phase phase_of(const Sizes& z, i64 number) { return Phase(); }
__device__ __forceinline__ i64 count_of(const Sizes& z) { return z.parts; }
__device__ __forceinline__ i64 rows_of(const Sizes& z) { return z.m; }
__device__ __forceinline__ i64 columns_of(const Sizes& z) { return z.c * product(z.window); }
__device__ __forceinline__ i64 depth_of(const Sizes& z, const Phase& phase) {
    return z.n * product(z.pixels);
}
__device__ __forceinline__ i64 row_at(const Sizes& z, const i64 g, const i64 row) {
    return (g * z.m + row) * product(z.pixels);
}
__device__ __forceinline__ Place column_at(
    const Sizes& z, const Phase& phase, const i64 g, const i64 column) {
    Place place = tap_place(z, column);
    place.offset += g * z.c * product(z.image);
    return place;
}
__device__ __forceinline__ Place k_at(const Sizes& z, const Phase& phase, const i64 k, i64& weight) {
    const i64 pixels = product(z.pixels);
    weight = k / pixels * z.groups * z.m * pixels + k % pixels;
    return pixel_place(z, k);
}
__device__ __forceinline__ i64 out_at(
    const Sizes& z, const Phase& phase, const i64 number, const i64 g, const i64 column) {
    return (number * z.groups + g) * z.m * columns_of(z) + column;
}
__device__ __forceinline__ i64 out_step(const Sizes& z) { return columns_of(z); }
__device__ __forceinline__ i64 extent(const Sizes& z, const int d) { return z.image[d]; }
"""

_BACK = """\
// The taps p with remainder + before - p * dilation a multiple of the stride.
__device__ __forceinline__ Phase phase_of(const Sizes& z, i64 number) {
    Phase phase;
    for (int d = 0; d < @RANK; ++d) {
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
__device__ __forceinline__ i64 reached(const Sizes& z, i64 (&counts)[@RANK]) {
    for (int d = 0; d < @RANK; ++d) counts[d] = (z.image[d] + z.stride[d] - 1) / z.stride[d];
    return product(counts);
}
__device__ __forceinline__ i64 count_of(const Sizes& z) { return product(z.stride); }
__device__ __forceinline__ i64 rows_of(const Sizes& z) { return z.c; }
__device__ __forceinline__ i64 columns_of(const Sizes& z) {
    i64 counts[@RANK];
    return z.n * reached(z, counts);
}
__device__ __forceinline__ i64 depth_of(const Sizes& z, const Phase& phase) {
    i64 total = z.m;
    for (int d = 0; d < @RANK; ++d) total *= phase.count[d];
    return total;
}
__device__ __forceinline__ i64 row_at(const Sizes& z, const i64 g, const i64 row) {
    return (g * z.m * z.c + row) * product(z.window);
}
__device__ __forceinline__ Place column_at(
    const Sizes& z, const Phase& phase, const i64 g, const i64 column) {
    Place place;
    i64 counts[@RANK];
    reached(z, counts);
    const i64 image = split(column, counts, place.at);
    place.offset = (image * z.groups + g) * z.m * product(z.pixels);
    return place;
}
__device__ __forceinline__ Place k_at(const Sizes& z, const Phase& phase, const i64 k, i64& weight) {
    Place place;
    const i64 channel = split(k, phase.count, place.at);
    i64 tap = 0;
    for (int d = 0; d < @RANK; ++d) {
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
    int at[@RANK];
    i64 counts[@RANK], linear = 0;
    reached(z, counts);
    const i64 image = split(column, counts, at);
    for (int d = 0; d < @RANK; ++d) {
        const i64 here = phase.remainder[d] + z.stride[d] * at[d];
        if (here >= z.image[d]) return NONE;
        linear = linear * z.image[d] + here;
    }
    return (image * z.groups + g) * z.c * product(z.image) + linear;
}
__device__ __forceinline__ i64 out_step(const Sizes& z) { return product(z.image); }
__device__ __forceinline__ i64 extent(const Sizes& z, const int d) { return z.pixels[d]; }
"""

_KINDS = {"image": _IMAGE, "back": _BACK, "weights": _WEIGHTS}

_ENTRY = """\
// The pixel at the sum of two places, 0 outside of the image.
__device__ __forceinline__ @KIND pixel_at(
    const Sizes& z, const @STORED* from, const Place& column, const Place& k) {
    i64 at = 0;
    bool inside = true;
    #pragma unroll
    for (int d = 0; d < @RANK; ++d) {
        const int here = column.at[d] + k.at[d];
        inside = inside && here >= 0 && here < extent(z, d);
        at = at * extent(z, d) + here;
    }
    return inside ? value_at(from, column.offset + k.offset + at) : @ZERO;
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
    const i64 column, const i64 first, const i64 end, @WRITTEN* out, const @STORED* weights,
    const @STORED* image) {
    const i64 there = out_at(z, phase, number, g, column);
    if (there == NONE) return;
    const Place from = column_at(z, phase, g, column);
    const i64 start = row_at(z, g, row);
    @KIND sum = @ZERO;
    for (i64 k = first; k < end; ++k) {
        i64 weight;
        const Place place = k_at(z, phase, k, weight);
        sum = @FMA(value_at(weights, start + weight), pixel_at(z, image, from, place), sum);
    }
    out[there + row * out_step(z)] = @RESULT;
}

extern "C" __global__ void __launch_bounds__(@THREADS) convolve(@DECLARED) {
    __shared__ @KIND weight_tile[@DEPTH][@TILE + 4], pixel_tile[@DEPTH][@TILE + 4];
    __shared__ Place places[2][@DEPTH];
    __shared__ i64 offsets[2][@DEPTH];
    const Sizes z = {@FILLED};
    const @STORED* const weights = @WEIGHTS;
    const @STORED* const image = @IMAGE;
    const int lane = (int)threadIdx.x, tx = lane % 16, ty = lane / 16;
    const i64 rows = rows_of(z), columns = columns_of(z);
    const bool few = rows <= @FEW;
    const i64 down = few ? rows : (rows + @TILE - 1) / @TILE;
    const i64 wide = few ? @THREADS : @TILE;
    const i64 across = (columns + wide - 1) / wide;
    for (i64 job = blockIdx.x; job < count_of(z) * groups * down * across; job += gridDim.x) {
        const i64 number = job / (down * across * groups), g = job / (down * across) % groups;
        const Phase phase = phase_of(z, number);
        const i64 depth = depth_of(z, phase);
        const i64 length = (depth + @PARTS - 1) / @PARTS;
        const i64 first = @PARTS == 1 ? 0 : number * length;
        const i64 end = first + length < depth ? first + length : depth;
        if (few) {
            const i64 column = job / down % across * @THREADS + lane;
            if (column < columns)
                one_result(
                    z, phase, number, g, job % down, column, first, end, out, weights, image);
            continue;
        }
        const i64 row = job % down * @TILE, column = job / down % across * @TILE;
        // A thread reads one column of z, and one k of the weights.
        const i64 mine = column + lane % @TILE;
        const Place from = mine < columns ? column_at(z, phase, g, mine) : far_place();
        @KIND sums[4][4] = {};
        __syncthreads();
        if (lane < @DEPTH)
            put_place(z, phase, first + lane, end, places[0][lane], offsets[0][lane]);
        int side = 0;
        for (i64 start = first; start < end; start += @DEPTH) {
            __syncthreads();
            const i64 weight = offsets[side][tx];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const i64 r = row + ty + 16 * e;
                const bool inside = r < rows && weight != NONE;
                weight_tile[tx][ty + 16 * e] =
                    inside ? value_at(weights, row_at(z, g, r) + weight) : @ZERO;
                const int k = lane / @TILE + 4 * e;
                pixel_tile[k][lane % @TILE] = pixel_at(z, image, from, places[side][k]);
            }
            side = 1 - side;
            if (lane < @DEPTH)
                put_place(
                    z, phase, start + @DEPTH + lane, end, places[side][lane], offsets[side][lane]);
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < @DEPTH; ++k) {
                @KIND left[4], right[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) left[i] = weight_tile[k][ty * 4 + i];
                #pragma unroll
                for (int j = 0; j < 4; ++j) right[j] = pixel_tile[k][tx * 4 + j];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) sums[i][j] = @FMA(left[i], right[j], sums[i][j]);
                }
            }
        }
        for (int j = 0; j < 4; ++j) {
            const i64 here = column + tx * 4 + j;
            const i64 there = here < columns ? out_at(z, phase, number, g, here) : NONE;
            for (int i = 0; i < 4; ++i) {
                const i64 r = row + ty * 4 + i;
                const @KIND sum = sums[i][j];
                if (there != NONE && r < rows) out[there + r * out_step(z)] = @RESULT;
            }
        }
    }
}
"""
