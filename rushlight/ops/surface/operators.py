"""The operators of tensors: `x + y` is the op; an unknown operand gives NotImplemented.

Python then calls the other operand, or raises its own TypeError; for `==` and `!=` it compares
identity. So `x + mine` works where `mine` has `__radd__`, and `x == None` is False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import SparseOperandError
from rushlight.ops.family.map import Elementwise
from rushlight.ops.pointwise import division
from rushlight.ops.view import inplace
from rushlight.tape.program.memo import memo
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

Function = Callable[..., Any]


def foreign(operand: Any) -> bool:
    """Whether no op accepts it: no tensor, no number, nothing of NumPy."""
    return not isinstance(operand, (Value, int, float, complex)) and not hasattr(operand, "dtype")


def leaving(function: Function) -> Function:
    """The function of two operands as an operator."""

    def operator(x: Any, y: Any) -> Any:
        try:
            return function(x, y)
        except TypeError:
            if foreign(y) or foreign(x):
                return NotImplemented
            raise

    operator.__name__ = function.__name__
    operator.casts = getattr(function, "casts", None)  # type: ignore[attr-defined]
    return operator


def binary(function: Function) -> Function:
    """An elementwise op's own function as an operator.

    Operands that it refuses give NotImplemented.
    """
    op: Any = function.op  # type: ignore[attr-defined]
    return call.make_call(op, leaving(function), 2, is_operator=True)


def product(function: Function) -> Function:
    """A memoised function of two tensors, as an operator."""
    return memo(leaving(function.__wrapped__))  # type: ignore[attr-defined]


def reflected(function: Function) -> Function:
    """y <op> x, where y is no tensor."""
    turned = function.__name__ in ("add", "mul")  # which are fast with the tensor first

    def operator(self: Value, other: Any) -> Any:
        try:
            return function(self, other) if turned else function(other, self)
        except TypeError:
            if foreign(other):
                return NotImplemented
            raise

    return operator


def in_place(name: str, op: Elementwise, divides: bool) -> Function:
    """x <op>= y; one that `divides` refuses integer zeros."""

    def operator(self: Value, other: Any) -> Any:
        try:
            if divides:
                division.check_divisor(f"{name}_", self, other)
            return inplace.apply_inplace(op, self, other)
        except SparseOperandError as error:  # See Note [Sparse operands]
            sparse = error.obj
        except TypeError:
            if foreign(other):
                return NotImplemented
            raise
        return sparse.instead(f"{name}_", (self, other), {})

    return operator
