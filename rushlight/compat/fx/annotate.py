"""PyTorch's `torch.fx.annotate`: the type of a proxy's value."""

from __future__ import annotations

from typing import Any

from rushlight.compat.fx.proxy import Proxy


def annotate(val: Any, type: Any) -> Any:
    """Note the type of a value in its node; a value that is no proxy is given back.

    Args:
        val: A proxy, or a value.
        type: Its type.
    """
    if isinstance(val, Proxy):
        if val.node.type is not None:
            raise RuntimeError(
                f"Tried to annotate a value that already had a type on it! Existing type is "
                f"{val.node.type} and new type is {type}."
            )
        val.node.type = type
    return val
