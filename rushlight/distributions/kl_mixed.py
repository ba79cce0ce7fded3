"""More divergences KL(p || q): of different kinds, of low-rank normals, of one exponential family.

Each is minus the entropy of p less the mean under p of log q, which needs a few moments of p;
infinite where p has mass that q has not.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.shapes import broadcast_shapes
from rushlight.distributions.continuous import Exponential, Laplace, Normal, Uniform
from rushlight.distributions.discrete import Bernoulli, Binomial, Poisson
from rushlight.distributions.distribution import ExponentialFamily
from rushlight.distributions.gammas import Beta, Gamma
from rushlight.distributions.kl import register_kl
from rushlight.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from rushlight.distributions.public import ops, sum_last, xlogy
from rushlight.distributions.relaxed import ContinuousBernoulli
from rushlight.distributions.transformed import Gumbel, Pareto
from rushlight.tape.record.state import enable_grad
from rushlight.tape.walk.roots import grad

# ---- p has mass outside of q's support ----

_BOUNDED = (Beta, ContinuousBernoulli, Pareto, Uniform)
_APART: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: _BOUNDED,
    Gamma: _BOUNDED,
    Gumbel: (*_BOUNDED, Exponential, Gamma),
    Laplace: (*_BOUNDED, Exponential, Gamma),
    Normal: (*_BOUNDED, Exponential, Gamma),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Any, q: Any) -> Any:
    shape = broadcast_shapes([tuple(p.batch_shape), tuple(q.batch_shape)], "kl_divergence", [])
    like = p.mean
    return ops.full(shape, math.inf, dtype=like.dtype, device=like.device)


for _kind, _others in _APART.items():
    for _other in _others:
        register_kl(_kind, _other)(_infinite)


# ---- by moments of p ----


def _infinite_where(condition: Any, result: Any) -> Any:
    return ops.where(condition, math.inf, result)


def _mean_of_log(p: Any) -> Any:
    """E log x."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    low = p.low.clamp(min=0)  # of a uniform distribution; below 0 the divergence is infinite
    return (xlogy(p.high, p.high) - xlogy(low, low)) / (p.high - low) - 1


def _to_normal(p: Any, q: Any) -> Any:
    spread = p.variance + (p.mean - q.loc).square()
    return (
        -p.entropy() + 0.5 * spread / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi)
    )


def _to_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def _to_gamma(p: Any, q: Any) -> Any:
    a, rate = q.concentration, q.rate
    return -p.entropy() + a.lgamma() - xlogy(a, rate) - (a - 1) * _mean_of_log(p) + rate * p.mean


def _to_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_norm()


for _kind in (Beta, ContinuousBernoulli, Gumbel, Pareto):
    register_kl(_kind, Normal)(_to_normal)
for _kind in (Beta, ContinuousBernoulli, Pareto):
    register_kl(_kind, Exponential)(_to_exponential)
for _kind in (Beta, Pareto):
    register_kl(_kind, Gamma)(_to_gamma)
register_kl(Beta, ContinuousBernoulli)(_to_continuous_bernoulli)


@register_kl(Bernoulli, Poisson)
def _(p: Any, q: Any) -> Any:
    return -p.entropy() - (xlogy(p.probs, q.rate) - q.rate)


