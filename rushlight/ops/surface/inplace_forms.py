"""In-place forms of ops: `Tensor.<name>_`, by the kind that the op's declaration states."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import DTypeError, RushlightError, ShapeError, SparseOperandError
from rushlight.ops.family.map import Elementwise
from rushlight.ops.family.older import rearranged
from rushlight.ops.index import scatter_onto
from rushlight.ops.pointwise import arithmetic as e, division
from rushlight.ops.pointwise.scaled import scaled
from rushlight.ops.registry import Entry
from rushlight.ops.surface import inplace_views
from rushlight.ops.view import inplace
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value

Method = Callable[..., Any]


def _elementwise(name: str, op: Elementwise) -> Method:
    keyword = "exponent" if name == "pow" else "other"
    arity = op.body.__code__.co_argcount

    def method(self: Value, *others: Any, **named: Any) -> Any:
        if named:
            others = (*others, _only(named, keyword, name))
        try:
            return inplace.apply_inplace(op, self, *others)
        except TypeError:
            if len(others) != arity - 1:
                taken = "1 operand" if arity == 2 else f"{arity - 1} operands"
                raise TypeError(
                    f"{name}_() takes {taken} beside the tensor, got {len(others)}"
                ) from None
            raise

    return method


def _only(named: dict[str, Any], keyword: str, name: str) -> Any:
    for other in named:
        if other != keyword:
            raise TypeError(f"{name}_() got an unexpected keyword argument {other!r}")
    return named[keyword]


def _stored(name: str, function: Callable[..., Any]) -> Method:
    """The in-place form of a composite op: its result replaces the tensor's content."""

    def method(self: Value, *others: Any, **named: Any) -> Any:
        inplace.check_writable(self, f"{name}_")
        # Saved old bits must outlive the write.
        kept = e.clone(self) if STATE.get().grad and edge_of(self) is not None else self
        result = function(kept, *others, **named)
        if result._spec.shape != self._spec.shape:
            raise ShapeError(
                f"{name}_: a result {result._spec!r} does not fit into {self._spec!r} in place"
            )
        if not inplace.holds(self._spec.dtype, result._spec.dtype):
            raise DTypeError(
                f"{name}_: a {result._spec.dtype.name} result cannot be stored in {self._spec!r}"
            )
        if name == "float_power" and result._spec.dtype is not self._spec.dtype:
            raise RushlightError(
                f"{name}_: its result is {result._spec.dtype.name}, got {self._spec!r}; cast it "
                "first"
            )
        return inplace.copy_(self, result)

    return method


def _scattering(name: str, function: Callable[..., Any]) -> Method:
    """The in-place form of an op that writes at indices. See Note [Scattering in place]."""
    usual = _stored(name, function)
    # Below its memo, whose programs do not know the target.
    plain = getattr(function, "__wrapped__", function)

    def method(self: Value, *others: Any, **named: Any) -> Any:
        try:
            worth = scatter_onto.is_worth(self, (*others, *named.values()))
        except SparseOperandError:
            worth = False
        if not worth:
            return usual(self, *others, **named)
        inplace.check_writable(self, f"{name}_")
        made = scatter_onto.write(self, lambda: plain(self, *others, **named))
        return self if made is None else inplace.copy_(self, made)

    return method


def _scaled(op: Elementwise) -> Method:
    def method(self: Value, other: Any, *older: Any, alpha: Any = 1) -> Any:
        if older:
            (_, other), factors = rearranged(f"{op.name}_", (self, other, *older), 2, ("alpha",))
            return method(self, other, **factors)
        try:
            added = (
                other
                if alpha.__class__ is int and alpha == 1
                else scaled(op.name, self, other, alpha)
            )
            return inplace.apply_inplace(op, self, added)
        except SparseOperandError as error:  # See Note [Sparse operands]
            return error.obj.instead(f"{op.name}_", (self, other), {"alpha": alpha})

    return method


def _divided(div: Callable[..., Any]) -> Method:
    """The in-place form of a division that takes `rounding_mode`."""
    rounded = _stored("div", div)

    def method(self: Value, other: Any, *, rounding_mode: str | None = None) -> Any:
        if rounding_mode is None:
            return inplace.apply_inplace(e.div.op, self, other)  # type: ignore[attr-defined]
        return rounded(self, other, rounding_mode=rounding_mode)

    return method


def _dividing(name: str, op: Elementwise) -> Method:
    pure = _elementwise(name, op)

    def method(self: Value, other: Any) -> Any:
        division.check_divisor(f"{name}_", self, other)
        return pure(self, other)

    return method


def in_place_form(entry: Entry) -> Method:
    """The method `<name>_`, by the kind of write that the declaration states."""
    name, function = entry.name, entry.function
    op = getattr(function, "op", None)
    match entry.inplace:
        case "view":
            return inplace_views.in_place_view(name)
        case "scatter":
            return _scattering(name, function)
        case "scaled":
            return _scaled(getattr(e, inspect.unwrap(function).__name__).op)
        case "quotient":
            return _divided(function)
        case "divisor":
            return _dividing(name, op)  # type: ignore[arg-type]
    if isinstance(op, Elementwise) and not op.conditions:
        return _elementwise(name, op)
    return _stored(name, function)
