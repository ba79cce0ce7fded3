"""Sets of values: what a parameter may be, where a distribution has its mass. `check` tells for each value if it is inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributions.public import ops
from rushlight.tape.batching import physical_of


def everywhere(condition: Any) -> bool:
    """Whether truth values are all true; inside `vmap`, for every example."""
    whole: Any = physical_of(condition)
    return bool(whole.all())


class Constraint:
    """A set; `event_dim` dimensions at the right are one value of it."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """Truth values, one for each value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_").lower()


class _Test(Constraint):
    """A set given by a function."""

    def __init__(self, name: str, test: Callable[[Any], Any], event_dim: int = 0, is_discrete: bool = False) -> None:
        self.name, self.test, self.event_dim, self.is_discrete = name, test, event_dim, is_discrete

    def check(self, value: Any) -> Any:
        return self.test(value)

    def __repr__(self) -> str:
        return self.name


class _Dependent(Constraint):
    """A set that depends on other parameters: nothing is checked here."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def check(self, x: Any) -> Any:
        raise ValueError("a set that depends on other parameters has no check of its own")


class dependent_property(property, _Dependent):
    """A property of a distribution whose value is a set."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Between(Constraint):
    """Numbers between two bounds."""

    def __init__(
        self, name: str, lower_bound: Any, upper_bound: Any, ends: str = "[]", is_discrete: bool = False
    ) -> None:
        self.name, self.lower_bound, self.upper_bound = name, lower_bound, upper_bound
        self.ends, self.is_discrete = ends, is_discrete

    def check(self, value: Any) -> Any:
        held = value == value
        if self.lower_bound is not None:
            held = held & ((value >= self.lower_bound) if self.ends[0] == "[" else (value > self.lower_bound))
        if self.upper_bound is not None:
            held = held & ((value <= self.upper_bound) if self.ends[1] == "]" else (value < self.upper_bound))
        return held & (value == value.floor()) if self.is_discrete and value.dtype.kind == "f" else held

    def __repr__(self) -> str:
        return f"{self.name}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Independent(Constraint):
    """Another set, values of which make one in more dimensions."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        held = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            held = held.all(-1)
        return held


class _Stack(Constraint):
    """A set for each place along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    def check(self, value: Any) -> Any:
        return ops.stack([c.check(v) for c, v in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)


class _Cat(Constraint):
    """A set for each stretch along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.cseq)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    def check(self, value: Any) -> Any:
        parts = value.split(self.lengths, self.dim)
        return ops.cat([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above a bound."""
    return _Between("GreaterThan", lower_bound, None, "(]")


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers from a bound on."""
    return _Between("GreaterThanEq", lower_bound, None)


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below a bound."""
    return _Between("LessThan", None, upper_bound, "[)")


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to another."""
    return _Between("Interval", lower_bound, upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one bound to below another."""
    return _Between("HalfOpenInterval", lower_bound, upper_bound, "[)")


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers from one bound to another."""
    return _Between("IntegerInterval", lower_bound, upper_bound, is_discrete=True)


def multinomial(upper_bound: Any) -> Constraint:
    """Counts with a given sum."""
    return _Test("multinomial", lambda v: (v >= 0).all(-1) & (v.sum(-1) <= upper_bound), 1, is_discrete=True)


def _is_simplex(v: Any) -> Any:
    return (v >= 0).all(-1) & ((v.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(v: Any) -> Any:
    return ((v == 0) | (v == 1)).all(-1) & (v.sum(-1) == 1)


def _is_lower(v: Any) -> Any:
    return (v.tril() == v).flatten(-2).all(-1)


def _is_lower_cholesky(v: Any) -> Any:
    return _is_lower(v) & (v.diagonal(0, -2, -1) > 0).all(-1)


def _is_corr_cholesky(v: Any) -> Any:
    rows = ((v.square().sum(-1).sqrt() - 1).abs() < 10 * v.shape[-1] * 2.0**-23).all(-1)
    return rows & _is_lower_cholesky(v)


def _is_symmetric(v: Any) -> Any:
    return ((v - v.mT).abs() <= 1e-6 + 1e-5 * v.mT.abs()).flatten(-2).all(-1)


def _is_positive(v: Any, inclusive: bool) -> Any:
    least = ops.linalg_eigvalsh((v + v.mT) / 2).amin(-1)
    return _is_symmetric(v) & ((least >= -1e-6) if inclusive else (least > 0))


dependent = _Dependent()
independent = _Independent
stack = _Stack
cat = _Cat
boolean = _Test("boolean", lambda v: (v == 0) | (v == 1), is_discrete=True)
one_hot = _Test("one_hot", _is_one_hot, 1, is_discrete=True)
nonnegative_integer = _Between("nonnegative_integer", 0, None, is_discrete=True)
positive_integer = _Between("positive_integer", 1, None, is_discrete=True)
real = _Test("real", lambda v: v == v)
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Test("simplex", _is_simplex, 1)
lower_triangular = _Test("lower_triangular", _is_lower, 2)
lower_cholesky = _Test("lower_cholesky", _is_lower_cholesky, 2)
corr_cholesky = _Test("corr_cholesky", _is_corr_cholesky, 2)
square = _Test("square", lambda v: (v[..., 0, 0] == v[..., 0, 0]) & (v.shape[-1] == v.shape[-2]), 2)
symmetric = _Test("symmetric", _is_symmetric, 2)
positive_semidefinite = _Test("positive_semidefinite", lambda v: _is_positive(v, inclusive=True), 2)
positive_definite = _Test("positive_definite", lambda v: _is_positive(v, inclusive=False), 2)


def is_dependent(constraint: Any) -> bool:
    """Whether a set is known only with the other parameters."""
    return isinstance(constraint, _Dependent)