def _unit_to_uniform(p: Any, q: Any) -> Any:
    return _infinite_where((q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log())


register_kl(Beta, Uniform)(_unit_to_uniform)
register_kl(ContinuousBernoulli, Uniform)(_unit_to_uniform)


# ---- from uniform ----


@register_kl(Uniform, Beta)
def _(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    inside = Uniform(p.low.clamp(min=0), p.high.clamp(max=1), validate_args=False)
    mirrored = Uniform(1 - inside.high, 1 - inside.low, validate_args=False)
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    result = (
        -p.entropy() + log_beta - (a - 1) * _mean_of_log(inside) - (b - 1) * _mean_of_log(mirrored)
    )
    return _infinite_where((p.low < 0) | (p.high > 1), result)


@register_kl(Uniform, ContinuousBernoulli)
def _(p: Any, q: Any) -> Any:
    return _infinite_where((p.low < 0) | (p.high > 1), _to_continuous_bernoulli(p, q))


@register_kl(Uniform, Exponential)
def _(p: Any, q: Any) -> Any:
    return _infinite_where(p.low < 0, _to_exponential(p, q))


@register_kl(Uniform, Gamma)
def _(p: Any, q: Any) -> Any:
    return _infinite_where(p.low < 0, _to_gamma(p, q))


@register_kl(Uniform, Pareto)
def _(p: Any, q: Any) -> Any:
    result = (
        -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _mean_of_log(p)
    )
    return _infinite_where(p.low < q.scale, result)


# ---- to Gumbel: y - exp(y) - log(scale), y = (loc - x) / scale ----


def _to_gumbel(p: Any, q: Any, mean_of_exp: Any) -> Any:
    """`mean_of_exp` is E exp(y)."""
    return -p.entropy() - (q.loc - p.mean) / q.scale + mean_of_exp + q.scale.log()


@register_kl(Gumbel, Gumbel)
def _(p: Any, q: Any) -> Any:
    return _to_gumbel(p, q, ((q.loc - p.loc) / q.scale + (1 + p.scale / q.scale).lgamma()).exp())


@register_kl(Normal, Gumbel)
def _(p: Any, q: Any) -> Any:
    return _to_gumbel(p, q, ((q.loc - p.loc) / q.scale + 0.5 * (p.scale / q.scale).square()).exp())


@register_kl(Gamma, Gumbel)
def _(p: Any, q: Any) -> Any:
    return _to_gumbel(
        p, q, (q.loc / q.scale - p.concentration * (1 / (q.scale * p.rate)).log1p()).exp()
    )


@register_kl(Exponential, Gumbel)
def _(p: Any, q: Any) -> Any:
    return _to_gumbel(p, q, (q.loc / q.scale - (1 / (q.scale * p.rate)).log1p()).exp())


@register_kl(Uniform, Gumbel)
def _(p: Any, q: Any) -> Any:
    width = (p.high - p.low) / q.scale
    return _to_gumbel(p, q, ((q.loc - p.low) / q.scale).exp() * -(-width).expm1() / width)


# ---- normal vectors, of low rank or not ----


def _log_det(d: Any) -> Any:
    if isinstance(d, LowRankMultivariateNormal):
        return d._log_det()
    return 2 * d.scale_tril.diagonal(0, -2, -1).log().sum(-1)


def _weighed(q: Any, x: Any) -> Any:
    """The sum over columns of x^T covariance^-1 x."""
    if isinstance(q, MultivariateNormal):
        lower = q.scale_tril
        batch = broadcast_shapes(
            [tuple(lower.shape[:-2]), tuple(x.shape[:-2])], "kl_divergence", []
        )
        x, lower = x.expand(*batch, *x.shape[-2:]), lower.expand(*batch, *lower.shape[-2:])
        return ops.linalg_solve_triangular(lower, x, upper=False).square().sum((-2, -1))
    scaled = x / q.cov_diag.unsqueeze(-1)
    seen, lower = q.cov_factor.mT @ scaled, q._capacitance_tril
    batch = broadcast_shapes([tuple(lower.shape[:-2]), tuple(seen.shape[:-2])], "kl_divergence", [])
    seen, lower = seen.expand(*batch, *seen.shape[-2:]), lower.expand(*batch, *lower.shape[-2:])
    less = ops.linalg_solve_triangular(lower, seen, upper=False).square().sum((-2, -1))
    return (x * scaled).sum((-2, -1)) - less


def _normal_vectors(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: values of shapes {p.event_shape} and {q.event_shape}")
    if isinstance(p, LowRankMultivariateNormal):
        trace = _weighed(q, p.cov_factor) + _weighed(q, p.cov_diag.sqrt().diag_embed())
    else:
        trace = _weighed(q, p.scale_tril)
    distance = _weighed(q, (q.loc - p.loc).unsqueeze(-1))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)(_normal_vectors)
register_kl(LowRankMultivariateNormal, MultivariateNormal)(_normal_vectors)
register_kl(MultivariateNormal, LowRankMultivariateNormal)(_normal_vectors)


# ---- two of one exponential family ----


@register_kl(ExponentialFamily, ExponentialFamily)
def _(p: Any, q: Any) -> Any:
    """F(theta_q) - F(theta_p) - (theta_q - theta_p) . dF(theta_p)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"kl_divergence: no closed form is known for {type(p).__name__} and "
            f"{type(q).__name__}; register one with register_kl"
        )
    with enable_grad():
        at_p, at_q = p._natural_params, q._natural_params
        at_p = [x if x.requires_grad else x.detach().requires_grad_() for x in at_p]
        first = p._log_normalizer(*at_p)
        slopes = grad(first.sum(), at_p, create_graph=True)
    result = q._log_normalizer(*at_q) - first
    for x, y, slope in zip(at_p, at_q, slopes, strict=True):
        part = (y - x) * slope
        dims = part.dim() - result.dim()
        result = result - (sum_last(part, dims) if dims > 0 else part)
    follows = any(x.requires_grad for x in (*p._natural_params, *q._natural_params))
    return result if follows else result.detach()
