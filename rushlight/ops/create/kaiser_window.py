"""The Kaiser window."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation, like
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.bessel import i0e
from rushlight.ops.registry import composite
from rushlight.tape.record.value import Value


@composite("kaiser_window", method=False)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """i0(beta sqrt(1 - r^2)) / i0(beta), r from -1 to 1, i0 a modified Bessel function.

    Args:
        beta: The shape: a larger one has lower side lobes.
    """
    creation.take("kaiser_window", named)
    if not isinstance(beta, (int, float)):
        raise RushlightError(f"kaiser_window: beta must be a number, got {type(beta).__name__}")

    def shape_at(x: Value) -> Value:
        # i0 overflows before the quotient does, so its exponential factor is removed from both; the
        # difference of the exponents, beta (root - 1), is computed without cancellation.
        size = abs(float(beta))
        level = creation.full((), size, dtype=x._spec.dtype, device=device)
        root = e.sqrt(e.mul(e.mul(x, e.sub(1, x)), 4))
        fall = e.div(e.square(e.sub(e.mul(x, 2), 1)), e.add(root, 1))
        return e.mul(e.div(i0e(e.mul(root, size)), i0e(level)), e.exp(e.mul(fall, -size)))

    made = like.window("kaiser_window", window_length, periodic, shape_at, dtype, device)
    return creation.requiring(made, requires_grad)
