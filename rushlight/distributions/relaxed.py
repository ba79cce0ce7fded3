"""Continuous relaxations of bools and classes, with gradients; and the continuous Bernoulli."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.categorical import Categorical
from rushlight.distributions.discrete import Odds, one_of
from rushlight.distributions.distribution import Distribution, ExponentialFamily, draw_like
from rushlight.distributions.public import (
    all_numbers,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    ops,
    softplus,
)


class RelaxedBernoulli(Odds, Distribution):
    """A number in (0, 1), near 0 or 1 at a low temperature."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.unit_interval
    has_rsample = True
    _not_expanded: ClassVar[frozenset[str]] = frozenset({"temperature"})

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = logits if probs is None else probs
        self.temperature = temperature
        self.__dict__[one_of("RelaxedBernoulli", probs, logits)] = broadcast_all(given)[0]
        super().__init__(
            () if all_numbers(given) else self._given.shape, validate_args=validate_args
        )

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = clamp_probs(draw_like(self.logits, self._extended_shape(sample_shape)))
        drawn = (u.log() - (-u).log1p() + self.logits) / self.temperature
        return clamp_probs(drawn.sigmoid())

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        odds = value.log() - (-value).log1p()
        away = self.logits - odds * self.temperature
        stretch = value.log() + (-value).log1p()
        size = (
            self.temperature.log()
            if hasattr(self.temperature, "log")
            else math.log(self.temperature)
        )
        return away + size - 2 * softplus(away) - stretch


class RelaxedOneHotCategorical(Distribution):
    """Positive numbers with sum 1, near one-hot at a low temperature."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support = constraints.simplex
    has_rsample = True
    _not_expanded: ClassVar[frozenset[str]] = frozenset({"temperature"})

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        shape = tuple(self._categorical.param_shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = clamp_probs(draw_like(self.logits, self._extended_shape(sample_shape)))
        return ((self.logits - (-u.log()).log()) / self.temperature).softmax(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n = self._event_shape[0]
        log = value.log()
        size = (
            self.temperature.log()
            if hasattr(self.temperature, "log")
            else math.log(self.temperature)
        )
        score = self.logits - log * self.temperature
        return (score.log_softmax(-1)).sum(-1) + math.lgamma(n) + (n - 1) * size - log.sum(-1)


class ContinuousBernoulli(Odds, ExponentialFamily):
    """A number in [0, 1] with density proportional to p ** x (1 - p) ** (1 - x)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        given = logits if probs is None else probs
        kind = one_of("ContinuousBernoulli", probs, logits)
        made = broadcast_all(given)[0]
        self._lims = lims
        super_given = made if kind == "logits" else clamp_probs(made)
        self.__dict__[kind] = made
        super().__init__(() if all_numbers(given) else made.shape, validate_args=validate_args)
        self.__dict__[kind] = super_given

    @lazy_property
    def probs(self) -> Any:
        """The parameter p, clamped away from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _away_from_half(self) -> tuple[Any, Any]:
        """Whether p is away from 1/2, where formulas are 0 / 0, and p without values near it."""
        p = self.probs
        apart = (p <= self._lims[0]) | (p > self._lims[1])
        return apart, ops.where(apart, p, self._lims[0])

    def _log_norm(self) -> Any:
        """log of 2 atanh(1 - 2p) / (1 - 2p), by its series at 1/2."""
        apart, p = self._away_from_half()
        low, high = ops.where(p <= 0.5, p, 0.0), ops.where(p >= 0.5, p, 1.0)
        ratio = ((-p).log1p() - p.log()).abs().log()
        ratio = ratio - ops.where(p <= 0.5, (-2.0 * low).log1p(), (2.0 * high - 1.0).log())
        x = (self.probs - 0.5).square()
        return ops.where(apart, ratio, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Any:
        apart, p = self._away_from_half()
        exact = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return ops.where(apart, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Any:
        apart, p = self._away_from_half()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).square() + 1.0 / ((-p).log1p() - p.log()).square()
        x = (self.probs - 0.5).square()
        return ops.where(apart, exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(draw_like(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return value * self.logits - softplus(self.logits) + self._log_norm()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        apart, p = self._away_from_half()
        inside = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        chance = ops.where(apart, inside, value)
        return ops.where(value <= 0.0, 0.0, ops.where(value >= 1.0, 1.0, chance))

    def icdf(self, value: Any) -> Any:
        apart, p = self._away_from_half()
        exact = ((-p + value * (2.0 * p - 1.0)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return ops.where(apart, exact, value)

    def entropy(self) -> Any:
        rest, own = (-self.probs).log1p(), self.probs.log()
        return self.mean * (rest - own) - self._log_norm() - rest

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)
