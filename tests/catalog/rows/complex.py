"""Catalog rows: complex numbers.

A sample holds complex numbers as pairs in a last dimension of 2, so that one row covers both
complex types and its gradients are those of the parts: that is PyTorch's convention. `on_pairs`
gives the op complex tensors and splits its results; the reference is NumPy's on complex128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rushlight
from tests.catalog.row import (
    COMPOSED,
    CONTRACTED,
    ELEMENTARY,
    EXACT,
    ROUNDED,
    SUMMED,
    Array,
    DType,
    Make,
    Row,
    Sample,
    Tolerance,
    always,
    at,
    bool_,
    float32,
    float64,
)

PARTS = (float32, float64)
POWERS = Tolerance(
    "the exponential of a product: its relative error is the product's absolute one", 1024, 4
)


def number(pairs: Array) -> Array:
    return np.ascontiguousarray(pairs).view(np.complex128)[..., 0]


def parts_of(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(map(parts_of, result))
    array = np.asarray(result)
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def _joined(value: Any) -> Any:
    if isinstance(value, list):
        return [_joined(v) for v in value]
    if isinstance(value, rushlight.Tensor) and value.dtype in PARTS:
        # Not `complex`: a strided sample stays strided.
        return rushlight.view_as_complex(value if value.stride(-1) == 1 else value.contiguous())
    return value


def on_pairs(op: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call an op on complex tensors made of pairs; complex results are returned as pairs."""
    out = op(*map(_joined, args), **{k: _joined(v) for k, v in named.items()})
    several = isinstance(out, tuple)
    parts = tuple(
        rushlight.view_as_real(v) if v.is_complex() else v for v in (out if several else (out,))
    )
    return parts if several else parts[0]


def on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(*args: Any, **named: Any) -> Any:
        def given(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], Array):
                return [number(v) for v in value]
            return (
                number(value) if isinstance(value, Array) and value.dtype == np.float64 else value
            )

        return parts_of(function(*map(given, args), **{k: given(v) for k, v in named.items()}))

    return reference


def row(
    name: str,
    function: Callable[..., Any],
    samples: Callable[[Make], Iterator[Sample]],
    tolerance: Tolerance = ROUNDED,
    variant: str = "complex",
    result: Callable[[DType], DType] = lambda dtype: dtype,
    **more: Any,
) -> Row:
    more.setdefault("layouts", False)
    return Row(
        name,
        on_numbers(function),
        samples,
        PARTS,
        tolerance,
        result,
        call=on_pairs,
        variant=variant,
        **more,
    )


def unary(
    name: str,
    function: Callable[..., Any],
    tolerance: Tolerance = COMPOSED,
    low: float = -2,
    high: float = 2,
    **more: Any,
) -> Row:
    def samples(make: Make) -> Iterator[Sample]:
        for shape in ((3, 4), (), (0, 3), (1037,)):
            yield at(make(*shape, 2, low=low, high=high))

    return row(name, function, samples, tolerance, **more)


def pairs(make: Make) -> Iterator[Sample]:
    for a, b in (
        ((3, 4), (3, 4)),
        ((3, 1), (4,)),
        ((), (2, 3)),
        ((0, 3), (3,)),
        ((1037,), (1037,)),
    ):
        yield at(make(*a, 2), make.nonzero(*b, 2))
    yield at(make(5, 2), 2)
    yield at(make(5, 2), 0.75)
    yield at(make(5, 2), 1.5 - 2j)


def binary(
    name: str, function: Callable[..., Any], tolerance: Tolerance = ROUNDED, **more: Any
) -> Row:
    return row(name, function, pairs, tolerance, **more)


def case(*args: Any, **named: Any) -> Callable[[Make], Iterator[Sample]]:
    """One sample; a tuple among the arguments is the shape of a complex array."""

    def samples(make: Make) -> Iterator[Sample]:
        def drawn(value: Any) -> Any:
            return make(*value, 2) if isinstance(value, tuple) else value

        yield at(*map(drawn, args), **named)

    return samples


