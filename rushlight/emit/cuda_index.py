"""Gather and scatter-add as CUDA C, without atomics."""

from __future__ import annotations

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.cuda_scalar import STORED, combine, computed, load, store
from rushlight.kernel.shapes import Gather, ScatterAdd

THREADS = 256


def _declared(dtype: DType, index_dtype: DType) -> str:
    strides = [f"const i64 {o}_{d}" for o in "osi" for d in ("o", "k", "i")]
    taken = [
        f"{STORED[dtype]}* out",
        f"const {STORED[dtype]}* source",
        f"const {STORED[index_dtype]}* picks",
        "i32* status",
    ]
    return ", ".join([*taken, *(f"const i64 {z}" for z in ("outer", "count", "inner", "limit")), *strides])


def gather(kernel: Gather) -> str:
    return f"""\
template <typename I> __device__ __forceinline__ void pick(
    const I position, {_declared(kernel.dtype, kernel.index_dtype)}) {{
    const i64 i = (i64)(position % (I)inner), rest = (i64)(position / (I)inner);
    const i64 k = (i64)((I)rest % (I)count), o = (i64)((I)rest / (I)count);
    i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
    const bool bad = at < -limit || at >= limit;
    if (at < 0) at += limit;
    if (bad) *status = 1;
    out[o * o_o + k * o_k + i * o_i] = bad ? ({STORED[kernel.dtype]})0 : source[o * s_o + at * s_k + i * s_i];
}}

extern "C" __global__ void __launch_bounds__({THREADS}) gather({_declared(kernel.dtype, kernel.index_dtype)}) {{
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    const i64 total = outer * count * inner;
    if (total < 0x7fffffffLL) {{
        for (i64 p = first; p < total; p += stride) pick<u32>((u32)p, {_names()});
    }} else {{
        for (i64 p = first; p < total; p += stride) pick<i64>(p, {_names()});
    }}
}}
"""


def _names() -> str:
    strides = [f"{o}_{d}" for o in "osi" for d in ("o", "k", "i")]
    return ", ".join(["out", "source", "picks", "status", "outer", "count", "inner", "limit", *strides])


def scatter_add(kernel: ScatterAdd) -> str:
    """Threads of block row y own the targets of one slice of `limit`: they see every k, in order, and add their own.

    So each target's additions happen in the order of k whatever the number of slices.
    """
    dtype = kernel.dtype
    kind, total = computed(dtype), combine("sum", compute_type(dtype), "before", "more")
    return f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) scatter_add({_declared(dtype, kernel.index_dtype)}) {{
    const i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const i64 o = column / inner, i = column % inner;
    const i64 from = limit * blockIdx.y / gridDim.y, to = limit * (blockIdx.y + 1) / gridDim.y;
    {STORED[dtype]}* const target = out + o * o_o + i * o_i;
    #pragma unroll 8
    for (i64 k = 0; k < count; ++k) {{
        i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
        if (at < -limit || at >= limit) *status = 1;
        if (at < 0) at += limit;
        if (at >= from && at < to) {{
            const {kind} before = {load(dtype, "target[at * o_k]")};
            const {kind} more = {load(dtype, "source[o * s_o + k * s_k + i * s_i]")};
            target[at * o_k] = {store(dtype, f"({total})")};
        }}
    }}
}}
"""
