"""Random numbers of given distributions: functions, and methods that fill a tensor in place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import (
    FLOAT8,
    DType,
    float32,
    float64,
    get_default,
    int32,
    int64,
    integer_range,
    uint64,
)
from rushlight.core.errors import KindError, RushlightError, UnsupportedDType
from rushlight.core.shapes import Shape, Spec, broadcast_shapes
from rushlight.ops.create import creation
from rushlight.ops.create.dtype_limits import finfo
from rushlight.ops.family import read_back
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.family.no_derivative import with_zero_derivative
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import (
    DIGITS,
    NORMAL,
    Generator,
    draw_into,
    drawing,
    holds,
    integers,
    rand,
    randn,
    uniform_of,
    uniform_op,
    words_for,
)
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.registry import composite
from rushlight.ops.sort.searchsorted import search
from rushlight.ops.sort.sort import topk
from rushlight.ops.view import complex_parts, inplace, views
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg
from rushlight.tape.program.memo import memo
from rushlight.tape.record import call
from rushlight.tape.record.op import Static
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of


def _open_uniform(shape: Shape, dtype: DType, device: Any, generator: Generator | None) -> Value:
    """Uniform in (0, 1), for logarithms."""
    u = rand(shape, dtype=dtype, device=device, generator=generator)
    return e.select(e.eq(u, 0), 2.0**-54 if dtype is float64 else 2.0**-25, u)


def _drawn_in(target: Value) -> DType:
    return float64 if target._spec.dtype is float64 else float32


def _fill(target: Value, draw: Callable[[Shape, DType, Any], Value]) -> Value:
    spec = target._spec
    return inplace.copy_(target, draw(spec.shape, _drawn_in(target), spec.device.device.name))


def _floats_only(op: str, target: Value) -> None:
    if target._spec.dtype.kind != "f":
        raise UnsupportedDType(
            f"{op}: only floating-point tensors are filled, got {target._spec!r}"
        )


def normal_(
    self: Value, mean: float = 0, std: float = 1, *, generator: Generator | None = None
) -> Value:
    """Fill with normal numbers.

    Real and imaginary parts of complex ones have half the variance each.
    """
    if self._spec.dtype.kind == "c":
        normal_(complex_parts.split(self), mean, std * math.sqrt(0.5), generator=generator)
        return self
    _floats_only("normal_", self)
    if not std >= 0:  # also NaN
        raise RushlightError(f"normal_: the deviation must not be negative, got {std}")
    count = 2 * words_for(self._spec)
    return draw_into("normal_", self, NORMAL, count, (float(std), float(mean)), generator)


@drawing
def log_normal_(
    self: Value, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Value:
    """Fill with numbers whose logarithms are normal."""
    _floats_only("log_normal_", self)
    if std <= 0:
        raise RushlightError(f"log_normal_: the deviation must be positive, got {std}")
    return _fill(
        self,
        lambda shape, dtype, device: e.exp(
            e.add(
                e.mul(randn(shape, dtype=dtype, device=device, generator=generator), float(std)),
                float(mean),
            )
        ),
    )


@functools.cache
def _most(dtype: DType) -> float:
    return finfo(dtype).max


def _bounds(
    op: str, bounds: tuple[Any, ...], named: dict[str, Any], low: Any, high: Any
) -> tuple[Any, Any]:
    """`from` and `to`, by position or by name: the first is a keyword of Python's."""
    if len(bounds) == 2 and not named:
        return bounds
    given = dict(zip(("from", "to"), bounds, strict=False)) | named
    if len(bounds) > 2 or set(given) - {"from", "to"}:
        raise TypeError(f"{op}: takes from and to, got {bounds} and {named}")
    return given.get("from", low), given.get("to", high)


def uniform_(
    self: Value, *bounds: float, generator: Generator | None = None, **named: float
) -> Value:
    """Fill with uniform numbers: uniform_(from=0, to=1).

    Of complex ones real and imaginary parts.
    """
    if self._spec.dtype.kind == "c":
        uniform_(complex_parts.split(self), *bounds, generator=generator, **named)
        return self
    _floats_only("uniform_", self)
    low, high = _bounds("uniform_", bounds, named, 0.0, 1.0)
    if low > high:
        raise RushlightError(f"uniform_: from {low} to {high} there is nothing")
    most = _most(self._spec.dtype)
    if not -most <= low <= high <= most or high - low > most:
        raise RushlightError(
            f"uniform_: {low} to {high} is more than {self._spec.dtype.name} holds, {-most} to "
            f"{most}"
        )
    spec, numbers = self._spec, (float(high - low), float(low))
    return draw_into("uniform_", self, uniform_op(spec.dtype), words_for(spec), numbers, generator)


