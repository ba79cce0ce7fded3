"""Scan as CUDA C: one thread per (outer, inner), serial along the axis.

Several positions are loaded before the first of them is folded, since a compiler may not move a
load before a store. This is right in place too: an output that shares an input's memory has its
strides.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType
from rushlight.emit.cuda.scalar import (
    COMPUTED,
    STORED,
    computed,
    constant,
    indent,
    load,
    plain_leaf,
    statements,
    store,
)
from rushlight.kernel.shapes import Scan

THREADS = 64  # small blocks: there are few rows where the axis is long
AT_ONCE = 8  # positions loaded before they are folded


def scan(kernel: Scan) -> str:
    start, state = kernel.start, COMPUTED[kernel.body.dtype]
    assert start.value is not None
    inputs = list(enumerate(kernel.inputs))
    operands = ["o", *(f"x{j}" for j, _ in inputs)]
    declared = [f"{STORED[kernel.output]}* out", *(f"const {STORED[d]}* in{j}" for j, d in inputs)]
    declared += [f"const i64 {name}" for name in ("outer", "axis", "inner")]
    declared += [f"const i64 {name}_{d}" for name in operands for d in ("o", "k", "i")]
    places = [f"const i64 from_{name} = o * {name}_o + i * {name}_i;" for name in operands]
    rooms = [f"{computed(d)} v{j}[{AT_ONCE}];" for j, d in inputs]
    reads = [f"v{j}[n] = {_read(d, j, '(k + n)')};" for j, d in inputs]
    several = _fold(kernel, [f"v{j}[n]" for j, _ in inputs], "(k + n)")
    single = _fold(kernel, [_read(d, j, "k") for j, d in inputs], "k")
    return f"""\
{_step(kernel)}
extern "C" __global__ void __launch_bounds__({THREADS}) scan({", ".join(declared)}) {{
    const i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 p = (i64)blockIdx.x * blockDim.x + threadIdx.x; p < outer * inner; p += stride) {{
        const i64 o = p / inner, i = p % inner;
{indent(places, 2)}        {state} state = {constant(start.value, start.dtype)};
        i64 k = 0;
        for (; k + {AT_ONCE} <= axis; k += {AT_ONCE}) {{
{indent(rooms, 3)}            #pragma unroll
            for (int n = 0; n < {AT_ONCE}; ++n) {{
{indent(reads, 4)}            }}
            #pragma unroll
            for (int n = 0; n < {AT_ONCE}; ++n) {{
{indent(several, 4)}            }}
        }}
        for (; k < axis; ++k) {{
{indent(single, 3)}        }}
    }}
}}
"""


def _step(kernel: Scan) -> str:
    """The body as a function of the state, the inputs' elements and the position."""
    state = COMPUTED[kernel.body.dtype]
    lines, (result,) = statements([kernel.body], plain_leaf)
    taken = [
        f"const {state} r0",
        *(f"const {computed(d)} a{j}" for j, d in enumerate(kernel.inputs)),
    ]
    head = f"__device__ __forceinline__ {state} step({', '.join(taken)}, const i64 index) {{\n"
    return f"{head}{indent([*lines, f'return {result};'], 1)}}}\n"


def _read(dtype: DType, number: int, position: str) -> str:
    return load(dtype, f"in{number}[from_x{number} + {position} * x{number}_k]")


def _fold(kernel: Scan, elements: list[str], position: str) -> list[str]:
    return [
        f"state = step({', '.join(['state', *elements, position])});",
        f"out[from_o + {position} * o_k] = {store(kernel.output, 'state')};",
    ]
