"""Distributions made of gamma numbers: gamma, chi-squared, beta, Dirichlet, Student's t, F."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, ExponentialFamily, draw_like
from rushlight.distributions.public import all_numbers, broadcast_all, ops, tiny, xlogy
from rushlight.tape.record.value import Value
from rushlight.tensor import tensor


class Gamma(ExponentialFamily):
    """The gamma distribution of a shape, `concentration`, and a rate."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        shape = () if all_numbers(concentration, rate) else self.concentration.shape
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        drawn = ops._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return drawn.clamp(min=tiny(drawn))

    def log_prob(self, value: Any) -> Any:
        a, b = self.concentration, self.rate
        if not isinstance(value, Value):
            value = tensor(value, dtype=b.dtype, device=b.device)
        self._validate_sample(value)
        return xlogy(a, b) + xlogy(a - 1, value) - b * value - a.lgamma()

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.igamma(self.concentration, self.rate * value)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The chi-squared distribution: gamma of shape df / 2 and rate 1 / 2."""

    arg_constraints: ClassVar[dict[str, Any]] = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (wide,) = broadcast_all(df)
        super().__init__(0.5 * wide, 0.5, validate_args=validate_args)
        if all_numbers(df):
            self._batch_shape = type(self._batch_shape)()

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2


class InverseGamma(Distribution):
    """The distribution of 1 / x of a gamma number x."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        shape = () if all_numbers(concentration, rate) else self.concentration.shape
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        a = self.concentration
        return ops.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = self.concentration
        return ops.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.rate / ops._standard_gamma(self.concentration.expand(shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b = self.concentration, self.rate
        return xlogy(a, b) - (a + 1) * value.log() - b / value - a.lgamma()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.igammac(self.concentration, self.rate / value)

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution: positive numbers with sum 1."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("Dirichlet: `concentration` must have at least one dimension")
        self.concentration = concentration
        shape = tuple(concentration.shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, keepdim=True)
        corner = ops.one_hot(mode.argmax(-1), above.shape[-1]).to(mode.dtype)
        return ops.where((self.concentration < 1).all(-1, keepdim=True), corner, mode)

    @property
    def variance(self) -> Any:
        a = self.concentration
        total = a.sum(-1, keepdim=True)
        return a * (total - a) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return ops._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Any:
        a = self.concentration
        total, k = a.sum(-1), a.shape[-1]
        spread = ((a - 1) * a.digamma()).sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma() - spread

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()


class Beta(ExponentialFamily):
    """The beta distribution: the first of two numbers of a Dirichlet distribution."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        first, second = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(ops.stack([first, second], -1), validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Any:
        """The concentration of x."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        """The concentration of 1 - x."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return (
            xlogy(a - 1, value)
            + ops.xlog1py(b - 1, -value)
            + (a + b).lgamma()
            - a.lgamma()
            - b.lgamma()
        )

    def entropy(self) -> Any:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


class StudentT(Distribution):
    """Student's t distribution of `df` degrees of freedom, shifted and scaled."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(
            () if all_numbers(df, loc, scale) else self.df.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return ops.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        df = self.df
        wide = ops.where(df > 2, self.scale.square() * df / (df - 2), math.inf)
        return ops.where(df > 1, wide, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        normal = draw_like(self.loc, shape, "randn")
        square = 2 * ops._standard_gamma((self.df / 2).expand(shape))
        return self.loc + self.scale * normal * (square / self.df).rsqrt()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        y = (value - self.loc) / self.scale
        shape = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
        shape = shape + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - shape

    def entropy(self) -> Any:
        df = self.df
        beta = (0.5 * df).lgamma() + math.lgamma(0.5) - (0.5 * (df + 1)).lgamma()
        spread = 0.5 * (df + 1) * ((0.5 * (df + 1)).digamma() - (0.5 * df).digamma())
        return self.scale.log() + spread + 0.5 * df.log() + beta


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squared numbers over their degrees of freedom."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "df1": constraints.positive,
        "df2": constraints.positive,
    }
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(
            () if all_numbers(df1, df2) else self.df1.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return ops.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ops.where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self) -> Any:
        m, n = self.df1, self.df2
        wide = 2 * n.square() * (m + n - 2) / (m * (n - 2).square() * (n - 4))
        return ops.where(n > 4, wide, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        first = ops._standard_gamma((self.df1 / 2).expand(shape)) / self.df1
        second = ops._standard_gamma((self.df2 / 2).expand(shape)) / self.df2
        return (first / second.clamp(min=tiny(second))).clamp(min=tiny(first))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        half, other = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        first = (half + other).lgamma() - half.lgamma() - other.lgamma()
        return (
            first
            + half * ratio.log()
            + (half - 1) * value.log()
            - (half + other) * (ratio * value).log1p()
        )
