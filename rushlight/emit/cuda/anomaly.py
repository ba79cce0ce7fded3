"""Anomaly checks in CUDA C: what they add to loads and stores. See Note [Anomaly kernels].

A NaN or an infinity is reported at once: it is rare, so the branch costs little.
"""

from __future__ import annotations

from rushlight.core.dtypes import bfloat16, float16
from rushlight.emit.cuda.scalar import load, store
from rushlight.kernel.shapes import LOADED, Kernel, Map, Rowwise

NOTE = """\
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
"""

_NAMES = {float16: "noted_f16", bfloat16: "noted_bf16"}


def note(kernel: Kernel) -> str:
    """The prelude of a kernel with anomaly checks."""
    return NOTE if isinstance(kernel, Map | Rowwise) and kernel.anomaly is not None else ""


def flags(kernel: Map | Rowwise) -> list[str]:
    """The declaration of the flags' address, after the operands'."""
    return [] if kernel.anomaly is None else ["u32* const flag"]


def get(kernel: Map | Rowwise, i: int, text: str) -> str:
    """An element of input i, as its compute type."""
    dtype = kernel.inputs[i]
    if kernel.anomaly is not None and i in kernel.anomaly and dtype.kind == "f":
        text = f"{_NAMES.get(dtype, 'noted')}({text}, {LOADED}u, flag)"
    return load(dtype, text)


def put(kernel: Map | Rowwise, k: int, text: str) -> str:
    """A computed value of output k, as it is stored."""
    dtype = kernel.outputs[k]
    stored = store(dtype, text)
    if kernel.anomaly is not None and dtype.kind == "f":
        return f"{_NAMES.get(dtype, 'noted')}({stored}, 1u, flag)"
    return stored
