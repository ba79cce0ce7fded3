"""A tensor taken apart along its first dimension, of which the gradient is put together once.

A slice's own gradient is a whole tensor of zeros with the slice in it: of many slices that is quadratic work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Spec
from rushlight.ops import views
from rushlight.ops.creation import full_spec
from rushlight.tape.function import Function
from rushlight.tape.value import Value


class _Apart(Function):
    """Slices of the first dimension that cover it."""

    @staticmethod
    def forward(ctx: Any, x: Value, counts: tuple[int, ...]) -> tuple[Value, ...]:
        ctx.set_materialize_grads(False)
        parts, start = [], 0
        for count in counts:
            parts.append(views.slice_dim(x, 0, start, count))
            start += count
        ctx.specs = [part.spec for part in parts]
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Value | None) -> Any:
        pairs = zip(ctx.specs, grads, strict=True)
        whole = [_nothing(spec) if g is None else g for spec, g in pairs]
        return views.cat(whole), None


def _nothing(spec: Spec) -> Value:
    return full_spec(Spec.of(spec.device, spec.dtype, spec.shape), 0.0)


def apart(x: Value, counts: Sequence[int]) -> tuple[Value, ...]:
    """x[:a], x[a : a + b], ... for counts a, b, ... that add up to its first size."""
    return _Apart.apply(x, tuple(counts))