@drawing
def random_(
    self: Value,
    *bounds: int | None,
    generator: Generator | None = None,
    **named: int | None,
) -> Value:
    """Fill with integers from `from` to `to` - 1: random_(from, to) or random_(to)."""
    if len(bounds) == 1 and "to" not in named:
        bounds = (0, *bounds)
    low, high = _bounds("random_", bounds, named, 0, None)
    spec = self._spec
    if spec.dtype in FLOAT8:
        raise UnsupportedDType(f"random_: no random integers of {spec.dtype!r}; cast others to it")
    if high is None:
        high = _beyond(spec.dtype)
    if not (isinstance(low, int) and isinstance(high, int)):
        raise KindError(f"random_: its bounds are ints, got {low!r:.60} and {high!r:.60}")
    return inplace.copy_(self, integers("random_", spec, low, high, generator))


def _beyond(dtype: DType) -> int:
    """One more than the largest n such that the dtype holds all integers up to n."""
    if dtype.kind == "b":
        return 2
    if dtype.kind == "f":
        return (1 << DIGITS[dtype]) + 1
    return integer_range(dtype)[1] + (0 if dtype in (int64, uint64) else 1)


@drawing
def bernoulli_(self: Value, p: Any = 0.5, *, generator: Generator | None = None) -> Value:
    """Fill with 1 with probability p, else 0; p is a number or a tensor."""
    if not isinstance(p, Value) and not 0 <= p <= 1:
        raise RushlightError(f"bernoulli_: the probability must lie in [0, 1], got {p}")
    chance = call.detached(p) if isinstance(p, Value) else float(p)
    return _fill(
        self,
        lambda shape, dtype, device: e.lt(
            rand(shape, dtype=dtype, device=device, generator=generator), chance
        ),
    )


@drawing
def exponential_(self: Value, lambd: float = 1, *, generator: Generator | None = None) -> Value:
    """Fill with exponential numbers of rate lambd."""
    _floats_only("exponential_", self)
    if lambd <= 0:
        raise RushlightError(f"exponential_: the rate must be positive, got {lambd}")
    return _fill(
        self,
        lambda shape, dtype, device: e.div(
            e.log(_open_uniform(shape, dtype, device, generator)), -float(lambd)
        ),
    )


@drawing
def geometric_(self: Value, p: float, *, generator: Generator | None = None) -> Value:
    """Fill with the number of trials, each of probability p, up to the first success."""
    if not 0 < p < 1:
        raise RushlightError(f"geometric_: the probability must lie in (0, 1), got {p}")
    return _fill(
        self,
        lambda shape, dtype, device: e.ceil(
            e.div(e.log(_open_uniform(shape, dtype, device, generator)), math.log1p(-p))
        ),
    )


@drawing
def cauchy_(
    self: Value, median: float = 0, sigma: float = 1, *, generator: Generator | None = None
) -> Value:
    """Fill with numbers of a Cauchy distribution."""
    _floats_only("cauchy_", self)
    if sigma <= 0:
        raise RushlightError(f"cauchy_: sigma must be positive, got {sigma}")

    def draw(shape: Shape, dtype: DType, device: Any) -> Value:
        angle = e.mul(e.sub(_open_uniform(shape, dtype, device, generator), 0.5), math.pi)
        return e.add(e.mul(e.div(e.sin(angle), e.cos(angle)), float(sigma)), float(median))

    return _fill(self, draw)


METHODS = (normal_, log_normal_, uniform_, random_, bernoulli_, exponential_, geometric_, cauchy_)


# ---- functions ----


