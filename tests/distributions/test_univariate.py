"""Distributions against SciPy: densities, moments, entropies, samples, and gradients through
samples.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import rushlight as rl
from rushlight import distributions as D

F64 = rl.float64


def t(*values: float) -> rl.Tensor:
    return rl.tensor(values, dtype=F64)


# name: (ours, SciPy's at the same three places, points)
REAL = {
    "Normal": (
        D.Normal(t(0, 1, -2), t(1, 0.5, 3)),
        stats.norm([0, 1, -2], [1, 0.5, 3]),
        [-3.0, 0.4, 2.0],
    ),
    "Uniform": (
        D.Uniform(t(0, -1, 2), t(1, 3, 2.5)),
        stats.uniform([0, -1, 2], [1, 4, 0.5]),
        [0.3, 0.5, 2.25],
    ),
    "Exponential": (D.Exponential(t(0.5, 1, 4)), stats.expon(0, [2, 1, 0.25]), [0.2, 1.0, 3.0]),
    "Laplace": (
        D.Laplace(t(0, 1, -2), t(1, 0.5, 3)),
        stats.laplace([0, 1, -2], [1, 0.5, 3]),
        [-3.0, 0.4, 2.0],
    ),
    "Cauchy": (
        D.Cauchy(t(0, 1, -2), t(1, 0.5, 3)),
        stats.cauchy([0, 1, -2], [1, 0.5, 3]),
        [-3.0, 0.4, 2.0],
    ),
    "Gamma": (
        D.Gamma(t(0.4, 1, 9), t(1, 2, 0.5)),
        stats.gamma([0.4, 1, 9], 0, [1, 0.5, 2]),
        [0.2, 1.0, 12.0],
    ),
    "Chi2": (D.Chi2(t(1, 3, 8)), stats.chi2([1, 3, 8]), [0.2, 1.0, 12.0]),
    "InverseGamma": (
        D.InverseGamma(t(3, 4, 9), t(1, 2, 0.5)),
        stats.invgamma([3, 4, 9], 0, [1, 2, 0.5]),
        [0.2, 1, 3],
    ),
    "Beta": (D.Beta(t(0.4, 1, 9), t(2, 1, 3)), stats.beta([0.4, 1, 9], [2, 1, 3]), [0.1, 0.5, 0.8]),
    "StudentT": (
        D.StudentT(t(3, 5, 30), t(0, 1, 2), t(1, 2, 3)),
        stats.t([3, 5, 30], [0, 1, 2], [1, 2, 3]),
        [-3, 0, 2],
    ),
    "FisherSnedecor": (
        D.FisherSnedecor(t(3, 5, 9), t(5, 6, 30)),
        stats.f([3, 5, 9], [5, 6, 30]),
        [0.2, 1.0, 3.0],
    ),
}
WHOLE = {
    "Bernoulli": (D.Bernoulli(t(0.2, 0.5, 0.9)), stats.bernoulli([0.2, 0.5, 0.9]), [0, 1, 1]),
    "Geometric": (D.Geometric(t(0.2, 0.5, 0.9)), stats.geom([0.2, 0.5, 0.9], -1), [0, 1, 5]),
    "Binomial": (D.Binomial(10, t(0.2, 0.5, 0.9)), stats.binom(10, [0.2, 0.5, 0.9]), [0, 5, 10]),
    "NegativeBinomial": (
        D.NegativeBinomial(t(2, 3, 7), t(0.2, 0.5, 0.9)),
        stats.nbinom([2, 3, 7], [0.8, 0.5, 0.1]),
        [0, 5, 40],
    ),
    "Poisson": (D.Poisson(t(0.3, 4, 60)), stats.poisson([0.3, 4, 60]), [0, 5, 55]),
}
ALL = {**REAL, **WHOLE}


@pytest.mark.parametrize("name", ALL)
def test_log_prob_and_moments(name):
    ours, theirs, points = ALL[name]
    x = t(*points)
    want = theirs.logpdf(points) if name in REAL else theirs.logpmf(points)
    np.testing.assert_allclose(ours.log_prob(x).numpy(), want, rtol=1e-9, atol=1e-9)
    if name != "Cauchy":
        np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
        np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=1e-9)
        np.testing.assert_allclose(ours.stddev.numpy(), theirs.std(), rtol=1e-9)
    assert ours.batch_shape == (3,)
    assert ours.event_shape == ()


@pytest.mark.parametrize(
    "name", [n for n in ALL if n not in ("FisherSnedecor", "NegativeBinomial", "Poisson")]
)
def test_entropy(name):
    ours, theirs, _ = ALL[name]
    np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["Gamma", "Chi2", "InverseGamma"])
def test_cdf_of_gamma_numbers(name):
    ours, theirs, points = REAL[name]
    np.testing.assert_allclose(
        ours.cdf(t(*points)).numpy(), theirs.cdf(points), rtol=1e-7, atol=1e-12
    )


@pytest.mark.parametrize("name", ["Normal", "Uniform", "Exponential", "Laplace", "Cauchy"])
def test_cdf_and_its_inverse(name):
    ours, theirs, points = REAL[name]
    np.testing.assert_allclose(
        ours.cdf(t(*points)).numpy(), theirs.cdf(points), rtol=1e-9, atol=1e-12
    )
    u = t(0.1, 0.5, 0.97)
    np.testing.assert_allclose(
        ours.icdf(u).numpy(), theirs.ppf([0.1, 0.5, 0.97]), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("name", REAL)
def test_samples_of_a_real_number(name):
    ours, theirs, _ = REAL[name]
    rl.manual_seed(7)
    drawn = ours.sample((4000,))
    assert drawn.shape == (4000, 3)
    assert not drawn.requires_grad
    for k in range(3):
        cdf = lambda x, k=k: theirs.cdf(np.asarray(x)[:, None])[:, k]  # noqa: E731
        assert stats.kstest(drawn.numpy()[:, k], cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", WHOLE)
def test_samples_of_a_whole_number(name):
    ours, theirs, _ = WHOLE[name]
    rl.manual_seed(8)
    n = 20_000
    drawn = ours.sample((n,)).numpy()
    np.testing.assert_array_less(
        np.abs(drawn.mean(0) - theirs.mean()), 4.5 * theirs.std() / np.sqrt(n)
    )
    np.testing.assert_allclose(drawn.var(0), theirs.var(), rtol=0.1)


@pytest.mark.parametrize("name", ALL)
def test_expand_gives_the_same_distribution(name):
    ours, _, points = ALL[name]
    wide = ours.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide.sample((4,)).shape == (4, 2, 3)
    want = ours.log_prob(t(*points)).tolist()
    assert wide.log_prob(t(*points)).tolist() == [want, want]


@pytest.mark.parametrize("name", [n for n in REAL if n != "Cauchy"])
def test_the_gradient_of_a_mean_of_samples(name):
    """d E[x] / d parameter, by the mean of the gradients of samples.

    The seed is fixed, so it passes always or never.
    """
    ours, _, _ = REAL[name]
    names = [k for k in ours.arg_constraints if k in ours.__dict__ or name in ("Beta", "Chi2")]
    leaves = [getattr(ours, k).detach().clone().requires_grad_() for k in names]
    rl.manual_seed(9)
    again = type(ours)(*leaves)
    again.rsample((20_000,)).mean(0).sum().backward()
    got = [p.grad.numpy().copy() for p in leaves]
    exact = [p.detach().requires_grad_() for p in leaves]
    type(ours)(*exact).mean.sum().backward()
    for g, p, leaf in zip(got, exact, leaves, strict=True):
        want = p.grad.numpy() if p.grad is not None else np.zeros(3)
        np.testing.assert_allclose(
            g, want, atol=0.06 + 0.06 * np.abs(want).max(), err_msg=str(leaf)
        )


def test_categorical():
    p = np.array([[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]])
    d = D.Categorical(rl.tensor(p * 4))
    np.testing.assert_allclose(d.probs.numpy(), p)
    np.testing.assert_allclose(d.log_prob(rl.tensor([2, 1])).numpy(), np.log([0.5, 0.9]))
    np.testing.assert_allclose(
        d.log_prob(rl.tensor([[1], [2]])).exp().numpy(), [[0.3, 0.9], [0.5, 0.1]]
    )
    np.testing.assert_allclose(d.entropy().numpy(), stats.entropy(p, axis=1), rtol=1e-6)
    assert d.mode.tolist() == [2, 1]
    rl.manual_seed(3)
    drawn = d.sample((10_000,))
    assert (drawn.shape, drawn.dtype) == ((10_000, 2), rl.int64)
    np.testing.assert_allclose([(drawn.numpy() == k).mean(0) for k in range(3)], p.T, atol=0.02)
    assert d.enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert d.expand((4, 2)).sample().shape == (4, 2)
    assert D.Categorical(logits=rl.zeros(5)).perplexity().item() == pytest.approx(5)


def test_one_hot_and_multinomial():
    p = rl.tensor([0.2, 0.3, 0.5], dtype=F64, requires_grad=True)
    one = D.OneHotCategoricalStraightThrough(p)
    drawn = one.rsample((7,))
    assert drawn.sum(-1).tolist() == pytest.approx([1.0] * 7)
    (drawn * t(1, 2, 3)).sum().backward()
    assert p.grad.abs().sum().item() > 0
    assert one.log_prob(t(0, 0, 1)).item() == pytest.approx(np.log(0.5))
    several = D.Multinomial(6, p.detach())
    theirs = stats.multinomial(6, [0.2, 0.3, 0.5])
    assert several.log_prob(t(1, 2, 3)).item() == pytest.approx(theirs.logpmf([1, 2, 3]))
    assert several.entropy().item() == pytest.approx(theirs.entropy())
    rl.manual_seed(4)
    counts = several.sample((5000,)).numpy()
    assert (counts.sum(-1) == 6).all()
    np.testing.assert_allclose(counts.mean(0), [1.2, 1.8, 3.0], atol=0.06)


def test_dirichlet():
    a = [0.5, 2.0, 4.0]
    d, theirs = D.Dirichlet(t(*a)), stats.dirichlet(a)
    x = [0.2, 0.3, 0.5]
    assert d.log_prob(t(*x)).item() == pytest.approx(theirs.logpdf(x))
    assert d.entropy().item() == pytest.approx(theirs.entropy())
    np.testing.assert_allclose(d.mean.numpy(), theirs.mean())
    np.testing.assert_allclose(d.variance.numpy(), theirs.var())
    assert (d.batch_shape, d.event_shape, d.expand((4,)).rsample((2,)).shape) == (
        (),
        (3,),
        (2, 4, 3),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Normal(0.0, -1.0),
        lambda: D.Uniform(1.0, 0.0),
        lambda: D.Bernoulli(1.5),
        lambda: D.Bernoulli(0.5, 0.5),
        lambda: D.Categorical(),
        lambda: D.Gamma(rl.tensor([1.0, 0.0]), 1.0),
        lambda: D.Normal(0.0, 1.0).log_prob(rl.tensor(float("nan"))),
        lambda: D.Poisson(1.0).log_prob(rl.tensor(0.5)),
        lambda: D.Categorical(rl.ones(3)).log_prob(rl.tensor(3)),
        lambda: D.Normal(rl.zeros(3), 1.0).log_prob(rl.zeros(2)),
    ],
)
def test_what_is_no_parameter_or_value_is_refused(make):
    with pytest.raises(ValueError):
        make()


def test_checks_can_be_left_out():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    assert np.isfinite(D.Poisson(1.0, validate_args=False).log_prob(rl.tensor(0.5)).item())
    with pytest.raises(NotImplementedError):
        D.Poisson(1.0).entropy()


def test_numbers_make_a_distribution_of_no_shape(device):
    d = D.Normal(rl.zeros(2, device=device), 1.0)
    assert d.rsample((3,)).device.type == device
    assert D.Gamma(rl.ones(2, device=device), 2.0).log_prob(rl.ones(2, device=device)).shape == (2,)
    assert D.Normal(0.0, 1.0).sample().shape == ()
