"""Convolution by the kernels of devices that have them (`Limits.convolves`).

Three ops, each bilinear, each other's derivatives, so that every order follows:
1. `image(x, w)` is the convolution;
2. `back(g, w)`, the transpose in x, is the gradient of x;
3. `weights(g, x)`, the transpose in w, is the gradient of w.
A device has a kernel for each, or two-dimensional kernels of which they are composed here: with
stride 1 the transpose in x is a convolution with flipped windows. With another stride it is one for
each remainder of a position by the stride, with the matching taps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

from rushlight.core.dtypes import DType, float32
from rushlight.core.precision import allows_tf32
from rushlight.core.shapes import Shape, Spec, contiguous_strides
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.shapes import Convolve, Reduce, Rowwise
from rushlight.ops.family.build import built
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into, fill_kernel
from rushlight.ops.view.windows import Sizes
from rushlight.scalar.ir import arg, row
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Op, Plan, Static
from rushlight.tape.record.value import Value

Pair = tuple[int, int]
MOST_PARTS = 8  # parts in which the images' weight gradients are summed, for threads
LEAST_WEIGHTS = (
    16  # channels in times channels out of a group: with fewer, most of a tile would be idle
)
_COST_OF_PRODUCT = 0.02
# Runs of a weight gradient's sum on a device with a kernel for it: enough for a large GPU's blocks
# of 64 by 128 sums, and neither very short nor very long.
_MANY_BLOCKS, _LEAST_RUN, _LONGEST_RUN = 512, 512, 16384

# `static` of every op: stride, padding before, dilation, groups, the spatial sizes of x, w and the
# output, and whether float32 may be computed in TF32.
Geometry = tuple[Sizes, Sizes, Sizes, int, Sizes, Sizes, Sizes, bool]


def suits(x: Spec, w: Spec, stride: Sizes, dilation: Sizes, groups: int) -> bool:
    """Whether the kernels for two dimensions take these operands.

    float32, not empty, enough channels or one each.
    """
    device: Any = x.device
    if (
        "runs" not in device.device.limits.convolves
        or x.dtype is not float32
        or w.dtype is not float32
    ):
        return False
    outs, shared = w.shape[0] // groups, w.shape[1]
    if (
        not x.numel
        or not w.numel
        or any(s > 1 and d > 1 for s, d in zip(stride, dilation, strict=True))
    ):
        return False
    return (outs == 1 and shared == 1) or outs * shared >= LEAST_WEIGHTS


def suits_whole(x: Spec, w: Spec) -> bool:
    """Whether a device has a kernel for each op, in any number of dimensions, for the operands."""
    device: Any = x.device
    if "back" not in device.device.limits.convolves or x.dtype is not w.dtype:
        return False
    return x.dtype.kind == "f" and x.numel > 0 and w.numel > 0


def _is_whole(spec: Spec) -> bool:
    device: Any = spec.device
    return "back" in device.device.limits.convolves


def _plan_whole(
    op: Op, of: str, ins: Sequence[Spec], static: Static, out: Spec, counts: Sizes
) -> Plan:
    """One launch; `counts` are the images, groups, and a group's channels out and in."""
    stride, before, dilation, _, image, window, pixels, tf32 = static
    dtype = out.dtype
    kernel = Convolve(dtype, of, rank=len(window), tf32=tf32 and dtype is float32)
    n, groups, m, c = counts
    parts = _parts(groups, m, c * prod(window), n * prod(pixels)) if of == "weights" else 1
    tail = (*counts, *pixels, *window, *image, *stride, *dilation, *before, parts)
    products = n * groups * m * c * prod(window) * prod(pixels)
    moved = ins[0].numel + (out.numel if of != "weights" else ins[1].numel)
    cost = products * _COST_OF_PRODUCT + moved
    launch = built(out.device, kernel)
    return Plan(op, ins, [out], launch, static, tail, cost, products=products)


