"""Functions of lists of tensors: `_foreach_<op>`, and `_foreach_<op>_` in place.

An argument that is a list is used element by element; a number, or a tensor where PyTorch takes one
for all, is passed to each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.tensor import Tensor

_UNARY = (
    *(
        "abs",
        "acos",
        "asin",
        "atan",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "expm1",
        "floor",
        "frac",
        "lgamma",
    ),
    *(
        "log",
        "log10",
        "log1p",
        "log2",
        "neg",
        "reciprocal",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
    ),
    *("tan", "tanh", "trunc"),
)
_BINARY = ("add", "sub", "mul", "div", "clamp_max", "clamp_min", "lerp")
# Their names where one operand is a number.
_NUMBERS = {
    "maximum": "clamp_min",
    "minimum": "clamp_max",
}


def _rows(name: str, first: Any, others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The arguments of each call."""
    if not isinstance(first, (list, tuple)):
        raise TypeError(f"{name}: a list of tensors is needed, got {type(first).__name__}")
    if not first:
        raise RushlightError(f"{name}: a list of at least one tensor is needed")
    columns = [list(first)]
    for other in others:
        column = list(other) if isinstance(other, (list, tuple)) else [other] * len(first)
        if len(column) != len(first):
            raise RushlightError(
                f"{name}: lists of one length are needed, got {len(first)} and {len(column)}"
            )
        columns.append(column)
    return list(zip(*columns, strict=True))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name.removeprefix('_foreach_').rstrip('_')} of each of a list of tensors."
    return function


def _of_each(op: str) -> Callable[..., Any]:
    name = f"_foreach_{op}"

    def function(self: Any, *others: Any, **named: Any) -> tuple[Any, ...]:
        return tuple(getattr(x, op)(*rest, **named) for x, *rest in _rows(name, self, others))

    return _named(name, function)


def _in_each(op: str) -> Callable[..., Any]:
    name = f"_foreach_{op}_"

    def function(self: Any, *others: Any, **named: Any) -> Any:
        for x, *rest in _rows(name, self, others):
            getattr(x, f"{op}_")(*rest, **named)
        return self

    return _named(name, function)


def _extremes(op: str, in_place: bool) -> Callable[..., Any]:
    name = f"_foreach_{op}{'_' if in_place else ''}"

    def one(x: Any, other: Any) -> Any:
        made = getattr(x, op if isinstance(other, Tensor) else _NUMBERS[op])(other)
        return x.copy_(made) if in_place else made

    def function(self: Any, other: Any) -> Any:
        made = tuple(one(x, y) for x, y in _rows(name, self, [other]))
        return self if in_place else made

    return _named(name, function)


def _pow(self: Any, exponent: Any) -> tuple[Any, ...]:
    if isinstance(self, (list, tuple)):
        return tuple(x**y for x, y in _rows("_foreach_pow", self, [exponent]))
    return tuple(self**y for y, *_ in _rows("_foreach_pow", exponent, []))


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    return tuple(vector_norm(x, ord, dtype=dtype) for x, *_ in _rows("_foreach_norm", self, []))


def _max(self: Any) -> tuple[Any, ...]:
    return tuple(x.max() for x, *_ in _rows("_foreach_max", self, []))


def _clone(self: Any, *, memory_format: Any = None) -> tuple[Any, ...]:
    return tuple(x.clone() for x, *_ in _rows("_foreach_clone", self, []))


def _addc(op: str, in_place: bool) -> Callable[..., Any]:
    name = f"_foreach_{op}{'_' if in_place else ''}"

    def function(
        self: Any, tensor1: Any, tensor2: Any, value: Any = None, *, scalars: Any = None
    ) -> Any:
        factors = 1 if value is None and scalars is None else scalars if value is None else value
        factors = factors.tolist() if isinstance(factors, Tensor) else factors
        method = f"{op}_" if in_place else op
        rows = _rows(name, self, [tensor1, tensor2, factors])
        made = tuple(getattr(x, method)(a, b, value=factor) for x, a, b, factor in rows)
        return self if in_place else made

    return _named(name, function)


def _functions() -> dict[str, Callable[..., Any]]:
    plain = (*_UNARY, *_BINARY)
    found = [*(_of_each(op) for op in plain), *(_in_each(op) for op in (*plain, "pow", "zero"))]
    found += [_extremes(op, in_place) for op in _NUMBERS for in_place in (False, True)]
    found += [_addc(op, in_place) for op in ("addcmul", "addcdiv") for in_place in (False, True)]
    found += [_named(f"_foreach{f.__name__}", f) for f in (_pow, _norm, _max, _clone)]
    return {function.__name__: function for function in found}


FUNCTIONS = _functions()  # by name
