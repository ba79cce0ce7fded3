"""The Cholesky factor of the inverse of a precision matrix."""

from __future__ import annotations

import numpy as np

import rushlight as rl
from rushlight.distributions import MultivariateNormal
from rushlight.distributions.multivariate import _precision_to_scale_tril


def test_the_factor_of_the_inverse() -> None:
    rl.manual_seed(0)
    x = rl.randn(3, 4, 4, dtype=rl.float64)
    precision = x @ x.mT + rl.eye(4, dtype=rl.float64)
    lower = _precision_to_scale_tril(precision)
    assert rl.equal(lower, lower.tril())
    product = (lower @ lower.mT @ precision).numpy()
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-10)
    near = rl.tensor([[1.0, 0.9999999], [0.9999999, 1.0]], dtype=rl.float64) * 1e8
    made = MultivariateNormal(rl.zeros(2, dtype=rl.float64), precision_matrix=near)
    wanted = np.linalg.inv(near.numpy())
    np.testing.assert_allclose(made.covariance_matrix.numpy(), wanted, rtol=1e-6)
