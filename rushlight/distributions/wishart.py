"""The Wishart distribution: sums of outer products of normal vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.core.dtypes import get_default
from rushlight.distributions import constraints
from rushlight.distributions.distribution import ExponentialFamily, draw_like
from rushlight.distributions.public import lazy_property, ops
from rushlight.tape.record.state import no_grad
from rushlight.tape.record.value import Value
from rushlight.tensor import tensor


class Wishart(ExponentialFamily):
    """The distribution of the sum of x x^T over `df` normal vectors of a covariance.

    `df` may be any number above size - 1.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _parameter_dims: ClassVar[dict[str, int]] = {"_unbroadcasted_scale_tril": 2}

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        named = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in named.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError(
                "Wishart: exactly one of covariance_matrix, precision_matrix, scale_tril is needed"
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(
                f"Wishart: {name} must be a square matrix, got shape {tuple(matrix.shape)}"
            )
        n = matrix.shape[-1]
        matrix = matrix if matrix.dtype.kind == "f" else matrix.to(get_default())
        if not isinstance(df, Value):
            df = tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        number: Any = df.to(matrix.dtype)
        batch = tuple(ops.broadcast_tensors(number, matrix[..., 0, 0])[0].shape)
        self.df = number.expand(batch)
        self.__dict__[name] = matrix.expand(*batch, n, n)
        super().__init__(batch, (n, n), validate_args=validate_args)
        if self._validate_args and not constraints.everywhere(self.df > n - 1):
            raise ValueError(
                f"Wishart: df must be above {n - 1}, one less than the size of its matrices, got "
                f"{df}"
            )
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = ops.linalg_cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = ops.linalg_cholesky(ops.linalg_inv(matrix))

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(*self._batch_shape, *self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance of the normal vectors."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return ops.linalg_inv(self.covariance_matrix)

    @property
    def _size(self) -> int:
        return self._event_shape[-1]

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self._size - 1
        factor = ops.where(factor <= 0, math.nan, factor)
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(0, -2, -1)
        return self.df[..., None, None] * (
            v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        )

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Any:
        """Bartlett's decomposition. Samples that rounding made singular are drawn again.

        That is done at most `max_try_correction` times.
        """
        drawn = self._drawn(sample_shape)
        for _ in range(3 if max_try_correction is None else max_try_correction):
            inside = self.support.check(drawn)
            if constraints.everywhere(inside):
                break
            drawn = ops.where(inside[..., None, None], drawn, self._drawn(sample_shape))
        return drawn

    def _drawn(self, sample_shape: Any) -> Any:
        n = self._size
        shape = self._extended_shape(sample_shape)
        lead = shape[:-2]
        below = draw_like(self.df, shape, "randn").tril(-1)
        steps = ops.arange(n, device=self.df.device).to(self.df.dtype)
        halves = (0.5 * (self.df.unsqueeze(-1) - steps)).expand(*lead, n)
        chi = (2 * ops._standard_gamma(halves)).sqrt()  # of n degrees of freedom less 0, 1, ...
        factor = self._unbroadcasted_scale_tril @ (below + chi.diag_embed())
        whole = factor @ factor.mT
        return 0.5 * (whole + whole.mT)  # symmetric to the last bit

    def sample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Any:
        with no_grad():
            return self.rsample(sample_shape, max_try_correction)

    def _log_diagonal(self) -> Any:
        """Half the log determinant of the covariance."""
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n, df = self._size, self.df
        lower = self.scale_tril
        whole = value.expand(*ops.broadcast_tensors(value[..., 0, 0], df)[0].shape, n, n)
        lower = lower.expand(whole.shape)
        # The trace of covariance^-1 value, as that of L^-1 value L^-T.
        half = ops.linalg_solve_triangular(lower, whole, upper=False)
        trace = ops.linalg_solve_triangular(lower, half.mT, upper=False).diagonal(0, -2, -1).sum(-1)
        rest = 0.5 * (df - n - 1) * ops.slogdet(value)[1] - 0.5 * trace - ops.mvlgamma(0.5 * df, n)
        return rest - df * (0.5 * n * math.log(2) + self._log_diagonal())

    def _digammas(self) -> Any:
        steps = ops.arange(self._size, device=self.df.device).to(self.df.dtype)
        return (0.5 * (self.df.unsqueeze(-1) - steps)).digamma().sum(-1)

    def entropy(self) -> Any:
        n, df = self._size, self.df
        size = (n + 1) * (0.5 * n * math.log(2) + self._log_diagonal())
        return (
            size + ops.mvlgamma(0.5 * df, n) - 0.5 * (df - n - 1) * self._digammas() + 0.5 * n * df
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -0.5 * self.precision_matrix, 0.5 * (self.df - self._size - 1)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        n = x.shape[-1]
        half = y + 0.5 * (n + 1)
        return -half * ops.slogdet(-x)[1] + ops.mvlgamma(half, n)
