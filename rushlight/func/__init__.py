"""Functions of functions: PyTorch's `torch.func`.

Owns: gradients, Jacobians and their products as functions; modules called with other parameters.
Takes: functions of tensors in any nesting. Gives: functions of the same arguments.
Never: knows an op; walks the graph itself (`tape/` does).
"""

from __future__ import annotations

from rushlight.func.jacobians import hessian, jacfwd, jacrev
from rushlight.func.modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from rushlight.func.rearrange import rearrange
from rushlight.func.transforms import (
    debug_unwrap,
    functionalize,
    grad,
    grad_and_value,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from rushlight.func.vmap import vmap
from rushlight.lazy import shown

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]


def __dir__() -> list[str]:
    return shown(__name__)
