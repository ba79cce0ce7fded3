"""Kernels on float8 elements, made of kernels on their codes.

# Note [Float8 kernels]
1. An element of a float8 type in memory is a code of 8 bits. No device and no emitter knows more
   of it: a kernel with a float8 type is built as one on uint8, which takes the same numbers.
2. In a formula a float8 element is a float32, as halves are: the formula of the code stands for an
   input, and a result is given its code when it is stored (`scalar/float8.py`).
3. An element that a formula only chooses keeps its code, also that of a NaN.
4. Kernels other than maps, row kernels, gathers and scatters without a fold refuse float8 elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rushlight.core.dtypes import FLOAT8, DType, float32, int32, uint8
from rushlight.core.errors import UnsupportedDType
from rushlight.kernel.shapes import Gather, Kernel, Map, Reduce, Rowwise, Scatter
from rushlight.scalar import build as s
from rushlight.scalar.float8 import decoded, encoded
from rushlight.scalar.ir import Expr, arg, rebuild


def lowered(kernel: Kernel) -> Kernel:
    """A kernel that names float8 types, on codes. See Note [Float8 kernels]."""
    if isinstance(kernel, Map):
        return _lowered_map(kernel)
    if isinstance(kernel, Rowwise):
        return _lowered_rows(kernel)
    if isinstance(kernel, Gather) or (isinstance(kernel, Scatter) and kernel.kind == "set"):
        return replace(kernel, dtype=uint8)
    named = [getattr(kernel, name, None) for name in ("dtype", "output", "compute")]
    found = next(d for d in (*named, *getattr(kernel, "inputs", ())) if d in FLOAT8)
    raise UnsupportedDType(
        f"no {type(kernel).__name__.lower()} of {found!r}: elements of this type are stored and "
        "cast only; compute with .to(rushlight.float32)"
    )


def _lowered_map(kernel: Map) -> Map:
    values = _values(kernel.inputs)
    body = _stored(kernel.body, kernel.outputs, kernel.inputs, values)
    return replace(
        kernel, outputs=_code_types(kernel.outputs), inputs=_code_types(kernel.inputs), body=body
    )


def _lowered_rows(kernel: Rowwise) -> Rowwise:
    values = _values(kernel.inputs)
    passes = [Reduce(p.kind, rebuild([p.body], values)[0]) for p in kernel.passes]
    return replace(
        kernel,
        outputs=_code_types(kernel.outputs),
        inputs=_code_types(kernel.inputs),
        passes=tuple(passes),
        stores=_stored(kernel.stores, kernel.outputs, kernel.inputs, values),
    )


def _code_types(types: Sequence[DType]) -> tuple[DType, ...]:
    return tuple(uint8 if dtype in FLOAT8 else dtype for dtype in types)


def _values(inputs: Sequence[DType]) -> dict[Expr, Expr]:
    """The formulas that stand for float8 inputs."""
    return {
        arg(i, float32): decoded(arg(i, int32), dtype)
        for i, dtype in enumerate(inputs)
        if dtype in FLOAT8
    }


def _stored(
    results: Sequence[Expr],
    outputs: Sequence[DType],
    inputs: Sequence[DType],
    values: dict[Expr, Expr],
) -> tuple[Expr, ...]:
    return tuple(
        _code(result, dtype, inputs, values) if dtype in FLOAT8 else rebuild([result], values)[0]
        for result, dtype in zip(results, outputs, strict=True)
    )


def _code(x: Expr, dtype: DType, inputs: Sequence[DType], values: dict[Expr, Expr]) -> Expr:
    """The code of a result: see Note [Float8 kernels] 3."""
    if x.op == "arg" and inputs[int(x.value or 0)] is dtype:
        return arg(int(x.value or 0), int32)
    if x.op == "select":
        condition, first, second = x.args
        return s.where(
            rebuild([condition], values)[0],
            _code(first, dtype, inputs, values),
            _code(second, dtype, inputs, values),
        )
    return encoded(rebuild([x], values)[0], dtype)
