"""Batch norm of images where they lie: channels are not brought together in memory.

# Note [Channel norm]
1. An operand is (images, channels, pixels), contiguous. A sum over a channel is one over the pixels
   of each image, then one over the images: two rowwise launches, and no copy.
2. The first launch takes elements less the mean of their own image. The second one knows the mean
   of the channel and makes up for the difference, which is exact algebra, and small numbers.
3. The last launch, forward and backward, is a map over the elements, after all sums. So the result
   may lie over the image, and the image's gradient over the incoming one or over the image.
4. Where the pass is recorded, and where a gradient reaches the statistics, the derivative is that
   of rowwise ops over copies (`by_rows`), which have derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type
from rushlight.core.shapes import Spec, collapse, numel
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.family.rowwise import RowFormula, Rows, row_kernel
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, param
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.walk import roots

ByRows = Callable[..., tuple[Value, Value, Value]]  # of (x, weight, bias, eps) or (x, None, ...)


class _Launches:
    """Kernels for images of one size."""

    def __init__(self, x: Spec) -> None:
        self.pool: Any = x.device
        self.dtype, self.compute = x.dtype, compute_type(x.dtype)
        self.images, self.channels = x.shape[:2]
        self.pixels = numel(x.shape[2:])
        self.room = room_for(self.images * self.channels * self.compute.itemsize)

    def over_pixels(self, images: int, body: Callable[..., Sequence[Expr]]) -> Any:
        """Sums over elements, for each image and channel."""
        block = (self.images * self.channels, self.pixels, 1)
        return self._rows(self.dtype, [(self.pixels, 1, 1)] * images, block, (1, 0, 1), body)

    def over_images(self, parts: int, numbers: int, body: Callable[..., Sequence[Expr]]) -> Any:
        """Sums of such sums for each channel, of which there are further numbers."""
        block, each, one = (1, self.images, self.channels), (0, self.channels, 1), (0, 0, 1)
        return self._rows(self.compute, [each] * parts + [one] * numbers, block, one, body)

    def _rows(
        self,
        dtype: DType,
        strides: Sequence[tuple[int, int, int]],
        block: tuple[int, int, int],
        out: tuple[int, int, int],
        body: Callable[..., Sequence[Expr]],
    ) -> Any:
        """A launch with its numbers, which stores one of the compute type for each row."""
        builder, count = Rows(), len(strides)
        stores = tuple(body(builder, *[arg(i, self.compute) for i in range(count)]))
        formula = RowFormula(
            (dtype,) * count,
            tuple(stride[1] > 0 for stride in strides),
            (self.compute,) * len(stores),
            ("row",) * len(stores),
            tuple(builder.passes),
            tuple(builder.constant),
            stores,
        )
        kernel, tail = row_kernel(formula, block, [out] * len(stores) + list(strides))
        run = built(self.pool, kernel)
        return lambda *places: run(*places, *tail)

    def elements(
        self, images: int, numbers: int, weights: Sequence[DType], formula: Sequence[Expr]
    ) -> Any:
        """A map over elements of `images`, numbers of channels, and weights of these types."""
        inputs = (self.dtype,) * images + (self.compute,) * numbers + tuple(weights)
        whole = (self.channels * self.pixels, self.pixels, 1)
        strides = [whole] * (1 + images) + [(0, 1, 0)] * (numbers + len(weights))
        sizes, steps = collapse((self.images, self.channels, self.pixels), strides)
        params = (self.compute,) if images == 2 else ()
        made = Formula(inputs, params, (self.dtype,), tuple(formula))
        kernel, tail = map_kernel(made, sizes, steps, 1)
        run = built(self.pool, kernel)
        return lambda *places: run(*places[: 1 + len(inputs)], *tail, *places[1 + len(inputs) :])


def _centred(x: Expr, mean: Expr, rstd: Expr) -> Expr:
    return (x - mean) * rstd


def _own_statistics(r: Rows, x: Expr) -> Sequence[Expr]:
    """The mean and the variance of one image's channel."""
    n = r.extent(x.dtype)
    mean = r.sum(x) / n
    return mean, r.sum((x - mean) * (x - mean)) / n


def _statistics(r: Rows, means: Expr, variances: Expr, eps: float) -> Sequence[Expr]:
    """The mean and 1 / deviation of a channel, of those of its images."""
    n = r.extent(means.dtype)
    mean = r.sum(means) / n
    variance = r.sum(variances + (means - mean) * (means - mean)) / n
    return mean, 1 / s.sqrt(variance + eps)


def _own_products(r: Rows, g: Expr, x: Expr) -> Sequence[Expr]:
    """The sums of g times x less its mean and of g, and that mean, of one image's channel."""
    mean = r.sum(x) / r.extent(x.dtype)
    return r.sum(g * (x - mean)), r.sum(g), mean


def _products(
    r: Rows, along: Expr, level: Expr, means: Expr, mean: Expr, rstd: Expr
) -> Sequence[Expr]:
    """The sums of g times the normalised elements and of g."""
    return r.sum(along + (means - mean) * level) * rstd, r.sum(level)


