"""Distributions of transformed values: log-normal, Gumbel, Weibull, Pareto and others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.continuous import Cauchy, Exponential, Normal, Uniform
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.public import all_numbers, broadcast_all, eps, ops, sum_last, tiny
from rushlight.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
    Transform,
)
from rushlight.tape.record.state import no_grad

_EULER = 0.57721566490153286061


class TransformedDistribution(Distribution):
    """The distribution of transforms, one after another, of a value of a base distribution."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(transforms, (Transform, list, tuple)):
            raise ValueError(
                f"TransformedDistribution: transforms are Transforms, got {transforms!r}"
            )
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(
                f"TransformedDistribution: transforms are Transforms, got {transforms!r}"
            )
        whole = ComposeTransform(self.transforms)
        base = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        own = len(base_distribution.event_shape)
        before, after = whole.domain.event_dim, whole.codomain.event_dim
        if len(base) < before:
            raise ValueError(
                f"TransformedDistribution: the transforms take values of {before} dimensions, a "
                f"base of shape {base} has fewer"
            )
        shape = tuple(whole.forward_shape(base))
        wide = tuple(whole.inverse_shape(shape))
        if wide != base:
            base_distribution = base_distribution.expand(wide[: len(wide) - own])
        dims = max(after, own + after - before)
        self._reinterpreted = max(before - own, 0)
        self.base_dist = base_distribution
        super().__init__(
            shape[: len(shape) - dims], shape[len(shape) - dims :], validate_args=validate_args
        )

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        more = len(self._event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def _inner_tail(self, inner: Distribution) -> Any:
        return (
            inner.batch_shape[len(inner.batch_shape) - self._reinterpreted :]
            if self._reinterpreted
            else ()
        )

    def _through(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        dims, total, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            before, after = transform.domain.event_dim, transform.codomain.event_dim
            dims += before - after
            total = total - sum_last(transform.log_abs_det_jacobian(x, y), dims - before)
            y = x
        return total + sum_last(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _with_sign(self, chance: Any) -> Any:
        sign: Any = 1
        for transform in self.transforms:
            if transform.event_dim:
                raise NotImplementedError(f"{type(self).__name__} has no closed form of its cdf")
            sign = sign * transform.sign
        return (
            chance if isinstance(sign, (int, float)) and sign == 1 else sign * (chance - 0.5) + 0.5
        )

    def cdf(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform._inv_call(value)
        return self._with_sign(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        return self._through(self.base_dist.icdf(self._with_sign(value)))


class LogNormal(TransformedDistribution):
    """The distribution of exp(x) of a normal number x."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Any:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Any:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Any:
        return self.base_dist.entropy() + self.loc


class HalfNormal(TransformedDistribution):
    """The distribution of |x| of a normal number x of mean 0."""

    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Normal(0.0, scale, validate_args=False), AbsTransform(), validate_args=False
        )
        _check_positive(self, "scale", self.scale, validate_args)

    @property
    def scale(self) -> Any:
        """The standard deviation before the absolute value."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Any:
        return ops.zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return self.scale.square() * (1 - 2 / math.pi)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)


class HalfCauchy(TransformedDistribution):
    """The distribution of |x| of a Cauchy number x about 0."""

    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Cauchy(0.0, scale, validate_args=False), AbsTransform(), validate_args=False
        )
        _check_positive(self, "scale", self.scale, validate_args)

    @property
    def scale(self) -> Any:
        """The scale before the absolute value."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return ops.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Any:
        return ops.zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)


def _check_positive(owner: Any, name: str, value: Any, validate_args: bool | None) -> None:
    """Set `_validate_args`; where it is true, refuse a parameter that is not positive."""
    owner._validate_args = Distribution._validate_args if validate_args is None else validate_args
    if owner._validate_args and not constraints.everywhere(value > 0):
        raise ValueError(f"{type(owner).__name__}: {name} must be positive, got {value}")


class Gumbel(TransformedDistribution):
    """The Gumbel distribution, the limit of the largest of many values."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        base = Uniform(
            ops.full_like(self.loc, tiny(self.loc)),
            ops.full_like(self.loc, 1 - eps(self.loc)),
            False,
        )
        steps = [
            ExpTransform().inv,
            AffineTransform(0.0, -ops.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(self.loc, -self.scale),
        ]
        super().__init__(base, steps, validate_args)
        if all_numbers(loc, scale):
            self._batch_shape = type(self._batch_shape)()

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = self.base_dist.rsample(sample_shape)
        return self.loc - self.scale * (-u.log()).log()

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Any) -> Any:
        return self.loc - self.scale * (-value.log()).log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * _EULER

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.square()

    def entropy(self) -> Any:
        return self.scale.log() + (1 + _EULER)


class Weibull(TransformedDistribution):
    """The Weibull distribution: scale * x ** (1 / concentration) of an exponential number x."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support = constraints.positive
    has_rsample = True

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ops.ones_like(self.scale), validate_args=False)
        steps = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args)

    def _expand_into(self, new: Any, shape: Any) -> None:
        new.__init__(
            self.scale.expand(shape), self.concentration.expand(shape), validate_args=False
        )

    @property
    def mean(self) -> Any:
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Any:
        k = self.concentration
        inside = ops.where(k > 1, (k - 1) / k, 0.0)
        return self.scale * inside**self.concentration_reciprocal

    @property
    def variance(self) -> Any:
        r = self.concentration_reciprocal
        return self.scale.square() * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self) -> Any:
        r = self.concentration_reciprocal
        return _EULER * (1 - r) + (self.scale * r).log() + 1


class Pareto(TransformedDistribution):
    """The Pareto distribution: scale * exp(x / alpha) of an exponential number x."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "alpha": constraints.positive,
        "scale": constraints.positive,
    }
    has_rsample = True

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    def _expand_into(self, new: Any, shape: Any) -> None:
        new.__init__(self.scale.expand(shape), self.alpha.expand(shape), validate_args=False)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Any:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy's distribution on (0, 1): (1 - u ** (1 / b)) ** (1 / a)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            ops.zeros_like(self.concentration0),
            ops.ones_like(self.concentration0),
            validate_args=False,
        )
        steps = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args)

    def _expand_into(self, new: Any, shape: Any) -> None:
        new.__init__(
            self.concentration1.expand(shape),
            self.concentration0.expand(shape),
            validate_args=False,
        )

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = self.base_dist.rsample(sample_shape).clamp(min=tiny(self.concentration0))
        return self._through(u)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self.rsample(sample_shape)

    def _moment(self, n: int) -> Any:
        b, part = self.concentration0, 1 + n / self.concentration1
        return b * (part.lgamma() + b.lgamma() - (part + b).lgamma()).exp()

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        both = (a >= 1) & (b >= 1) & ~((a == 1) & (b == 1))
        return ops.where(both, (((a - 1) / (a * b - 1)).abs()) ** (1 / a), math.nan)

    @property
    def variance(self) -> Any:
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        t1, t0 = 1 - a.reciprocal(), 1 - b.reciprocal()
        harmonic = (b + 1).digamma() + _EULER
        return t0 + t1 * harmonic - a.log() - b.log()


class LogisticNormal(TransformedDistribution):
    """Numbers that sum to 1, by breaking a stick with normal numbers."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """The means before the stick is broken."""
        return self.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviations before the stick is broken."""
        return self.base_dist.scale
