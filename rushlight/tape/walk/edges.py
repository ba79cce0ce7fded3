"""Start and end points of a pass: tensors, and edges in their place."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core.errors import NotDifferentiable
from rushlight.core.shapes import Spec
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.value import Leaf, Output, Value


class GradientEdge(NamedTuple):
    """A result of a node, in place of the tensor, without its memory."""

    node: Any
    output_nr: int = 0
    ownership_token: Any = None


def get_gradient_edge(tensor: Value) -> GradientEdge:
    """The edge of a tensor; a leaf's is its accumulator."""
    edge = edge_of(tensor)
    if edge is None:
        raise NotDifferentiable(
            f"get_gradient_edge: the tensor {tensor._spec!r} does not require gradients"
        )
    return GradientEdge(edge.node, edge.index) if type(edge) is Output else GradientEdge(edge, 0)


def end_of(thing: Any) -> tuple[Any, Spec]:
    """The record of a tensor, None where it has none, and its spec."""
    if isinstance(thing, GradientEdge):
        node, index = thing.node, thing.output_nr
        if type(node) is Leaf:
            return node, node.spec
        outs = node.plan.outs
        return (Output(node, index) if len(outs) > 1 else node), outs[index]
    if not isinstance(thing, Value):
        raise TypeError(f"a tensor or a GradientEdge is needed, got {type(thing).__name__}")
    return edge_of(thing), thing._spec


def key_of(edge: Any) -> Any:
    """The key of a record in a walk: a Leaf, a node with one result, or (node, index)."""
    return (edge.node, edge.index) if type(edge) is Output else edge


def ends(things: Any) -> list[Any]:
    """One tensor or edge, or several, as a list."""
    return [things] if isinstance(things, (Value, GradientEdge)) else list(things)
