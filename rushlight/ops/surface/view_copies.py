"""Views as copies: `<name>_copy` gives what the view gives, in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.ops.index import strided_views
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY, composite, register
from rushlight.ops.view import joining, reshaping, views
from rushlight.tape.record.value import Value


def _copying(viewing: Callable[..., Any]) -> None:
    name = viewing.__name__
    seen = REGISTRY.declared[name].function

    def function(*args: Any, **named: Any) -> Any:
        # A copy need not have the tensor's layout.
        if name == "view" and not args[0]._spec.contiguous:
            args = (e.clone(args[0]), *args[1:])
        out = seen(*args, **named)
        return tuple(e.clone(v) for v in out) if isinstance(out, tuple) else e.clone(out)

    function.__wrapped__ = seen  # type: ignore[attr-defined]  # whose signature it shows
    register(
        f"{name}_copy",
        function,
        f"What {name} gives, in memory of its own.",
        method=name == "narrow",
        out="exact",
    )


_copying(strided_views.as_strided)
_copying(reshaping.diagonal)
_copying(views.expand)
_copying(views.narrow)
_copying(views.permute)
_copying(joining.split_with_sizes)
_copying(views.squeeze)
_copying(reshaping.t)
_copying(views.transpose)
_copying(views.unbind)
_copying(strided_views.unfold)
_copying(views.unsqueeze)
_copying(views.view)


@composite("alias_copy", method=False, out="exact")
def alias_copy(input: Value) -> Value:
    """A copy."""
    return e.clone(input)
