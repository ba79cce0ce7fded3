"""Distributions with a location and a scale: normal, uniform, exponential, Laplace, Cauchy."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, ExponentialFamily, draw_like
from rushlight.distributions.public import all_numbers, broadcast_all, eps, ops, tiny

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Normal(ExponentialFamily):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(
            () if all_numbers(loc, scale) else self.loc.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.scale.square()

    def rsample(self, sample_shape: Any = ()) -> Any:
        return (
            self.loc + draw_like(self.loc, self._extended_shape(sample_shape), "randn") * self.scale
        )

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -((value - self.loc) / self.scale).square() * 0.5 - self.scale.log() - _HALF_LOG_TAU

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.erfc((self.loc - value) / (self.scale * math.sqrt(2))) * 0.5

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return self.scale.log() + (0.5 + _HALF_LOG_TAU)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.loc / self.scale.square(), -0.5 / self.scale.square()

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()


class Uniform(Distribution):
    """The uniform distribution on [low, high)."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(
            () if all_numbers(low, high) else self.low.shape, validate_args=validate_args
        )
        if self._validate_args and not constraints.everywhere(self.low < self.high):
            raise ValueError(f"Uniform: low must be below high, got {self.low} and {self.high}")

    arg_constraints: ClassVar[dict[str, Any]] = {
        "low": constraints.dependent,
        "high": constraints.dependent,
    }

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Any:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Any:
        return self.high * math.nan

    @property
    def variance(self) -> Any:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.low + draw_like(self.low, self._extended_shape(sample_shape)) * (
            self.high - self.low
        )

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The exponential distribution of a rate."""

    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(() if all_numbers(rate) else self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return ops.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = ops.empty(
            self._extended_shape(sample_shape), dtype=self.rate.dtype, device=self.rate.device
        )
        return drawn.exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Any) -> Any:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Any:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -(-x).log()


class Laplace(Distribution):
    """The Laplace distribution: exponential on both sides of `loc`."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(
            () if all_numbers(loc, scale) else self.loc.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Any:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = draw_like(self.loc, self._extended_shape(sample_shape)) * 2 - 1
        u = u.clamp(min=eps(u) - 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value: Any) -> Any:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Any:
        return 1 + (2 * self.scale).log()


class Cauchy(Distribution):
    """The Cauchy distribution of median `loc`."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(
            () if all_numbers(loc, scale) else self.loc.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return ops.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return ops.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = draw_like(self.loc, self._extended_shape(sample_shape)).clamp(min=tiny(self.loc))
        return self.icdf(u)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return (
            -math.log(math.pi)
            - self.scale.log()
            - ((value - self.loc) / self.scale).square().log1p()
        )

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()
