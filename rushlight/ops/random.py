"""Random numbers: Philox by seed and position, the same on every device.

# Note [Random positions]
A generator is a seed and a position. An op that draws n numbers takes positions position .. position + n - 1 and the generator
moves on after the op has run; seed and position are the record's parameters, so a replay draws the same numbers.
"""

from __future__ import annotations

import math
import os
from typing import Any

from rushlight.core.dtypes import (
    FLOAT,
    DType,
    bfloat16,
    compute_type,
    float16,
    float32,
    float64,
    get_default,
    int64,
    real_type,
)
from rushlight.core.shapes import Spec
from rushlight.ops import elementwise as e, parts
from rushlight.ops.creation import Constant, requiring, resolve_pool, shape_of, sizes_of, take
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.registry import composite
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, index, param
from rushlight.scalar.philox import normal, uniform
from rushlight.tape import call
from rushlight.tape.op import Static, check_dtypes
from rushlight.tape.value import Value


def _fresh_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 2


class Generator:
    """A stream of random numbers: seed and position, nothing else."""

    def __init__(self, device: Any = None) -> None:
        self.seed_value = _fresh_seed()
        self.position = 0

    def manual_seed(self, seed: int) -> Generator:
        self.seed_value = int(seed) & ((1 << 63) - 1)
        self.position = 0
        return self

    def initial_seed(self) -> int:
        return self.seed_value

    def seed(self) -> int:
        self.manual_seed(_fresh_seed())
        return self.seed_value

    def get_state(self) -> tuple[int, int]:
        return self.seed_value, self.position

    def set_state(self, state: tuple[int, int]) -> Generator:
        self.seed_value, self.position = (int(part) for part in state)
        return self


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Start the default stream at the beginning of `seed`."""
    return default_generator.manual_seed(seed)


def get_rng_state() -> tuple[int, int]:
    return default_generator.get_state()


def set_rng_state(state: tuple[int, int]) -> None:
    default_generator.set_state(state)


def _draw(
    op: Any, inputs: tuple[Value, ...], static: Static, more: tuple[Any, ...], count: int, g: Generator | None
) -> Any:
    generator = g or default_generator
    result = call.call(op, inputs, static, (generator.seed_value, generator.position, *more))
    generator.position += count  # only now: a call that failed drew nothing
    return result


def _float_type(compute: DType) -> DType:
    return compute if compute.kind == "f" else float32


def _uniform(bits: int | None) -> Constant:
    """Numbers of so many bits where the type has fewer than float32: rounding must not make a 1 of them."""

    def body(compute: DType, seed: Expr, position: Expr) -> Expr:
        number = uniform(seed, position + index(), _float_type(compute))
        return number if bits is None else s.floor(number * float(1 << bits)) * (1 / (1 << bits))

    return Constant("rand", body, (int64, int64), "Uniform in [0, 1).")


_whole, _half, _brain = _uniform(None), _uniform(11), _uniform(8)
_UNIFORM = {float16: _half, bfloat16: _brain, float32: _whole, float64: _whole}
_normal = Constant(
    "randn",
    lambda compute, seed, position: normal(seed, position + index(), _float_type(compute)),
    (int64, int64),
    "Normal with mean 0 and deviation 1.",
)


def _integer_body(compute: DType, seed: Expr, position: Expr, low: Expr, span: Expr) -> Expr:
    # 48 bits from two words keep the share of each value even to 2^-16 for spans up to 2^32.
    at = position + index() + index()
    high, rest = (s.cast(uniform(seed, at + k, float32) * float(1 << 24), int64) for k in (0, 1))
    return low + s.remainder_c((high << 24) | rest, span)


_integer = Constant("randint", _integer_body, (int64, int64, int64, int64), "Integers from low to high - 1.")


def _spec(size: tuple[Any, ...], dtype: DType | None, device: Any) -> Spec:
    return Spec.of(resolve_pool(device), dtype or get_default(), shape_of(size))


@composite("rand", method=False)
def rand(
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Uniform numbers in [0, 1)."""
    spec = _spec(sizes_of("rand", size, named), dtype, device)
    if spec.dtype.kind == "c":
        pairs = rand((*spec.shape, 2), dtype=real_type(spec.dtype), device=device, generator=generator)
        return requiring(call.detached(parts.joined(pairs)), requires_grad)
    check_dtypes("rand", [spec], FLOAT)
    return requiring(_draw(_UNIFORM[spec.dtype], (), (spec,), (), spec.numel, generator), requires_grad)


