"""Contractions as CUDA C, for every type; used where no library takes over (integers, for example).

A block of 256 threads makes 64 by 64 results, each thread 4 by 4, from tiles of 16 along k in
shared memory. One thread per result sums k in ascending order, so the bits depend on nothing else.
"""

from __future__ import annotations

from rushlight.emit.cuda.scalar import COMPUTED, STORED, computed, constant, load, store
from rushlight.kernel.shapes import Contract

TILE = 64
DEPTH = 16
THREADS = 256


def _widened(kernel: Contract, text: str) -> str:
    value = load(kernel.dtype, text)
    return (
        value
        if computed(kernel.dtype) == COMPUTED[kernel.compute]
        else f"({COMPUTED[kernel.compute]}){value}"
    )


def _narrowed(kernel: Contract, text: str) -> str:
    value = (
        text
        if computed(kernel.dtype) == COMPUTED[kernel.compute]
        else f"({computed(kernel.dtype)}){text}"
    )
    return store(kernel.dtype, value)


def _grow(kernel: Contract) -> str:
    if kernel.compute.kind == "f":
        name = "fmaf" if kernel.compute.itemsize == 4 else "fma"
        return f"sum[i][j] = {name}(left[i], right[j], sum[i][j]);"
    wide = "u32" if kernel.compute.itemsize == 4 else "u64"
    kind = COMPUTED[kernel.compute]
    return f"sum[i][j] = ({kind})(({wide})sum[i][j] + ({wide})left[i] * ({wide})right[j]);"


def _declared(kernel: Contract) -> str:
    """The parameters of the kernel's function."""
    kind, stored = COMPUTED[kernel.compute], STORED[kernel.dtype]
    operands = [("o", "xymn"), ("a", "xymk"), ("b", "xykn")]
    operands += [("c", "xymn")] if kernel.added else []
    strides = [f"const i64 {o}_{d}" for o, dims in operands for d in dims]
    sizes = [f"const i64 z{d}" for d in "xymnk"]
    factors = [f"const {kind} s{i}" for i in range(len(kernel.params))]
    arrays = [f"{stored}* out", *(f"const {stored}* {name}" for name, _ in operands[1:])]
    return ", ".join([*arrays, *sizes, *strides, *factors])


def contract(kernel: Contract) -> str:
    kind, stored = COMPUTED[kernel.compute], STORED[kernel.dtype]
    zero = constant(0, kernel.compute)
    fetched = _widened(kernel, "from[(row + r) * by_row + (k + d) * by_k]")
    place = "out[x * o_x + y * o_y + r * o_m + q * o_n]"
    total = "sum[i][j]"
    if kernel.scaled:
        total = f"(s0 * sum[i][j] + s1 * {_widened(kernel, place)})"
    if kernel.added:
        total = f"(sum[i][j] + {_widened(kernel, 'c[x * c_x + y * c_y + r * c_m + q * c_n]')})"
    result = _narrowed(kernel, total)
    return f"""\
// Neighbouring threads take neighbouring addresses: along k where that is the unit stride, else along the other side.
__device__ __forceinline__ void fetch(
    {kind} (&tile)[{DEPTH}][{TILE} + 4], const {stored}* from, const i64 row, const i64 rows,
    const i64 k, const i64 depth, const i64 by_row, const i64 by_k) {{
    #pragma unroll
    for (int e = 0; e < {TILE * DEPTH // THREADS}; ++e) {{
        const int flat = e * {THREADS} + (int)threadIdx.x;
        const int r = by_k == 1 ? flat / {DEPTH} : flat % {TILE};
        const int d = by_k == 1 ? flat % {DEPTH} : flat / {TILE};
        const bool inside = row + r < rows && k + d < depth;
        tile[d][r] = inside ? {fetched} : {zero};
    }}
}}

extern "C" __global__ void __launch_bounds__({THREADS}, 2) contract({_declared(kernel)}) {{
    __shared__ {kind} left_tile[{DEPTH}][{TILE} + 4], right_tile[{DEPTH}][{TILE} + 4];
    const i64 across = (zn + {TILE - 1}) / {TILE}, down = (zm + {TILE - 1}) / {TILE};
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (i64 job = blockIdx.x; job < zx * zy * down * across; job += gridDim.x) {{
        const i64 n = job % across * {TILE}, m = job / across % down * {TILE};
        const i64 y = job / (across * down) % zy, x = job / (across * down * zy);
        const {stored}* const left_from = a + x * a_x + y * a_y;
        const {stored}* const right_from = b + x * b_x + y * b_y;
        {kind} sum[4][4] = {{}};
        for (i64 k = 0; k < zk; k += {DEPTH}) {{
            __syncthreads();
            fetch(left_tile, left_from, m, zm, k, zk, a_m, a_k);
            fetch(right_tile, right_from, n, zn, k, zk, b_n, b_k);
            __syncthreads();
            #pragma unroll
            for (int d = 0; d < {DEPTH}; ++d) {{
                {kind} left[4], right[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) left[i] = left_tile[d][ty * 4 + i];
                #pragma unroll
                for (int j = 0; j < 4; ++j) right[j] = right_tile[d][tx * 4 + j];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {{
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {_grow(kernel)}
                }}
            }}
        }}
        for (int i = 0; i < 4; ++i) {{
            for (int j = 0; j < 4; ++j) {{
                const i64 r = m + ty * 4 + i, q = n + tx * 4 + j;
                if (r < zm && q < zn) {place} = {result};
            }}
        }}
    }}
}}
"""
