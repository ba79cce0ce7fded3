"""Transforms by constraint: `biject_to`, one to one, and `transform_to`, onto it.

A constraint's class decides; rules for more are registered with
`biject_to.register(constraint, rule)` or as a decorator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.distributions import assembled, constraints as c, transforms as t

Rule = Callable[[Any], t.Transform]


class ConstraintRegistry:
    """Rules that make a transform from unconstrained numbers to a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Rule] = {}

    def register(self, constraint: Any, factory: Rule | None = None) -> Any:
        """Register a rule for the class of a constraint; without a rule, a decorator."""
        if factory is None:
            return lambda rule: self.register(constraint, rule)
        kind = type(constraint) if isinstance(constraint, c.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, c.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform to a constraint."""
        rule = self._registry.get(type(constraint))
        if rule is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints: register a rule, or "
                "transform by hand"
            )
        return rule(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _above(constraint: Any) -> t.Transform:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(constraint.lower_bound, 1)])


def _below(constraint: Any) -> t.Transform:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(constraint.upper_bound, -1)])


def _between(constraint: Any) -> t.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if all(isinstance(bound, (int, float)) for bound in (low, high)) and (low, high) == (0, 1):
        return t.SigmoidTransform()
    return t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(low, high - low)])


def _register_common(registry: ConstraintRegistry) -> None:
    """The rules of both registries; constraints made of others look up theirs in the registry."""
    registry.register(c.real, lambda _: t.identity_transform)
    registry.register(
        c.independent,
        lambda k: t.IndependentTransform(registry(k.base_constraint), k.reinterpreted_batch_ndims),
    )
    registry.register(c.greater_than, _above)
    registry.register(c.greater_than_eq, _above)
    registry.register(c.less_than, _below)
    registry.register(c.interval, _between)
    registry.register(c.half_open_interval, _between)
    registry.register(c.corr_cholesky, lambda _: assembled.CorrCholeskyTransform())
    registry.register(
        c.cat,
        lambda k: assembled.CatTransform([registry(each) for each in k.cseq], k.dim, k.lengths),
    )
    registry.register(
        c.stack, lambda k: assembled.StackTransform([registry(each) for each in k.cseq], k.dim)
    )


for _registry in (biject_to, transform_to):
    _register_common(_registry)
biject_to.register(c.simplex, lambda _: t.StickBreakingTransform())
transform_to.register(c.simplex, lambda _: t.SoftmaxTransform())
transform_to.register(c.lower_cholesky, lambda _: t.LowerCholeskyTransform())
for _kind in (c.positive_definite, c.positive_semidefinite):
    transform_to.register(_kind, lambda _: assembled.PositiveDefiniteTransform())
