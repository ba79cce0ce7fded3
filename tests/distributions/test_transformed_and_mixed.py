"""Transformed, mixed, multivariate and relaxed distributions, against SciPy and against integrals;
divergences.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import rushlight as rl
from rushlight import distributions as D

F64 = rl.float64


def t(*values: float) -> rl.Tensor:
    return rl.tensor(values, dtype=F64)


SCALAR = {
    "LogNormal": (
        D.LogNormal(t(0, 1), t(1, 0.5)),
        stats.lognorm([1, 0.5], 0, np.exp([0, 1])),
        [0.5, 2.0],
    ),
    "HalfNormal": (D.HalfNormal(t(1, 3)), stats.halfnorm(0, [1, 3]), [0.5, 2.0]),
    "HalfCauchy": (D.HalfCauchy(t(1, 3)), stats.halfcauchy(0, [1, 3]), [0.5, 2.0]),
    "Gumbel": (D.Gumbel(t(0, 2), t(1, 3)), stats.gumbel_r([0, 2], [1, 3]), [-0.5, 2.0]),
    "Weibull": (D.Weibull(t(1, 2), t(0.8, 3)), stats.weibull_min([0.8, 3], 0, [1, 2]), [0.5, 2.0]),
    "Pareto": (D.Pareto(t(1, 2), t(2.5, 3)), stats.pareto([2.5, 3], 0, [1, 2]), [1.5, 2.5]),
}


@pytest.mark.parametrize("name", SCALAR)
def test_a_number_transformed(name):
    ours, theirs, points = SCALAR[name]
    np.testing.assert_allclose(ours.log_prob(t(*points)).numpy(), theirs.logpdf(points), rtol=1e-9)
    np.testing.assert_allclose(ours.cdf(t(*points)).numpy(), theirs.cdf(points), rtol=1e-9)
    np.testing.assert_allclose(ours.icdf(t(0.2, 0.9)).numpy(), theirs.ppf([0.2, 0.9]), rtol=1e-9)
    np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=1e-7)
    if name != "HalfCauchy":
        np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
        np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=1e-9)
    rl.manual_seed(5)
    drawn = ours.rsample((4000,)).numpy()
    for k in range(2):
        cdf = lambda x, k=k: theirs.cdf(np.asarray(x)[:, None])[:, k]  # noqa: E731
        assert stats.kstest(drawn[:, k], cdf).pvalue > 1e-3
    wide = ours.expand((3, 2))
    assert wide.sample((4,)).shape == (4, 3, 2)
    np.testing.assert_allclose(
        wide.log_prob(t(*points)).numpy()[1], theirs.logpdf(points), rtol=1e-9
    )


def grid(d, n: int = 4001) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(1e-6, 1 - 1e-6, n)
    return x, d.log_prob(rl.tensor(x)).exp().numpy()


@pytest.mark.parametrize(
    "d",
    [
        D.Kumaraswamy(rl.tensor(2.0, dtype=F64), rl.tensor(3.0, dtype=F64)),
        D.ContinuousBernoulli(rl.tensor(0.2, dtype=F64)),
        D.ContinuousBernoulli(rl.tensor(0.5, dtype=F64)),
        D.Beta(rl.tensor(2.0, dtype=F64), rl.tensor(4.0, dtype=F64)),
    ],
)
def test_a_number_between_0_and_1(d):
    x, density = grid(d)
    assert integrate.simpson(density, x=x) == pytest.approx(1, rel=1e-4)
    mean = integrate.simpson(density * x, x=x)
    assert d.mean.item() == pytest.approx(mean, rel=1e-4)
    assert d.variance.item() == pytest.approx(
        integrate.simpson(density * (x - mean) ** 2, x=x), rel=1e-3
    )
    assert d.entropy().item() == pytest.approx(
        -integrate.simpson(density * np.log(density + 1e-300), x=x), abs=1e-3
    )
    rl.manual_seed(2)
    drawn = d.rsample((20_000,)).numpy()
    assert drawn.mean() == pytest.approx(mean, abs=0.01)


def test_relaxed_truth_values_and_classes():
    d = D.RelaxedBernoulli(rl.tensor(0.7, dtype=F64), rl.tensor(0.3, dtype=F64))
    x, density = grid(d, 200_001)
    assert integrate.simpson(density, x=x) == pytest.approx(1, rel=5e-3)
    rl.manual_seed(3)
    drawn = d.rsample((20_000,)).numpy()
    assert drawn.mean() == pytest.approx(integrate.simpson(density * x, x=x), abs=0.02)
    one = D.RelaxedOneHotCategorical(rl.tensor(0.7, dtype=F64), probs=t(0.3, 0.7))
    # Of two classes the first is a relaxed truth value.
    np.testing.assert_allclose(
        one.log_prob(t(0.4, 0.6)).item(), d.log_prob(t(0.4)).item(), rtol=1e-6
    )
    assert one.rsample((5,)).sum(-1).tolist() == pytest.approx([1.0] * 5)
    logits = rl.zeros(3, requires_grad=True)
    (
        D.RelaxedOneHotCategorical(rl.tensor(0.5), logits=logits).rsample((9,))
        * rl.tensor([1.0, 2.0, 3.0])
    ).sum().backward()
    assert logits.grad.abs().sum().item() > 0


def test_multivariate_normal():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 3))
    covariance, mean, x = a @ a.T + np.eye(3), rng.normal(size=3), rng.normal(size=(5, 3))
    theirs = stats.multivariate_normal(mean, covariance)
    lower = rl.tensor(np.linalg.cholesky(covariance))
    for named in (
        {"covariance_matrix": rl.tensor(covariance)},
        {"precision_matrix": rl.tensor(np.linalg.inv(covariance))},
        {"scale_tril": lower},
    ):
        ours = D.MultivariateNormal(rl.tensor(mean), **named)
        np.testing.assert_allclose(ours.log_prob(rl.tensor(x)).numpy(), theirs.logpdf(x), rtol=1e-9)
        assert ours.entropy().item() == pytest.approx(theirs.entropy())
        np.testing.assert_allclose(ours.variance.numpy(), np.diag(covariance))
        np.testing.assert_allclose(ours.covariance_matrix.numpy(), covariance)
        assert (ours.batch_shape, ours.event_shape) == ((), (3,))
        assert ours.expand((2,)).rsample((4,)).shape == (4, 2, 3)
    rl.manual_seed(1)
    drawn = ours.sample((20_000,)).numpy()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.25)
    with pytest.raises(ValueError):
        D.MultivariateNormal(rl.zeros(2), covariance_matrix=-rl.eye(2))
    factor, diagonal = rl.tensor(a[:, :2].copy()), t(1, 2, 3)
    low = D.LowRankMultivariateNormal(rl.tensor(mean), factor, diagonal)
    full = D.MultivariateNormal(rl.tensor(mean), low.covariance_matrix)
    np.testing.assert_allclose(
        low.log_prob(rl.tensor(x)).numpy(), full.log_prob(rl.tensor(x)).numpy(), rtol=1e-9
    )
    assert low.entropy().item() == pytest.approx(full.entropy().item())
    assert low.expand((2,)).rsample((4,)).shape == (4, 2, 3)


def test_independent_and_mixture():
    d = D.Independent(D.Normal(rl.zeros(4, 3, dtype=F64), 1.0), 1)
    assert (d.batch_shape, d.event_shape) == ((4,), (3,))
    assert d.log_prob(rl.zeros(4, 3, dtype=F64)).tolist() == pytest.approx(
        [3 * stats.norm.logpdf(0)] * 4
    )
    assert d.expand((2, 4)).entropy().shape == (2, 4)
    mixture = D.MixtureSameFamily(D.Categorical(t(0.3, 0.7)), D.Normal(t(-1, 2), t(0.5, 1)))
    x = np.linspace(-8, 8, 2001)
    density = mixture.log_prob(rl.tensor(x)).exp().numpy()
    assert integrate.simpson(density, x=x) == pytest.approx(1)
    assert mixture.mean.item() == pytest.approx(1.1)
    assert mixture.variance.item() == pytest.approx(
        integrate.simpson(density * (x - 1.1) ** 2, x=x)
    )
    rl.manual_seed(6)
    drawn = mixture.sample((4000,)).numpy()
    assert stats.kstest(drawn, lambda v: mixture.cdf(rl.tensor(v)).numpy()).pvalue > 1e-3
    vectors = D.MixtureSameFamily(
        D.Categorical(rl.ones(2)), D.Independent(D.Normal(rl.zeros(5, 2, 3), 1.0), 1)
    )
    assert vectors.sample((7,)).shape == (7, 5, 3)
    assert vectors.log_prob(rl.zeros(5, 3)).shape == (5,)
    assert mixture.expand((6,)).sample((2,)).shape == (2, 6)


@pytest.mark.parametrize(
    "transform",
    [
        D.ExpTransform(),
        D.AffineTransform(1.0, -2.0),
        D.SigmoidTransform(),
        D.TanhTransform(),
        D.SoftplusTransform(),
        D.ComposeTransform([D.AffineTransform(0.0, 0.5), D.ExpTransform()]),
        D.ComposeTransform([D.ExpTransform(), D.PowerTransform(1.5)]),
        D.ExpTransform().inv.inv,
    ],
)
def test_transforms_turn_round_and_say_how_they_stretch(transform):
    x = t(-1.2, -0.1, 0.3, 1.5).requires_grad_()
    y = transform(x)
    np.testing.assert_allclose(transform.inv(y).detach().numpy(), x.detach().numpy(), rtol=1e-9)
    (slope,) = rl.autograd.grad(y.sum(), x)
    stretch = transform.log_abs_det_jacobian(x, y).detach().numpy()
    np.testing.assert_allclose(stretch, np.log(np.abs(slope.numpy())), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        transform.inv.log_abs_det_jacobian(y, x).detach().numpy(), -stretch, rtol=1e-7
    )


def test_sticks_are_broken_and_mended():
    s = D.StickBreakingTransform()
    x = t(0.3, -0.7, 1.1)
    y = s(x)
    assert (y.sum().item(), s.forward_shape((2, 3))) == (pytest.approx(1), (2, 4))
    np.testing.assert_allclose(s.inv(y).numpy(), x.numpy(), rtol=1e-9)
    rows = []
    for k in range(3):
        h = rl.zeros(3, dtype=F64)
        h[k] = 1e-6
        rows.append(((s(x + h) - s(x - h)) / 2e-6)[:3].numpy())
    np.testing.assert_allclose(
        s.log_abs_det_jacobian(x, y).item(), np.linalg.slogdet(np.array(rows))[1], rtol=1e-6
    )
    d = D.LogisticNormal(rl.zeros(3, dtype=F64), 1.0)
    assert (d.event_shape, d.sample((5,)).shape, d.log_prob(y).shape) == ((4,), (5, 4), ())
    with pytest.raises(NotImplementedError):
        d.cdf(y)


PAIRS = [
    (D.Normal(t(0.5), t(2)), D.Normal(t(-1), t(1.5))),
    (D.Normal(t(0.5), t(2)), D.Laplace(t(-1), t(1.5))),
    (D.Laplace(t(0.5), t(2)), D.Normal(t(-1), t(1.5))),
    (D.Laplace(t(0.5), t(1)), D.Laplace(t(-1), t(1.5))),
    (D.Cauchy(t(0.5), t(1)), D.Cauchy(t(-1), t(1.5))),
    (D.Gamma(t(2), t(1.5)), D.Gamma(t(3), t(0.5))),
    (D.Gamma(t(2), t(1.5)), D.Exponential(t(0.5))),
    (D.Gamma(t(2), t(1.5)), D.Normal(t(1), t(2))),
    (D.Exponential(t(2)), D.Exponential(t(0.5))),
    (D.Exponential(t(2)), D.Gamma(t(3), t(0.5))),
    (D.Exponential(t(2)), D.Normal(t(1), t(2))),
    (D.Uniform(t(0), t(1)), D.Uniform(t(-1), t(2))),
    (D.Uniform(t(0), t(1)), D.Normal(t(-1), t(2))),
    (D.Beta(t(2), t(3)), D.Beta(t(4), t(1.5))),
    (D.ContinuousBernoulli(t(0.2)), D.ContinuousBernoulli(t(0.7))),
    (D.LogNormal(t(0.5), t(1)), D.LogNormal(t(-1), t(1.5))),
    (D.HalfNormal(t(0.5)), D.HalfNormal(t(1.5))),
    (D.Pareto(t(2), t(3)), D.Pareto(t(1), t(2))),
]


def named(pair) -> str:
    return "-".join(type(d).__name__ for d in pair)


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_divergences_are_the_integrals_they_stand_for(pair):
    p, q = pair
    ranks = (np.arange(200_000) + 0.5) / 200_000  # the middle of each share of p
    if hasattr(type(p), "icdf") and type(p).icdf is not D.Distribution.icdf:
        x = p.icdf(rl.tensor(ranks))
    else:
        law = stats.beta(2, 3) if isinstance(p, D.Beta) else stats.gamma(2, 0, 1 / 1.5)
        x = rl.tensor(law.ppf(ranks))
    want = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert D.kl_divergence(p, q).item() == pytest.approx(want, abs=2e-3)


@pytest.mark.parametrize(
    "pair",
    [
        (D.Bernoulli(t(0.2)), D.Bernoulli(t(0.7))),
        (D.Binomial(5, t(0.2)), D.Binomial(5, t(0.7))),
        (D.Categorical(t(0.2, 0.8)), D.Categorical(t(0.5, 0.5))),
        (D.Geometric(t(0.2)), D.Geometric(t(0.7))),
        (D.Poisson(t(2.0)), D.Poisson(t(3.5))),
    ],
    ids=named,
)
def test_divergences_of_counts_are_sums(pair):
    p, q = pair
    values = (
        p.enumerate_support(expand=False)
        if p.has_enumerate_support
        else rl.arange(150, dtype=F64).reshape(-1, 1)
    )
    log_p = p.log_prob(values)
    want = (log_p.exp() * (log_p - q.log_prob(values))).sum().item()
    assert D.kl_divergence(p, q).sum().item() == pytest.approx(want, rel=1e-6)


def test_divergences_of_vectors_and_new_ones():
    p, q = (D.Normal(t(0, 1), t(1, a)) for a in (2, 3))
    want = D.kl_divergence(p, q).sum().item()
    assert D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1)).item() == pytest.approx(want)
    vectors = [D.MultivariateNormal(d.loc, scale_tril=d.scale.diag_embed()) for d in (p, q)]
    assert D.kl_divergence(*vectors).item() == pytest.approx(want)
    with pytest.raises(NotImplementedError, match="register_kl"):
        D.kl_divergence(p, D.Poisson(1.0))

    class Mine(D.Normal):
        pass

    D.register_kl(Mine, D.Poisson)(lambda a, b: "mine")
    assert D.kl_divergence(Mine(0.0, 1.0), D.Poisson(1.0)) == "mine"
    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0
