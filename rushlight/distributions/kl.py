"""Divergences KL(p || q) by the types of p and q, and their registration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight.distributions.categorical import Categorical, OneHotCategorical
from rushlight.distributions.continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from rushlight.distributions.discrete import Bernoulli, Binomial, Geometric, Poisson
from rushlight.distributions.gammas import Beta, Dirichlet, Gamma, InverseGamma
from rushlight.distributions.mixtures import Independent
from rushlight.distributions.multivariate import MultivariateNormal, solve_lower
from rushlight.distributions.public import ops, sum_last, xlogy
from rushlight.distributions.relaxed import ContinuousBernoulli
from rushlight.distributions.transformed import (
    HalfNormal,
    LogNormal,
    Pareto,
    TransformedDistribution,
)

Rule = Callable[[Any, Any], Any]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorator: register a function for KL(p || q) of these types and their subclasses.

    Args:
        type_p (class): The class of p.
        type_q (class): The class of q.
    """
    for given in (type_p, type_q):
        if not isinstance(given, type):
            raise TypeError(f"register_kl: types of distributions are needed, got {given!r}")

    def register(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return register


def _rule(type_p: type, type_q: type) -> Rule | None:
    """The rule of the nearest types: nearest to p first, then to q."""
    for p in type_p.__mro__:
        for q in type_q.__mro__:
            if (p, q) in _RULES:
                return _RULES[p, q]
    return None


def kl_divergence(p: Any, q: Any) -> Any:
    """The mean under p of log p(x) - log q(x).

    Args:
        p (Distribution): The distribution of the mean.
        q (Distribution): The other.
    """
    rule = _rule(type(p), type(q))
    if rule is None:
        raise NotImplementedError(
            f"kl_divergence: no closed form is known for {type(p).__name__} and "
            f"{type(q).__name__}; register one with register_kl"
        )
    return rule(p, q)


def _log_ratio(p: Any, q: Any) -> Any:
    """p log(p / q), 0 where p is 0."""
    return xlogy(p, p) - xlogy(p, q)


@register_kl(Bernoulli, Bernoulli)
def _(p: Any, q: Any) -> Any:
    return _log_ratio(p.probs, q.probs) + _log_ratio(1 - p.probs, 1 - q.probs)


@register_kl(Binomial, Binomial)
def _(p: Any, q: Any) -> Any:
    if bool((p.total_count > q.total_count).any()):
        return ops.full_like(p.probs, math.inf)
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "kl_divergence: binomial distributions of more trials in q have no closed form"
        )
    return p.total_count * (_log_ratio(p.probs, q.probs) + _log_ratio(1 - p.probs, 1 - q.probs))


@register_kl(Categorical, Categorical)
def _(p: Any, q: Any) -> Any:
    term = p.probs * (p.logits - q.logits)
    term = ops.where(q.probs == 0, math.inf, term)
    return ops.where(p.probs == 0, 0.0, term).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    first = total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    return first + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Gamma, Gamma)
def _gammas(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    first = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return first + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


register_kl(InverseGamma, InverseGamma)(_gammas)  # a bijection changes no divergence


@register_kl(Exponential, Exponential)
def _(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Exponential, Gamma)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(Gamma(ops.ones_like(p.rate), p.rate), q)


@register_kl(Gamma, Exponential)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(p, Gamma(ops.ones_like(q.rate), q.rate))


@register_kl(Geometric, Geometric)
def _(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _(p: Any, q: Any) -> Any:
    return _log_ratio(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(Laplace, Laplace)
def _(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Normal, Laplace)
def _(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    unit = away / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * (-0.5 * unit.square()).exp() + away * ops.erf(
        unit * math.sqrt(0.5)
    )
    return (
        -p.scale.log() - 0.5 * math.log(2 * math.pi) - 0.5 + (2 * q.scale).log() + folded / q.scale
    )


@register_kl(Laplace, Normal)
def _(p: Any, q: Any) -> Any:
    spread = 2 * p.scale.square() + (p.loc - q.loc).square()
    return (
        -p.entropy() + 0.5 * spread / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi)
    )


@register_kl(Exponential, Normal)
def _(p: Any, q: Any) -> Any:
    spread = p.variance + (p.mean - q.loc).square()
    return (
        -p.entropy() + 0.5 * spread / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi)
    )


@register_kl(Gamma, Normal)
def _(p: Any, q: Any) -> Any:
    spread = p.variance + (p.mean - q.loc).square()
    return (
        -p.entropy() + 0.5 * spread / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi)
    )


@register_kl(Uniform, Normal)
def _(p: Any, q: Any) -> Any:
    spread = p.variance + (p.mean - q.loc).square()
    return (
        -p.entropy() + 0.5 * spread / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi)
    )


@register_kl(Uniform, Uniform)
def _(p: Any, q: Any) -> Any:
    apart = (q.low > p.low) | (q.high < p.high)
    return ops.where(apart, math.inf, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Cauchy, Cauchy)
def _(p: Any, q: Any) -> Any:
    spread = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return spread.log() - (4 * p.scale * q.scale).log()


@register_kl(HalfNormal, HalfNormal)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(LogNormal, LogNormal)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return ops.where(p.scale < q.scale, math.inf, result)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _(p: Any, q: Any) -> Any:
    first = p.mean * (p.logits - q.logits) + p._log_norm() + (-p.probs).log1p()
    return first - q._log_norm() - (-q.probs).log1p()


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: values of shapes {p.event_shape} and {q.event_shape}")
    lower_p, lower_q = ops.broadcast_tensors(p.scale_tril, q.scale_tril)
    half = (lower_q.diagonal(0, -2, -1).log() - lower_p.diagonal(0, -2, -1).log()).sum(-1)
    trace = ops.linalg_solve_triangular(lower_q, lower_p, upper=False).square().sum((-2, -1))
    distance = solve_lower(lower_q, q.loc - p.loc).square().sum(-1)
    return half + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(Independent, Independent)
def _(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "kl_divergence: independent distributions over different numbers of dimensions"
        )
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            "kl_divergence: transformed distributions need the same transforms"
        )
    return sum_last(
        kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape)
    )
