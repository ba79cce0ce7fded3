"""Rejection samplers, by their distributions; seeds are fixed, so a test passes always or never."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

import rushlight as rl
from rushlight.core.errors import NotDifferentiable, RushlightError
from rushlight.utils.checkpoint import checkpoint

N = 20_000


def fits(drawn: np.ndarray, distribution) -> bool:
    """Pearson's test of counts in cells of about equal chance."""
    edges = np.unique(distribution.ppf(np.linspace(0.03, 0.97, 20)))
    got = np.bincount(np.searchsorted(edges, drawn), minlength=len(edges) + 1)
    chances = np.diff([0, *distribution.cdf(edges), 1]) * drawn.size
    cells = chances > 5
    assert got[~cells].sum() <= 5 + 3 * chances[~cells].sum()
    square = ((got - chances)[cells] ** 2 / chances[cells]).sum()
    return stats.chi2.sf(square, max(cells.sum() - 1, 1)) > 1e-3


@pytest.mark.parametrize("alpha", [0.05, 0.6, 1.0, 3.0, 400.0])
@pytest.mark.parametrize("dtype", [rl.float32, rl.float64])
def test_gamma_numbers_are_of_their_distribution(alpha, dtype):
    rl.manual_seed(3)
    drawn = rl._standard_gamma(rl.full((N,), alpha, dtype=dtype))
    assert drawn.dtype is dtype
    assert stats.kstest(drawn.numpy(), stats.gamma(alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 9.99, 10.0, 37.5, 2e4])
@pytest.mark.parametrize("dtype", [rl.float32, rl.float64])
def test_poisson_counts_are_of_their_distribution(rate, dtype):
    rl.manual_seed(4)
    drawn = rl.poisson(rl.full((N,), rate, dtype=dtype)).numpy()
    assert (drawn == np.floor(drawn)).all()
    assert not drawn.any() if rate == 0 else fits(drawn, stats.poisson(rate))


@pytest.mark.parametrize(
    "n, p", [(1, 0.3), (12, 0.5), (40, 0.97), (40, 0.4), (500, 0.7), (1e6, 2e-6), (1e5, 0.25)]
)
def test_binomial_counts_are_of_their_distribution(n, p):
    rl.manual_seed(5)
    drawn = rl.binomial(rl.full((N,), float(n)), rl.tensor(p)).numpy()
    assert drawn.shape == (N,)
    assert fits(drawn, stats.binom(int(n), p))


def test_the_ends_of_binomial_and_what_is_no_number():
    n = rl.tensor([5.0, 5.0, 0.0, 1e4, 1e4])
    assert rl.binomial(n, rl.tensor([0.0, 1.0, 0.5, 0.0, 1.0])).tolist() == [0, 5, 0, 0, 1e4]
    assert np.isnan(rl.poisson(rl.tensor([float("nan")])).item())
    assert rl._standard_gamma(rl.tensor([0.0])).item() < 1e-37
    assert rl.poisson(rl.zeros(0, 3)).shape == (0, 3)


def test_dirichlet_rows_sum_to_one():
    rl.manual_seed(8)
    alpha = rl.tensor([0.02, 1.0, 5.0]).expand(N, 3)
    drawn = rl._sample_dirichlet(alpha).numpy().astype(np.float64)
    np.testing.assert_allclose(drawn.sum(-1), 1, atol=1e-6)
    want = stats.dirichlet([0.02, 1.0, 5.0])
    np.testing.assert_allclose(drawn.mean(0), want.mean(), atol=5e-3)
    np.testing.assert_allclose(drawn.var(0), want.var(), atol=2e-3)
    tiny = rl._sample_dirichlet(rl.full((100, 2), 1e-4))
    assert tiny.isfinite().all().item()


@pytest.mark.parametrize("draw", ["_standard_gamma", "poisson", "_sample_dirichlet"])
def test_every_device_draws_the_same(device, draw):
    parameters = np.linspace(0.3, 40, 300).reshape(20, 15)

    def on(name):
        rl.manual_seed(9)
        rl.rand(3)
        drawn = getattr(rl, draw)(rl.tensor(parameters, dtype=rl.float32, device=name))
        return drawn.numpy(force=True), rl.rand(2).tolist()

    (here, after), (there, then) = on(device), on("reference")
    np.testing.assert_allclose(here, there, rtol=2e-5, atol=1e-6)
    assert after == then, "the stream went on elsewhere"