class ChannelNorm(Op):
    """Channels with mean 0 and variance 1, scaled and shifted; the means, and 1 / deviation.

    Of x, or of x and a scale and a shift for each channel; `static` is (eps, by_rows).
    """

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool, x = check_devices(self.name, ins), ins[0]
        check_device_dtype(self.name, pool, x.dtype)
        z, eps = _Launches(x), static[0]
        k, weights = z.compute, [spec.dtype for spec in ins[1:]]
        parts_of = z.over_pixels(1, _own_statistics)
        statistics_of = z.over_images(2, 0, lambda r, m, v: _statistics(r, m, v, eps))
        place, mean, rstd, *scale = [arg(i, k) for i in range(3 + len(weights))]
        y = _centred(place, mean, rstd)
        placed = z.elements(1, 2, weights, [y * scale[0] + scale[1] if scale else y])

        def launch(out: int, mean: int, rstd: int, x: int, *scale: int) -> None:
            with Scratch(pool, z.room, z.room) as (means, variances):
                parts_of(means, variances, x)
                statistics_of(mean, rstd, means, variances)
            placed(out, x, mean, rstd, *scale)

        numbers = Spec.of(pool, k, (z.channels,))
        plan = Plan(self, ins, [x, numbers, numbers], launch, static, cost=x.numel * 6.0)
        plan.over = [(0, 0)]
        plan.rest += 2 * z.room
        return plan

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        n = len(plan.ins)
        eps, by_rows = plan.static

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            g = grads[0]
            plain = g is not None and grads[1] is None and grads[2] is None
            if not plain or STATE.get().grad or g._spec.hidden:
                # No gradient depends on the shift.
                shift = [full_spec(spec, 0.0) for spec in plan.ins[2:]]
                return _recorded(grads, [*values[: n - len(shift)], *shift], needs, eps, by_rows)
            given = [g, values[0], *values[n + 1 :], *values[1 : n - 1]]
            made = call.call(_gradient, [views.contiguous(v) for v in given], ())
            return [part if needs >> i & 1 else None for i, part in enumerate(made[:n])]

        saves = (0, 1) if n > 1 else (0,)
        grad = Grad(needs, saves, (1, 2), rule)
        grad.dense = True
        return grad


class ChannelNormGradient(Op):
    """The gradients of x, of its scale and of its shift, of (g, x, mean, rstd) and the scale."""

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        x, pool = ins[1], check_devices(self.name, ins)
        z = _Launches(x)
        k, weights = z.compute, [spec.dtype for spec in ins[4:]]
        parts_of = z.over_pixels(2, _own_products)
        sums_of = z.over_images(3, 2, _products)
        g, place, mean, rstd, along, level, *scale = [arg(i, k) for i in range(6 + len(weights))]
        count = param(0, k)
        dx = (g - level / count - _centred(place, mean, rstd) * (along / count)) * rstd
        placed = z.elements(2, 4, weights, [dx * scale[0] if scale else dx])
        total = float(z.images * z.pixels)

        def launch(
            out: int, along: int, level: int, g: int, x: int, mean: int, rstd: int, *scale: int
        ) -> None:
            with Scratch(pool, *[z.room] * 3) as parts:
                parts_of(*parts, g, x)
                sums_of(along, level, *parts, mean, rstd)
            placed(out, g, x, mean, rstd, along, level, *scale, total)

        numbers = Spec.of(pool, k, (z.channels,))
        plan = Plan(self, ins, [x, numbers, numbers], launch, static, cost=x.numel * 6.0)
        plan.over = [(0, 0), (0, 1)]
        plan.rest += 3 * z.room
        return plan


_norm = ChannelNorm("channel_norm", "Each channel with mean 0 and variance 1.")
_gradient = ChannelNormGradient("channel_norm_grad", "Derivative of channel_norm.")


def _recorded(
    grads: Sequence[Any], operands: Sequence[Value], needs: int, eps: float, by_rows: ByRows
) -> list[Any]:
    """The gradients by rowwise ops, recorded where the pass is: Note [Channel norm] 4."""
    recorded = STATE.get().grad
    own = [_own(v, recorded) for v in operands]
    with Changed(grad=True):
        results = by_rows(*own, *[None] * (3 - len(own)), eps)
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    sought = [v for i, v in enumerate(own) if needs >> i & 1]
    given = [r for r, _ in pairs], sought, [g for _, g in pairs]
    parts = iter(roots.grad(*given, create_graph=recorded, allow_unused=True))
    return [next(parts) if needs >> i & 1 else None for i in range(len(own))]


def _own(v: Value, recorded: bool) -> Value:
    """An operand with a record of its own: it may be given twice."""
    if recorded and v._node is not None:
        return call.call(views.same_view, (v,), (v._spec.shape,))
    made = call.detached(v)
    made._node = Leaf(made)
    return made


def normalised_channels(
    x: Value, weight: Value | None, bias: Value | None, eps: float, by_rows: ByRows
) -> tuple[Value, Value, Value]:
    """x of (images, channels, ...), normalised; the means, and 1 / deviation.

    Scale and shift are both given or both missing; `by_rows` computes the same by rowwise ops.
    """
    given = [x] if weight is None or bias is None else [x, weight, bias]
    if any(v._spec.hidden for v in given):
        return by_rows(x, weight, bias, eps)
    ready = [views.contiguous(v) for v in given]
    y, mean, rstd = call.call(_norm, ready, (eps, by_rows))
    return y, mean, rstd
