"""Distributions: gradients in the tails, samples at the edges, and members that subclasses use."""

from __future__ import annotations

import math
from typing import Any

import pytest

import rushlight as rl
from rushlight import distributions as D
from rushlight.distributions import utils


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64])
@pytest.mark.parametrize("a", [1e-3, 1e-2, 0.3])
def test_gamma_numbers_of_small_shape_have_gradients(a: float, dtype: Any) -> None:
    shape = rl.full((500,), a, dtype=dtype, requires_grad=True)
    log_x = D.Gamma(shape, 1.0).rsample()
    log_x.sum().backward()
    assert shape.grad.isfinite().all() and (shape.grad >= 0).all()


def test_the_gradient_of_a_gamma_number_keeps_its_rank() -> None:
    # Far below the mean, P(a, x) is x ** a / gamma(a + 1): log x has the derivative (digamma(a + 1)
    # - log x) / a.
    a = rl.full((2000,), 0.05, dtype=rl.float64, requires_grad=True)
    x = D.Gamma(a, 1.0).rsample()
    x.sum().backward()
    low = x.detach() < 1e-9
    assert low.any()
    wanted = (rl.digamma(a.detach() + 1) - x.detach().log()) / a.detach() * x.detach()
    assert rl.allclose(a.grad[low], wanted[low], rtol=1e-8)


def test_beta_numbers_stay_inside() -> None:
    for dtype in (rl.float32, rl.float64):
        x = D.Beta(rl.tensor(1e-3, dtype=dtype), 1e-3).sample((2000,))
        assert (x > 0).all() and (x < 1).all()


def test_parameters_that_are_computed_keep_their_gradients() -> None:
    logits = rl.tensor([0.0, 1.0], requires_grad=True)
    known = D.OneHotCategoricalStraightThrough(logits=logits)
    with rl.no_grad():
        assert known.probs.requires_grad
    assert known.rsample().requires_grad
    matrix = rl.eye(2, requires_grad=True)
    normal = D.MultivariateNormal(rl.zeros(2), precision_matrix=matrix)
    with rl.no_grad():
        assert normal.covariance_matrix.shape == (2, 2)
    normal.covariance_matrix.sum().backward()
    assert matrix.grad is not None


def test_extreme_odds_have_finite_densities() -> None:
    for value, logits in ((1.0, 1e9), (0.0, -1e9)):
        density = D.ContinuousBernoulli(logits=rl.tensor([logits])).log_prob(rl.tensor([value]))
        assert density.item() == pytest.approx(2.7690, abs=1e-3)


def test_what_is_checked() -> None:
    with pytest.raises(ValueError, match="df"):
        D.Chi2(rl.tensor([0.0, 1.0]))
    assert D.Gamma(1.0, 1.0).log_prob(0).item() == 0.0
    assert D.Wishart(2, rl.tensor([[1]])).sample().shape == (1, 1)
    w = D.Wishart(rl.tensor(3.0), rl.eye(3)).sample((50,))
    assert rl.equal(w, w.mT)


def test_inverse_gammas_diverge_as_gammas_do() -> None:
    pairs = [(kind(2.0, 3.0), kind(1.0, 2.0)) for kind in (D.Gamma, D.InverseGamma)]
    first, second = (D.kl_divergence(p, q).item() for p, q in pairs)
    assert first == second == pytest.approx(0.1616, abs=1e-4)


def test_exponential_numbers_are_those_of_the_method() -> None:
    rl.manual_seed(3)
    drawn = rl.empty(5).exponential_()
    rl.manual_seed(3)
    assert rl.equal(D.Exponential(rl.full((5,), 2.0)).sample(), drawn / 2.0)


def test_what_writers_of_distributions_use() -> None:
    matrix = rl.arange(16.0).reshape(4, 4)
    for diagonal in (-2, -1, 0, 1):
        line = utils.tril_matrix_to_vec(matrix, diagonal)
        assert rl.equal(utils.vec_to_tril_matrix(line, diagonal), matrix.tril(diagonal))
    with pytest.raises(ValueError):
        utils.vec_to_tril_matrix(rl.ones(4))
    a, b = utils.broadcast_all(1.0, rl.zeros(2))
    assert a.shape == b.shape == (2,)
    assert utils.logits_to_probs(
        utils.probs_to_logits(rl.tensor(0.25), True), True
    ).item() == pytest.approx(0.25)

    class Made:
        times = 0

        @utils.lazy_property
        def half(self) -> float:
            self.times += 1
            return math.pi / 2

    made = Made()
    assert made.half == made.half and made.times == 1


def test_transforms_turned_round_and_put_together() -> None:
    power = D.PowerTransform(2.0)
    turned = power.inv
    assert turned.inv is power and power.inv is turned
    assert D.identity_transform == D.identity_transform.inv
    assert D.transforms.StackTransform is D.StackTransform
    x = rl.tensor([0.5, 2.0])
    kept = turned.with_cache(1)
    assert kept(x) is kept(x)
    both = D.ComposeTransform([D.ExpTransform(), D.ReshapeTransform((2, 3), (6,))])
    assert both.domain.event_dim == 2 and both.codomain.event_dim == 1
    assert both.inv(both(rl.ones(4, 2, 3))).shape == (4, 2, 3)
    assert both.log_abs_det_jacobian(rl.ones(4, 2, 3), rl.ones(4, 6)).tolist() == [6.0] * 4
    with pytest.raises(NotImplementedError):
        assert D.SoftmaxTransform().sign


def test_transformed_distributions_have_the_shapes_of_their_transforms() -> None:
    moved = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(rl.zeros(4, 5), 1.0)])
    assert moved.batch_shape == (4, 5) and moved.sample((7,)).shape == (7, 4, 5)
    assert len(set(moved.sample().reshape(-1).tolist())) == 20
    shaped = D.TransformedDistribution(
        D.Normal(rl.zeros(3, 4, 5), 1.0), [D.ReshapeTransform((4, 5), (20,))]
    )
    assert (
        shaped.batch_shape == (3,) and shaped.event_shape == (20,) and shaped.support.event_dim == 1
    )
    assert shaped.log_prob(rl.zeros(3, 20)).shape == (3,)
    with pytest.raises(ValueError, match="dimensions"):
        D.TransformedDistribution(D.Normal(rl.zeros(5), 1.0), [D.ReshapeTransform((4, 5), (20,))])


def test_matrices_that_are_not_finite_lie_outside() -> None:
    for kind in (D.constraints.positive_definite, D.constraints.positive_semidefinite):
        inside = kind.check(rl.stack([rl.eye(2), rl.full((2, 2), math.nan), -rl.eye(2)]))
        assert inside.tolist() == [True, False, False]
    with pytest.raises(ValueError, match="Transforms"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), lambda x: x)
    assert D.Wishart(rl.tensor(2), rl.eye(2)).rsample((3,)).shape == (3, 2, 2)


def test_a_distribution_shows_numbers_and_shapes():
    assert repr(rl.distributions.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert (
        repr(rl.distributions.Categorical(rl.ones(3))) == "Categorical(probs: rushlight.Size([3]))"
    )
