"""Elementwise functions, and the operators of arrays, from one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.array_api.array import Array, check_kind, is_array, op, operands, unwrap, wrap

# The standard's name: PyTorch's name, and the dtypes it takes.
UNARY = {
    "abs": ("abs", "numeric"),
    "acos": ("acos", "floating"),
    "acosh": ("acosh", "floating"),
    "asin": ("asin", "floating"),
    "asinh": ("asinh", "floating"),
    "atan": ("atan", "floating"),
    "atanh": ("atanh", "floating"),
    "bitwise_invert": ("bitwise_not", "integer or bool"),
    "ceil": ("ceil", "real numeric"),
    "conj": ("conj_physical", "numeric"),
    "cos": ("cos", "floating"),
    "cosh": ("cosh", "floating"),
    "exp": ("exp", "floating"),
    "expm1": ("expm1", "floating"),
    "floor": ("floor", "real numeric"),
    "imag": ("imag", "complex floating"),
    "isfinite": ("isfinite", "numeric"),
    "isinf": ("isinf", "numeric"),
    "isnan": ("isnan", "numeric"),
    "log": ("log", "floating"),
    "log1p": ("log1p", "floating"),
    "log2": ("log2", "floating"),
    "log10": ("log10", "floating"),
    "logical_not": ("logical_not", "bool"),
    "negative": ("neg", "numeric"),
    "positive": ("positive", "numeric"),
    "real": ("real", "numeric"),
    "reciprocal": ("reciprocal", "floating"),
    "sign": ("sgn", "numeric"),
    "signbit": ("signbit", "real floating"),
    "sin": ("sin", "floating"),
    "sinh": ("sinh", "floating"),
    "square": ("square", "numeric"),
    "sqrt": ("sqrt", "floating"),
    "tan": ("tan", "floating"),
    "tanh": ("tanh", "floating"),
    "trunc": ("trunc", "real numeric"),
}
BINARY = {
    "add": ("add", "numeric"),
    "atan2": ("atan2", "real floating"),
    "bitwise_and": ("bitwise_and", "integer or bool"),
    "bitwise_left_shift": ("bitwise_left_shift", "integer"),
    "bitwise_or": ("bitwise_or", "integer or bool"),
    "bitwise_right_shift": ("bitwise_right_shift", "integer"),
    "bitwise_xor": ("bitwise_xor", "integer or bool"),
    "copysign": ("copysign", "real floating"),
    "divide": ("div", "floating"),
    "equal": ("eq", "all"),
    "floor_divide": ("floor_divide", "real numeric"),
    "greater": ("gt", "real numeric"),
    "greater_equal": ("ge", "real numeric"),
    "hypot": ("hypot", "real floating"),
    "less": ("lt", "real numeric"),
    "less_equal": ("le", "real numeric"),
    "logaddexp": ("logaddexp", "real floating"),
    "logical_and": ("logical_and", "bool"),
    "logical_or": ("logical_or", "bool"),
    "logical_xor": ("logical_xor", "bool"),
    "maximum": ("maximum", "real numeric"),
    "minimum": ("minimum", "real numeric"),
    "multiply": ("mul", "numeric"),
    "nextafter": ("nextafter", "real floating"),
    "not_equal": ("ne", "all"),
    "pow": ("pow", "numeric"),
    "remainder": ("remainder", "real numeric"),
    "subtract": ("sub", "numeric"),
}
KINDS = {name: kinds for name, (_, kinds) in {**UNARY, **BINARY}.items()}
# Operators: the function of two arrays, whether it is reflected and has an in-place form.
OPERATORS = {
    "add": "add",
    "and": "bitwise_and",
    "floordiv": "floor_divide",
    "lshift": "bitwise_left_shift",
    "mod": "remainder",
    "mul": "multiply",
    "or": "bitwise_or",
    "pow": "pow",
    "rshift": "bitwise_right_shift",
    "sub": "subtract",
    "truediv": "divide",
    "xor": "bitwise_xor",
}
COMPARISONS = {
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
}


def _unary(name: str, inner: str, kinds: str) -> Callable[[Any], Array]:
    def function(x: Any, /) -> Array:
        tensor = unwrap(x)
        check_kind(name, tensor.dtype, kinds)
        if (
            inner in ("isfinite", "isinf", "isnan", "real", "sgn", "conj_physical")
            and tensor.dtype.kind in "iu"
        ):
            return _of_integer(inner, tensor)
        result = op(inner)(tensor)
        if inner == "sgn" and tensor.dtype.kind == "f":
            result = op("where")(op("isnan")(tensor), tensor, result)  # PyTorch's sign of NaN is 0
        return wrap(result)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "rushlight.array_api"
    function.__doc__ = f"The standard's {name}, element by element."
    return function


def _of_integer(inner: str, tensor: Any) -> Array:
    """Results of floating-point predicates for integers."""
    if inner == "sgn":
        return wrap(op("sign")(tensor))
    if inner in ("real", "conj_physical"):
        return wrap(op("positive")(tensor))
    return wrap(op("full_like")(tensor, inner == "isfinite", dtype=op("eq")(tensor, tensor).dtype))


def _binary(name: str, inner: str, kinds: str) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        return wrap(op(inner)(*operands(name, kinds, x1, x2)))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "rushlight.array_api"
    function.__doc__ = (
        f"The standard's {name} of two arrays that broadcast; one may be a Python number."
    )
    return function


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: _unary(name, *entry) for name, entry in UNARY.items()},
    **{name: _binary(name, *entry) for name, entry in BINARY.items()},
}


def round(x: Any, /) -> Array:
    """Round to the nearest integer, halves to even.

    Of complex numbers the real and imaginary parts.
    """
    tensor = unwrap(x)
    check_kind("round", tensor.dtype, "numeric")
    if tensor.dtype.kind == "c":
        return wrap(op("complex")(op("round")(op("real")(tensor)), op("round")(op("imag")(tensor))))
    return wrap(op("round")(tensor))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """x clamped to [min, max]."""
    tensor = unwrap(x)
    check_kind("clip", tensor.dtype, "real numeric")
    for bound, inner in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            both = operands("clip", "real numeric", tensor, bound)
            tensor = op(inner)(*both).to(unwrap(x).dtype)
    return wrap(op("clone")(tensor) if min is None and max is None else tensor)


FUNCTIONS |= {"round": round, "clip": clip}


# ---- operators ----


def _takes(other: Any) -> bool:
    return is_array(other) or isinstance(other, (bool, int, float, complex))


def _forward(function: Callable[..., Array]) -> Callable[..., Any]:
    def method(self: Array, other: Any, /) -> Any:
        return function(self, other) if _takes(other) else NotImplemented

    return method


def _reflected(function: Callable[..., Array]) -> Callable[..., Any]:
    def method(self: Array, other: Any, /) -> Any:
        return function(other, self) if _takes(other) else NotImplemented

    return method


def _in_place(function: Callable[..., Array]) -> Callable[..., Any]:
    """The result in the array's own memory: its dtype and shape stay."""

    def method(self: Array, other: Any, /) -> Any:
        if not _takes(other):
            return NotImplemented
        result = function(self, other)
        if result.dtype is not self.dtype or result.shape != self.shape:
            raise TypeError(
                f"in place: a result {result._tensor._spec!r} does not fit into "
                f"{self._tensor._spec!r}"
            )
        self._tensor.copy_(result._tensor)
        return self

    return method


def install() -> None:
    """Give Array its operators."""
    made: dict[str, Callable[..., Any]] = {}
    for symbol, name in OPERATORS.items():
        function = FUNCTIONS[name]
        made[f"__{symbol}__"] = _forward(function)
        made[f"__r{symbol}__"] = _reflected(function)
        made[f"__i{symbol}__"] = _in_place(function)
    for symbol, name in COMPARISONS.items():
        made[f"__{symbol}__"] = _forward(FUNCTIONS[name])
    for symbol, name in (
        ("abs", "abs"),
        ("invert", "bitwise_invert"),
        ("neg", "negative"),
        ("pos", "positive"),
    ):
        made[f"__{symbol}__"] = FUNCTIONS[name]
    for name, method in made.items():
        setattr(Array, name, method)
