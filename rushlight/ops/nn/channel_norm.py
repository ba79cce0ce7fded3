"""Batch norm of images where they lie: channels are not brought together in memory.

# Note [Channel norm]
1. An operand is (images, channels, pixels), contiguous. A sum over a channel is one over the pixels
   of each image, then one over the images: two rowwise launches, and no copy.
2. The last launch, forward and backward, is a map over the elements, after all sums. So the result
   may lie over the image, and the image's gradient over the incoming one or over the image.
3. Where the pass is recorded, and where a gradient reaches the statistics, the derivative is that
   of rowwise ops over copies (`by_rows`), which have derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.core.shapes import Spec, collapse, numel
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.family.rowwise import RowFormula, Rows, row_kernel
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into
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
        self.each = (0, self.channels, 1)  # the strides of numbers for each image and channel
        self.room = room_for(self.images * self.channels * self.compute.itemsize)

    def over_pixels(self, images: int, numbers: int, body: Callable[..., Sequence[Expr]]) -> Any:
        """Sums for each image and channel, of elements and of such numbers."""
        block = (self.images * self.channels, self.pixels, 1)
        strides = [(self.pixels, 1, 1)] * images + [(1, 0, 1)] * numbers
        return self._rows(images, strides, (), block, (1, 0, 1), body)

    def over_images(self, numbers: int, kinds: str, body: Callable[..., Sequence[Expr]]) -> Any:
        """Numbers of each channel ("row"), or those again for each image ("element")."""
        block = (1, self.images, self.channels)
        return self._rows(0, [self.each] * numbers, kinds.split(), block, self.each, body)

    def _rows(
        self,
        images: int,
        strides: Sequence[tuple[int, int, int]],
        kinds: Sequence[str],
        block: tuple[int, int, int],
        out: tuple[int, int, int],
        body: Callable[..., Sequence[Expr]],
    ) -> Any:
        """A launch with its numbers; the first `images` inputs have the images' dtype."""
        builder, count = Rows(), len(strides)
        stores = tuple(body(builder, *[arg(i, self.compute) for i in range(count)]))
        kinds = tuple(kinds) or ("row",) * len(stores)
        formula = RowFormula(
            (self.dtype,) * images + (self.compute,) * (count - images),
            (True,) * count,
            (self.compute,) * len(stores),
            kinds,
            tuple(builder.passes),
            tuple(builder.constant),
            stores,
        )
        to = [out if kind == "element" else (out[0], 0, out[2]) for kind in kinds]
        kernel, tail = row_kernel(formula, block, [*to, *strides])
        run = built(self.pool, kernel)
        return lambda *places: run(*places, *tail)

    def elements(self, images: int, weights: int, formula: Sequence[Expr], of: int) -> Any:
        """A map over elements of `images` and numbers of channels.

        `weights` of these have the images' dtype, the others, `of`, come first.
        """
        inputs = (self.dtype,) * images + (self.compute,) * of + (self.dtype,) * weights
        whole = (self.channels * self.pixels, self.pixels, 1)
        strides = [whole] * (1 + images) + [(0, 1, 0)] * (of + weights)
        sizes, steps = collapse((self.images, self.channels, self.pixels), strides)
        params = (self.compute,) if images == 2 else ()
        made = Formula(inputs, params, (self.dtype,), tuple(formula))
        kernel, tail = map_kernel(made, sizes, steps, 1)
        run = built(self.pool, kernel)
        return lambda *places: run(*places[: 1 + len(inputs)], *tail, *places[1 + len(inputs) :])


def _centred(x: Expr, mean: Expr, rstd: Expr) -> Expr:
    return (x - mean) * rstd


class ChannelNorm(Op):
    """Channels with mean 0 and variance 1, scaled and shifted; the means, and 1 / deviation.

    Of x, or of x and a scale and a shift for each channel; `static` is (eps, by_rows).
    """

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool, x = check_devices(self.name, ins), ins[0]
        check_device_dtype(self.name, pool, x.dtype)
        z, eps = _Launches(x), static[0]
        k, affine = z.compute, len(ins) - 1
        means = z.over_pixels(1, 0, lambda r, x: [r.sum(x) / r.extent(k)])
        mean_of = z.over_images(1, "row element", lambda r, m: [r.sum(m) / r.extent(k)] * 2)
        squares = z.over_pixels(1, 1, lambda r, x, m: [r.sum((x - m) * (x - m)) / r.extent(k)])
        rstd_of = z.over_images(1, "row", lambda r, v: [1 / s.sqrt(r.sum(v) / r.extent(k) + eps)])
        place, mean, rstd, *scale = [arg(i, k) for i in range(3 + affine)]
        y = _centred(place, mean, rstd)
        placed = z.elements(1, affine, [y * scale[0] + scale[1] if scale else y], 2)

        def launch(out: int, mean: int, rstd: int, x: int, *scale: int) -> None:
            with Scratch(pool, z.room, z.room) as (part, each):
                means(part, x)
                mean_of(mean, each, part)
                squares(part, x, each)
                rstd_of(rstd, part)
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
        k, affine = z.compute, len(ins) - 4
        spread = copy_into(pool, k, (z.images, z.channels), (z.channels, 1), (0, 1), count=2)
        parts = z.over_pixels(2, 2, lambda r, g, x, m, d: [r.sum(g * _centred(x, m, d)), r.sum(g)])
        sums = z.over_images(2, "row row", lambda r, a, b: [r.sum(a), r.sum(b)])
        g, place, mean, rstd, along, level, *scale = [arg(i, k) for i in range(6 + affine)]
        count = param(0, k)
        dx = (g - level / count - _centred(place, mean, rstd) * (along / count)) * rstd
        placed = z.elements(2, affine, [dx * scale[0] if scale else dx], 4)
        total = float(z.images * z.pixels)

        def launch(
            out: int, along: int, level: int, g: int, x: int, mean: int, rstd: int, *scale: int
        ) -> None:
            run, tail = spread
            with Scratch(pool, *[z.room] * 4) as (means, rstds, a, b):
                run(means, rstds, mean, rstd, *tail)
                parts(a, b, g, x, means, rstds)
                sums(along, level, a, b)
            placed(out, g, x, mean, rstd, along, level, *scale, total)

        numbers = Spec.of(pool, k, (z.channels,))
        plan = Plan(self, ins, [x, numbers, numbers], launch, static, cost=x.numel * 6.0)
        plan.over = [(0, 0), (0, 1)]
        plan.rest += 4 * z.room
        return plan


_norm = ChannelNorm("channel_norm", "Each channel with mean 0 and variance 1.")
_gradient = ChannelNormGradient("channel_norm_grad", "Derivative of channel_norm.")


def _recorded(
    grads: Sequence[Any], operands: Sequence[Value], needs: int, eps: float, by_rows: ByRows
) -> list[Any]:
    """The gradients by rowwise ops, recorded where the pass is: Note [Channel norm] 3."""
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
