"""Convolution and pooling in two dimensions: windows, which are views, and contractions over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape, Spec, collapse, contiguous_strides
from rushlight.ops import elementwise as e, reductions, views
from rushlight.ops.creation import full_spec
from rushlight.ops.family.build import built
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.family.view import View
from rushlight.ops.indexing import gather
from rushlight.ops.matmul import autocast, matmul
from rushlight.ops.registry import composite
from rushlight.scalar.ir import arg
from rushlight.tape import call
from rushlight.tape.op import Op, Plan, Static, check_devices
from rushlight.tape.value import Value

Pair = tuple[int, int]


def pair(value: int | Sequence[int], op: str, name: str) -> Pair:
    if isinstance(value, int):
        return value, value
    both = tuple(int(v) for v in value)
    if len(both) == 1:
        return both[0], both[0]
    if len(both) != 2:
        raise ShapeError(f"{op}: {name} must be one number or two, got {list(both)}")
    return both[0], both[1]


def windows_of(shape: Shape, strides: Shape, kernel: Pair, stride: Pair, dilation: Pair) -> tuple[Shape, Shape, int]:
    """(..., H, W) seen as (..., rows, columns, kh, kw): every window, without a copy."""
    lead, sizes = shape[:-2], shape[-2:]
    counts = tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True))
    steps = tuple(st * s for st, s in zip(strides[-2:], stride, strict=True))
    inside = tuple(st * d for st, d in zip(strides[-2:], dilation, strict=True))
    return (*lead, *counts, *kernel), (*strides[:-2], *steps, *inside), 0


_windows = View(
    "windows",
    windows_of,
    lambda g, x, *static: fold(g, x.shape, static),
    "Every window of the last two dimensions, as a view.",
)


def _plan_fold(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    """The transpose of windows: each window's elements added back where they came from, in a fixed order."""
    (g,) = ins
    shape, kernel, stride, dilation = static
    pool: Any = g.device
    out = Spec.of(pool, g.dtype, shape)
    strides = contiguous_strides(shape)
    seen_shape, seen_strides, _ = windows_of(shape, strides, kernel, stride, dilation)
    compute = compute_type(g.dtype)
    formula = Formula((g.dtype, g.dtype), (), (g.dtype,), (arg(0, compute) + arg(1, compute),))
    layers = [st[:-2] for st in (seen_strides, seen_strides, g.strides)]
    sizes, steps = collapse(seen_shape[:-2], layers)
    kernel_, tail = map_kernel(formula, sizes, steps, 1)
    add, fill = built(pool, kernel_), built(pool, views.fill_kernel(g.dtype))
    size = g.dtype.itemsize
    places = [
        (
            (i * seen_strides[-2] + j * seen_strides[-1]) * size,
            (i * g.strides[-2] + j * g.strides[-1]) * size,
        )
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]

    def launch(target: int, gradient: int) -> None:
        fill(target, out.numel)
        if g.numel:
            for at, source in places:
                add(target + at, target + at, gradient + source, *tail)

    return Plan(op, ins, [out], launch, static)


_fold = KernelOp(
    "fold_windows",
    _plan_fold,
    [lambda g, out, x, shape, *static: call.call(_windows, (g,), static)],
    [()],
    "Windows added back where they came from.",
)


def fold(g: Value, shape: Shape, static: Any) -> Value:
    return call.call(_fold, (g,), (shape, *static))


def windows(x: Value, kernel: Pair, stride: Pair, dilation: Pair) -> Value:
    return call.call(_windows, (x,), (kernel, stride, dilation))


def pad_sides(x: Value, padding: Pair, value: float) -> Value:
    """The last two dimensions with a border of `value`."""
    if padding == (0, 0):
        return x
    *lead, h, w = x.spec.shape
    shape = (*lead, h + 2 * padding[0], w + 2 * padding[1])
    strides = contiguous_strides(shape)
    seen = (x.spec.shape, strides, padding[0] * strides[-2] + padding[1])
    if value == 0:
        return views.place_view(x, shape, seen)
    border = full_spec(Spec.of(x.spec.device, x.spec.dtype, shape), value)
    return call.call(views.write_view, (border, x), seen)


