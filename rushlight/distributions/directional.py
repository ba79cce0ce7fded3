"""The von Mises distribution: the normal distribution of directions in the plane."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, draw_like
from rushlight.distributions.public import all_numbers, broadcast_all, ops, tiny
from rushlight.tape.record.state import no_grad


class VonMises(Distribution):
    """Angles around `loc`, with density proportional to exp(concentration cos(x - loc))."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        shape = () if all_numbers(loc, concentration) else self.loc.shape
        super().__init__(shape, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        # exp(-k) I0(k) does not overflow; cos(d) - 1 as a square loses no digits near the mode.
        half = (0.5 * (value - self.loc)).sin()
        return (
            -2 * self.concentration * half.square()
            - (2 * math.pi * ops.i0e(self.concentration)).log()
        )

    def sample(self, sample_shape: Any = ()) -> Any:
        """By Best and Fisher's rejection from a wrapped Cauchy distribution (1979)."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.expand(shape)
            root = (1 + 4 * k.square()).sqrt()
            tau = (1 + root).sqrt()
            rho = tau * 2 * k / ((tau + math.sqrt(2)) * (root + 1))
            over = (1 - rho).square() / (2 * rho)  # r - 1, r = (1 + rho^2) / (2 rho)
            found = ops.zeros_like(k)
            open_ = ops.ones_like(k).bool()
            while constraints.everywhere(~open_) is False:
                u, v, side = (draw_like(k, shape) for _ in range(3))
                away = 2 * (0.5 * math.pi * u).sin().square()  # 1 - z, z = cos(pi u)
                less = over * away / (2 + over - away)  # 1 - f
                c = k * (over + less)
                v = v.clamp(min=tiny(v))
                fits = (c * (2 - c) > v) | ((c / v).log() + 1 >= c)
                angle = 2 * (0.5 * less).clamp(max=1).sqrt().asin()
                angle = ops.where(side < 0.5, -angle, angle)
                found = ops.where(open_ & fits, angle, found)
                open_ = open_ & ~fits
            turned = found + math.pi + self.loc
            return ops.remainder(turned, 2 * math.pi) - math.pi

    @property
    def mean(self) -> Any:
        """The mean direction."""
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        """The circular variance, 1 - I1(k) / I0(k)."""
        return 1 - ops.i1e(self.concentration) / ops.i0e(self.concentration)

    def entropy(self) -> Any:
        k = self.concentration
        scaled = ops.i0e(k)
        return (2 * math.pi * scaled).log() + k * (1 - ops.i1e(k) / scaled)
