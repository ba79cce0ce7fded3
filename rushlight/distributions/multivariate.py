"""Normal distributions of vectors: with a full covariance, and with low rank plus diagonal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, draw_like
from rushlight.distributions.public import lazy_property, ops


def _half_log_det(lower: Any) -> Any:
    """Half the log determinant, from the Cholesky factor."""
    return lower.diagonal(0, -2, -1).log().sum(-1)


def _precision_to_scale_tril(precision: Any) -> Any:
    """The Cholesky factor of the inverse of a matrix, without the inverse.

    With the rows and columns of P turned round, P = U U^T where U is upper triangular, so that
    U^-T is the lower factor of the inverse.
    """
    turned = ops.linalg_cholesky(ops.flip(precision, (-2, -1)))
    upper = ops.flip(turned, (-2, -1))
    one = ops.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return ops.linalg_solve_triangular(upper.mT, one, upper=False)


def solve_lower(lower: Any, x: Any) -> Any:
    """lower^-1 x of vectors x, broadcast."""
    return ops.linalg_solve_triangular(lower, x.unsqueeze(-1), upper=False).squeeze(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, by covariance, precision or Cholesky factor."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _parameter_dims: ClassVar[dict[str, int]] = {"_unbroadcasted_scale_tril": 2}

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            k: v
            for k, v in (
                ("covariance_matrix", covariance_matrix),
                ("precision_matrix", precision_matrix),
                ("scale_tril", scale_tril),
            )
            if v is not None
        }
        if len(given) != 1:
            raise ValueError(
                "MultivariateNormal: exactly one of covariance_matrix, precision_matrix, "
                "scale_tril is needed"
            )
        ((name, matrix),) = given.items()
        if loc.dim() < 1 or matrix.dim() < 2:
            raise ValueError(
                "MultivariateNormal: loc has at least 1 dimension, the matrix at least 2"
            )
        n = loc.shape[-1]
        if tuple(matrix.shape[-2:]) != (n, n):
            raise ValueError(
                f"MultivariateNormal: {name} of shape {tuple(matrix.shape)} does not fit {n} means"
            )
        batch = tuple(ops.broadcast_tensors(loc[..., 0], matrix[..., 0, 0])[0].shape)
        self.loc = loc.expand(*batch, n)
        self.__dict__[name] = matrix.expand(*batch, n, n)
        super().__init__(batch, (n,), validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = scale_tril
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = ops.linalg_cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(precision_matrix)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        n = self._event_shape[0]
        return self._unbroadcasted_scale_tril.expand(*self._batch_shape, n, n)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return ops.linalg_inv(self.covariance_matrix)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        noise = draw_like(self.loc, self._extended_shape(sample_shape), "randn")
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        away = solve_lower(self._unbroadcasted_scale_tril, value - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + away.square().sum(-1)) - _half_log_det(
            self.scale_tril
        )

    def entropy(self) -> Any:
        n = self._event_shape[0]
        return 0.5 * n * (1 + math.log(2 * math.pi)) + _half_log_det(self.scale_tril)


class LowRankMultivariateNormal(Distribution):
    """A normal distribution with covariance cov_factor cov_factor^T + diag(cov_diag)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        n = loc.shape[-1]
        if cov_factor.dim() < 2 or cov_factor.shape[-2] != n or cov_diag.shape[-1] != n:
            raise ValueError(
                f"LowRankMultivariateNormal: {n} means need factors of shape (..., {n}, rank) and "
                f"a diagonal of {n}, got {tuple(cov_factor.shape)} and {tuple(cov_diag.shape)}"
            )
        shapes = ops.broadcast_tensors(loc[..., 0], cov_factor[..., 0, 0], cov_diag[..., 0])
        batch = tuple(shapes[0].shape)
        self.loc, self.cov_diag = loc.expand(*batch, n), cov_diag.expand(*batch, n)
        self.cov_factor = cov_factor.expand(*batch, n, cov_factor.shape[-1])
        super().__init__(batch, (n,), validate_args=validate_args)

    @property
    def _capacitance_tril(self) -> Any:
        """The Cholesky factor of 1 + W^T D^-1 W."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        rank = self.cov_factor.shape[-1]
        return ops.linalg_cholesky(
            scaled @ self.cov_factor + ops.eye(rank, dtype=self.loc.dtype, device=self.loc.device)
        )

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return ops.linalg_inv(self.covariance_matrix)

    @property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return ops.linalg_cholesky(self.covariance_matrix)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        low = draw_like(self.loc, (*shape[:-1], self.cov_factor.shape[-1]), "randn")
        own = draw_like(self.loc, shape, "randn")
        return (
            self.loc
            + (self.cov_factor @ low.unsqueeze(-1)).squeeze(-1)
            + self.cov_diag.sqrt() * own
        )

    def _log_det(self) -> Any:
        return 2 * _half_log_det(self._capacitance_tril) + self.cov_diag.log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        away = value - self.loc
        seen = ((self.cov_factor.mT / self.cov_diag.unsqueeze(-2)) @ away.unsqueeze(-1)).squeeze(-1)
        distance = (away.square() / self.cov_diag).sum(-1) - solve_lower(
            self._capacitance_tril, seen
        ).square().sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Any:
        return 0.5 * (self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._log_det())
