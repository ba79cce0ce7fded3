"""The leaves that a gradient of some outputs reaches."""

from __future__ import annotations

from typing import Any

from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_leaves


def leaves_of(outputs: Any) -> set[int]:
    """The ids of the leaves that a gradient of the outputs reaches."""
    reached: set[int] = set()
    seen: set[Any] = set()
    ahead = [
        leaf.grad_fn if leaf.grad_fn is not None else leaf
        for leaf in tree_leaves(outputs)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Tensor):
            reached.add(id(node))
        elif node is not None and node not in seen:
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                reached.add(id(variable))
            else:
                ahead.extend(following for following, _ in node.next_functions)
    return reached
