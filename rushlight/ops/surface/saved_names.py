"""The names by which `grad_fn` shows what a call saved: PyTorch's for the operands. See Note [Shown saves]."""

from __future__ import annotations

from rushlight.ops.family.map import Elementwise
from rushlight.tape.record.shown import Where, name_saves
from rushlight.tape.record.value import Node

DEFAULT = ("self", "other", *[f"input{i}" for i in range(2, 12)])
LOSS = ("self", "target", "weight")
SCATTER = ("self", "index", "src")
WEIGHED = ("input", "weight", "bias")

# Operands that are not named `self`, `other`.
OPERANDS: dict[str, tuple[str, ...]] = {
    "addcdiv": ("self", "tensor1", "tensor2", "value"),
    "addcmul": ("self", "tensor1", "tensor2", "value"),
    "assign": ("self", "source"),
    "binary_cross_entropy": LOSS,
    "cholesky_solve": ("self", "input2"),
    "clamp": ("self", "min", "max"),
    "clamp_max": ("self", "max"),
    "clamp_min": ("self", "min"),
    "complex": ("real", "imag"),
    "convolution": WEIGHED,
    "elu": ("self", "alpha", "scale", "input_scale"),
    "embedding": ("weight", "indices"),
    "gather": ("self", "index"),
    "hardtanh": ("self", "min_val", "max_val"),
    "huber_loss": (*LOSS[:2], "delta"),
    "kl_div": LOSS,
    "l1_loss": LOSS,
    "leaky_relu": ("self", "negative_slope"),
    "lerp": ("self", "end", "weight"),
    "linear": WEIGHED,
    "matmul": ("self", "mat2"),
    "max_unpool": ("self", "indices"),
    "norm": WEIGHED,
    "polar": ("abs", "angle"),
    "pow": ("self", "exponent"),
    "prelu": ("self", "weight"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_bias"),
    "scatter": SCATTER,
    "scatter_add": SCATTER,
    "scatter_reduce": SCATTER,
    "smooth_l1_loss": (*LOSS[:2], "beta"),
    "softplus": ("self", "beta", "threshold"),
    "solve": ("A", "B"),
    "threshold": ("self", "threshold", "value"),
    "where": ("condition", "self", "other"),
}

# Results of ops that have several, or one that PyTorch does not call `result`.
RESULTS: dict[str, tuple[str, ...]] = {
    "cholesky": ("L",),
    "cummax": ("values", "indices"),
    "cummin": ("values", "indices"),
    "eig": ("eigenvalues", "eigenvectors"),
    "eigh": ("eigenvalues", "eigenvectors"),
    "lu_factor": ("LU", "pivots"),
    "qr": ("Q", "R"),
    "slogdet": ("sign", "logabsdet"),
    "sort": ("values", "indices"),
    "svd": ("U", "S", "Vh"),
}


def _operand(name: str, i: int) -> str:
    names = OPERANDS.get(name, DEFAULT)
    return names[i] if i < len(names) else f"input{i}"


def _result(name: str, j: int, count: int) -> str:
    names = RESULTS.get(name, ())
    return names[j] if j < len(names) else "result" if count == 1 else f"result{j}"


def describe(node: Node) -> dict[str, Where]:
    """Where each of a record's names leads: operands of the call first, then the results that it saved."""
    plan = node.plan
    name = plan.op.name
    pattern = plan.static if isinstance(plan.op, Elementwise) else (None,) * len(plan.ins)
    found: dict[str, Where] = {}
    tensors = numbers = 0
    for i, kind in enumerate(pattern):
        if kind is None:
            found[_operand(name, i)] = ("operand", tensors)
            tensors += 1
        else:
            found[_operand(name, i)] = ("number", node.params[numbers])
            numbers += 1
    for j in node.grad.saves_out:
        found[_result(name, j, len(plan.outs))] = ("result", j)
    return found


def _every_name() -> set[str]:
    operands = {name for names in OPERANDS.values() for name in names}
    results = {name for names in RESULTS.values() for name in names}
    return {*DEFAULT, *operands, *results, "result", *[f"result{j}" for j in range(8)]}


name_saves(_every_name(), describe)
