"""Constraints: sets of parameters or values. `check` tells whether each value is inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributions.public import ops
from rushlight.ops.family import read_back
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


_FEW = 64  # elements that are read in less time than a kernel takes to combine them


def _few(value: Any) -> list[Any] | None:
    """The elements of a small tensor, where the host need not wait for them; else None."""
    spec = value._spec
    limits = spec.device.device.limits
    if spec.numel > _FEW or spec.hidden or limits.asynchronous or not limits.computes:
        return None
    return read_back.read(value)


def everywhere(condition: Any) -> bool:
    """Whether all bools are true; inside `vmap`, for every example.

    True on a device that computes nothing.
    """
    whole: Any = physical_of(condition)
    if not whole._spec.device.device.limits.computes:
        return True
    bools = _few(whole)
    return bool(whole.all()) if bools is None else all(bools)


class Constraint:
    """A set; the last `event_dim` dimensions are one value of it."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """A bool for each value."""
        raise NotImplementedError

    def holds(self, value: Any) -> bool:
        """Whether every value is inside."""
        return everywhere(self.check(value))

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_").lower()


class _Test(Constraint):
    """A set given by a predicate."""

    def __init__(
        self, name: str, test: Callable[[Any], Any], event_dim: int = 0, is_discrete: bool = False
    ) -> None:
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


@memo
def _is_between(number: Value, lower: Any, upper: Any, ends: str, is_discrete: bool) -> Any:
    value: Any = number
    held = value == value
    if lower is not None:
        held = held & ((value >= lower) if ends[0] == "[" else (value > lower))
    if upper is not None:
        held = held & ((value <= upper) if ends[1] == "]" else (value < upper))
    return held & (value == value.floor()) if is_discrete and value.dtype.kind == "f" else held


class _Between(Constraint):
    """Numbers between two bounds."""

    def __init__(
        self,
        name: str,
        lower_bound: Any,
        upper_bound: Any,
        ends: str = "[]",
        is_discrete: bool = False,
    ) -> None:
        self.name, self.lower_bound, self.upper_bound = name, lower_bound, upper_bound
        self.ends, self.is_discrete = ends, is_discrete

    def check(self, value: Any) -> Any:
        return _is_between(
            value, self.lower_bound, self.upper_bound, self.ends, bool(self.is_discrete)
        )

    def holds(self, value: Any) -> bool:
        low, high = self.lower_bound, self.upper_bound
        exact = value._spec.dtype.kind in "iu" and low.__class__ is int and high.__class__ is int
        if exact and self.ends == "[]" and type(self).check is _Between.check:
            numbers = _few(value)
            if numbers is not None:
                return not numbers or (low <= min(numbers) and max(numbers) <= high)
        return super().holds(value)

    def __repr__(self) -> str:
        return f"{self.name}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Independent(Constraint):
    """A set whose values are several of another set, along more dimensions."""

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
    """A set for each index of a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        dims = max(c.event_dim for c in self.cseq)
        return dims + (self.dim + dims < 0)

    def check(self, value: Any) -> Any:
        return ops.stack(
            [c.check(v) for c, v in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim
        )


class _Cat(Constraint):
    """A set for each range of a dimension."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.cseq)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        parts = value.split(self.lengths, self.dim)
        return ops.cat([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


class _GreaterThan(_Between):
    """Numbers greater than a bound."""

    def __init__(self, lower_bound: Any) -> None:
        super().__init__("GreaterThan", lower_bound, None, "(]")


class _GreaterThanEq(_Between):
    """Numbers greater than or equal to a bound."""

    def __init__(self, lower_bound: Any) -> None:
        super().__init__("GreaterThanEq", lower_bound, None)


class _LessThan(_Between):
    """Numbers less than a bound."""

    def __init__(self, upper_bound: Any) -> None:
        super().__init__("LessThan", None, upper_bound, "[)")


class _Interval(_Between):
    """Numbers in a closed interval."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("Interval", lower_bound, upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers in a half-open interval."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("HalfOpenInterval", lower_bound, upper_bound, "[)")


class _IntegerInterval(_Between):
    """Integers in a closed interval."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("IntegerInterval", lower_bound, upper_bound, is_discrete=True)


class _IntegerGreaterThan(_Between):
    """Integers greater than or equal to a bound."""

    def __init__(self, name: str, lower_bound: Any) -> None:
        super().__init__(name, lower_bound, None, is_discrete=True)


class _Multinomial(Constraint):
    """Counts whose sum is at most a bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class MixtureSameFamilyConstraint(Constraint):
    """The set of a mixture's components, for values without their dimension."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        held = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return held.all(-1)


@memo
def _is_simplex(vector: Value) -> Any:
    v: Any = vector
    return (v >= 0).all(-1) & ((v.sum(-1) - 1).abs() < _NEAR)


_NEAR = 1e-6


class _Vectors(_Test):
    """A simplex, of which small ones are checked on the host."""

    def holds(self, value: Any) -> bool:
        numbers = _few(value)
        if numbers is None or not numbers or value.dim() < 1:
            return super().holds(value)
        width = value.shape[-1]
        rows = [numbers[i : i + width] for i in range(0, len(numbers), width)]
        return all(min(row) >= 0 and abs(sum(row) - 1) < _NEAR for row in rows)


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
    # Nonfinite matrices are outside; LAPACK would refuse the whole batch for one.
    finite = v.isfinite().flatten(-2).all(-1)
    safe = ops.where(finite[..., None, None], v, 0.0)
    if inclusive:
        return (
            finite
            & _is_symmetric(v)
            & (ops.linalg_eigvalsh((safe + safe.mT) / 2).amin(-1) >= -1e-6)
        )
    return finite & _is_symmetric(v) & (ops.linalg_cholesky_ex(safe)[1] == 0)


def _set(
    name: str,
    test: Callable[[Any], Any],
    event_dim: int = 0,
    is_discrete: bool = False,
    kind: type[_Test] = _Test,
) -> Constraint:
    """A set with its own class, by which transforms to it are registered."""
    spelled = "".join(word.capitalize() for word in name.split("_"))

    def make(self: _Test) -> None:
        _Test.__init__(self, name, test, event_dim, is_discrete)

    body = {"__doc__": f"The set {name}.", "__init__": make, "__reduce__": lambda self: name}
    own: Any = type(f"_{spelled}", (kind,), body)
    return own()


dependent = _Dependent()
independent = _Independent
stack = _Stack
cat = _Cat
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
multinomial = _Multinomial
boolean = _set("boolean", lambda v: (v == 0) | (v == 1), is_discrete=True)
one_hot = _set("one_hot", _is_one_hot, 1, is_discrete=True)
nonnegative_integer = _IntegerGreaterThan("nonnegative_integer", 0)
positive_integer = _IntegerGreaterThan("positive_integer", 1)
real = _set("real", lambda v: v == v)
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _set("simplex", _is_simplex, 1, kind=_Vectors)
lower_triangular = _set("lower_triangular", _is_lower, 2)
lower_cholesky = _set("lower_cholesky", _is_lower_cholesky, 2)
corr_cholesky = _set("corr_cholesky", _is_corr_cholesky, 2)
square = _set("square", lambda v: (v[..., 0, 0] == v[..., 0, 0]) & (v.shape[-1] == v.shape[-2]), 2)
symmetric = _set("symmetric", _is_symmetric, 2)
positive_semidefinite = _set("positive_semidefinite", lambda v: _is_positive(v, inclusive=True), 2)
positive_definite = _set("positive_definite", lambda v: _is_positive(v, inclusive=False), 2)


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on other parameters."""
    return isinstance(constraint, _Dependent)
