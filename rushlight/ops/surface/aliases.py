"""Second names of ops, and ops whose public form takes more than their kernel does."""

from __future__ import annotations

from rushlight.core.errors import RushlightError
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY, composite, second_name
from rushlight.tape.record.value import Value

del REGISTRY["round"]


@composite("round")
def round(input: Value, *, decimals: int = 0) -> Value:
    """Round to the nearest, halves to even; with `decimals`, at that place after the point (before it, if negative)."""
    if decimals == 0:
        return e.round(input)
    if input._spec.dtype.kind != "f":
        raise RushlightError(
            f"round: decimals are for floating point, got {input._spec!r}; cast with .float() first"
        )
    power = 10.0 ** abs(decimals)
    if decimals > 0:
        return e.div(e.round(e.mul(input, power)), power)
    return e.mul(e.round(e.div(input, power)), power)


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
    second_name(_alias, REGISTRY[_name].function)
