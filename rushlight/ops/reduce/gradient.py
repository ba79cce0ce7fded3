"""Numerical derivatives along dimensions from neighbouring values: `gradient`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record.value import Value


def _part(x: Value, dim: int, start: int, count: int) -> Value:
    return views.slice_dim(x, dim, start, count)


def _weighted(x: Value, dim: int, start: int, count: int, weights: Sequence[Any]) -> Value:
    """The sum of weights[k] times the `count` elements from start + k."""
    total: Any = None
    for k, weight in enumerate(weights):
        term = e.mul(_part(x, dim, start + k, count), weight)
        total = term if total is None else e.add(total, term)
    return total


def _even(x: Value, dim: int, step: complex, edge: int) -> list[Value]:
    """First point, inner points, last point, `step` apart."""
    n = x._spec.shape[dim]
    ends = [-1.0, 1.0] if edge == 1 else [-1.5, 2.0, -0.5]
    if step:
        first = _weighted(x, dim, 0, 1, [w / step for w in ends])
        last = _weighted(x, dim, n - len(ends), 1, [-w / step for w in reversed(ends)])
    else:  # infinities, or NaN where neighbours are equal
        first = e.div(_weighted(x, dim, 0, 1, ends), step)
        last = e.div(_weighted(x, dim, n - len(ends), 1, [-w for w in reversed(ends)]), step)
    inner = e.div(e.sub(_part(x, dim, 2, n - 2), _part(x, dim, 0, n - 2)), 2 * step)
    return [first, inner, last]


def _uneven(x: Value, dim: int, places: Value, edge: int) -> list[Value]:
    """The same at given positions: the slope of the parabola through three neighbours."""
    n, rank = x._spec.shape[dim], len(x._spec.shape)
    if places._spec.shape != (n,):
        raise RushlightError(
            f"gradient: one coordinate is needed for each of {n} points, got {places._spec!r}"
        )
    steps = e.sub(_part(places, 0, 1, n - 1), _part(places, 0, 0, n - 1))
    steps = views.reshape(steps, (n - 1, *(1,) * (rank - 1 - dim)))

    def parabola(start: int, count: int, at: int) -> Value:
        a, b = _part(steps, 0, start, count), _part(steps, 0, start + 1, count)
        both = e.add(a, b)
        if at == 0:
            left, middle = e.neg(e.div(e.add(both, a), e.mul(a, both))), e.div(both, e.mul(a, b))
            right = e.neg(e.div(a, e.mul(b, both)))
        elif at == 1:
            left, middle = e.neg(e.div(b, e.mul(a, both))), e.div(e.sub(b, a), e.mul(a, b))
            right = e.div(a, e.mul(b, both))
        else:
            left, middle = e.div(b, e.mul(a, both)), e.neg(e.div(both, e.mul(a, b)))
            right = e.div(e.add(both, b), e.mul(b, both))
        return _weighted(x, dim, start, count, [left, middle, right])

    def line(start: int) -> Value:
        rise = e.sub(_part(x, dim, start + 1, 1), _part(x, dim, start, 1))
        return e.div(rise, _part(steps, 0, start, 1))

    inner = [parabola(0, n - 2, 1)] if n > 2 else []
    if edge == 1:
        return [line(0), *inner, line(n - 2)]
    return [parabola(0, 1, 0), *inner, parabola(n - 3, 1, 2)]


@composite("gradient", method=False)
def gradient(
    input: Value, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Value, ...]:
    """Derivatives along each dimension, of second order inside and of `edge_order` at the ends.

    One tensor per dimension is returned.

    Example:
        >>> torch.gradient(torch.tensor([1.0, 4.0, 9.0]))
        (tensor([3., 4., 5.]),)
    """
    rank = len(input._spec.shape)
    listed = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [wrap_dim(d, rank, "gradient") for d in listed]
    if len(set(dims)) < len(dims):
        raise RushlightError(f"gradient: a dimension is named twice in dim {list(listed)}")
    if edge_order not in (1, 2):
        raise RushlightError(f"gradient: edge_order is 1 or 2, got {edge_order}")
    spacing = 1 if spacing is None else spacing
    several = isinstance(spacing, (list, tuple))
    spaces = list(spacing) if several else [spacing] * len(dims)
    if len(spaces) != len(dims):
        raise RushlightError(
            f"gradient: one spacing is needed for each of {len(dims)} dimensions, got {len(spaces)}"
        )
    out = []
    for d, space in zip(dims, spaces, strict=True):
        if input._spec.shape[d] <= edge_order:
            raise RushlightError(
                f"gradient: {edge_order + 1} points are needed along {d} of {input._spec!r}"
            )
        if isinstance(space, Value) and space._spec.shape:
            parts = _uneven(input, d, space, edge_order)
        else:
            step: Any = creation.number_of(space, "gradient")
            parts = _even(input, d, step if isinstance(step, complex) else float(step), edge_order)
        out.append(views.cat(parts, d))
    return tuple(out)