@composite("normal", method=False, out="cast")
@drawing
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Normal numbers: of tensors of means and deviations, or of numbers and a size."""
    creation.take("normal", named)
    tensors = [call.detached(v) for v in (mean, std) if isinstance(v, Value)]
    if not tensors and size is None:
        raise TypeError("normal: pass a size, or a tensor of means or deviations")
    if not isinstance(std, Value) and not std >= 0:
        raise RushlightError(f"normal: the deviation must not be negative, got {std}")
    if tensors and size is not None:
        raise TypeError(
            "normal: a size goes with numbers only; tensors of means or deviations have their own"
        )
    if isinstance(std, Value) and not holds(std, lambda v: e.logical_not(e.lt(v, 0))):
        raise RushlightError(f"normal: no deviation may be negative, but one is, in {std._spec!r}")
    shape = (
        tuple(size)
        if size is not None
        else broadcast_shapes([v._spec.shape for v in tensors], "normal")
    )
    if tensors:
        creation.resolve_pool(device)
        dtype, device = dtype or tensors[0]._spec.dtype, tensors[0]._spec.device.device.name
    noise = randn(shape, dtype=dtype or get_default(), device=device, generator=generator)
    center, spread = (call.detached(v) if isinstance(v, Value) else float(v) for v in (mean, std))
    drawn = e.add(e.mul(noise, spread), center)
    return creation.requiring(with_zero_derivative("normal", drawn, mean, std), requires_grad)


@composite("multinomial", out="exact")
@drawing
def multinomial(
    input: Value, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Value:
    """Positions drawn with the weights of each row.

    With replacement by binary search of uniform numbers in the running sums of the weights.
    Without, the position of the largest weight / exponential is distributed as the weights, and the
    next largest follow.

    Example:
        >>> torch.multinomial(torch.tensor([0.0, 1.0]), 1)
        tensor([1])
    """
    shape = input._spec.shape
    if input._spec.dtype.kind != "f" or len(shape) not in (1, 2):
        raise RushlightError(
            f"multinomial: weights are floats in 1 or 2 dimensions, got {input._spec!r}"
        )
    if num_samples <= 0 or shape[-1] < (1 if replacement else num_samples):
        raise RushlightError(
            f"multinomial: {num_samples} samples cannot be drawn from {shape[-1]} places"
        )
    weights = call.detached(input)
    weights = e.cast(weights, float32) if weights._spec.dtype.itemsize == 2 else weights
    dtype, device = weights._spec.dtype, input._spec.device.device.name
    _check_weights(weights, 1 if replacement else num_samples)
    if not replacement:
        waits = e.neg(e.log(_open_uniform(shape, dtype, device, generator)))
        # A weight of 0 loses to every other, for any exponential.
        return topk(e.select(e.gt(weights, 0), e.div(weights, waits), -1.0), num_samples).indices
    return places_in(weights, num_samples, generator)


def places_in(weights: Value, count: int, generator: Generator | None = None) -> Value:
    """Positions drawn with replacement; the weights of each row are those of a distribution."""
    spec = weights._spec
    u = uniform_of(Spec.of(spec.device, spec.dtype, (*spec.shape[:-1], count)), generator)
    return _places_of(weights, u)


class _Mark(MapOp):
    """A uniform number times a sum; 0 where that is rounded up to the sum."""

    __slots__ = ()

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        dtype = ins[0].dtype
        mark, total = arg(0, dtype) * arg(1, dtype), arg(1, dtype)
        return Formula((dtype, dtype), (), (dtype,), (s.where(mark < total, mark, 0.0),))


_mark = _Mark("mark", "A place in a sum.")


@memo
def _places_of(weights: Value, u: Value) -> Value:
    """The places of uniform numbers in the running sums of weights."""
    sums = cumsum(weights, -1)
    total = views.narrow(sums, -1, weights._spec.shape[-1] - 1, 1)
    return search(sums, call.call(_mark, (u, total)), right=True)


def _met_by(weights: Sequence[float], width: int, distinct: int) -> int:
    """`_are_distributions` of numbers, in rows of a width."""
    good = all(0 <= w < math.inf for w in weights)
    rows = range(0, len(weights), width)
    enough = all(sum(w > 0 for w in weights[i : i + width]) >= distinct for i in rows)
    return good + 2 * enough


@memo
def _are_distributions(weights: Value, distinct: int) -> Value:
    """1 where all weights are finite and not negative, and 2 where each row has enough of them."""
    good = e.logical_and(e.ge(weights, 0), e.lt(weights, math.inf))
    enough = e.ge(reductions.sum(e.gt(weights, 0), -1), distinct)
    first, second = (reductions.amin(e.cast(each, int32)) for each in (good, enough))
    return e.add(first, e.mul(second, 2))


_FEW = 64  # elements that are read in less time than a program takes to check them


def _check_weights(weights: Value, distinct: int) -> None:
    """Raise for weights that are no distribution; not where the host would have to wait."""
    limits = weights._spec.device.device.limits
    if limits.asynchronous or not limits.computes or not weights._spec.numel:
        return
    whole = call.detached(physical_of(weights))
    if whole._spec.numel <= _FEW:
        met = _met_by(read_back.read(whole), weights._spec.shape[-1], distinct)
    else:
        met = read_back.read(_are_distributions(whole, distinct))[0]
    if not met & 1:
        raise RushlightError(
            "multinomial: weights must be finite and not negative; there is an Inf, a NaN or one "
            "below 0"
        )
    if not met & 2:
        raise RushlightError(
            f"multinomial: {distinct} different places need as many weights above 0 in every row "
            f"of {weights._spec!r}"
        )
