"""Distributions of counts and bools: Bernoulli, binomial, geometric, negative binomial, Poisson."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, ExponentialFamily, draw_like
from rushlight.distributions.gammas import Gamma
from rushlight.distributions.public import (
    all_numbers,
    broadcast_all,
    lazy_property,
    logits_to_probs,
    ops,
    probs_to_logits,
    softplus,
    tiny,
    xlogy,
)
from rushlight.tape.record.state import no_grad


class Odds:
    """A probability, or its log-odds; the other one is computed on demand."""

    @lazy_property
    def logits(self) -> Any:
        """Log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _given(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._given.shape


def one_of(name: str, probs: Any, logits: Any) -> str:
    """The name of the given one; exactly one must be given."""
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either `probs` or `logits` must be given, and not both")
    return "logits" if probs is None else "probs"


class Bernoulli(Odds, ExponentialFamily):
    """1 with a probability, else 0."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        kind, given = one_of("Bernoulli", probs, logits), logits if probs is None else probs
        self.__dict__[kind] = broadcast_all(given)[0]
        super().__init__(
            () if all_numbers(given) else self._given.shape, validate_args=validate_args
        )

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return ops.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return ops.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return value * logits - softplus(logits)

    def entropy(self) -> Any:
        return softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Any:
        values = ops.arange(2, dtype=self._given.dtype, device=self._given.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        return softplus(x)


class Geometric(Odds, Distribution):
    """The number of failures before the first success."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        kind, given = one_of("Geometric", probs, logits), logits if probs is None else probs
        self.__dict__[kind] = broadcast_all(given)[0]
        super().__init__(
            () if all_numbers(given) else self._given.shape, validate_args=validate_args
        )
        if self._validate_args and probs is not None and not constraints.everywhere(self.probs > 0):
            raise ValueError(f"Geometric: probs must be above 0, got {self.probs}")

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return ops.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            u = draw_like(self.probs, self._extended_shape(sample_shape)).clamp(
                min=tiny(self.probs)
            )
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        return ops.xlog1py(value, -probs) + probs.log()

    def entropy(self) -> Any:
        return (softplus(self.logits) - self.probs * self.logits) / self.probs


class Binomial(Odds, Distribution):
    """The number of successes in `total_count` trials."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        kind, given = one_of("Binomial", probs, logits), logits if probs is None else probs
        made, self.total_count = broadcast_all(given, total_count)
        self.total_count = self.total_count.to(made.dtype)
        self.__dict__[kind] = made
        super().__init__(made.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return ops.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits - n * softplus(self.logits)

    def entropy(self) -> Any:
        if not bool((self.total_count == self.total_count.amax()).all()):
            raise NotImplementedError(
                "Binomial: the entropy is known where all counts of trials are the same"
            )
        chance = self.log_prob(self.enumerate_support(expand=False))
        return -(chance.exp() * chance).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        most = int(self.total_count.amax().item())
        if not bool((self.total_count.amin() == most).all()):
            raise NotImplementedError(
                "Binomial: values can be listed where all counts of trials are the same"
            )
        values = ops.arange(most + 1, dtype=self._given.dtype, device=self._given.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class NegativeBinomial(Odds, Distribution):
    """The number of successes before `total_count` failures."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        kind, given = one_of("NegativeBinomial", probs, logits), logits if probs is None else probs
        made, self.total_count = broadcast_all(given, total_count)
        self.total_count = self.total_count.to(made.dtype)
        self.__dict__[kind] = made
        super().__init__(made.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(
                sample_shape
            )
            return ops.poisson(rates)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n = self.total_count
        chance = n * -softplus(self.logits) + value * -softplus(-self.logits)
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        return chance + ops.where(n + value == 0, 0.0, ways)


class Poisson(ExponentialFamily):
    """The Poisson distribution of a rate."""

    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(() if all_numbers(rate) else self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return ops.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp()