def _check_conv(
    x: Value, weight: Value, bias: Value | None, kernel: Pair, padding: Pair, dilation: Pair, groups: int
) -> None:
    shape, wanted = x.spec.shape, weight.spec.shape
    check_devices("conv2d", [v.spec for v in (x, weight, bias) if v is not None])
    if len(shape) != 4 or len(wanted) != 4 or shape[1] != wanted[1] * groups or wanted[0] % groups:
        raise ShapeError(
            f"conv2d: input {x.spec!r} (batch, channels, height, width) and weight {weight.spec!r} "
            f"(out, channels / groups, kh, kw) do not fit with groups={groups}"
        )
    if bias is not None and bias.spec.shape != wanted[:1]:
        raise ShapeError(f"conv2d: bias {bias.spec!r} must have one number for each output channel of {weight.spec!r}")
    for n, k, p, d in zip(shape[2:], kernel, padding, dilation, strict=True):
        if n + 2 * p < d * (k - 1) + 1:
            raise ShapeError(
                f"conv2d: a kernel of {k} (dilation {d}) is larger than the padded input of {n + 2 * p}; "
                f"input {x.spec!r}, weight {weight.spec!r}"
            )


@composite("conv2d", method=False)
def conv2d(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    """Cross-correlation of (batch, channels, height, width) with (out, channels / groups, kh, kw)."""
    if len(input.spec.shape) == 3:
        batch = conv2d(views.unsqueeze(input, 0), weight, bias, stride, padding, dilation, groups)
        return views.squeeze(batch, 0)
    kernel = (weight.spec.shape[2], weight.spec.shape[3]) if len(weight.spec.shape) == 4 else (1, 1)
    steps, spread = pair(stride, "conv2d", "stride"), pair(dilation, "conv2d", "dilation")
    border = _border(padding, kernel, steps, spread)
    _check_conv(input, weight, bias, kernel, border, spread, groups)
    x, w = autocast(input, weight)
    n, channels = x.spec.shape[:2]
    outs = w.spec.shape[0]
    seen = windows(pad_sides(x, border, 0.0), kernel, steps, spread)  # n, c, rows, columns, kh, kw
    rows, columns = seen.spec.shape[2:4]
    each = channels // groups
    # n, groups, c, kh, kw, rows, columns: a column of the matrix is one window
    block = views.reshape(
        views.permute(seen, (0, 1, 4, 5, 2, 3)), (n, groups, each * kernel[0] * kernel[1], rows * columns)
    )
    table = views.reshape(w, (1, groups, outs // groups, each * kernel[0] * kernel[1]))
    out = views.reshape(matmul(table, block), (n, outs, rows, columns))
    if bias is None:
        return out
    return e.add(out, views.reshape(e.cast(bias, out.spec.dtype), (outs, 1, 1)))


def _border(padding: int | Sequence[int] | str, kernel: Pair, stride: Pair, dilation: Pair) -> Pair:
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if stride != (1, 1):
            raise ShapeError(f"conv2d: padding='same' goes with stride 1, got {list(stride)}")
        total = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
        if any(t % 2 for t in total):
            raise ShapeError(
                f"conv2d: padding='same' with an even kernel {list(kernel)} pads unevenly; pad the input first"
            )
        return total[0] // 2, total[1] // 2
    if isinstance(padding, str):
        raise ShapeError(f"conv2d: padding is a number, two numbers, 'same' or 'valid', got {padding!r}")
    return pair(padding, "conv2d", "padding")


def _pool_windows(x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float, op: str) -> Value:
    size = pair(kernel, op, "kernel_size")
    step = size if stride is None else pair(stride, op, "stride")
    border, spread = pair(padding, op, "padding"), pair(dilation, op, "dilation")
    if len(x.spec.shape) not in (3, 4):
        raise ShapeError(f"{op}: input must be (batch, channels, height, width), got {x.spec!r}")
    if any(2 * p > k for p, k in zip(border, size, strict=True)):
        raise ShapeError(f"{op}: padding {list(border)} must be at most half of the kernel {list(size)}")
    for n, k, p, d in zip(x.spec.shape[-2:], size, border, spread, strict=True):
        if n + 2 * p < d * (k - 1) + 1:
            raise ShapeError(f"{op}: a window of {k} (dilation {d}) is larger than the padded input; {x.spec!r}")
    seen = windows(pad_sides(x, border, fill), size, step, spread)
    return views.reshape(seen, (*seen.spec.shape[:-2], size[0] * size[1]))


@composite("max_pool2d", method=False)
def max_pool2d(
    input: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> Value:
    """The largest element of each window; the gradient goes to the first of equals."""
    flat = _pool_windows(input, kernel_size, stride, padding, dilation, -math.inf, "max_pool2d")
    best = reductions.argmax(flat, -1, True)
    return views.squeeze(gather(flat, -1, best), -1)


@composite("avg_pool2d", method=False, top=False)
def avg_pool2d(
    input: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
) -> Value:
    """The mean of each window, padding counted as zeros."""
    flat = _pool_windows(input, kernel_size, stride, padding, 1, 0.0, "avg_pool2d")
    return reductions.mean(flat, -1)
