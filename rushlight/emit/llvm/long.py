"""Long formulas of Map kernels as functions, built once for all loops that need them.

A call costs little compared with such a formula, and copies for the vector loop, its masked rest
and the tiles would dominate the time of a build.
"""

from __future__ import annotations

from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.frame import lanes
from rushlight.emit.llvm.text import COMPUTE, Writer, vector
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import Expr, topological

LONG = 96  # instructions
BODY = (
    'define internal {result} @body({leaves}) noinline "prefer-vector-width"="512" '
    '"min-legal-vector-width"="512"'
)


def is_long(kernel: Map) -> bool:
    return len(topological(kernel.body)) > LONG


def leaves_of(kernel: Map) -> list[Expr]:
    """The function's parameters."""
    return [e for e in topological(kernel.body) if not e.args and e.op != "const"]


def _result_type(kernel: Map, width: int) -> str:
    return "{ " + ", ".join(vector(COMPUTE[e.dtype], width) for e in kernel.body) + " }"


def body_function(kernel: Map, declared: set[str]) -> str:
    """All outputs of a formula, from the values of its leaves."""
    width, _ = lanes(kernel)
    leaves = leaves_of(kernel)
    writer = Writer(declared)
    found = evaluate(writer, kernel.body, width, lambda e: f"%leaf{leaves.index(e)}")
    result = "poison"
    type_ = _result_type(kernel, width)
    for i, (expr, value) in enumerate(zip(kernel.body, found, strict=True)):
        result = writer.value(
            f"insertvalue {type_} {result}, {vector(COMPUTE[expr.dtype], width)} {value}, {i}"
        )
    given = ", ".join(f"{vector(COMPUTE[e.dtype], width)} %leaf{i}" for i, e in enumerate(leaves))
    return writer.function(BODY.format(result=type_, leaves=given), f"{type_} {result}")


def call_body(writer: Writer, kernel: Map, leaves: list[Expr], values: list[str]) -> list[str]:
    """The formula's outputs, by a call of its function."""
    width, _ = lanes(kernel)
    type_ = _result_type(kernel, width)
    given = ", ".join(
        f"{vector(COMPUTE[e.dtype], width)} {v}" for e, v in zip(leaves, values, strict=True)
    )
    made = writer.value(f"call {type_} @body({given})")
    return [writer.value(f"extractvalue {type_} {made}, {i}") for i in range(len(kernel.body))]