def from_parts(name: str, function: Callable[..., Any], tolerance: Tolerance) -> Row:
    """An op that makes complex numbers of real ones."""

    def samples(make: Make) -> Iterator[Sample]:
        for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0,), (0,))):
            yield at(make(*a), make(*b))

    def call(op: Callable[..., Any], *args: Any) -> Any:
        return rushlight.view_as_real(op(*args))

    return Row(name, lambda *a: parts_of(function(*a)), samples, PARTS, tolerance, call=call)


def cast(name: str) -> Row:
    samples = lambda make: iter([at(make(3, 4, 2)), at(make(2))])  # noqa: E731
    return Row(
        f"to_{name}",
        lambda x: parts_of(number(x)) if name == "complex128" else parts_of(number(x).astype(name)),
        samples,
        (float32,) if name == "complex64" else (float64,),
        EXACT,
        call=on_pairs,
        layouts=False,
        unrounded=np.copy,
    )


def from_pairs(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4, 2), (2,), (0, 2)):
        yield at(make(*shape))


def matrices(make: Make) -> Iterator[Sample]:
    for a, b in (
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)),
    ):
        yield at(make(*a, 2), make(*b, 2))


def indexed(make: Make) -> Iterator[Sample]:
    yield at(make(5, 3, 2), 0, make.index(4, 3, limit=5))
    yield at(make(2, 5, 3, 2), 1, make.index(2, 4, 3, limit=5))


def gathered(x: Array, dim: int, index: Array) -> Array:
    return np.take_along_axis(x, index, dim)


def selected(make: Make) -> Iterator[Sample]:
    yield at(make(3, 5, 2), 1, make.index(7, limit=5))


def sources(make: Make) -> Iterator[Sample]:
    yield at(make(5, 3, 2), 0, make.index(4, 3, limit=5), make(4, 3, 2))


def scattered(x: Array, dim: int, index: Array, src: Array) -> Array:
    out = x.copy()
    np.add.at(out, (index, np.arange(x.shape[1])), src)
    return out


def chosen(make: Make) -> Iterator[Sample]:
    yield at(make.mask(3, 4), make(3, 4, 2), make(4, 2))


def whole(x: Array) -> Array:
    return x


