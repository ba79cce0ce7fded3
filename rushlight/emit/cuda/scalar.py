"""Scalar expressions as CUDA C: types, constants, instructions, and the prelude of every kernel.

# Note [CUDA C]
1. NVRTC and HIPRTC both accept the text without a header: no stdint, no cuda_fp16.h.
2. It is compiled with contraction off (--fmad=false, -ffp-contract=off), so `fma` is the only fused
   instruction.
3. Signed arithmetic goes through unsigned types, so that overflow wraps
   (Note [Scalar instructions]).
4. A half is a 16-bit word in memory and a float in a register. float16 is converted by the
   hardware's instruction, which needs a line per vendor; a conversion by bits would take some 30
   integer instructions per add, more time than the memory access.
5. Pointers are not __restrict__: an output may share its address with an input.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from rushlight.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    compute_type,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from rushlight.scalar.ir import Expr, topological

PRELUDE = """\
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
"""

# Types in memory, and types of arithmetic.
STORED = {
    bool_: "u8",
    uint8: "u8",
    int8: "i8",
    uint16: "u16",
    int16: "i16",
    uint32: "u32",
    uint64: "u64",
    int32: "i32",
    int64: "i64",
    float16: "u16",
    bfloat16: "u16",
    float32: "float",
    float64: "double",
}
COMPUTED = {
    bool_: "bool",
    int32: "i32",
    int64: "i64",
    uint32: "u32",
    uint64: "u64",
    float32: "float",
    float64: "double",
}
_UNSIGNED = {int32: "u32", uint32: "u32", int64: "u64", uint64: "u64"}


def computed(dtype: DType) -> str:
    return COMPUTED[compute_type(dtype)]


def load(dtype: DType, text: str) -> str:
    """A stored value, as its compute type."""
    if dtype is float16:
        return f"widen_f16({text})"
    if dtype is bfloat16:
        return f"widen_bf16({text})"
    if dtype is bool_:
        return f"({text} != 0)"
    return text if dtype.itemsize >= 4 else f"(i32)({text})"


def store(dtype: DType, text: str) -> str:
    """A computed value, as it is stored."""
    if dtype is float16:
        return f"narrow_f16({text})"
    if dtype is bfloat16:
        return f"narrow_bf16({text})"
    if dtype is bool_:
        return f"(u8)({text} ? 1 : 0)"
    return text if dtype.itemsize >= 4 else f"({STORED[dtype]})({text})"


# ---- constants ----


def _float_constant(value: float) -> str:
    try:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        value = math.copysign(math.inf, value)
    if math.isfinite(value):
        return f"{value!r}f"
    bits = 0x7FC00000 if math.isnan(value) else 0x7F800000 if value > 0 else 0xFF800000
    return f"__uint_as_float({bits:#x}u)"


def _double_constant(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    bits = "0x7ff8000000000000" if math.isnan(value) else "0x7ff0000000000000"
    return f"{'-' if value < 0 else ''}__longlong_as_double({bits}LL)"


def constant(value: bool | int | float, dtype: DType) -> str:
    if dtype is float32:
        return _float_constant(float(value))
    if dtype is float64:
        return _double_constant(float(value))
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.kind == "u":
        return f"{value}u" if dtype is uint32 else f"{value}ull"
    least = -(1 << (dtype.itemsize * 8 - 1))
    suffix = "LL" if dtype is int64 else ""
    # C writes the least integer as the negation of a literal that does not fit.
    return f"({least + 1}{suffix} - 1)" if value == least else f"{value}{suffix}"


# ---- instructions ----

_INFIX = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
_ROUNDED = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
_BITCASTS = {
    (float32, int32): "__float_as_int",
    (float32, uint32): "__float_as_uint",
    (int32, float32): "__int_as_float",
    (uint32, float32): "__uint_as_float",
    (float64, int64): "__double_as_longlong",
    (int64, float64): "__longlong_as_double",
    (int32, uint32): "(u32)",
    (int64, uint64): "(u64)",
    (uint64, int64): "(i64)",
    (uint32, int32): "(i32)",
}


def _function(name: str, dtype: DType) -> str:
    return name + "f" if dtype is float32 else name


def _whole(op: str, dtype: DType, a: Sequence[str]) -> str:
    """Integer arithmetic, which wraps."""
    kind, wide = COMPUTED[dtype], _UNSIGNED[dtype]
    if op in _INFIX:
        return f"({kind})(({wide}){a[0]} {_INFIX[op]} ({wide}){a[1]})"
    if op == "neg":
        return f"({kind})(0 - ({wide}){a[0]})"
    if op == "abs":
        return (
            f"({a[0]} < 0 ? ({kind})(0 - ({wide}){a[0]}) : {a[0]})" if dtype.kind == "i" else a[0]
        )
    if dtype.kind == "u":
        return f"({a[1]} == 0u ? ({kind})0u : {a[0]} {'/' if op == 'div' else '%'} {a[1]})"
    return f"{'divide' if op == 'div' else 'remainder_of'}<{kind}>({a[0]}, {a[1]})"


def _real(op: str, dtype: DType, a: Sequence[str]) -> str:
    """Float arithmetic."""
    if op in _INFIX:
        return f"{a[0]} {_INFIX[op]} {a[1]}"
    if op == "div":
        return f"{a[0]} / {a[1]}"
    if op == "neg":
        return f"-{a[0]}"
    name = {"rem": "fmod", "abs": "fabs"}.get(op, op)  # CUDA has the others under the same names
    return f"{_function(name, dtype)}({', '.join(a)})"


def _bitwise(op: str, dtype: DType, a: Sequence[str]) -> str:
    if op in _BITS:
        return f"{a[0]} {_BITS[op]} {a[1]}"
    if op == "not":
        return f"!{a[0]}" if dtype is bool_ else f"~{a[0]}"
    if op == "mulhi":
        return f"__umulhi({a[0]}, {a[1]})"
    count = f"({a[1]} & {dtype.itemsize * 8 - 1})"
    if op == "shl":
        return f"({COMPUTED[dtype]})(({_UNSIGNED[dtype]}){a[0]} << {count})"
    return f"{a[0]} >> {count}"


def extremum(op: str, dtype: DType, a: str, b: str) -> str:
    sign = "<" if op == "min" else ">"
    if dtype.kind == "f":  # NaN if either side is NaN
        return f"({a} {sign} {b} || {a} != {a} ? {a} : {b})"
    return f"({a} {sign} {b} ? {a} : {b})"


def instruction(expr: Expr, a: Sequence[str]) -> str:
    """One instruction of a verified kernel, on operands that are names or constants."""
    op, dtype = expr.op, expr.dtype
    operand = expr.args[0].dtype
    if op in _COMPARED:
        return f"{a[0]} {_COMPARED[op]} {a[1]}"
    if op == "isnan":
        return f"{a[0]} != {a[0]}"
    if op == "select":
        return f"{a[0]} ? {a[1]} : {a[2]}"
    if op == "cast":
        return f"{a[0]} != 0" if dtype is bool_ else f"({COMPUTED[dtype]}){a[0]}"
    if op == "bitcast":
        return f"{_BITCASTS[operand, dtype]}({a[0]})"
    if op in ("min", "max"):
        return extremum(op, dtype, a[0], a[1])
    if op in _ROUNDED:
        return f"{_function(_ROUNDED[op], dtype)}({a[0]})"
    if op in _BITS or op in ("not", "shl", "shr", "mulhi"):
        return _bitwise(op, dtype, a)
    return _real(op, dtype, a) if dtype.kind == "f" else _whole(op, dtype, a)


Leaf = Callable[[Expr], str]


def statements(roots: Sequence[Expr], leaf: Leaf) -> tuple[list[str], list[str]]:
    """One line per instruction, and the names of the roots; `leaf` names the leaves."""
    names: dict[Expr, str] = {}
    lines: list[str] = []
    for expr in topological(list(roots)):
        if expr.op == "const":
            assert expr.value is not None
            text = constant(expr.value, expr.dtype)
            names[expr] = f"({text})" if text.startswith("-") else text
        elif not expr.args:
            names[expr] = leaf(expr)
        else:
            name = f"t{len(lines)}"
            lines.append(
                f"const {COMPUTED[expr.dtype]} {name} = "
                f"{instruction(expr, [names[a] for a in expr.args])};"
            )
            names[expr] = name
    return lines, [names[root] for root in roots]


def uses(roots: Sequence[Expr]) -> list[int]:
    """The inputs that some expressions read, ascending."""
    return sorted({int(e.value or 0) for e in topological(list(roots)) if e.op == "arg"})


def plain_leaf(expr: Expr) -> str:
    """Names of leaves inside a body function: its arguments."""
    if expr.op in ("index", "extent"):
        return expr.op
    return {"arg": "a", "param": "s", "row": "r"}[expr.op] + str(expr.value)


# ---- folds ----


def identity(kind: str, dtype: DType) -> str:
    if kind in ("sum", "prod"):
        return constant(1 if kind == "prod" else 0, dtype)
    if dtype.kind == "f":
        return constant(math.inf if kind == "min" else -math.inf, dtype)
    if dtype.kind == "u":
        return constant((1 << dtype.itemsize * 8) - 1 if kind == "min" else 0, dtype)
    top = 1 << (dtype.itemsize * 8 - 1)
    return constant(top - 1 if kind == "min" else -top, dtype)


def combine(kind: str, dtype: DType, a: str, b: str) -> str:
    """Two partial results of a reduction, folded."""
    if kind in ("max", "min"):
        return f"{kind}imum({a}, {b})" if dtype is float32 else extremum(kind, dtype, a, b)
    op = "add" if kind == "sum" else "mul"
    return _real(op, dtype, (a, b)) if dtype.kind == "f" else _whole(op, dtype, (a, b))


def indent(lines: Sequence[str], depth: int) -> str:
    return "".join("    " * depth + line + "\n" for line in lines)
