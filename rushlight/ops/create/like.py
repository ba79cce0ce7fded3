"""More new tensors: evenly spaced numbers, tensors like another, window functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType, complex_type, float32, float64, get_default, int64
from rushlight.core.errors import DTypeError, KindError, RushlightError, ShapeError
from rushlight.core.shapes import Shape, Spec
from rushlight.devices.shared.allocator import room_for
from rushlight.ops.create import creation
from rushlight.ops.create.creation import (
    Constant,
    number_of,
    requiring,
    resolve_pool,
    shape_of,
    take,
)
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random import random
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.laid import in_strides
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, index
from rushlight.tape.record import call
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import batched_like

# ---- evenly spaced numbers ----


def _even_steps(kind: DType | None) -> Constant:
    """Numbers computed from both ends, so that the last is the end exactly, in the dtype `kind`."""

    def body(compute: DType, start: Expr, end: Expr, step: Expr, count: Expr) -> Expr:
        near = start + step * s.cast(index(), start.dtype)
        far = end - step * s.cast(count - 1 - index(), start.dtype)
        return s.where(index() + index() < count, near, far)

    return Constant("linspace", body, (kind, kind, kind, int64), "Numbers in even steps.")


_steps, _steps_single, _steps_double = _even_steps(None), _even_steps(float32), _even_steps(float64)


def _widest(pool: Any) -> DType:
    return float64 if float64 in pool.device.limits.dtypes else float32


def _check_ends(op: str, start: Any, end: Any, dtype: DType) -> None:
    if dtype.kind != "c" and any(isinstance(number_of(v, op), complex) for v in (start, end)):
        raise DTypeError(
            f"{op}: from {start} to {end} are complex numbers, which {dtype.name} does not hold"
        )


def _linspace(op: str, start: Any, end: Any, steps: Any, dtype: DType, device: Any) -> Value:
    kind = complex if dtype.kind == "c" else float
    first, last, count = kind(start), kind(end), number_of(steps, op)
    if not isinstance(count, int):
        raise TypeError(f"{op}: steps must be an integer, got {type(count).__name__}")
    if count < 0:
        raise RushlightError(f"{op}: the number of steps must not be negative, got {count}")
    spec = Spec.of(resolve_pool(device), dtype, (count,))
    step = (last - first) / (count - 1) if count > 1 else 0.0
    last = last if count > 1 else first
    if dtype.kind in "fc":
        kernel = _steps
    else:  # integers are truncated fractions
        kernel = _steps_double if _widest(spec.device) is float64 else _steps_single
    return call.call(kernel, (), (spec,), (first, last, step, count))


def _device_of(device: Any, *values: Any) -> Any:
    found = [v._spec.device.device.name for v in values if isinstance(v, Value)]
    return found[0] if device is None and found else device


def _type_of_ends(start: Any, end: Any) -> DType:
    has_complex = any(
        isinstance(v, complex) or (isinstance(v, Value) and v._spec.dtype.kind == "c")
        for v in (start, end)
    )
    return complex_type(get_default()) if has_complex else get_default()


@composite("linspace", method=False, out="line")
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """`steps` numbers from start to end, both included, evenly spaced.

    Example:
        >>> torch.linspace(0, 1, 5)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    take("linspace", named)
    dtype = dtype or _type_of_ends(start, end)
    _check_ends("linspace", start, end, dtype)
    line = _linspace("linspace", start, end, steps, dtype, _device_of(device, start, end))
    return requiring(line, requires_grad)


@composite("logspace", method=False, out="line")
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """base ** start to base ** end, the exponents evenly spaced."""
    take("logspace", named)
    dtype = dtype or _type_of_ends(start, end)
    _check_ends("logspace", start, end, dtype)
    device = _device_of(device, start, end)
    wide = dtype if dtype.itemsize > 2 and dtype.kind in "fc" else _widest(resolve_pool(device))
    power = e.pow(float(base), _linspace("logspace", start, end, steps, wide, device))
    if dtype.kind not in "fc":  # a power within rounding of an integer counts as one
        whole = e.round(power)
        near = e.le(
            e.abs(e.sub(power, whole)), e.mul(e.abs(whole), 1e-12 if wide is float64 else 1e-6)
        )
        power = e.select(near, whole, power)
    return requiring(e.cast(power, dtype), requires_grad)


@composite("vander", method=False)
def vander(x: Value, N: int | None = None, increasing: bool = False) -> Value:
    """The powers N - 1 to 0 of each element of a vector, one row per element.

    0 to N - 1 if increasing. Example:
        >>> torch.vander(torch.tensor([2, 3]), 3)
        tensor([[4, 2, 1],
                [9, 3, 1]])

    Args:
        x: A vector.
    """
    if len(x._spec.shape) != 1:
        raise ShapeError(f"vander: a vector is needed, got {x._spec!r}")
    count = x._spec.shape[0] if N is None else N
    if count < 0:
        raise RushlightError(f"vander: N must not be negative, got {N}")
    return powers(x, count, increasing)


