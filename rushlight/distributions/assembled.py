"""Transforms made of others, by a distribution, and to Cholesky factors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.distributions import constraints
from rushlight.distributions.public import eps, ops, softplus, sum_last
from rushlight.distributions.transforms import LowerCholeskyTransform, Transform
from rushlight.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix


class _Several(Transform):
    """A transform for each piece along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError(
                f"{type(self).__name__}: a sequence of transforms is expected, got {tseq!r}"
            )
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    @property
    def length(self) -> int:
        """The length of the dimension."""
        return len(self.transforms)

    def _check(self, x: Any) -> None:
        if not -x.dim() <= self.dim < x.dim() or x.shape[self.dim] != self.length:
            raise AssertionError(
                f"{type(self).__name__}: dimension {self.dim} of a value of shape {list(x.shape)} "
                f"must have length {self.length}"
            )

    def _same(self, other: Any) -> bool:
        return bool(self.dim == other.dim and self.transforms == other.transforms)


class CatTransform(_Several):
    """A transform for each range of a dimension, joined as by `cat`."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"CatTransform: {len(self.transforms)} transforms and {len(self.lengths)} lengths"
            )
        parts = self.transforms
        self.domain = constraints.cat([t.domain for t in parts], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in parts], dim, self.lengths)

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def _pieces(self, x: Any) -> Any:
        self._check(x)
        return zip(self.transforms, x.split(self.lengths, self.dim), strict=True)

    def _call(self, x: Any) -> Any:
        return ops.cat([t(part) for t, part in self._pieces(x)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.cat([t._inv_call(part) for t, part in self._pieces(y)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        dims = self.event_dim
        terms = [
            sum_last(t.log_abs_det_jacobian(before, after), dims - t.event_dim)
            for (t, before), (_, after) in zip(self._pieces(x), self._pieces(y), strict=True)
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + dims
        # Inside an event they add up.
        return ops.cat(terms, dim) if dim < 0 else sum(terms[1:], terms[0])


class StackTransform(_Several):
    """A transform for each index of a dimension, joined as by `stack`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)

    def _pieces(self, x: Any) -> Any:
        self._check(x)
        return zip(self.transforms, x.unbind(self.dim), strict=True)

    def _call(self, x: Any) -> Any:
        return ops.stack([t(part) for t, part in self._pieces(x)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.stack([t._inv_call(part) for t, part in self._pieces(y)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        both = zip(self._pieces(x), self._pieces(y), strict=True)
        return ops.stack(
            [t.log_abs_det_jacobian(before, after) for (t, before), (_, after) in both], self.dim
        )


class CumulativeDistributionTransform(Transform):
    """A distribution's cumulative distribution function as a transform."""

    bijective = True
    sign = 1
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def _same(self, other: Any) -> bool:
        return self.distribution is other.distribution


class CorrCholeskyTransform(Transform):
    """The Cholesky factor of a correlation matrix, from D (D - 1) / 2 numbers.

    Row by row: tanh of each number is its signed share of the norm that the elements before it
    leave of 1, and the diagonal takes the rest.
    """

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    def _call(self, x: Any) -> Any:
        most = 1 - eps(x)
        shares = vec_to_tril_matrix(x.tanh().clamp(min=-most, max=most), -1)
        left = (1 - shares * shares).sqrt().cumprod(-1)
        one = ops.ones_like(left[..., :1])
        shares = shares + ops.eye(shares.shape[-1], dtype=x.dtype, device=x.device)
        return shares * ops.cat([one, left[..., :-1]], -1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        before = ops.cat([ops.ones_like(left[..., :1]), left[..., :-1]], -1)
        share = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(before, -1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        of_tanh = (2 * (math.log(2.0) - x - softplus(-2 * x))).sum(-1)
        if y.shape[-1] == 2:  # one number has the whole norm
            return of_tanh
        return tril_matrix_to_vec(1 - (y * y).cumsum(-1), -2).log().sum(-1) / 2 + of_tanh

    def forward_shape(self, shape: Any) -> Any:
        count = shape[-1]
        n = round(math.sqrt(0.25 + 2 * count) + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError(
                f"CorrCholeskyTransform: {count} numbers do not fill a triangle below a diagonal"
            )
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(
                f"CorrCholeskyTransform: a square matrix is expected, got shape {list(shape)}"
            )
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class PositiveDefiniteTransform(Transform):
    """A positive definite matrix from any square one, through its Cholesky factor."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform()._inv_call(ops.linalg_cholesky(y))
