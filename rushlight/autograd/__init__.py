"""Gradients by function: PyTorch's `torch.autograd`.

Owns: the public names of this namespace: `grad`, `backward`, and modules on top of the tape.
Takes: tensors with records. Gives: gradients.
Never: walks the graph itself (`tape/` does).
"""

from __future__ import annotations

from typing import Any

from rushlight.autograd import forward_ad, function, functional, grad_mode, graph
from rushlight.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from rushlight.autograd.gradient_map import Gradients, gradients
from rushlight.autograd.variable import Variable
from rushlight.core.errors import RushlightError
from rushlight.func.vmap import vmap
from rushlight.lazy import Names, shown
from rushlight.sparse.coo import SparseTensor, as_gradient
from rushlight.sparse.gradients import showing_walk
from rushlight.tape.anomaly.mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from rushlight.tape.function import Function, once_differentiable
from rushlight.tape.record.state import enable_grad, inference_mode, no_grad, set_grad_enabled
from rushlight.tape.walk import roots
from rushlight.tape.walk.edges import ends
from rushlight.tape.walk.roots import backward

__all__ = [
    "Function",
    "GradcheckError",
    "Gradients",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "gradients",
    "graph",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]


_NAMES = Names(__name__)
_NAMES.modules_of("rushlight.compat.autograd", "profiler profiler_util")
_NAMES.defined({"rushlight.autograd.grad_mode": "set_multithreading_enabled"})


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return shown(__name__)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    workers: int = 1,
) -> tuple[Any, ...]:
    """The gradients of the outputs' sum with respect to the inputs; `.grad` does not change.

    An input that the outputs do not depend on is an error; `allow_unused` gives None for it,
    `materialize_grads` zeros. The gradient of a sparse input is sparse. With `is_grads_batched` the
    first dimension of each of `grad_outputs`, and of the result, counts the gradients of a batch:
    one pass, by `vmap`, computes all.

    Args:
        outputs (Tensor or tensors): What is differentiated.
        inputs (Tensor or tensors): With respect to what.
        grad_outputs (Tensor or tensors): The gradients of the outputs; None for one of a single
          element.
        retain_graph (bool): Keep what was saved, for another pass; by default `create_graph`.
        create_graph (bool): Record the pass itself, for higher derivatives.
        only_inputs (bool): Has no effect.
        allow_unused (bool): Give None for an input that the outputs do not depend on.
        is_grads_batched (bool): `grad_outputs` has a batch of gradients.
        materialize_grads (bool): Give zeros instead of None.
        workers (int): How many threads run branches of the graph.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "grad: materialize_grads=True gives zeros for unused inputs; leave allow_unused out, "
            "or True"
        )
    wanted = ends(inputs)
    asked = [x._of if isinstance(x, SparseTensor) else x for x in wanted]
    options = retain_graph, create_graph, bool(allow_unused), materialize_grads
    if is_grads_batched:
        found = _grad_of_batch(outputs, asked, grad_outputs, options, workers)
    else:
        found = roots.grad(
            outputs, asked, grad_outputs, *options, workers=workers, make=showing_walk()
        )
    pairs = zip(wanted, found, strict=True)
    return tuple(
        [
            as_gradient(x, g) if isinstance(x, SparseTensor) and g is not None else g
            for x, g in pairs
        ]
    )


def _grad_of_batch(
    outputs: Any, inputs: Any, given: Any, options: Any, workers: int
) -> tuple[Any, ...]:
    """`grad` for each of a batch of external gradients."""
    batch = [] if given is None else ends(given)
    if not batch or any(g is None for g in batch):
        raise RushlightError(
            "grad: is_grads_batched=True needs a batch of gradients for each output in grad_outputs"
        )
    missing: list[int] = []  # the inputs that were not used

    def one(*gradients: Any) -> list[Any]:
        found = roots.grad(outputs, inputs, gradients, *options, workers=workers)
        missing.extend(i for i, part in enumerate(found) if part is None)
        return [part for part in found if part is not None]

    parts = list(vmap(one)(*batch))
    for i in missing:
        parts.insert(i, None)
    return tuple(parts)