@composite("randn", method=False)
def randn(
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Normal numbers with mean 0 and deviation 1."""
    spec = _spec(sizes_of("randn", size, named), dtype, device)
    if spec.dtype.kind == "c":  # variance 1 in all: a half for each part
        pairs = randn((*spec.shape, 2), dtype=real_type(spec.dtype), device=device, generator=generator)
        return requiring(call.detached(parts.joined(e.mul(pairs, math.sqrt(0.5)))), requires_grad)
    check_dtypes("randn", [spec], FLOAT)
    return requiring(_draw(_normal, (), (spec,), (), 2 * spec.numel, generator), requires_grad)


@composite("randint", method=False)
def randint(
    low: Any = 0,
    high: Any = None,
    size: tuple[int, ...] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Integers from low to high - 1."""
    take("randint", named)
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if not isinstance(high, int) or size is None:
        raise TypeError("randint: call it as randint(high, size) or randint(low, high, size)")
    if high <= low:
        raise ValueError(f"randint: there is no integer from {low} to {high} - 1")
    spec = _spec((tuple(size),), dtype or int64, device)
    return requiring(_draw(_integer, (), (spec,), (low, high - low), 2 * spec.numel, generator), requires_grad)


class Dropout(MapOp):
    """x / (1 - p) where the number at the element's position is at least p, else 0; nothing is saved."""

    __slots__ = ()

    def formula(self, ins: Any, static: Static) -> Formula:
        check_dtypes(self.name, ins, FLOAT)
        dtype = ins[0].dtype
        compute = compute_type(dtype)
        x, seed, position = arg(0, compute), param(0, int64), param(1, int64)
        chance = uniform(seed, position + index(), float32)
        kept = s.cast(param(2, float32), float32) <= chance
        body = s.where(kept, x * s.cast(param(3, float32), compute), const(0, compute))
        return Formula((dtype,), (int64, int64, float32, float32), (dtype,), (body,))


_dropout = Dropout("dropout", "Some elements zeroed, the others scaled up.")


def drop_again(input: Value, drawn: tuple[Any, ...]) -> Value:
    """Dropout with numbers drawn before: seed, position, probability and factor."""
    return call.call(_dropout, (input,), (), drawn)


@composite("dropout", method=False)
def dropout(input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    """Zero each element with probability p and scale the others by 1 / (1 - p); itself when not training."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: the probability must lie in [0, 1], got {p}")
    if not training or p == 0:
        return input
    scale = 0.0 if p == 1 else 1 / (1 - p)
    spec = input.spec
    check_device_dtype("dropout", spec.device, spec.dtype)
    return _draw(_dropout, (input,), (), (float(p), scale), spec.numel, None)


@composite("bernoulli")
def bernoulli(input: Value, p: float | None = None, *, generator: Generator | None = None) -> Value:
    """1 with the probability that each element says, or with probability p; else 0."""
    spec = input.spec
    if p is not None and not 0 <= p <= 1:
        raise ValueError(f"bernoulli: the probability must lie in [0, 1], got {p}")
    drawn = spec.dtype if p is None else float32
    chance = rand(spec.shape, dtype=drawn, device=spec.device.device.name, generator=generator)
    return e.cast(e.lt(chance, input if p is None else float(p)), spec.dtype)