def test_binomial_is_the_same_everywhere(device):
    def on(name):
        n = rl.arange(300, dtype=rl.float32, device=name)
        return rl.binomial(
            n, rl.full((300,), 0.3, device=name), generator=rl.Generator().manual_seed(2)
        ).tolist()

    assert on(device) == on("reference")


def test_an_element_depends_on_its_position_alone():
    rl.manual_seed(1)
    whole = rl._standard_gamma(rl.full((50,), 0.7)).tolist()
    rl.manual_seed(1)
    mixed = rl._standard_gamma(rl.where(rl.arange(50) % 2 == 0, 0.7, 90.0)).tolist()
    assert mixed[::2] == whole[::2]
    rl.manual_seed(1)
    assert rl._standard_gamma(rl.full((20,), 0.7)).tolist() == whole[:20]


def slope(a: float, x: float) -> float:
    """-(dP(a, x) / da) / p(x) by differences."""
    h = a * 1e-5
    f = (
        special.gammainc
        if special.gammainc(a, x) < 0.5
        else (lambda a, x: -special.gammaincc(a, x))
    )
    by_a = (8 * (f(a + h, x) - f(a - h, x)) - f(a + 2 * h, x) + f(a - 2 * h, x)) / (12 * h)
    return -by_a / stats.gamma.pdf(x, a)


@pytest.mark.parametrize("dtype, bound", [(rl.float32, 3e-5), (rl.float64, 1e-7)])
def test_the_gradient_of_a_gamma_number_keeps_its_rank(dtype, bound):
    rl.manual_seed(11)
    alpha = rl.tensor(np.geomspace(0.05, 2000, 60), dtype=dtype, requires_grad=True)
    drawn = rl._standard_gamma(alpha)
    drawn.sum().backward()
    want = [slope(a, x) for a, x in zip(alpha.tolist(), drawn.tolist(), strict=True)]
    np.testing.assert_allclose(alpha.grad.numpy(), want, rtol=bound)


def test_the_gradient_of_a_mean_is_that_of_the_expectation():
    rl.manual_seed(12)
    alpha = rl.tensor([0.3, 1.0, 6.0], dtype=rl.float64, requires_grad=True)
    rl._standard_gamma(alpha.expand(N, 3)).mean(0).sum().backward()
    np.testing.assert_allclose(alpha.grad.numpy(), 1, atol=0.06)
    weight = rl.tensor([1.0, 2.0, 4.0], dtype=rl.float64)
    alpha.grad = None
    (rl._sample_dirichlet(alpha.expand(N, 3)) @ weight).mean().backward()
    again = alpha.detach().requires_grad_()
    (again / again.sum() @ weight).backward()
    np.testing.assert_allclose(alpha.grad.numpy(), again.grad.numpy(), atol=0.01)


def test_there_is_no_second_derivative():
    alpha = rl.tensor([2.5], requires_grad=True)
    drawn = rl._standard_gamma(alpha).sum()
    (slope,) = rl.autograd.grad(drawn, alpha, create_graph=True)
    with pytest.raises(NotDifferentiable, match="first"):
        rl.autograd.grad(slope.sum(), alpha)


def test_a_replay_draws_the_same_numbers():
    rl.manual_seed(2)
    x = rl.rand(200, requires_grad=True)
    y = checkpoint(lambda t: rl._standard_gamma(t * 3 + 0.1).square().sum(), x)
    rl.manual_seed(77)
    y.backward()
    got = x.grad.tolist()
    rl.manual_seed(2)
    again = rl.rand(200, requires_grad=True)
    rl._standard_gamma(again * 3 + 0.1).square().sum().backward()
    assert again.grad.tolist() == got


@pytest.mark.parametrize(
    "call",
    [
        lambda: rl.poisson(rl.tensor([-1.0])),
        lambda: rl.poisson(rl.tensor([1])),
        lambda: rl.binomial(rl.tensor([3.0]), rl.tensor([1.5])),
        lambda: rl.binomial(rl.tensor([-3.0]), rl.tensor([0.5])),
        lambda: rl.binomial(rl.tensor([3]), rl.tensor([0.5])),
        lambda: rl.binomial(rl.ones(3), rl.ones(2)),
        lambda: rl._standard_gamma(rl.ones(3, dtype=rl.int64)),
    ],
)
def test_bad_parameters_are_refused(call):
    with pytest.raises(RushlightError):
        call()
