"""LKJCholesky, of correlation matrices by their Cholesky factors, and GeneralizedPareto."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.gammas import Beta
from rushlight.distributions.public import broadcast_all, ops, size_of, tiny
from rushlight.tape.record.state import no_grad


class LKJCholesky(Distribution):
    """Cholesky factors L of correlation matrices; L L' ~ det ** (concentration - 1)."""

    arg_constraints: ClassVar[dict[str, Any]] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(f"LKJCholesky: dim must be an integer of at least 2, got {dim}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _lengths(self) -> Beta:
        """The squared norm of each row before the diagonal; the first row has nothing there."""
        like = self.concentration
        before = (ops.arange(self.dim, dtype=like.dtype, device=like.device) - 1).clamp(min=0)
        beyond = like.unsqueeze(-1) + (self.dim - 2) / 2 - before / 2
        return Beta(before / 2 + 0.5, beyond, validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        """Each row: a random direction of random norm; the rest of 1 is on the diagonal."""
        with no_grad():
            square = self._lengths().sample(sample_shape).unsqueeze(-1)
            shape = (*size_of(sample_shape), *self._batch_shape, *self._event_shape)
            normal = ops.randn(*shape, dtype=square.dtype, device=square.device).tril(-1)
            size = normal.norm(2, dim=-1, keepdim=True)
            rows = square.sqrt() * (normal / ops.where(size > 0, size, ops.ones_like(size)))
            return rows + (1 - rows.square().sum(-1)).clamp(min=tiny(rows)).sqrt().diag_embed()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        like, rest = self.concentration, self.dim - 1
        place = ops.arange(2, self.dim + 1, dtype=like.dtype, device=like.device)
        order = 2 * (like - 1).unsqueeze(-1) + self.dim - place
        density = (order * value.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        alpha = like + rest / 2
        return density - (
            rest / 2 * math.log(math.pi) + ops.mvlgamma(alpha - 0.5, rest) - rest * alpha.lgamma()
        )


class GeneralizedPareto(Distribution):
    """Values beyond `loc`: the tail of many distributions, exponential at concentration 0."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From loc on; where the concentration is negative, up to loc - scale / concentration."""
        exponential, safe = self._shape()
        ends = ~exponential & (safe < 0)
        high = ops.where(ends, self.loc - self.scale / safe, ops.full_like(self.loc, math.inf))
        return constraints.interval(self.loc, high)

    def _shape(self) -> tuple[Any, Any]:
        """Where the concentration counts as 0, and the concentration, with 1 there."""
        exponential = self.concentration.abs() <= 1e-8
        return exponential, ops.where(
            exponential, ops.ones_like(self.concentration), self.concentration
        )

    def _z(self, value: Any) -> Any:
        return (value - self.loc) / self.scale

    @property
    def mean(self) -> Any:
        below = self.concentration < 1
        safe = ops.where(below, self.concentration, ops.full_like(self.concentration, 0.5))
        return ops.where(
            below, self.loc + self.scale / (1 - safe), ops.full_like(self.loc, math.nan)
        )

    @property
    def variance(self) -> Any:
        below = self.concentration < 0.5
        safe = ops.where(below, self.concentration, ops.full_like(self.concentration, 0.25))
        spread = self.scale.square() / ((1 - safe).square() * (1 - 2 * safe))
        return ops.where(below, spread, ops.full_like(self.loc, math.nan))

    @property
    def mode(self) -> Any:
        return self.loc

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = (*size_of(sample_shape), *self._batch_shape)
        return self.icdf(ops.rand(*shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        z = self._z(value)
        exponential, safe = self._shape()
        power = (1 / safe + 1) * ops.ones_like(z)
        tail = ops.where(power == 0, power, power * (safe * z).log1p())
        return -self.scale.log() - ops.where(exponential, z, tail)

    def log_survival_function(self, value: Any) -> Any:
        """The log probability of a greater value."""
        self._validate_sample(value)
        z = self._z(value)
        exponential, safe = self._shape()
        return -ops.where(exponential, z, (safe * z).log1p() / safe)

    def log_cdf(self, value: Any) -> Any:
        """The log probability of a value less or equal."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Any) -> Any:
        return self.log_cdf(value).exp()

    def icdf(self, value: Any) -> Any:
        exponential, safe = self._shape()
        tail = (-value).log1p()
        return self.loc + self.scale * ops.where(exponential, -tail, (-safe * tail).expm1() / safe)

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1
