"""Second names of ops, and ops whose public form takes more than their kernel does."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops import elementwise as e
from rushlight.ops.registry import REGISTRY, composite, register
from rushlight.tape.value import Value

del REGISTRY["round"]


@composite("round")
def round(input: Value, *, decimals: int = 0) -> Value:
    """Round to the nearest, halves to even; with `decimals`, at that place after the point (before it, if negative)."""
    if decimals == 0:
        return e.round(input)
    if input.spec.dtype.kind != "f":
        raise RushlightError(f"round: decimals are for floating point, got {input.spec!r}; cast with .float() first")
    power = 10.0 ** abs(decimals)
    if decimals > 0:
        return e.div(e.round(e.mul(input, power)), power)
    return e.mul(e.round(e.div(input, power)), power)


def _second_name(alias: str, name: str) -> None:
    function = REGISTRY[name].function

    def called(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    if hasattr(function, "op"):
        called.op = function.op  # type: ignore[attr-defined]  # from which the in-place form is made
    register(alias, called, REGISTRY[name].doc)


for _alias, _name in (
    ("absolute", "abs"),
    ("clip", "clamp"),
    ("fix", "trunc"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("negative", "neg"),
    ("not_equal", "ne"),
):
    _second_name(_alias, _name)