ROWS = [
    from_parts("complex", lambda re, im: re + 1j * im, EXACT),
    from_parts("polar", lambda size, angle: size * np.exp(1j * angle), ELEMENTARY),
    Row(
        "view_as_real",
        np.copy,
        from_pairs,
        PARTS,
        EXACT,
        call=lambda op, x: op(rushlight.complex(x[..., 0], x[..., 1])),
    ),
    Row(
        "view_as_complex",
        np.copy,
        from_pairs,
        PARTS,
        EXACT,
        call=lambda op, x: rushlight.view_as_real(op(x.contiguous())),
    ),
    unary("real", np.real, EXACT, variant=""),
    unary("imag", np.imag, EXACT, variant=""),
    unary("conj", np.conj, EXACT, variant=""),
    unary("conj_physical", np.conj, EXACT, variant=""),
    unary("resolve_conj", whole, EXACT, variant=""),
    unary("resolve_neg", whole, EXACT, variant=""),
    unary("angle", np.angle, ELEMENTARY, variant="", low=0.25),
    unary("isreal", np.isreal, EXACT, variant="", result=always(bool_), differentiable=False),
    unary("sgn", lambda x: x / np.abs(x), COMPOSED, low=0.25),
    row("adjoint", lambda x: np.conj(np.swapaxes(x, -1, -2)), case((2, 3, 4)), EXACT),
    cast("complex64"),
    cast("complex128"),
    unary("clone", np.copy, EXACT),
    binary("add", np.add),
    binary("sub", np.subtract),
    binary("mul", np.multiply),
    binary("div", np.divide, COMPOSED),
    unary("neg", np.negative, EXACT),
    unary("abs", np.abs, ROUNDED, low=0.25),
    unary("square", np.square),
    unary("reciprocal", np.reciprocal, low=0.25),
    unary("sqrt", np.sqrt, low=0.25),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), low=0.25),
    unary("exp", np.exp),
    unary("exp2", np.exp2),
    unary("expm1", np.expm1),
    unary("log", np.log, low=0.25),
    unary("log2", np.log2, low=0.25),
    unary("log10", np.log10, low=0.25),
    unary("log1p", np.log1p, low=0.25),
    unary("sin", np.sin),
    unary("cos", np.cos),
    unary("tan", np.tan, low=0.25, high=1.25),
    unary("sinh", np.sinh),
    unary("cosh", np.cosh),
    unary("tanh", np.tanh, low=0.25, high=1.25),
    unary("asin", np.arcsin, low=0.25, high=1.25),
    unary("acos", np.arccos, low=0.25, high=1.25),
    unary("atan", np.arctan, low=0.25),
    unary("asinh", np.arcsinh, low=0.25),
    unary("acosh", np.arccosh, low=0.25),
    unary("atanh", np.arctanh, low=0.25, high=1.25),
    unary("sinc", np.sinc, low=0.25, high=0.75),
    unary("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    unary("silu", lambda x: x / (1 + np.exp(-x))),
    binary("pow", lambda x, y: np.power(x, y), POWERS),
    binary("eq", np.equal, EXACT, result=always(bool_), differentiable=False),
    binary("ne", np.not_equal, EXACT, result=always(bool_), differentiable=False),
    row("sum", lambda x, dim=None: x.sum(dim), case((3, 5, 4), dim=1), SUMMED),
    row("mean", lambda x, dim=None: x.mean(dim), case((3, 5, 4), dim=(0, 2)), SUMMED),
    row("prod", lambda x, dim=None: x.prod(dim), case((2, 5, 3), dim=1), CONTRACTED),
    row("cumsum", lambda x, dim: x.cumsum(dim), case((3, 5), 1), SUMMED),
    row("cumprod", lambda x, dim: x.cumprod(dim), case((3, 5), 1), CONTRACTED),
    row("var", lambda x, dim=None: x.var(dim, ddof=1), case((3, 5), dim=1), SUMMED),
    row("std", lambda x, dim=None: x.std(dim, ddof=1), case((3, 5), dim=1), SUMMED),
    row(
        "norm", lambda x, p=2, dim=None: np.linalg.norm(x, p, dim), case((3, 5), p=3, dim=1), SUMMED
    ),
    row("logsumexp", lambda x, dim: np.log(np.exp(x).sum(dim)), case((3, 5), 1), CONTRACTED),
    row("lerp", lambda x, y, w: x + w * (y - x), case((3, 5), (3, 5), 0.25), COMPOSED),
    row(
        "addcmul",
        lambda x, y, z, value=1: x + value * y * z,
        case((3, 5), (5,), (3, 1), value=2 - 1j),
        COMPOSED,
    ),
    row(
        "addcdiv",
        lambda x, y, z, value=1: x + value * y / z,
        case((3, 5), (5,), (3, 1), value=2 - 1j),
        CONTRACTED,
    ),
    unary("softsign", lambda x: x / (1 + np.abs(x)), low=0.25),
    unary("tanhshrink", lambda x: x - np.tanh(x), low=0.25, high=1.25),
    row(
        "cat",
        lambda xs, dim=0: np.concatenate(xs, dim),
        lambda make: iter([at([make(2, 3, 2), make(4, 3, 2)])]),
        EXACT,
    ),
    row("gather", gathered, indexed, EXACT),
    row("index_select", lambda x, dim, index: np.take(x, index, dim), selected, EXACT),
    row("scatter_add", scattered, sources, ROUNDED),
    row("where", np.where, chosen, EXACT),
    row("tril", np.tril, case((4, 4)), EXACT),
    row("flip", np.flip, case((3, 4), [0, 1]), EXACT),
    row("vdot", np.vdot, case((7,), (7,)), CONTRACTED),
    row("outer", np.outer, case((3,), (4,)), ROUNDED),
    row("bmm", np.matmul, case((2, 3, 4), (2, 4, 3)), CONTRACTED),
    row(
        "einsum",
        lambda rule, *xs: np.einsum(rule, *xs),
        case("ij,kj->ik", (3, 4), (2, 4)),
        CONTRACTED,
    ),
    row("linear", lambda x, w, b: x @ w.T + b, case((3, 4), (5, 4), (5,)), CONTRACTED),
    row("cov", np.cov, case((3, 6)), SUMMED),
    row("matmul", np.matmul, matrices, CONTRACTED),
]
