"""Ops of sparse operands: products, sums, elementwise functions that keep zeros.

Each is made of ops on the indices and values; see Note [Sparse operands]. `install` gives them to
the class as methods and operators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType, int64, promote
from rushlight.core.errors import DTypeError, KindError, LayoutError, RushlightError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.view import views
from rushlight.sparse.coo import FUNCTIONS, SparseTensor, as_sparse, brief, make, shared, words
from rushlight.sparse.linear_index import added_up, joined, linear_index
from rushlight.sparse.rearranged import (
    cat,
    get_item,
    index_select,
    permute,
    select,
    stack,
    t,
    transpose,
    unsqueeze,
    zeros_like,
)
from rushlight.tensor import Tensor

# Functions f with f(0) = 0: they are functions of the values of a coalesced tensor.
KEEP_ZERO = (
    *(
        "abs",
        "absolute",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctanh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "conj",
    ),
    *(
        "conj_physical",
        "deg2rad",
        "erf",
        "erfinv",
        "expm1",
        "fix",
        "floor",
        "frac",
        "isinf",
        "isnan",
        "log1p",
    ),
    *(
        "nan_to_num",
        "rad2deg",
        "relu",
        "round",
        "sgn",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
    ),
)


def _sizes(x: SparseTensor) -> tuple[int, ...]:
    return x._size[: x.sparse_dim()]


def _like(x: SparseTensor, values: Any) -> SparseTensor:
    return make(x._at, values, x._size, x._coalesced)


def picked(op: str, dense: Any, like: SparseTensor) -> Any:
    """The elements of a dense tensor, broadcast to the sparse one's shape, at its indices."""
    missing = like.ndim - dense.ndim
    wide = dense.reshape((1,) * missing + tuple(dense.shape)) if missing > 0 else dense
    if missing < 0 or any(n not in (1, m) for n, m in zip(wide.shape, like._size, strict=True)):
        raise ShapeError(f"{op}: {words(dense)} is not broadcast to {brief(like)}")
    count = like.sparse_dim()
    kept = [k for k in range(count) if wide.shape[k] != 1]
    if not kept:
        return wide.reshape((1, *wide.shape[count:])).expand(like._nnz(), *wide.shape[count:])
    sizes = [wide.shape[k] for k in kept]
    table = wide.reshape((math.prod(sizes), *wide.shape[count:]))
    return table.index_select(0, linear_index([like._at[k] for k in kept], sizes))


# ---- products ----


def _check_product(op: str, x: Any, y: Any, ranks: Sequence[int] = (2,)) -> None:
    for v in (x, y):
        if not isinstance(v, Tensor):
            raise KindError(f"{op}(): a product takes tensors, got {type(v).__name__}")
    if x.ndim != 2 or y.ndim not in ranks or x.shape[1] != y.shape[0]:
        raise ShapeError(
            f"{op}: {words(x)} and {words(y)} do not fit: the columns of the one are the rows of "
            "the other"
        )
    if any(isinstance(v, SparseTensor) and v.dense_dim() for v in (x, y)):
        raise LayoutError(
            f"{op}: sparse matrices have no dense dimensions, got {words(x)} and {words(y)}"
        )
    if x.dtype is not y.dtype:
        raise DTypeError(
            f"{op}: {words(x)} and {words(y)} must be of one type; cast with .to(dtype)"
        )


def _times_dense(x: SparseTensor, y: Any) -> Any:
    """Each value times a row of y, added up by row."""
    terms = x._of.unsqueeze(1) * y.index_select(0, x._at[1])
    return added_up(terms, x._at[0], x._size[0])


