"""Attend kernels as CUDA C: operands and positions, and the choice between two ways of a product.

# Note [Attention on CUDA]
1. A block has a tile of its own rows (query rows, or keys where the result is by keys) and walks
   the other side in tiles through shared memory, in ascending order. Scores are in registers;
   each result has one block, so sums have one order and there are no atomics.
2. Forward rescales its sums when a row's maximum grows. Backward computes probabilities from the
   row's level. The gradients of query and of keys are two kernels, each with the scores computed
   again, because their sums go along different sides.
3. float16 and bfloat16 multiply by `mma.sync` (attend_mma.py), other types and wide heads by fma
   (attend_fma.py). Products are summed in float32, or in float64.
4. Rows and features outside of the operands are zeros in shared memory; scores outside are -inf.
   16 bytes are copied at once where strides and addresses allow, else element by element.
5. Causal blocks stop at the diagonal, and come in descending order of their work.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import DType, bool_, compute_type, float32, uint32
from rushlight.emit.cuda import attend_fma, attend_mma
from rushlight.emit.cuda.scalar import (
    COMPUTED,
    STORED,
    constant,
    indent,
    load,
    plain_leaf,
    statements,
    store,
)
from rushlight.kernel.attend import operands_of, outputs_of, params_of
from rushlight.kernel.shapes import Attend
from rushlight.scalar.ir import arg, const
from rushlight.scalar.philox import philox

_ALONG_THREADS = 256
_STATIC = 2048  # bytes that the texts declare beside the tiles, at most


def by_tensor_cores(kernel: Attend) -> bool:
    return (
        kernel.dtype.itemsize == 2
        and kernel.of in ("output", "query", "keys")
        and max(kernel.width, kernel.depth) <= attend_mma.WIDEST
    )


def tile_of(kernel: Attend) -> tuple[int, int, int]:
    """Own rows of a block, its threads, and its bytes of shared memory."""
    if kernel.of == "along":
        return _ALONG_THREADS // 32, _ALONG_THREADS, 0
    if by_tensor_cores(kernel):
        return attend_mma.tile_of(kernel)
    return attend_fma.tile_of(kernel)


def widest(dtype: DType, shared: int) -> int:
    """The widest head for which every kernel fits into so many bytes of shared memory."""
    found = 0
    for width in attend_fma.WIDTHS:
        kernels = [Attend(dtype, of, width, width, float32) for of in ("output", "keys", "mask")]
        if all(tile_of(kernel)[2] + _STATIC <= shared for kernel in kernels):
            found = width
    return found


def other_tile(kernel: Attend) -> int:
    """Keys of a block of a mask's gradient."""
    return attend_fma.sizes_of(kernel).others


def attend(kernel: Attend) -> str:
    if kernel.of == "along":
        body = _ALONG.replace("DEPTH", str(kernel.depth))
    elif by_tensor_cores(kernel):
        body = attend_mma.text(kernel)
    else:
        body = attend_fma.text(kernel)
    return f"{_COMMON}{_types(kernel)}{_random()}{body}{_entry(kernel)}"


def _types(kernel: Attend) -> str:
    mask = kernel.mask or bool_
    kind = COMPUTED[compute_type(kernel.dtype)]
    added = "0" if mask is bool_ else f"({kind})({load(mask, 'word')})"
    return f"""\
typedef {kind} Real;
typedef {STORED[kernel.dtype]} Stored;
typedef {STORED[mask]} Masked;
#define NONE ({constant(-math.inf, compute_type(kernel.dtype))})
constexpr bool CAUSAL = {str(kernel.causal).lower()}, DROPOUT = {str(kernel.dropout).lower()};
constexpr bool HIDES = {str(kernel.mask is bool_).lower()};
constexpr bool ADDS = {str(kernel.mask not in (None, bool_)).lower()};
constexpr int WIDTH = {kernel.width}, DEPTH = {kernel.depth};
__device__ __forceinline__ Real widened(const Stored word) {{ return {load(kernel.dtype, "word")}; }}
__device__ __forceinline__ Stored narrowed(const Real x) {{ return {store(kernel.dtype, "x")}; }}
__device__ __forceinline__ Real added(const Masked word) {{ return {added}; }}
__device__ __forceinline__ Masked mask_of(const Real x) {{ return {_mask_store(kernel)}; }}
"""


