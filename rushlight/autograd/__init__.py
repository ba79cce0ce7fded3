"""Gradients by function: PyTorch's `torch.autograd`.

Owns: what users call by this name: `grad`, `backward`, and modules on top of the tape.
Takes: tensors with records. Gives: gradients.
Never: walks the graph itself (`tape/` does).
"""

from __future__ import annotations

from typing import Any

from rushlight.sparse.coo import SparseTensor, as_gradient
from rushlight.tape import roots
from rushlight.tape.function import Function, once_differentiable
from rushlight.tape.roots import backward
from rushlight.tape.state import enable_grad, inference_mode, no_grad, set_grad_enabled
from rushlight.tape.value import Value

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the outputs' sum with respect to the inputs; `.grad` is not touched. A sparse input's is sparse."""
    wanted = [inputs] if isinstance(inputs, Value) else list(inputs)
    asked = [x._of if isinstance(x, SparseTensor) else x for x in wanted]
    found = roots.grad(outputs, asked, grad_outputs, retain_graph, create_graph, allow_unused)
    pairs = zip(wanted, found, strict=True)
    return tuple([as_gradient(x, g) if isinstance(x, SparseTensor) and g is not None else g for x, g in pairs])
