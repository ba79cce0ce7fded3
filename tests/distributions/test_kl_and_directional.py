"""VonMises and Wishart against SciPy, and KL divergences of mixed pairs against quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import rushlight as rl
from rushlight import distributions as D
from rushlight.distributions.kl import _RULES

F64 = rl.float64


def t(*values: float) -> Any:
    return rl.tensor(values, dtype=F64)


def one(value: float) -> Any:
    return rl.tensor(value, dtype=F64)


# ---- von Mises ----


def test_von_mises_against_scipy() -> None:
    loc, k = [0.3, -2.0, 1.0, 0.0], [1e-3, 2.0, 500.0, 0.7]
    ours, theirs = D.VonMises(t(*loc), t(*k)), stats.vonmises(k, loc)
    x = [0.1, 2.0, 1.01, 3.0]
    np.testing.assert_allclose(
        ours.log_prob(t(*x)).numpy(), theirs.logpdf(x), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        ours.entropy().numpy(), [stats.vonmises(a).entropy() for a in k], rtol=1e-9
    )
    assert ours.mean is ours.loc and ours.mode is ours.loc
    spread = [
        1
        - integrate.quad(
            lambda x, a=a: math.cos(x) * stats.vonmises(a).pdf(x), -math.pi, math.pi, points=[0]
        )[0]
        for a in k
    ]
    np.testing.assert_allclose(ours.variance.numpy(), spread, atol=1e-8)


@pytest.mark.parametrize("k", [1e-3, 0.5, 4.0, 1e4])
def test_von_mises_samples(k: float, device: str) -> None:
    rl.manual_seed(1)
    made = (
        D.VonMises(rl.tensor(1.0, device=device), rl.tensor(k, device=device))
        .sample((4000,))
        .cpu()
        .numpy()
    )
    assert made.dtype == np.float32 and np.abs(made).max() <= math.pi + 1e-6
    turned = (made.astype(float) - 1 + math.pi) % (2 * math.pi) - math.pi
    assert stats.kstest(turned, stats.vonmises(k).cdf).pvalue > 1e-3
    assert len(np.unique(made)) > 3000  # also far from where angles are dense


def test_von_mises_shapes_and_gradients() -> None:
    d = D.VonMises(rl.zeros(3, 1), rl.ones(2))
    assert (
        d.batch_shape == (3, 2)
        and d.sample((4,)).shape == (4, 3, 2)
        and d.expand((5, 3, 2)).sample().shape == (5, 3, 2)
    )
    loc, k = t(0.2, 1.0).requires_grad_(), t(0.5, 30.0).requires_grad_()
    assert rl.autograd.gradcheck(lambda a, b: D.VonMises(a, b).log_prob(t(0.1, 0.9)), (loc, k))
    with pytest.raises(ValueError):
        D.VonMises(0.0, -1.0)
    with pytest.raises(NotImplementedError):
        d.rsample()
    rows = rl.vmap(lambda a: D.VonMises(a, rl.ones(())).sample((3,)), randomness="different")(
        rl.zeros(4)
    )
    assert rows.shape == (4, 3) and len(np.unique(rows.numpy())) == 12


# ---- Wishart ----

SIGMA = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])
VALUE = np.array([[3.0, 0.5, 0.2], [0.5, 4.0, 0.1], [0.2, 0.1, 1.5]])


@pytest.mark.parametrize("df", [2.5, 4.0, 9.0])
def test_wishart_against_scipy(df: float) -> None:
    ours, theirs = (
        D.Wishart(df, covariance_matrix=rl.tensor(SIGMA)),
        stats.wishart(df if df > 3 else 3, SIGMA),
    )
    if df > 3:
        np.testing.assert_allclose(
            ours.log_prob(rl.tensor(VALUE)).item(), theirs.logpdf(VALUE), rtol=1e-12
        )
        np.testing.assert_allclose(ours.entropy().item(), theirs.entropy(), rtol=1e-12)
        np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=1e-12)
    np.testing.assert_allclose(ours.mean.numpy(), df * SIGMA, rtol=1e-12)
    want = (df - 4) * SIGMA if df > 4 else np.full((3, 3), np.nan)
    np.testing.assert_allclose(ours.mode.numpy(), want, rtol=1e-12)
    lower = rl.tensor(np.linalg.cholesky(SIGMA))
    for other in (
        D.Wishart(df, scale_tril=lower),
        D.Wishart(df, precision_matrix=rl.tensor(np.linalg.inv(SIGMA))),
    ):
        np.testing.assert_allclose(
            other.log_prob(rl.tensor(VALUE)).item(), ours.log_prob(rl.tensor(VALUE)).item()
        )
        np.testing.assert_allclose(other.covariance_matrix.numpy(), SIGMA, rtol=1e-12)
        np.testing.assert_allclose(other.precision_matrix.numpy(), np.linalg.inv(SIGMA), rtol=1e-12)


def test_wishart_samples(device: str) -> None:
    rl.manual_seed(2)
    made = D.Wishart(
        rl.tensor([3.5, 8.0], device=device), rl.tensor(SIGMA.astype("float32"), device=device)
    )
    x = made.sample((4000,))
    assert x.shape == (4000, 2, 3, 3)
    values = x.cpu().numpy()
    np.testing.assert_allclose(values, np.swapaxes(values, -1, -2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values.mean(0), [3.5 * SIGMA, 8 * SIGMA], atol=0.45)
    scaled = values[:, 1, 0, 0] / SIGMA[0, 0]
    assert stats.kstest(scaled, stats.chi2(8).cdf).pvalue > 1e-3
    assert stats.kstest(values[:, 0, 2, 2] / SIGMA[2, 2], stats.chi2(3.5).cdf).pvalue > 1e-3


def test_wishart_gradients_and_bad_input() -> None:
    df, lower = one(5.0).requires_grad_(), rl.tensor(np.linalg.cholesky(SIGMA)).requires_grad_()
    value = rl.tensor(VALUE)
    assert rl.autograd.gradcheck(
        lambda a, b: D.Wishart(a, scale_tril=b.tril()).log_prob(value), (df, lower)
    )
    assert rl.autograd.gradcheck(
        lambda a, b: D.Wishart(a, scale_tril=b.tril()).entropy(), (df, lower)
    )

    def drawn(b: Any) -> Any:
        rl.manual_seed(3)
        return D.Wishart(5.0, scale_tril=b.tril()).rsample((2,)).logdet()

    assert rl.autograd.gradcheck(drawn, (lower,))
    # The gradient by df moves samples at a fixed rank: right in the mean, whose derivative is
    # known.
    (g,) = rl.autograd.grad(
        D.Wishart(df, scale_tril=lower.detach()).rsample((4000,)).logdet().mean(), df
    )
    want = 0.5 * sum(float(rl.polygamma(1, one((5.0 - i) / 2))) for i in range(3))
    assert abs(g.item() - want) < 0.05
    with pytest.raises(ValueError, match="above 2"):
        D.Wishart(2.0, covariance_matrix=rl.tensor(SIGMA))
    with pytest.raises(ValueError, match="exactly one"):
        D.Wishart(5.0)
    with pytest.raises(ValueError, match="square"):
        D.Wishart(5.0, covariance_matrix=rl.ones(2, 3))
    assert D.Wishart(5.0, rl.tensor(SIGMA)).expand((2, 4)).sample((3,)).shape == (3, 2, 4, 3, 3)


# ---- divergences ----

P: dict[str, Any] = {
    "Beta": D.Beta(one(1.7), one(2.2)),
    "ContinuousBernoulli": D.ContinuousBernoulli(one(0.3)),
    "Exponential": D.Exponential(one(1.3)),
    "Gamma": D.Gamma(one(2.5), one(1.4)),
    "Gumbel": D.Gumbel(one(0.4), one(0.8)),
    "Laplace": D.Laplace(one(0.4), one(0.8)),
    "Normal": D.Normal(one(0.4), one(0.8)),
    "Pareto": D.Pareto(one(0.6), one(4.5)),
    "Uniform": D.Uniform(one(0.7), one(0.95)),
}
Q: dict[str, Any] = {
    "Beta": D.Beta(one(2.5), one(0.8)),
    "ContinuousBernoulli": D.ContinuousBernoulli(one(0.6)),
    "Exponential": D.Exponential(one(0.7)),
    "Gamma": D.Gamma(one(1.6), one(0.9)),
    "Gumbel": D.Gumbel(one(-0.3), one(1.2)),
    "Laplace": D.Laplace(one(-0.3), one(1.2)),
    "Normal": D.Normal(one(-0.3), one(1.2)),
    "Pareto": D.Pareto(one(0.5), one(2.0)),
    "Uniform": D.Uniform(one(-0.2), one(1.3)),
}
ENDS = {
    "Beta": (0, 1),
    "ContinuousBernoulli": (0, 1),
    "Uniform": (0.7, 0.95),
    "Pareto": (0.6, 300),
    "Exponential": (0, 40),
    "Gamma": (0, 40),
}
PAIRS = sorted({(p.__name__, q.__name__) for p, q in _RULES if p.__name__ in P and q.__name__ in Q})


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_divergence_by_quadrature(p: str, q: str) -> None:
    first, second = P[p], Q[q]
    found = D.kl_divergence(first, second).item()
    low, high = ENDS.get(p, (-15, 40))
    inside = {
        "Beta": (0, 1),
        "ContinuousBernoulli": (0, 1),
        "Uniform": (-0.2, 1.3),
        "Pareto": (0.5, math.inf),
    }
    least, most = inside.get(
        q, (0, math.inf) if q in ("Exponential", "Gamma") else (-math.inf, math.inf)
    )
    if low < least or high > most:
        assert found == math.inf
        return

    def term(x: float) -> float:
        here = one(x)
        log_p = first.log_prob(here).item()
        return math.exp(log_p) * (log_p - second.log_prob(here).item())

    edge = 1e-12 if p in ENDS else 0.0
    cuts = [0.4] if p == "Laplace" else None
    want = integrate.quad(term, low + edge, high - edge, points=cuts, limit=200)[0]
    assert abs(found - want) < 1e-5 * max(1, abs(want)), (found, want)


def test_divergences_of_counts() -> None:
    p, rate = 0.3, 1.7
    want = p * math.log(p) + (1 - p) * math.log(1 - p) - (p * math.log(rate) - rate)
    assert abs(D.kl_divergence(D.Bernoulli(one(p)), D.Poisson(one(rate))).item() - want) < 1e-12
    assert D.kl_divergence(D.Poisson(one(1.0)), D.Bernoulli(one(0.5))).item() == math.inf
    assert (
        D.kl_divergence(D.Poisson(t(1.0, 2.0)), D.Binomial(3, one(0.5))).tolist() == [math.inf] * 2
    )
    assert D.kl_divergence(
        D.Normal(one(0.0), one(1.0)), D.Uniform(t(0.0, 1.0), t(2.0, 3.0))
    ).shape == (2,)


def test_divergences_at_the_edges_of_supports() -> None:
    outside = D.kl_divergence(
        D.Uniform(t(-0.1, 0.0, 0.2), t(0.5, 1.0, 1.1)), D.Beta(one(2.0), one(2.0))
    )
    assert outside[0].item() == outside[2].item() == math.inf and math.isfinite(outside[1].item())
    assert D.kl_divergence(D.Beta(one(1.0), one(1.0)), D.Uniform(one(0.0), one(1.0))).item() == 0
    assert (
        abs(D.kl_divergence(D.ContinuousBernoulli(one(0.5)), D.Uniform(one(0.0), one(1.0))).item())
        < 1e-12
    )
    assert D.kl_divergence(D.Pareto(one(1.0), one(0.9)), D.Exponential(one(1.0))).item() == math.inf


def test_divergences_of_normal_vectors() -> None:
    rng = np.random.default_rng(0)
    factor, diagonal = rng.normal(size=(2, 4, 2)), rng.uniform(0.5, 2, (2, 4))
    low = D.LowRankMultivariateNormal(
        rl.tensor(rng.normal(size=4)), rl.tensor(factor), rl.tensor(diagonal)
    )
    root = rng.normal(size=(4, 4))
    full = D.MultivariateNormal(rl.tensor(rng.normal(size=4)), rl.tensor(root @ root.T + np.eye(4)))
    same = D.MultivariateNormal(low.loc, low.covariance_matrix)
    for p, q, plain in (
        (low, full, (same, full)),
        (full, low, (full, same)),
        (low, low.expand((3, 2)), (same, same)),
    ):
        found = D.kl_divergence(p, q).numpy()
        np.testing.assert_allclose(
            found, np.broadcast_to(D.kl_divergence(*plain).numpy(), found.shape), atol=1e-12
        )


def test_divergences_within_a_family() -> None:
    a, b = D.Wishart(one(5.0), rl.tensor(SIGMA)), D.Wishart(one(6.5), rl.tensor(SIGMA + np.eye(3)))
    inverse = np.linalg.inv(SIGMA + np.eye(3))
    psi = sum(float(rl.digamma(one((5.0 - i) / 2))) for i in range(3))
    mean_log = psi + 3 * math.log(2) + np.linalg.slogdet(SIGMA)[1]
    log_q = 0.5 * (6.5 - 4) * mean_log - 0.5 * 5 * np.trace(inverse @ SIGMA)
    log_q -= 6.5 * (1.5 * math.log(2) + 0.5 * np.linalg.slogdet(SIGMA + np.eye(3))[1])
    log_q -= float(rl.mvlgamma(one(6.5 / 2), 3))
    found = D.kl_divergence(a, b)
    assert abs(found.item() - (-a.entropy().item() - log_q)) < 1e-9 and not found.requires_grad
    scale = one(2.0).requires_grad_()
    D.kl_divergence(D.Wishart(one(5.0), rl.tensor(SIGMA) * scale), b).backward()
    assert scale.grad.item() != 0
    with pytest.raises(NotImplementedError, match="register_kl"):
        D.kl_divergence(D.Dirichlet(t(1.0, 2.0)), D.Normal(one(0.0), one(1.0)))


def test_gradients_of_divergences() -> None:
    x = one(0.8).requires_grad_()
    pairs = [
        (lambda v: D.Gumbel(v, v), Q["Gumbel"]),
        (lambda v: D.Uniform(v - 0.5, v), Q["Gumbel"]),
        (lambda v: D.Uniform(v - 0.5, v), Q["Beta"]),
        (lambda v: D.Pareto(v, 4 * v), Q["Gamma"]),
        (lambda v: D.Beta(v, 2 * v), Q["Normal"]),
    ]
    for make, q in pairs:
        assert rl.autograd.gradcheck(lambda v, make=make, q=q: D.kl_divergence(make(v), q), (x,))