def _parts(groups: int, rows: int, columns: int, length: int) -> int:
    blocks = groups * -(-rows // 64) * -(-columns // 128)
    wanted = min(-(-_MANY_BLOCKS // blocks), length // _LEAST_RUN)
    return max(1, wanted, -(-length // _LONGEST_RUN))


def _launch_numbers(
    n: int, groups: int, m: int, c: int, sizes: Sequence[int], parts: int = 1
) -> tuple[int, ...]:
    return (n, groups, m, c, *sizes, parts)


def _kinds(groups: int, outs: int, shared: int) -> tuple[str, str]:
    each = outs == groups and shared == 1
    return ("depthwise", "depthwise weights") if each else ("image", "runs")


def _vector_stride(stride: Pair) -> int:
    return stride[1] if stride[1] <= 2 else 0


def _scratch(kernel: Convolve, given: Spec, numbers: Sequence[int]) -> int:
    """The least bytes that a launch takes beside its operands, where the device tells."""
    device: Any = given.device
    told = device.device.limits.least_scratch
    return 0 if told is None else told(kernel, numbers)


def _products(n: int, outs: int, shared: int, window: Pair, pixels: Pair) -> int:
    return n * outs * shared * window[0] * window[1] * pixels[0] * pixels[1]


def _plan_image(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    x, w = ins
    stride, before, dilation, groups, image, window, pixels, _ = static
    n, outs, shared = x.shape[0], w.shape[0], w.shape[1]
    out = Spec.of(x.device, x.dtype, (n, outs, *pixels))
    if _is_whole(x):
        return _plan_whole(op, "image", ins, static, out, (n, groups, outs // groups, shared))
    kernel = Convolve(x.dtype, _kinds(groups, outs, shared)[0], _vector_stride(stride))
    run = built(x.device, kernel)
    sizes = (*pixels, *window, *image, *stride, *dilation, *before)
    tail = _launch_numbers(n, groups, outs // groups, shared, sizes)
    products = _products(n, outs, shared, window, pixels)
    cost = products * _COST_OF_PRODUCT + x.numel + out.numel
    plan = Plan(op, ins, [out], run, static, tail, cost, products=products)
    plan.over = [(0, 0)]  # images are copied before results are written in their place
    plan.rest += _scratch(kernel, x, tail)
    return plan


class _Phase:
    """The positions of x with one remainder by the stride: their taps, and the convolution."""

    def __init__(self, geometry: Geometry, remainder: Pair) -> None:
        stride, before, dilation, _, image, window, pixels, _ = geometry
        self.remainder = remainder
        self.first: list[int] = []
        self.step: list[int] = []
        self.taps: list[int] = []
        self.before: list[int] = []
        self.counts: list[int] = []
        for s, t, d, size, k, r in zip(
            stride, before, dilation, image, window, remainder, strict=True
        ):
            first = (r + t) % s
            taps = max(0, -(-(k - first) // s))
            self.first.append(first)
            self.step.append(s)
            self.taps.append(taps)
            self.before.append((taps - 1) * d - (r + t - first) // s)
            self.counts.append(max(0, -(-(size - r) // s)))
        self.pixels, self.dilation = pixels, dilation

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.counts, *self.taps, *self.pixels, 1, 1, *self.dilation, *self.before)


def _met(geometry: Geometry) -> list[list[int]]:
    """For each of two dimensions the remainders of positions that have taps."""
    stride, before, _, _, image, window, _, _ = geometry
    return [
        sorted(r for r in ((first - t) % s for first in range(min(k, s))) if r < size)
        for s, t, size, k in zip(stride, before, image, window, strict=True)
    ]


def _turned_numbers(w: Spec, groups: int, phase: _Phase) -> tuple[int, ...]:
    """The launch numbers that turn the phase's taps."""
    outs, shared, *window = w.shape
    sizes = (*phase.taps, *window, 1, 1, *phase.step, 1, 1, *phase.first)
    return _launch_numbers(1, groups, outs // groups, shared, sizes)


def _copy(pool: Any, dtype: DType, shape: Shape, target: Shape, source: Shape) -> Any:
    run, tail = copy_into(pool, dtype, shape, target, source)
    return lambda out, given: run(out, given, *tail)


def _plan_back(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    g, w = ins
    pool: Any = g.device
    stride, _, _, groups, image, window, pixels, _ = static
    n, outs, shared = g.shape[0], w.shape[0], w.shape[1]
    channels = groups * shared
    out = Spec.of(pool, g.dtype, (n, channels, *image))
    if _is_whole(g):
        return _plan_whole(op, "back", ins, static, out, (n, groups, outs // groups, shared))
    kernel = Convolve(g.dtype, _kinds(groups, outs, shared)[0], 1)
    run = built(pool, kernel)
    fill = built(pool, fill_kernel(g.dtype))
    turn_weights = built(pool, Convolve(w.dtype, "turned"))
    whole = stride == (1, 1)
    steps, scratch = [], 0
    size = g.dtype.itemsize
    for first, second in itertools.product(*_met(static)):
        phase = _Phase(static, (first, second))
        turn = _turned_numbers(w, groups, phase)
        count = channels * (outs // groups) * phase.taps[0] * phase.taps[1]
        tail = _launch_numbers(n, groups, shared, outs // groups, phase.sizes)
        shape = (n, channels, *phase.counts)
        *lead, rows, columns = out.strides
        spread = (*lead, rows * stride[0], columns * stride[1])
        place = _copy(pool, g.dtype, shape, spread, contiguous_strides(shape))
        at = (phase.remainder[0] * rows + phase.remainder[1] * columns) * size
        rooms = [room_for(count * size)]
        if not whole:
            rooms.append(room_for(n * channels * phase.counts[0] * phase.counts[1] * size))
        steps.append((turn, tail, place, at, rooms))
        scratch = max(scratch, sum(rooms) + _scratch(kernel, g, tail))
    gaps = len(steps) < min(stride[0], image[0]) * min(stride[1], image[1])
    products = _products(n, outs, shared, window, pixels)

    def launch(target: int, gradient: int, weight: int) -> None:
        if gaps or not steps:
            fill(target, out.numel)
        for turn, tail, place, at, rooms in steps:
            with Scratch(pool, *rooms) as (turned, *parts):
                turn_weights(turned, weight, *turn)
                part = parts[0] if parts else target
                run(part, gradient, turned, *tail)
                if parts:
                    place(target + at, part)

    cost = products * _COST_OF_PRODUCT + g.numel + out.numel
    plan = Plan(op, ins, [out], launch, static, cost=cost, products=products)
    plan.rest += scratch
    return plan


def _plan_weights(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    g, x = ins
    pool: Any = g.device
    stride, before, dilation, groups, image, window, pixels, _ = static
    n, outs, shared = g.shape[0], g.shape[1], x.shape[1] // groups
    out = Spec.of(pool, g.dtype, (outs, shared, *window))
    if _is_whole(g):
        return _plan_whole(op, "weights", ins, static, out, (n, groups, outs // groups, shared))
    kind = _kinds(groups, outs, shared)[1]
    runs = Convolve(g.dtype, kind, _vector_stride(stride))
    run = built(pool, runs)
    sizes = (*pixels, *window, *image, *stride, *dilation, *before)
    parts = min(n, MOST_PARTS) if kind == "runs" else 1
    tail = _launch_numbers(n, groups, outs // groups, shared, sizes, parts)
    products = _products(n, outs, shared, window, pixels)
    cost = products * _COST_OF_PRODUCT + g.numel + x.numel
    if kind != "runs":
        return Plan(op, ins, [out], run, static, tail, cost, products=products)
    dtype, taps, each = g.dtype, shared * window[0] * window[1], outs // groups
    passes = (Reduce("sum", arg(0, dtype)),)
    kernel = Rowwise(
        (dtype,), ("row",), (dtype,), (), passes, (row(0, dtype),), "inner", ("1", "1")
    )
    add = built(pool, kernel)
    place = _copy(pool, dtype, (groups, each, taps), (each * taps, taps, 1), (taps * each, 1, each))
    rooms = [room_for(count * out.numel * dtype.itemsize) for count in (parts, 1)]

    def launch(target: int, gradient: int, image: int) -> None:
        with Scratch(pool, *rooms) as (partial, total):
            run(partial, gradient, image, *tail)
            add(total, partial, 1, parts, out.numel, out.numel, 0, 1, 0, out.numel, 1)
            place(target, total)

    plan = Plan(op, ins, [out], launch, static, cost=cost, products=products)
    plan.rest += sum(rooms) + _scratch(runs, g, tail)
    return plan


def _dense(op: KernelOp, a: Value, b: Value, static: Static) -> Value:
    return call.call(op, (views.contiguous(a), views.contiguous(b)), static)


def image(x: Value, w: Value, static: Static) -> Value:
    """The convolution; x and w fit (`suits`)."""
    return _dense(_image, x, w, static)


def back(g: Value, w: Value, static: Static) -> Value:
    """The transpose of the convolution; g and w fit (`suits`)."""
    return _dense(_back, g, w, static)


def turned(
    x: Value, w: Value, stride: Sizes, before: Sizes, dilation: Sizes, groups: int, whole: Sizes
) -> Value:
    """The transpose of the convolution to an image of size `whole`."""
    sizes = (whole, w._spec.shape[2:], x._spec.shape[2:])
    tf32 = allows_tf32("convolution")
    return back(x, w, (stride, before, dilation, groups, *sizes, tf32))


def _vjps(first: str, second: str) -> list[Any]:
    """Gradients of a bilinear op's operands a and b, by the other two ops.

    "gb" is called with g and b.
    """
    ops = {"image": lambda: _image, "back": lambda: _back, "weights": lambda: _weights}

    def rule(name: str, order: str) -> Any:
        def vjp(g: Value, out: Any, a: Any, b: Any, *static: Any) -> Value:
            given = {"g": g, "a": a, "b": b}
            return _dense(ops[name](), given[order[0]], given[order[1]], static)

        return vjp

    return [rule(*first.split()), rule(*second.split())]


class Convolution(KernelOp):
    """One of the three ops. Both gradients read one contiguous copy of g."""

    __slots__ = ()
    may_round = True

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        grad = super().make_grad(plan, needs)
        grad.dense = True
        return grad


_image = Convolution(
    "convolution",
    _plan_image,
    _vjps("back gb", "weights ga"),
    [(1,), (0,)],
    "Windows of an image, weighed and summed.",
    batching="contract.convolution",
    operand_names=("input", "weight", "bias"),
)
_back = Convolution(
    "convolution_back",
    _plan_back,
    _vjps("image gb", "weights ag"),
    [(1,), (0,)],
    "The transpose of convolution.",
    batching="contract.convolution",
)
_weights = Convolution(
    "convolution_weights",
    _plan_weights,
    _vjps("image bg", "back ag"),
    [(1,), (0,)],
    "A convolution's slope in its weights.",
    batching="contract.weights",
)


def geometry(
    x: Spec, w: Spec, stride: Sizes, sides: Sequence[tuple[int, int]], dilation: Sizes, groups: int
) -> Geometry:
    """The `static` of every op."""
    sizes, window = x.shape[2:], w.shape[2:]
    pixels = tuple(
        (n + sum(side) - d * (k - 1) - 1) // s + 1
        for n, k, s, d, side in zip(sizes, window, stride, dilation, sides, strict=True)
    )
    before = tuple(side[0] for side in sides)
    return stride, before, dilation, groups, sizes, window, pixels, allows_tf32("convolution")
