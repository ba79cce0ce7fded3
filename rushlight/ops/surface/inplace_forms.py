"""In-place forms of ops: `Tensor.<name>_`, by the kind that the op's declaration states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from rushlight.core.errors import DTypeError, RushlightError, ShapeError, SparseOperandError
from rushlight.ops.family.map import Elementwise
from rushlight.ops.family.older import rearranged
from rushlight.ops.index import scatter_onto
from rushlight.ops.pointwise import arithmetic as e, division
from rushlight.ops.pointwise.scaled import scaled
from rushlight.ops.registry import Entry
from rushlight.ops.surface import inplace_views
from rushlight.ops.surface.signatures import explain
from rushlight.ops.view import inplace
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE, without_autocast
from rushlight.tape.record.value import Value

Method = Callable[..., Any]


def _elementwise(name: str, op: Elementwise) -> Method:
    def method(self: Value, *others: Any, **named: Any) -> Any:
        try:
            operands = _placed(method, self, others, named) if named else others
            return inplace.apply_inplace(op, self, *operands)
        except Exception as error:
            explain(f"{name}_", method, error, (self, *others), named)
            raise

    return method


def _placed(
    method: Method, self: Value, others: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """The operands beside the tensor, of a call with keywords."""
    return inspect.signature(method).bind(self, *others, **named).args[1:]


def _is_recorded(values: Iterable[Any]) -> bool:
    return any(isinstance(v, Value) and edge_of(v) is not None for v in values)


def _stored(name: str, function: Callable[..., Any], linear: bool = False) -> Method:
    """The in-place form of a composite op: its result replaces the tensor's content.

    `linear`: the derivatives of its other operands do not read the tensor.
    """

    def method(self: Value, *others: Any, **named: Any) -> Any:
        inplace.check_writable(self, f"{name}_")
        # Saved old bits must outlive the write.
        readers = (self,) if linear else (self, *others, *named.values())
        kept = e.clone(self) if STATE.get().grad and _is_recorded(readers) else self
        try:
            result = without_autocast(function, (kept, *others), named)
        except Exception as error:
            explain(f"{name}_", method, error, (self, *others), named)
            raise
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


def _scattering(name: str, function: Callable[..., Any], linear: bool) -> Method:
    """The in-place form of an op that writes at indices. See Note [Scattering in place]."""
    usual = _stored(name, function, linear)
    # Below its memo, whose programs do not know the target.
    plain = getattr(function, "__wrapped__", function)

    def method(self: Value, *others: Any, **named: Any) -> Any:
        try:
            worth = scatter_onto.is_worth(self, (*others, *named.values()))
        except SparseOperandError:
            worth = False
        try:
            if not worth:
                return usual(self, *others, **named)
            inplace.check_writable(self, f"{name}_")
            made = scatter_onto.write(self, lambda: without_autocast(plain, (self, *others), named))
        except Exception as error:
            explain(f"{name}_", method, error, (self, *others), named)
            raise
        return self if made is None else inplace.copy_(self, made)

    return method


def _scaled(name: str, op: Elementwise) -> Method:
    def method(self: Value, other: Any, *older: Any, alpha: Any = 1) -> Any:
        if older:
            (_, other), factors = rearranged(f"{name}_", (self, other, *older), 2, ("alpha",))
            return method(self, other, **factors)
        try:
            added = (
                other if alpha.__class__ is int and alpha == 1 else scaled(name, self, other, alpha)
            )
            return inplace.apply_inplace(op, self, added)
        except SparseOperandError as error:  # See Note [Sparse operands]
            return error.obj.instead(f"{name}_", (self, other), {"alpha": alpha})
        except Exception as error:
            explain(f"{name}_", method, error, (self, other), {"alpha": alpha})
            raise

    return method


def _divided(name: str, div: Callable[..., Any]) -> Method:
    """The in-place form of a division that takes `rounding_mode`."""
    rounded = _stored(name, div)

    def method(self: Value, other: Any, *, rounding_mode: str | None = None) -> Any:
        try:
            if rounding_mode is None:
                return inplace.apply_inplace(e.div.op, self, other)  # type: ignore[attr-defined]
            return rounded(self, other, rounding_mode=rounding_mode)
        except Exception as error:
            explain(f"{name}_", method, error, (self, other), {"rounding_mode": rounding_mode})
            raise

    return method


def _dividing(name: str, op: Elementwise) -> Method:
    def method(self: Value, other: Any) -> Any:
        try:
            division.check_divisor(f"{name}_", self, other)
            return inplace.apply_inplace(op, self, other)
        except Exception as error:
            explain(f"{name}_", method, error, (self, other), {})
            raise

    return method


def in_place_form(entry: Entry) -> Method:
    """The method `<name>_`, by the kind of write that the declaration states."""
    name, function = entry.name, entry.function
    op = getattr(function, "op", None)
    match entry.inplace:
        case "view":
            return inplace_views.in_place_view(name)
        case "scatter" | "fold":
            return _scattering(name, function, linear=entry.inplace == "scatter")
        case "scaled":
            return _scaled(name, getattr(e, inspect.unwrap(function).__name__).op)
        case "quotient":
            return _divided(name, function)
        case "divisor":
            return _dividing(name, op)  # type: ignore[arg-type]
    if isinstance(op, Elementwise) and not op.conditions:
        return _elementwise(name, op)
    return _stored(name, function)