def _mask_store(kernel: Attend) -> str:
    mask = kernel.mask or bool_
    return store(mask, f"({COMPUTED[compute_type(mask)]})x")


def _random() -> str:
    """Four random words, printed from their expression: see scalar/philox.py."""
    words = [arg(i, uint32) for i in range(4)]
    zero = const(0, uint32)
    lines, results = statements(
        philox((words[0], words[1], zero, zero), (words[2], words[3])), plain_leaf
    )
    given = ", ".join(f"const u32 a{i}" for i in range(4))
    stores = "".join(f"    w[{i}] = {name};\n" for i, name in enumerate(results))
    return (
        f"__device__ __forceinline__ void random_4(u32 (&w)[4], {given}) {{\n"
        f"{indent(lines, 1)}{stores}}}\n"
    )


def _entry(kernel: Attend) -> str:
    """The entry point packs its arguments into views and calls `run`."""
    operands = operands_of(kernel)
    outputs = outputs_of(kernel)
    kinds = {n: STORED[d] if n in outputs else f"const {STORED[d]}" for n, d in operands.items()}
    declared = [f"{kinds[n]}* {n}_at" for n in operands]
    declared += [f"const i64 z{d}" for d in ("x", "y", "z", "rows", "keys")]
    declared += [f"const i64 {n}_{d}" for n in operands for d in range(5)]
    params = [COMPUTED[compute_type(d)] for d in params_of(kernel)]
    declared += [f"const {kind} s{i}" for i, kind in enumerate(params)]
    lines = ["const Sizes sizes = {zx, zy, zz, zrows, zkeys};"]
    for name in operands:
        steps = ", ".join(f"{name}_{d}" for d in range(5))
        lines.append(f"const View<{kinds[name]}> {name} = {{{name}_at, {steps}}};")
    given = ["sizes", *operands]
    if kernel.of != "along":
        if kernel.mask is None:
            lines.append("const View<const Masked> mask = {};")
            given.append("mask")
        numbers = ", ".join(f"s{i}" for i in range(1, len(params)))
        lines.append(f"const Drop drop = {{{numbers}}};")
        given += ["(Real)s0", "drop"]
    lines.append(f"run({', '.join(given)});")
    _, threads, _ = tile_of(kernel)
    blocks = attend_mma.blocks_of(kernel) if by_tensor_cores(kernel) else 1
    bounds = f"{threads}, {blocks}"
    head = f'extern "C" __global__ void __launch_bounds__({bounds}) attend({", ".join(declared)})'
    return f"{head} {{\n{indent(lines, 1)}}}\n"


_COMMON = """\
struct Sizes { i64 x, y, z, rows, keys; };
struct Drop { i64 seed, position; float chance, factor; };
template <typename T> struct View {
    T* at;
    i64 x, y, z, row, column;
};
struct Place { i64 x, y, z, batch, tile; };
// Tiles of one batch entry are neighbours: they share its keys and values in the cache.
__device__ __forceinline__ Place place_of(const Sizes& s, const i64 tiles, const bool last_first) {
    Place p;
    const i64 job = blockIdx.x, tile = job % tiles;
    p.tile = last_first ? tiles - 1 - tile : tile;
    p.batch = job / tiles;
    p.z = p.batch % s.z;
    p.y = p.batch / s.z % s.y;
    p.x = p.batch / (s.z * s.y);
    return p;
}
template <typename T> __device__ __forceinline__ View<T> of(const View<T>& v, const Place& p) {
    View<T> r = v;
    r.at += p.x * v.x + p.y * v.y + p.z * v.z;
    return r;
}
"""

_ALONG = """\
// A warp has a row.
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Real>& along, const View<const Stored>& g,
    const View<const Stored>& out) {
    const Place place = place_of(sizes, (sizes.rows + 7) / 8, false);
    const i64 row = place.tile * 8 + threadIdx.x / 32;
    const View<const Stored> a = of(g, place), b = of(out, place);
    Real sum = 0;
    if (row < sizes.rows) {
        for (int d = threadIdx.x % 32; d < DEPTH; d += 32) {
            sum += widened(a.at[row * a.row + d * a.column]) * widened(b.at[row * b.row + d * b.column]);
        }
    }
    #pragma unroll
    for (int m = 16; m; m /= 2) sum += SHUFFLE(sum, m);
    if (row < sizes.rows && threadIdx.x % 32 == 0) of(along, place).at[row * along.row] = sum;
}
"""
