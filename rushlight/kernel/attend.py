"""The operands of an Attend kernel, and the test of its dropout."""

from __future__ import annotations

from rushlight.core.dtypes import DType, compute_type, float32, int64
from rushlight.kernel.shapes import Attend
from rushlight.scalar.ir import Expr
from rushlight.scalar.philox import uniform

DROPOUT = (int64, int64, float32, float32)  # seed, position, probability, factor of kept ones

# By `of`: outputs, then inputs.
_OPERANDS = {
    "output": (("out", "level"), ("q", "k", "v")),
    "along": (("along",), ("g", "out")),
    "query": (("dq",), ("g", "level", "along", "q", "k", "v")),
    "keys": (("dk", "dv"), ("g", "level", "along", "q", "k", "v")),
    "operands": (("dq", "dk", "dv"), ("g", "out", "level", "q", "k", "v")),
    "mask": (("dmask",), ("g", "level", "along", "q", "k", "v")),
}
FORMS = tuple(_OPERANDS)
# The two inner dimensions of each operand.
_DIMS = {
    **dict.fromkeys(("q", "dq"), ("rows", "width")),
    **dict.fromkeys(("k", "dk"), ("keys", "width")),
    **dict.fromkeys(("v", "dv"), ("keys", "depth")),
    **dict.fromkeys(("g", "out"), ("rows", "depth")),
    **dict.fromkeys(("level", "along"), ("rows", "one")),
    **dict.fromkeys(("mask", "dmask"), ("rows", "keys")),
}


def outputs_of(kernel: Attend) -> tuple[str, ...]:
    return _OPERANDS[kernel.of][0]


def operands_of(kernel: Attend) -> dict[str, DType]:
    """The operands in the order of a launch, and their types."""
    outputs, inputs = _OPERANDS[kernel.of]
    masked = ("mask",) if kernel.mask is not None and kernel.of != "along" else ()
    found = dict.fromkeys((*outputs, *inputs, *masked), kernel.dtype)
    for name in ("level", "along"):
        if name in found:
            found[name] = compute_type(kernel.dtype)
    for name in ("mask", "dmask"):
        if name in found and kernel.mask is not None:
            found[name] = kernel.mask
    return found


def params_of(kernel: Attend) -> tuple[DType, ...]:
    if kernel.of == "along":
        return ()
    return (compute_type(kernel.dtype), *(DROPOUT if kernel.dropout else ()))


def inner_sizes(kernel: Attend, name: str, rows: int, keys: int) -> tuple[int, int]:
    """The sizes of an operand's last two dimensions."""
    known = {"rows": rows, "keys": keys, "width": kernel.width, "depth": kernel.depth, "one": 1}
    first, second = _DIMS[name]
    return known[first], known[second]


def kept(seed: Expr, position: Expr, probability: Expr) -> Expr:
    """Whether dropout keeps the score at a position of the whole matrix of scores."""
    return probability <= uniform(seed, position, float32)