def _times_sparse(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """The products of all matching pairs of values, added up by position."""
    left, right = joined(x._at[1], y._at[0])
    at = views.stack([x._at[0].index_select(0, left), y._at[1].index_select(0, right)])
    values = x._of.index_select(0, left) * y._of.index_select(0, right)
    return make(at, values, (x._size[0], y._size[1]), False).coalesce()


def mm(input: Any, mat2: Any) -> Any:
    """The product of two matrices; sparse if both are, else dense."""
    _check_product("mm", input, mat2)
    if not isinstance(input, SparseTensor):
        return (
            transpose(mat2, 0, 1).mm(input.t()).t()
            if isinstance(mat2, SparseTensor)
            else input.mm(mat2)
        )
    return (
        _times_sparse(input, mat2) if isinstance(mat2, SparseTensor) else _times_dense(input, mat2)
    )


def mv(input: Any, vec: Any) -> Any:
    """A matrix times a dense vector."""
    _check_product("mv", input, vec, (1,))
    return _times_dense(as_sparse("mv", input), vec.unsqueeze(1)).squeeze(1)


def matmul(x: Any, other: Any) -> Any:
    """A matrix times a matrix or a vector."""
    if isinstance(other, Tensor) and other.ndim == 1 and x.ndim == 2:
        return mv(x, other)
    if isinstance(x, Tensor) and x.ndim == 1 and other.ndim == 2:
        return mv(transpose(other, 0, 1), x)
    return mm(x, other)


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    product = mm(mat1, mat2)
    scaled = product if alpha == 1 else product * alpha
    return scaled if beta == 0 else (input if beta == 1 else input * beta) + scaled


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias."""
    product = mm(input, weight.t())
    return product if bias is None else product + bias


# ---- elementwise ----


def _zero_kept(name: str, x: Any, *args: Any, **named: Any) -> SparseTensor:
    whole = as_sparse(name, x).coalesce()
    function = getattr(Tensor, name)
    return _like(whole, function(whole._of, *args, **named))


def neg(input: SparseTensor) -> SparseTensor:
    """-x."""
    return _like(input, -input._of)


def pow(input: Any, exponent: Any) -> SparseTensor:
    """Each element to a positive power."""
    if not isinstance(exponent, (int, float)) or exponent <= 0:
        raise LayoutError(
            f"pow: of {words(input)} to {words(exponent)}; zeros stay zeros for positive numbers "
            "only"
        )
    whole = as_sparse("pow", input).coalesce()
    return _like(whole, whole._of**exponent)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) or (
        isinstance(x, Tensor) and not x.ndim and not x.is_sparse
    )


def mul(input: Any, other: Any) -> SparseTensor:
    """x times a number, a dense tensor that is broadcast to it, or a sparse one of its shape."""
    x, y = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if _is_number(y):
        return _like(x, x._of * y)
    if not isinstance(y, Tensor):
        raise DTypeError(f"mul: takes tensors and numbers, got {type(y).__name__}")
    if not isinstance(y, SparseTensor):
        return _like(x, x._of * picked("mul", y, x))
    _check_same("mul", x, y)
    x, y = x.coalesce(), y.coalesce()
    left, right = joined(linear_index(x._at, _sizes(x)), linear_index(y._at, _sizes(y)))
    values = x._of.index_select(0, left) * y._of.index_select(0, right)
    return make(x._at.index_select(1, left), values, x._size, True)


def div(input: Any, other: Any) -> SparseTensor:
    """x over a number."""
    if not isinstance(input, SparseTensor) or not _is_number(other):
        raise LayoutError(
            f"div: sparse division needs a number as divisor, got {words(input)} and {words(other)}"
        )
    return _like(input, input._of / other)


def _check_same(op: str, x: SparseTensor, y: SparseTensor) -> None:
    if x._size != y._size or x.sparse_dim() != y.sparse_dim():
        raise ShapeError(
            f"{op}: {brief(x)} and {brief(y)} must have the same sizes and sparse dimensions"
        )


def add(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input + alpha * other: sparse if both are, else dense."""
    if (
        not isinstance(input, Tensor)
        or not isinstance(other, Tensor)
        or 0 in (input.ndim, other.ndim)
    ):
        raise RushlightError(
            f"add: {words(input)} and {words(other)}: a number would be added to zeros too; call "
            ".to_dense() first"
        )
    other = other if alpha == 1 else other * alpha
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor):
        _check_same("add", input, other)
        common = promote(input.dtype, other.dtype)
        at = views.cat([input._at, other._at], 1)
        values = views.cat([input._of.to(common), other._of.to(common)])
        return make(at, values, input._size, False).coalesce()
    x, dense = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if len(dense.shape) > x.ndim:
        raise ShapeError(f"add: {words(dense)} is not broadcast to {brief(x)}")
    common = promote(x.dtype, dense.dtype)
    sizes = _sizes(x)
    table = (
        dense.to(common).broadcast_to(x._size).reshape((math.prod(sizes), *x._size[len(sizes) :]))
    )
    return table.index_add(0, linear_index(x._at, sizes), x._of.to(common)).reshape(x._size)


def sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input - alpha * other."""
    return add(input, other * -alpha if isinstance(other, Tensor) else other)


def add_(self: Any, other: Any, *, alpha: float = 1) -> Any:
    """self += alpha * other, in place."""
    total = add(self, other, alpha=alpha)
    if not isinstance(self, SparseTensor):
        return self.copy_(total)
    if not isinstance(total, SparseTensor) or total.dtype is not self.dtype or total.requires_grad:
        raise LayoutError(
            f"add_: {brief(self)} cannot hold its sum with {words(other)} in place; write x = x + y"
        )
    return self.copy_(total)


def sub_(self: Any, other: Any, *, alpha: float = 1) -> Any:
    """self -= alpha * other, in place."""
    return add_(self, other, alpha=-alpha)


def sparse_mask(self: Any, mask: SparseTensor) -> SparseTensor:
    """The elements of a tensor at the indices of a sparse one."""
    if not isinstance(mask, SparseTensor) or self.shape != mask._size:
        raise ShapeError(
            f"sparse_mask: a sparse mask of the shape of {words(self)} is needed, got {words(mask)}"
        )
    if not isinstance(self, SparseTensor):
        return _like(mask, picked("sparse_mask", self, mask))
    _check_same("sparse_mask", self, mask)
    whole = self.coalesce()
    left, right = joined(
        linear_index(mask._at, _sizes(mask)), linear_index(whole._at, _sizes(whole))
    )
    return _like(mask, added_up(whole._of.index_select(0, right), left, mask._nnz()))


# ---- sums over dimensions ----


def sum(input: Any, dim: Any = None, dtype: DType | None = None, keepdim: bool = False) -> Any:
    """The sum of all elements, dense; over some dimensions, sparse where a sparse one is left."""
    x = as_sparse("sum", input)
    wanted = dtype or (x.dtype if x.dtype.kind in "fc" else int64)
    values = x._of.to(wanted)
    given = (
        range(x.ndim)
        if dim is None
        else (dim,)
        if isinstance(dim, int)
        else tuple(dim) or range(x.ndim)
    )
    dims = {wrap_dim(d, x.ndim, "sum") for d in given}
    count = x.sparse_dim()
    inner = [d - count + 1 for d in sorted(dims) if d >= count]
    values = values.sum(inner, keepdim, dtype=wanted) if inner else values
    kept = [d for d in range(count) if d not in dims]
    if not kept:
        total = values.sum(0, dtype=wanted)
        return total.reshape((1,) * count + tuple(total.shape)) if keepdim else total
    shape = [1 if d in dims else n for d, n in enumerate(x._size) if keepdim or d not in dims]
    rows = [x._at[d] if d in kept else x._at[d] * 0 for d in range(count) if keepdim or d in kept]
    return make(views.stack(rows), shared(values), shape, False).coalesce()


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Any:
    """The Euclidean norm of all elements, dense."""
    x = as_sparse("norm", input)
    if p not in ("fro", 2, None) or dim is not None:
        raise LayoutError(
            f"norm: of {brief(x)} only the Euclidean one of all elements, got p={p!r}, dim={dim!r}"
        )
    length: Any = x.coalesce()._of.norm(dtype=dtype)
    return length.reshape((1,) * x.ndim) if keepdim else length


def _grouped(op: str, input: Any, dim: int, dtype: DType | None) -> tuple[SparseTensor, Any, int]:
    """A coalesced tensor and, for a sparse dimension, the row along it of each value."""
    x = as_sparse(op, input).coalesce()
    x = x if dtype is None else x.to(dtype)
    if x.dtype.kind != "f":
        raise DTypeError(
            f"{op}: takes floating point, got {brief(x)}; pass dtype=rushlight.float32"
        )
    dim = wrap_dim(dim, x.ndim, op)
    if dim >= x.sparse_dim() or x.dense_dim():
        raise LayoutError(
            f"{op}: takes a sparse dimension of a tensor without dense ones, got {dim} of "
            f"{brief(x)}"
        )
    others = [d for d in range(x.ndim) if d != dim]
    if not others:
        return x, x._at[0] * 0, 1
    sizes = [x._size[d] for d in others]
    return x, linear_index([x._at[d] for d in others], sizes), math.prod(sizes)


def _minus_row_max(x: SparseTensor, group: Any, room: int) -> Any:
    """The values less the largest of their row."""
    low = creation.full((room,), -math.inf, dtype=x.dtype, device=x.device)
    top: Any = low.scatter_reduce(0, group, x._values(), "amax")
    return x._of - top.index_select(0, group)


def softmax(input: Any, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """exp(x) / sum(exp(x)) of the stored values along a dimension."""
    x, group, room = _grouped("sparse.softmax", input, dim, dtype)
    power = _minus_row_max(x, group, room).exp()
    return _like(x, power / added_up(power, group, room).index_select(0, group))


def log_softmax(input: Any, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """log(softmax(x))."""
    x, group, room = _grouped("sparse.log_softmax", input, dim, dtype)
    away = _minus_row_max(x, group, room)
    return _like(x, away - added_up(away.exp(), group, room).index_select(0, group).log())


# ---- methods ----


def _scaled_in_place(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            raise LayoutError(f"{name}: {brief(self)} takes a number in place, got {words(other)}")
        getattr(self._of, name)(other)
        return self

    return method


def _swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


def _install_functions() -> None:
    products = (mm, mv, matmul, addmm, linear)
    elements = (neg, pow, mul, div, add, sub, add_, sub_, sum)
    places = (permute, transpose, t, unsqueeze, index_select, select, cat, stack, zeros_like)
    FUNCTIONS.update({function.__name__: function for function in (*products, *elements, *places)})
    FUNCTIONS.update({name: functools.partial(_zero_kept, name) for name in KEEP_ZERO})
    FUNCTIONS.update(multiply=mul, divide=div, true_divide=div, subtract=sub, negative=neg)
    FUNCTIONS.update(swapaxes=transpose, swapdims=transpose, clone=SparseTensor.clone, norm=norm)
    FUNCTIONS.update(
        {name: getattr(SparseTensor, name) for name in ("numel", "is_floating_point", "is_complex")}
    )


def install() -> None:
    """Register the functions under the names of ops, and on the classes."""
    _install_functions()
    made: dict[str, Any] = {
        name: _as_method(function)
        for name, function in FUNCTIONS.items()
        if name not in ("cat", "stack", "zeros_like", "linear", "clone")
    }
    operators = {"add": add, "sub": sub, "mul": mul, "truediv": div, "matmul": matmul}
    made |= {f"__{symbol}__": _as_method(function) for symbol, function in operators.items()}
    made |= {f"__r{symbol}__": _swapped(function) for symbol, function in operators.items()}
    made |= {
        "__neg__": neg,
        "__pow__": pow,
        "__abs__": made["abs"],
        "__getitem__": get_item,
        "T": property(t),
    }
    made |= {"mul_": _scaled_in_place("mul_"), "div_": _scaled_in_place("div_")}
    made |= {"__imul__": made["mul_"], "__itruediv__": made["div_"], "sparse_mask": sparse_mask}
    for name, method in made.items():
        setattr(SparseTensor, name, method)


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **named: function(self, *args, **named)
