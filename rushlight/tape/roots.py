"""Where a backward pass starts: roots, their gradients, and what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import NotDifferentiable, RushlightError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.tape.backward import run_backward
from rushlight.tape.needed import Needed, edge_of
from rushlight.tape.value import Leaf, Output, Value


def _seed(root: Value, gradient: Value | None) -> Value:
    if gradient is None:
        if root.spec.numel != 1:
            raise RushlightError(
                f"backward: a gradient must be given for a root that is not one number, here {root.spec!r}; "
                f"pass gradient=, or reduce with .sum() or .mean()"
            )
        if root.spec.dtype.kind == "c":
            raise RushlightError(
                f"backward: a gradient must be given for a complex root, here {root.spec!r}; "
                f"pass gradient=, or go from a real number such as .abs().sum()"
            )
        return Needed.full(Spec.of(root.spec.device, root.spec.dtype, root.spec.shape), 1.0)
    if gradient.spec.shape != root.spec.shape:
        raise ShapeError(f"backward: a gradient {gradient.spec!r} does not fit the root {root.spec!r}")
    return Needed.cast(gradient, root.spec.dtype)


def _checked_roots(roots: Sequence[Value]) -> None:
    for root in roots:
        if edge_of(root) is None:
            raise NotDifferentiable(
                f"backward: the root {root.spec!r} does not require gradients: it was made from constants, under no_grad(), "
                f"or after .detach()"
            )


def backward(
    tensors: Any,
    grad_tensors: Sequence[Any] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Value] | None = None,
) -> None:
    """Sum the gradients of the roots into the leaves' `.grad`."""
    roots = [tensors] if isinstance(tensors, Value) else list(tensors)
    _checked_roots(roots)
    given = [None] * len(roots) if grad_tensors is None else list(grad_tensors)
    seeds = [_seed(r, g) for r, g in zip(roots, given, strict=True)]
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(roots, seeds, retain, create_graph)
        return
    for leaf, part in zip(inputs, grad(roots, inputs, seeds, retain, create_graph, allow_unused=True), strict=True):
        if part is not None:
            # A buffer of its own: what `grad` gives may be shared between inputs.
            if type(leaf.node) is not Leaf:
                raise RushlightError("backward: inputs must be leaves; use grad() for the gradient of a result")
            present = leaf.node.grad
            leaf.node.grad = Needed.clone(part) if present is None else Needed.add(present, part)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the outputs' sum with respect to the inputs; `.grad` is not touched."""
    roots = [outputs] if isinstance(outputs, Value) else list(outputs)
    wanted = [inputs] if isinstance(inputs, Value) else list(inputs)
    _checked_roots(roots)
    if any(edge_of(v) is None for v in wanted):
        raise NotDifferentiable("grad: one of the inputs does not require gradients")
    given = (
        [None] * len(roots)
        if grad_outputs is None
        else ([grad_outputs] if isinstance(grad_outputs, Value) else list(grad_outputs))
    )
    seeds = [_seed(r, g) for r, g in zip(roots, given, strict=True)]
    retain = create_graph if retain_graph is None else retain_graph
    found = run_backward(roots, seeds, retain, create_graph, wanted)
    result = []
    for i, value in enumerate(wanted):
        edge = value.node
        part = found.get((edge.node, edge.index) if type(edge) is Output else edge)
        if part is None and not allow_unused:
            raise NotDifferentiable(
                f"grad: input {i} ({value.spec!r}) was not used in the outputs; pass allow_unused=True"
            )
        if create_graph and part is not None and edge_of(part) is None:
            part = Needed.constant_in(part, value)  # its derivative is zero, not absent
        result.append(part)
    return tuple(result)
