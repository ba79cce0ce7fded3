"""Invertible functions of values, with the logarithm of their Jacobian determinants."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import broadcast_shapes
from rushlight.distributions import constraints
from rushlight.distributions.public import eps, ops, softplus, sum_last, tiny
from rushlight.lazy import Names
from rushlight.tape.record.value import Value
from rushlight.tensor import Size


class Transform:
    """A map from `domain` to `codomain`.

    `sign` is that of its slope where it is scalar and monotone.
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    @property
    def sign(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} is not known to be monotone")

    def __init__(self, cache_size: int = 0) -> None:
        super().__init__()  # of a class beside this one: a transform with weights is a Module, too
        self._cache_size = cache_size
        self._last: tuple[Any, Any] = (None, None)
        self._turned: Any = None  # the inverse, while it is alive

    @property
    def event_dim(self) -> int:
        """The dimensions of one value, before and after."""
        return self.domain.event_dim

    @property
    def inv(self) -> Any:
        """The inverse transform; there is one object for each transform."""
        known = None if self._turned is None else self._turned()
        if known is None:
            known = self._turn()
            self._turned = weakref.ref(known)
        return known

    def _turn(self) -> Any:
        return _InverseTransform(self)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform, with or without a cache of its last value."""
        if self._cache_size == cache_size:
            return self
        other = copy.copy(self)
        other._cache_size, other._last, other._turned = cache_size, (None, None), None
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_turned": None}

    def __call__(self, x: Any) -> Any:
        """The transform of x; with a cache the last one is kept for the inverse."""
        if self._cache_size and x is self._last[0]:
            return self._last[1]
        y = self._call(x)
        if self._cache_size:
            self._last = (x, y)
        return y

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size and y is self._last[1]:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = (x, y)
        return x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(type(self).__name__)

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(type(self).__name__)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy / dx|."""
        raise NotImplementedError(type(self).__name__)

    def forward_shape(self, shape: Any) -> Any:
        """The shape of the result for a shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of the argument for a shape of the result."""
        return shape

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self._same(other))

    def _same(self, other: Any) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective = transform.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Any:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else self._inv.with_cache(cache_size).inv

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def _same(self, other: Any) -> bool:
        return bool(self._inv == other._inv)


def _of_dims(constraint: Any, dims: int) -> Any:
    """A set whose values have `dims` dimensions."""
    more = dims - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class ComposeTransform(Transform):
    """One transform after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)
        if self.parts:
            # A value has as many dimensions as any of the transforms needs, counted at its input
            # and at its output.
            before = self.parts[-1].codomain.event_dim
            for part in reversed(self.parts):
                before = max(
                    before + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim
                )
            after = self.parts[0].domain.event_dim
            for part in self.parts:
                after = max(
                    after + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim
                )
            self.domain = _of_dims(self.parts[0].domain, before)
            self.codomain = _of_dims(self.parts[-1].codomain, after)

    def _turn(self) -> Any:
        made = ComposeTransform([part.inv for part in reversed(self.parts)])
        made._turned = lambda: self  # which therefore stays alive
        return made

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for p in self.parts:
            sign = sign * p.sign
        return sign

    def _call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return ops.zeros_like(x)
        points = [x]
        for part in self.parts[:-1]:
            points.append(part(points[-1]))
        points.append(y)
        dims, total = self.domain.event_dim, None
        for part, before, after in zip(self.parts, points, points[1:], strict=False):
            term = sum_last(part.log_abs_det_jacobian(before, after), dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def _same(self, other: Any) -> bool:
        return bool(self.parts == other.parts)


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform of each of several numbers that are one value."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = (
            base_transform,
            reinterpreted_batch_ndims,
        )
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective = base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_last(
            self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims
        )


class ExpTransform(Transform):
    """exp(x)."""

    bijective = True
    sign = 1
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers."""

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return (
            self.exponent.sign()
            if hasattr(self.exponent, "sign")
            else math.copysign(1, self.exponent)
        )

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return _widened(shape, self.exponent)

    inverse_shape = forward_shape

    def _same(self, other: Any) -> bool:
        return _equal(self.exponent, other.exponent)


def _widened(shape: Any, *parameters: Any) -> Any:
    """A shape broadcast with those of a transform's parameters."""
    shapes = [tuple(p.shape) for p in parameters if hasattr(p, "shape")]
    return Size(broadcast_shapes([tuple(shape), *shapes], "forward_shape")) if shapes else shape


def _equal(a: Any, b: Any) -> bool:
    same = a == b
    return bool(same.all()) if isinstance(same, Value) else bool(same)  # type: ignore[attr-defined]


def _clipped_sigmoid(x: Any) -> Any:
    """The sigmoid, within the numbers whose logits are finite."""
    return x.sigmoid().clamp(min=tiny(x), max=1 - eps(x))


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    bijective = True
    sign = 1
    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        y = y.clamp(min=tiny(y), max=1 - eps(y))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp(x))."""

    bijective = True
    sign = 1
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class TanhTransform(Transform):
    """tanh(x)."""

    bijective = True
    sign = 1
    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """|x|; the inverse gives the positive number."""

    codomain = constraints.nonnegative

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """loc + scale * x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        return (
            self.scale.sign()  # type: ignore[attr-defined]
            if isinstance(self.scale, Value)
            else (self.scale > 0) - (self.scale < 0)
        )

    def forward_shape(self, shape: Any) -> Any:
        return _widened(shape, self.loc, self.scale)

    inverse_shape = forward_shape

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        flat = ops.zeros_like(x)
        size = (
            self.scale.abs().log()  # type: ignore[attr-defined]
            if isinstance(self.scale, Value)
            else math.log(abs(self.scale))
        )
        return sum_last(flat + size, self._event_dim)

    def _same(self, other: Any) -> bool:
        return _equal(self.loc, other.loc) and _equal(self.scale, other.scale)


class SoftmaxTransform(Transform):
    """Numbers with sum 1, by softmax; it is not injective, so there is no density."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(Transform):
    """n + 1 numbers with sum 1, from n: each takes a share of the remainder."""

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.simplex

    def _offset(self, x: Any) -> Any:
        n = x.shape[-1]
        return ops.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        z = (x - self._offset(x)).sigmoid().clamp(min=tiny(x), max=1 - eps(x))
        left = (1 - z).cumprod(-1)
        one = ops.ones_like(z[..., :1])
        return ops.cat([z, one], -1) * ops.cat([one, left], -1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        rest = (1 - head.cumsum(-1)).clamp(min=tiny(y))
        return head.log() - rest.log() + self._offset(head)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x)
        return (-x - softplus(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """A lower triangle with a positive diagonal, from any square matrix."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class ReshapeTransform(Transform):
    """The same numbers in another shape."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(
                f"ReshapeTransform: {self.in_shape} and {self.out_shape} hold different numbers of "
                "elements"
            )
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(*self.forward_shape(tuple(x.shape)))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(*self.inverse_shape(tuple(y.shape)))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        batch = tuple(x.shape)[: x.dim() - len(self.in_shape)]
        return ops.zeros(batch, dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.out_shape)], *self.in_shape)


_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.distributions.assembled": (
            "CatTransform CorrCholeskyTransform CumulativeDistributionTransform "
            "PositiveDefiniteTransform StackTransform"
        )
    }
)
__all__ = [
    "AbsTransform",
    "AffineTransform",
    "ComposeTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
__all__ += _NAMES.sources


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)