def powers(x: Value, count: int, increasing: bool) -> Value:
    """x ** 0 to x ** (count - 1) along a new last dimension, or in reverse."""
    place = creation.arange(count, device=x._spec.device.device.name)
    exponent = place if increasing else e.sub(count - 1, place)
    base = x if x._spec.differentiable else e.cast(x, int64)
    return e.pow(
        views.unsqueeze(base, -1),
        e.cast(exponent, base._spec.dtype) if base._spec.dtype is int64 else exponent,
    )


# ---- like another tensor ----


@composite("full_like", method=False, pure=True)
def full_like(
    input: Value,
    fill_value: float,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """One value everywhere, with another tensor's shape, dtype and device."""
    take("full_like", named)
    value = number_of(fill_value, "full_like")
    return creation.like(input, value, dtype, device, requires_grad, named.get("memory_format"))


@composite("fill", method=False)
def fill(input: Value, value: complex | Value) -> Value:
    """One value everywhere, with another tensor's shape and dtype.

    The gradient goes to a tensor value.
    """
    spec = input._spec
    if isinstance(value, Value) and value._spec.shape:
        raise RushlightError(f"fill: the value must be a number or 0-dim, got {value._spec!r}")
    always = creation.full((), True, device=spec.device.device.name)
    filled = (
        e.cast(value, spec.dtype)
        if isinstance(value, Value)
        else creation.like(input, value, None, None, False)
    )
    return e.select(always, filled, input)  # on the tape, with gradient 0 for the input


@composite("empty_like", method=False)
def empty_like(
    input: Value,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Uninitialised memory with another tensor's shape, dtype and device."""
    take("empty_like", named)
    spec = input._spec
    strides = creation.strides_like("empty_like", spec, named.get("memory_format"))
    pool = spec.device if device is None else resolve_pool(device)
    check_device_dtype("empty_like", pool, dtype or spec.dtype)
    made = creation.empty_spec(Spec.of(pool, dtype or spec.dtype, spec.shape, strides))
    return requiring(batched_like(input, made) if spec.hidden else made, requires_grad)


def _laid_like(
    op: str, drawn: Value, input: Value, requires_grad: bool, named: dict[str, Any]
) -> Value:
    """Random numbers, drawn in row-major order, in the layout of another tensor or a format."""
    if not drawn._spec.hidden:
        strides = creation.strides_like(op, input._spec, named.get("memory_format"))
        drawn = in_strides(drawn, strides)
    return requiring(drawn, requires_grad)


@composite("rand_like", method=False)
@random.drawing
def rand_like(
    input: Value,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: random.Generator | None = None,
    **named: Any,
) -> Value:
    """Uniform numbers in [0, 1) with another tensor's shape, dtype and device."""
    take("rand_like", named)
    made = {
        "dtype": dtype or input._spec.dtype,
        "device": _device_of(device, input),
    }
    drawn = random.rand(input._spec.shape, generator=generator, **made)
    return _laid_like("rand_like", drawn, input, requires_grad, named)


@composite("randn_like", method=False)
@random.drawing
def randn_like(
    input: Value,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: random.Generator | None = None,
    **named: Any,
) -> Value:
    """Normal numbers with another tensor's shape, dtype and device."""
    take("randn_like", named)
    made = {
        "dtype": dtype or input._spec.dtype,
        "device": _device_of(device, input),
    }
    drawn = random.randn(input._spec.shape, generator=generator, **made)
    return _laid_like("randn_like", drawn, input, requires_grad, named)


@composite("randint_like", method=False)
@random.drawing
def randint_like(
    input: Value,
    low: Any = 0,
    high: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: random.Generator | None = None,
    **named: Any,
) -> Value:
    """Integers from low to high - 1 with another tensor's shape, dtype and device."""
    take("randint_like", named)
    if high is None:
        low, high = 0, low
    made = {
        "dtype": dtype or input._spec.dtype,
        "device": _device_of(device, input),
    }
    drawn = random.randint(
        int(number_of(low, "randint_like")),
        int(number_of(high, "randint_like")),
        input._spec.shape,
        generator=generator,
        **made,
    )
    return _laid_like("randint_like", drawn, input, requires_grad, named)


@composite("scalar_tensor", method=False)
def scalar_tensor(
    s: float,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """A 0-dim tensor that holds a number, in the default dtype.

    Args:
        s: The number.
    """
    take("scalar_tensor", named)
    return creation.full(
        (),
        number_of(s, "scalar_tensor"),
        dtype=dtype or get_default(),
        device=device,
        requires_grad=requires_grad,
        **named,
    )


def _strided(op: str, shape: Shape, strides: Shape, dtype: DType | None, device: Any) -> Value:
    if len(strides) != len(shape) or any(st < 0 for st in strides):
        raise RushlightError(
            f"{op}: one stride of at least 0 is needed for each of {list(shape)}, got "
            f"{list(strides)}"
        )
    spec = Spec.of(resolve_pool(device), dtype or get_default(), shape, strides)
    check_device_dtype(op, spec.device, spec.dtype)
    pool: Any = spec.device
    return call.rooted(
        call.lay(spec, call.make_storage(pool, room_for(spec.high), STATE.get().birth))
    )


@composite("empty_strided", method=False)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Uninitialised memory of a shape with given strides."""
    take("empty_strided", named)
    made = _strided("empty_strided", shape_of((tuple(size),)), tuple(stride), dtype, device)
    return requiring(made, requires_grad)


@composite("empty_permuted", method=False)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Uninitialised memory of a shape with its dimensions in the given order, outermost first."""
    take("empty_permuted", named)
    shape = shape_of((tuple(size),))
    if sorted(physical_layout) != list(range(len(shape))):
        raise RushlightError(
            f"empty_permuted: {list(physical_layout)} does not name each of {len(shape)} dimensions"
        )
    strides, step = [0] * len(shape), 1
    for dim in reversed(list(physical_layout)):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return requiring(
        _strided("empty_permuted", shape, tuple(strides), dtype, device), requires_grad
    )


# ---- windows ----


def cosine_sum(
    op: str, length: int, periodic: bool, weights: Sequence[float], dtype: DType | None, device: Any
) -> Value:
    """weights[0] - weights[1] cos(x) + weights[2] cos(2x) - ..., x from 0 to 2 pi."""

    def shape_at(x: Value) -> Value:
        total: Any = weights[0]
        for k, weight in enumerate(weights[1:], 1):
            total = e.add(e.mul(e.cos(e.mul(x, 2 * math.pi * k)), weight * (-1) ** k), total)
        return total

    return window(op, length, periodic, shape_at, dtype, device)


def window(
    op: str,
    length: int,
    periodic: bool,
    shape_at: Callable[[Value], Value],
    dtype: DType | None,
    device: Any,
) -> Value:
    """A window as a function of the position, 0 to 1; a periodic one omits its last point."""
    if length < 0:
        raise RushlightError(f"{op}: the length must not be negative, got {length}")
    dtype = dtype or get_default()
    if dtype.kind != "f":
        raise DTypeError(f"{op}: a window is of floating point, got {dtype!r}")
    if length <= 1:
        return creation.ones(length, dtype=dtype, device=device)
    wide = float32 if dtype.itemsize == 2 else dtype
    place = creation.arange(length, dtype=wide, device=device)
    return e.cast(shape_at(e.div(place, float(length if periodic else length - 1))), dtype)


def _cosine_window(name: str, doc: str, weights: Sequence[float]) -> Callable[..., Any]:
    def function(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DType | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **named: Any,
    ) -> Value:
        take(name, named)
        return requiring(
            cosine_sum(name, window_length, periodic, weights, dtype, device), requires_grad
        )

    function.__doc__ = doc
    return composite(name, method=False)(function)


hann_window = _cosine_window("hann_window", "0.5 - 0.5 cos over the window.", (0.5, 0.5))
blackman_window = _cosine_window(
    "blackman_window",
    "0.42 - 0.5 cos + 0.08 cos of twice the angle over the window.",
    (0.42, 0.5, 0.08),
)


@composite("hamming_window", method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """alpha - beta cos over the window.

    Args:
        alpha: The constant term.
        beta: The factor of the cosine.
    """
    take("hamming_window", named)
    made = cosine_sum("hamming_window", window_length, periodic, (alpha, beta), dtype, device)
    return requiring(made, requires_grad)


def triangle(x: Value) -> Value:
    return e.sub(1, e.abs(e.sub(e.mul(x, 2), 1)))


@composite("bartlett_window", method=False)
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """A triangle: from 0 up to 1 in the middle and down to 0."""
    take("bartlett_window", named)
    made = window("bartlett_window", window_length, periodic, triangle, dtype, device)
    return requiring(made, requires_grad)


# ---- methods of Tensor that are no functions, or with layout arguments ----


def new_full(self: Value, size: Sequence[int], fill_value: float, **named: Any) -> Value:
    """One value everywhere, with this tensor's dtype and device."""
    return creation.full(
        size, number_of(fill_value, "new_full"), **creation.options_of("new_full", self, named)
    )


def new_empty(self: Value, *size: int | Sequence[int], **named: Any) -> Value:
    """Uninitialised memory with this tensor's dtype and device."""
    return creation.empty(*size, **creation.options_of("new_empty", self, named))


def new_empty_strided(
    self: Value, size: Sequence[int], stride: Sequence[int], **named: Any
) -> Value:
    """Uninitialised memory with given strides and this tensor's dtype and device."""
    return empty_strided(size, stride, **creation.options_of("new_empty_strided", self, named))


def type_as(self: Value, other: Value) -> Value:
    """This tensor in the dtype of another."""
    if not isinstance(other, Value):
        raise KindError(f"type_as(): a tensor is needed, got {type(other).__name__}")
    return e.cast(self, other._spec.dtype)


METHODS = (new_full, new_empty, new_empty_strided, type_as)
