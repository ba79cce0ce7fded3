"""PyTorch's `torch.fx._pytree`: flattening by a given structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rushlight.utils._pytree import TreeSpec

FlattenFuncSpec = Callable[[Any, TreeSpec], list[Any]]
FlattenFuncExactMatchSpec = Callable[[Any, TreeSpec], bool]
SUPPORTED_NODES: dict[type, Any] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, Any] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None,
) -> None:
    """Tell how a class is taken apart by a given structure.

    Args:
        cls (type): The class.
        flatten_fn_spec (callable): The parts of a value, by its structure.
        flatten_fn_exact_match_spec (callable): Whether a value has just that structure.
    """
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _keys(spec: TreeSpec) -> Any:
    """The keys of a dict's structure; a defaultdict's factory stands before them."""
    return spec.context[1] if spec.type is defaultdict else spec.context


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a tree, as a structure has them: keys and elements beside it are left out.

    Args:
        pytree: The tree.
        spec (TreeSpec): The structure.
    """
    if spec.is_leaf():
        return [pytree]
    kind: Any = spec.type
    if kind in SUPPORTED_NODES:
        parts = SUPPORTED_NODES[kind](pytree, spec)
    elif isinstance(pytree, dict):
        parts = [pytree[key] for key in _keys(spec)]
    elif isinstance(pytree, (list, tuple)):
        parts = [pytree[n] for n in range(len(spec.children()))]
    else:
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register "
            "one with torch.fx._pytree.register_pytree_flatten_spec."
        )
    return [
        leaf
        for part, child in zip(parts, spec.children(), strict=True)
        for leaf in tree_flatten_spec(part, child)
    ]
