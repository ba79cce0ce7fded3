"""Kernels beside the libraries' routines: triangles, determinants, reflectors, addresses.

Each is CUDA C for one type, `T`, whose real type is `R`; every number is passed as 64 bits. The
matrices of a batch are dense, or `by_matrix` elements apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from rushlight.core.dtypes import DType, complex64, complex128, float32, float64
from rushlight.devices.cuda.driver import Session, compile_kernel
from rushlight.devices.cuda.grid import MOST_BLOCKS, Geometry, Rule, const
from rushlight.devices.cuda.stub import Arguments, make_launcher
from rushlight.devices.shared.protocol import Launch

THREADS = 256
LANES = 32

_HEAD = """\
typedef long long i64;
#ifndef LANES
#define LANES 32
#endif
#define THREAD ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((i64)gridDim.x * blockDim.x)
#define EACH(i, n) i64 i = THREAD; i < (n); i += THREADS
#define EACH_WARP(i, n) i64 i = THREAD / LANES; i < (n); i += THREADS / LANES
"""

_REAL = """\
typedef {real} R;
typedef R T;
__device__ R size(T x) { return x < 0 ? -x : x; }
__device__ T direction(T x) { return x > 0 ? R(1) : x < 0 ? R(-1) : x; }
__device__ bool is_nan(T x) { return x != x; }
__device__ T of(R x) { return x; }
__device__ T conj(T x) { return x; }
__device__ T times(T x, T y) { return x * y; }
__device__ T plus(T x, T y) { return x + y; }
__device__ T other(T x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }
"""

_COMPLEX = """\
typedef {real} R;
struct alignas(2 * sizeof(R)) T { R x, y; };
__device__ R size(T x) { return hypot(x.x, x.y); }
__device__ T direction(T x) {
    const R length = size(x);
    return length == 0 ? x : T{x.x / length, x.y / length};
}
__device__ bool is_nan(T x) { return x.x != x.x || x.y != x.y; }
__device__ T of(R x) { return T{x, R(0)}; }
__device__ T conj(T x) { return T{x.x, -x.y}; }
__device__ T times(T x, T y) { return T{x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x}; }
__device__ T plus(T x, T y) { return T{x.x + y.x, x.y + y.y}; }
__device__ R other(R x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }
__device__ T other(T x, int lane) { return T{other(x.x, lane), other(x.y, lane)}; }
"""

# One triangle, zeros in the other. Where `found` is given, the matrix is a factorisation that may
# have failed: then the triangle is NaN, and `info` says where. NaN is not positive: a NaN of the
# diagonal makes NaN of all that follow it, so the last element tells whether there is one, and a
# walk back from it where the first is.
_TRIANGLE = """\
extern "C" __global__ void triangle(
    T* out, int* info, const T* source, const int* found, i64 batch, i64 rows, i64 columns,
    i64 by_matrix, i64 by_row, i64 by_column, i64 upper
) {
    for (EACH(i, batch * rows * columns)) {
        const i64 c = i % columns, r = i / columns % rows, b = i / columns / rows;
        const T* matrix = source + b * by_matrix;
        i64 bad = found ? found[b] : 0;
        if (found && !bad) {
            for (i64 k = rows; k && is_nan(matrix[(k - 1) * (by_row + by_column)]); --k) bad = k;
        }
        if (found && !r && !c) info[b] = (int)bad;
        const T kept = bad ? of(R(__int_as_float(0x7fc00000))) : matrix[r * by_row + c * by_column];
        out[i] = (upper ? c < r : c > r) ? of(R(0)) : kept;
    }
}
"""

# The determinants of LU factorisations; with `log` their signs and the logarithms of their sizes.
_DETERMINANT = """\
extern "C" __global__ void determinant(
    T* out, R* log_size, const T* lu, const int* pivots, i64 batch, i64 n
) {
    const int lane = threadIdx.x % LANES;
    for (EACH_WARP(b, batch)) {
        T product = of(R(1));
        R sum = 0;
        for (i64 k = lane; k < n; k += LANES) {
            const T value = lu[(b * n + k) * n + k];
            T turn = value;
            if (log_size) {
                turn = direction(value);
                sum += log(size(value));
            }
            if (pivots[b * n + k] != k + 1) turn = times(turn, of(R(-1)));
            product = times(product, turn);
        }
        for (int lanes = LANES / 2; lanes; lanes /= 2) {
            product = times(product, other(product, lanes));
            sum += other(sum, lanes);
        }
        if (lane == 0) {
            out[b] = product;
            if (log_size) log_size[b] = sum;
        }
    }
}
"""

# Columns of Q by the first `k` reflectors of geqrf: a column is a unit vector, reflected from the
# last to the first. The lanes of a warp have a column's rows; no other thread reads them.
_REFLECT = """\
extern "C" __global__ void reflect(
    T* q, const T* reflectors, const T* tau, i64 batch, i64 across, i64 rows, i64 k, i64 by_matrix
) {
    const int lane = threadIdx.x % LANES;
    for (EACH_WARP(i, batch * across)) {
        const i64 b = i / across, c = i % across;
        T* column = q + i * rows;
        for (i64 r = lane; r < rows; r += LANES) column[r] = of(R(r == c));
        for (i64 j = (c < k ? c : k - 1); j >= 0; --j) {
            const T* v = reflectors + b * by_matrix + j * rows;
            T sum = of(R(0));
            for (i64 r = lane; r < rows; r += LANES) {
                if (r >= j) sum = plus(sum, times(r == j ? of(R(1)) : conj(v[r]), column[r]));
            }
            for (int lanes = LANES / 2; lanes; lanes /= 2) sum = plus(sum, other(sum, lanes));
            const T scale = times(of(R(-1)), times(tau[b * k + j], sum));
            for (i64 r = lane; r < rows; r += LANES) {
                if (r >= j) column[r] = plus(column[r], r == j ? scale : times(scale, v[r]));
            }
        }
    }
}
"""

# The addresses of the matrices of two batches, in one table.
_ADDRESSES = """\
extern "C" __global__ void addresses(
    i64* table, i64 first, i64 step, i64 second, i64 second_step, i64 count
) {
    for (EACH(i, count)) {
        table[i] = first + i * step;
        table[count + i] = second + i * second_step;
    }
}
"""

# `info` of each row of values that has one that is not finite becomes -1.
_FINITE = """\
extern "C" __global__ void refuse_infinite(int* info, const T* values, i64 batch, i64 count) {
    for (EACH_WARP(b, batch)) {
        T sum = 0;
        for (i64 i = threadIdx.x % LANES; i < count; i += LANES) {
            sum += values[b * count + i] - values[b * count + i];
        }
        for (int lanes = LANES / 2; lanes; lanes /= 2) sum += other(sum, lanes);
        if (is_nan(sum) && threadIdx.x % LANES == 0) info[b] = -1;
    }
}
"""

# Real numbers as complex ones.
_WIDEN = """\
extern "C" __global__ void widen(T* out, const R* x, i64 n) {
    for (EACH(i, n)) out[i] = of(x[i]);
}
"""

_TYPES = {
    float32: _REAL.replace("{real}", "float"),
    float64: _REAL.replace("{real}", "double"),
    complex64: _COMPLEX.replace("{real}", "float"),
    complex128: _COMPLEX.replace("{real}", "double"),
}


def _threads(lanes: int, b: ir.IRBuilder, sizes: Sequence[Any]) -> Geometry:
    """`lanes` threads for each of the elements."""
    total = const(lanes)
    for size in sizes:
        total = b.mul(total, size)
    blocks = b.udiv(b.add(total, const(THREADS - 1)), const(THREADS))
    few = b.icmp_unsigned("<", blocks, const(MOST_BLOCKS))
    return Geometry(total, b.select(few, blocks, const(MOST_BLOCKS)), const(1), const(THREADS))


# The text, the number of arguments, which of them are sizes, and the threads for each element.
KERNELS: dict[str, tuple[str, int, range, int]] = {
    "triangle": (_TRIANGLE, 11, range(4, 7), 1),
    "determinant": (_DETERMINANT, 6, range(4, 5), LANES),
    "reflect": (_REFLECT, 8, range(3, 5), LANES),
    "addresses": (_ADDRESSES, 6, range(5, 6), 1),
    "refuse_infinite": (_FINITE, 4, range(2, 3), LANES),
    "widen": (_WIDEN, 3, range(2, 3), 1),
}


def text_of(name: str, dtype: DType) -> str:
    return _HEAD + _TYPES[dtype] + KERNELS[name][0]


def build(session: Session, modules: list[object], name: str, dtype: DType) -> Launch:
    """A launcher of the kernel; `modules` keeps its code."""
    _, count, sizes, lanes = KERNELS[name]
    module, handle = compile_kernel(session, text_of(name, dtype), name)
    modules.append(module)
    rule: Rule = partial(_threads, lanes)
    key = ("matrix kernel", lanes)
    return make_launcher(handle, Arguments(count, sizes, ()), key, rule, session.driver)
