"""`apply_`, `map_`, `map2_`: a Python function of each element, in place, on the host.

For experiments; ops are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import interop
from rushlight.core.errors import RushlightError
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.value import Value
from rushlight.tensor import tensor


def _mapped(name: str, target: Any, others: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    for x in (target, *others):
        if not isinstance(x, Value):
            raise TypeError(f"{name}: 'other' must be a tensor, got {type(x).__name__}")
        if edge_of(x) is not None:
            raise RushlightError(
                f"{name}: {x._spec!r} requires gradients, and this has none; use .detach() first"
            )
        if x._spec.dtype is not target._spec.dtype:
            raise TypeError(
                f"{name}: operands of one type are expected, got {x._spec!r} and {target._spec!r}"
            )
        if not x._spec.device.device.limits.host_memory:
            raise TypeError(
                f"{name}: runs Python on the host, and {x._spec!r} is not there; use .cpu()"
            )
    if not callable(function):
        raise TypeError(
            f"{name}: expected a function of the elements, got {type(function).__name__}"
        )
    columns = [interop.to_list(x) for x in (target, *(y.expand(target.shape) for y in others))]
    convert: Callable[[Any], Any] = {"b": bool, "f": float, "c": complex}.get(
        target.dtype.kind, int
    )
    results = [convert(function(*row)) for row in zip(*columns, strict=True)]
    return target.copy_(tensor(results, dtype=target.dtype).view(target.shape))


def apply_(self: Any, callable: Callable[[Any], Any]) -> Any:
    """Replace each element by function(element)."""
    return _mapped("apply_", self, (), callable)


def map_(self: Any, other: Any, callable: Callable[[Any, Any], Any]) -> Any:
    """Replace each element by function(element, element of other); `other` is broadcast."""
    return _mapped("map_", self, (other,), callable)


def map2_(self: Any, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> Any:
    """Replace each element by function(element, element of x, element of y)."""
    return _mapped("map2_", self, (x, y), callable)
