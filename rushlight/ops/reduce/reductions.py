"""Sums, extremes and their positions, over one dimension, several or all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import (
    COMPLEX,
    FIELD,
    FLOAT,
    INTEGER,
    NUMBER,
    STORED,
    DType,
    bfloat16,
    bool_,
    float16,
    get_default,
    int32,
    int64,
    real_type,
    uint8,
)
from rushlight.core.errors import BoundsError, DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec, numel, wrap_dim
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.declare import elementwise, rowwise
from rushlight.ops.family.rowwise import COMPUTE, DeclaredRow, Rows, call_rows
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts as parts, views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Plan
from rushlight.tape.record.source_line import warn
from rushlight.tape.record.value import Value

Dims = int | Sequence[int] | None

_LAST = (1 << 62) - 1


def _expanded(g: Value, x: Any, dim: int, keepdim: bool) -> Value:
    """The gradient of a sum: expanded along the axis, without a copy."""
    if not keepdim:
        g = views.reshape(g, (*g._spec.shape[:dim], 1, *g._spec.shape[dim:]))
    return views.expand(g, x.shape)


_sum = rowwise(
    "sum", lambda r, x: r.sum(x), "Sum along an axis.", FIELD, kinds=("row",), rule=_expanded
)
_sum_of_halves = rowwise(
    "sum",
    lambda r, x: r.sum(x),
    "Sum of halves along an axis, in float32.",
    (float16, bfloat16),
    kinds=("row",),
    results=(COMPUTE,),
    rule=lambda g, x, dim, keepdim: _expanded(e.cast(g, x.dtype), x, dim, keepdim),
)
_sum_int = rowwise(
    "sum_int",
    lambda r, x: r.sum(s.cast(x, int64)),
    "Sum of integers or of truth values, in int64.",
    (bool_, *INTEGER),
    kinds=("row",),
    results=(int64,),
)
_amax = rowwise(
    "amax", lambda r, x: r.max(x), "Largest; ties share the gradient.", NUMBER, kinds=("row",)
)
_amin = rowwise(
    "amin", lambda r, x: r.min(x), "Smallest; ties share the gradient.", NUMBER, kinds=("row",)
)


def _others(x: Value, dim: int) -> Value:
    """For each element the product of the others along a dimension, by halves, without division."""
    size = x._spec.shape[dim]
    if size < 2:
        return full_spec(Spec.of(x._spec.device, x._spec.dtype, x._spec.shape), 1.0)
    half = size // 2
    left, right = views.slice_dim(x, dim, 0, half), views.slice_dim(x, dim, half, half)
    paired = e.mul(left, right)
    if size % 2:
        paired = views.cat([paired, views.slice_dim(x, dim, size - 1, 1)], dim)
    rest = _others(paired, dim)
    shared = views.slice_dim(rest, dim, 0, half)
    parts = [e.mul(shared, right), e.mul(shared, left)]
    if size % 2:
        parts.append(views.slice_dim(rest, dim, half, 1))
    return views.cat(parts, dim)


class Product(DeclaredRow):
    """The product of a row; its derivative is made of ops, so the next order follows."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        dim, keepdim = plan.static

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            x = values[0]
            return [e.mul(_expanded(grads[0], x._spec, dim, keepdim), _others(x, dim))]

        return Grad(needs, (0,), (), rule)


_product = Product(
    "prod",
    lambda r, x: r.prod(x),
    None,
    NUMBER,
    (),
    ("row",),
    (None,),
    None,
    "Product along an axis.",
)


def _prod(x: Value, dim: int = -1, keepdim: bool = False) -> Value:
    return call_rows(_product, (x,), dim, keepdim)


_prod.__name__ = "prod"


def _complex_prod(x: Value, dim: int = -1, keepdim: bool = False) -> Value:
    """By halves: complex products do not separate into real and imaginary parts."""
    while (size := x._spec.shape[dim]) > 1:
        half = size // 2
        paired = e.mul(views.slice_dim(x, dim, 0, half), views.slice_dim(x, dim, half, half))
        x = views.cat([paired, views.slice_dim(x, dim, size - 1, 1)], dim) if size % 2 else paired
    shape = x._spec.shape
    if not shape[dim]:
        one = Spec.of(x._spec.device, x._spec.dtype, (*shape[:dim], 1, *shape[dim + 1 :]))
        x = e.add(full_spec(one, 1), sum(x, dim, True))  # on the tape
    else:
        x = e.clone(x)
    return x if keepdim else views.squeeze(x, dim)


_complex_prod.__name__ = "prod"


def _position(r: Rows, x: Expr, best: Expr) -> Expr:
    """The first index of the extreme; a NaN is the extreme where there is one."""
    hit = x.eq(best)
    if x.dtype.kind == "f":
        hit = hit | s.isnan(x)
    return r.min(s.where(hit, r.index, const(_LAST, int64)))


_argmax = rowwise(
    "argmax",
    lambda r, x: _position(r, x, r.max(x)),
    "First position of the largest.",
    NUMBER,
    kinds=("row",),
    results=(int64,),
)
_argmin = rowwise(
    "argmin",
    lambda r, x: _position(r, x, r.min(x)),
    "First position of the smallest.",
    NUMBER,
    kinds=("row",),
    results=(int64,),
)
_any = rowwise(
    "any",
    lambda r, x: r.max(s.cast(s.cast(x, bool_), int32)) > 0,  # the largest of no numbers is below 0
    "Any true.",
    STORED,
    kinds=("row",),
    results=(bool_,),
)
_all = rowwise(
    "all",
    lambda r, x: s.cast(r.min(s.cast(s.cast(x, bool_), int32)), bool_),
    "All true.",
    STORED,
    kinds=("row",),
    results=(bool_,),
)


def wrap_dims(dim: Dims, rank: int, op: str) -> tuple[int, ...]:
    """The reduced dimensions, ascending; None and () mean all."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(rank))
    listed = [dim] if isinstance(dim, int) else list(dim)
    dims = [wrap_dim(d, rank, op) for d in listed]
    if len(set(dims)) != len(dims):
        raise ShapeError(f"{op}: a dimension is named twice in {list(listed)}")
    return tuple(sorted(dims))


def reduce_dims(kernel: Callable[..., Value], x: Value, dim: Dims, keepdim: bool) -> Value:
    """Reduce several dimensions by a kernel for one: they are merged first."""
    shape = x._spec.shape
    rank = len(shape)
    dims = wrap_dims(dim, rank, kernel.__name__)
    dims = dims if rank else ()
    if len(dims) == 1:
        return kernel(x, dim=dims[0], keepdim=keepdim)
    final = (
        tuple(1 if i in dims else n for i, n in enumerate(shape))
        if keepdim
        else _reduced_shape(shape, dims)
    )
    if not dims:
        return views.reshape(kernel(views.reshape(x, (1,)), dim=0), ())
    if dims != tuple(range(dims[0], dims[-1] + 1)):
        kept = [i for i in range(rank) if i not in dims]
        x = views.permute(x, (*kept, *dims))
        dims = tuple(range(len(kept), rank))
    sizes = x._spec.shape
    merged = (*sizes[: dims[0]], numel(sizes[dims[0] : dims[-1] + 1]), *sizes[dims[-1] + 1 :])
    return views.reshape(kernel(views.reshape(x, merged), dim=dims[0]), final)


def _reduced_shape(shape: Shape, dims: tuple[int, ...]) -> Shape:
    return tuple(n for i, n in enumerate(shape) if i not in dims)


@composite("sum", out="dtype", pure=True, autocast={"gpu": "dtype"})
def sum(
    input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """Sum over dimensions; integers sum in int64, halves in float32. The order is fixed.

    Example:
        >>> torch.sum(torch.ones(2, 3), dim=1)
        tensor([3., 3.])
        >>> torch.sum(torch.ones(2, 3), dim=1, keepdim=True).shape
        rushlight.Size([2, 1])
    """
    if dtype is not None:
        input = e.cast(input, dtype)
    total = reduce_dims(_sum if input._spec.differentiable else _sum_int, input, dim, keepdim)
    return total if dtype is None else e.cast(total, dtype)


def wide_sum(input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """The sum of floats or complex numbers; of halves it is in float32, which has room for it."""
    is_half = input._spec.dtype in (float16, bfloat16)
    return reduce_dims(_sum_of_halves if is_half else _sum, input, dim, keepdim)


@composite("mean", out="same", pure=True)
def mean(
    input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """Mean over dimensions.

    Example:
        >>> torch.tensor([[1.0, 2.0], [3.0, 6.0]]).mean(dim=1)
        tensor([1.5000, 4.5000])
    """
    if dtype is not None:
        input = e.cast(input, dtype)
    if not input._spec.differentiable:
        raise DTypeError(
            f"mean: takes floating point or complex, got {input._spec!r}; cast with .float() first"
        )
    return e.cast(wide_mean(input, dim, keepdim), input._spec.dtype)


def wide_mean(input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """The mean; of halves it is in float32."""
    count = _count(input, dim, "mean")
    total = wide_sum(input, dim, keepdim)
    return e.div(total, float(count)) if count else e.mul(total, float("nan"))


def _count(x: Value, dim: Dims, op: str) -> int:
    """The number of elements per result."""
    dims = wrap_dims(dim, len(x._spec.shape), op)
    return numel([x._spec.shape[d] for d in dims]) if x._spec.shape else 1


def _needs_elements(x: Value, dim: Dims, op: str) -> None:
    dims = wrap_dims(dim, len(x._spec.shape), op)
    if x._spec.numel == 0 and any(x._spec.shape[d] == 0 for d in dims):
        raise BoundsError(
            f"{op}: the reduced dimension of {x._spec!r} has no elements, so there is no extreme"
        )


def _extreme(kernel: Callable[..., Value], x: Value, dim: Dims, keepdim: bool) -> Value:
    _needs_elements(x, dim, kernel.__name__)
    if x._spec.dtype is bool_:  # the instructions compare numbers only
        return e.cast(reduce_dims(kernel, e.cast(x, int32), dim, keepdim), bool_)
    return reduce_dims(kernel, x, dim, keepdim)


@composite("amax", out="exact", pure=True)
def amax(input: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """Largest element over dimensions; ties share the gradient."""
    return _extreme(_amax, input, dim, keepdim)


@composite("amin", out="exact", pure=True)
def amin(input: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """Smallest element over dimensions; ties share the gradient."""
    return _extreme(_amin, input, dim, keepdim)


@composite("prod", out="dtype", pure=True, autocast={"cpu": "float32", "gpu": "dtype"})
def prod(
    input: Value, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """Product over a dimension or all; integers multiply in int64 unless a dtype is given."""
    if dtype is not None:
        return e.cast(prod(e.cast(input, dtype), dim, keepdim), dtype)
    if input._spec.dtype.kind == "c":
        return reduce_dims(_complex_prod, input, dim, keepdim)
    if input._spec.dtype.kind != "f":
        input = e.cast(input, int64)
    return reduce_dims(_prod, input, dim, keepdim)


def _position_of(
    kernel: Callable[..., Value], x: Value, dim: int | None, keepdim: bool, op: str
) -> Value:
    if dim is not None and not isinstance(dim, int):
        raise TypeError(f"{op}: dim is one dimension or None, got {dim!r}")
    _needs_elements(x, dim, op)
    if dim is None:
        flat = kernel(views.reshape(x, (-1,)), dim=0)
        return views.reshape(flat, (1,) * len(x._spec.shape)) if keepdim else flat
    return reduce_dims(kernel, x, dim, keepdim)


@composite("argmax", out="exact", pure=True)
def argmax(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Position of the largest element, the first of equals.

    Example:
        >>> torch.argmax(torch.tensor([[1, 5], [7, 3]]), dim=1)
        tensor([1, 0])
    """
    return _position_of(_argmax, input, dim, keepdim, "argmax")


@composite("argmin", out="exact", pure=True)
def argmin(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Position of the smallest element, the first of equals.

    Example:
        >>> torch.tensor([3.0, 1.0, 2.0]).argmin()
        tensor(1)
    """
    return _position_of(_argmin, input, dim, keepdim, "argmin")


@composite("any", out="flags", pure=True)
def any_(input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Whether any element is true; of uint8 the result is 0 or 1 in uint8, as in PyTorch."""
    # dim=[] reduces nothing, unlike in sum.
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return _as_uint8(e.ne(input, 0), input)
    return _as_uint8(reduce_dims(_any, input, dim, keepdim), input)


@composite("all", out="flags", pure=True)
def all_(input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Whether all elements are true; of uint8 the result is 0 or 1 in uint8, as in PyTorch."""
    # dim=[] reduces nothing, unlike in sum.
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return _as_uint8(e.ne(input, 0), input)
    return _as_uint8(reduce_dims(_all, input, dim, keepdim), input)


def _as_uint8(answer: Value, x: Value) -> Value:
    return e.cast(answer, uint8) if x._spec.dtype is uint8 else answer


_size_squared = elementwise(
    "size_squared",
    lambda x: s.real(x) * s.real(x) + s.imag(x) * s.imag(x),
    "|x| squared.",
    COMPLEX,
    listed=False,
)


def size_squared(x: Value) -> Value:
    return _size_squared(x) if x._spec.dtype.kind == "c" else e.mul(x, x)


@composite("var", out="cast", pure=True)
def var(
    input: Value,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Value:
    """Variance over dimensions; divides by n - correction, 1 by default.

    Example:
        >>> torch.var(torch.tensor([1.0, 2.0, 3.0]))
        tensor(1.)
        >>> torch.var(torch.tensor([1.0, 2.0, 3.0]), correction=0)
        tensor(0.6667)
    """
    made = wide_var(input, dim, unbiased, keepdim, correction)
    return e.cast(made, real_type(input._spec.dtype))


def wide_var(
    input: Value,
    dim: Dims | bool,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> Value:
    """The variance; of halves it is in float32, which has room for their squares."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = 1 if unbiased else 0
    correction = 1 if correction is None else correction
    if not input._spec.differentiable:
        raise DTypeError(
            f"std and var take floating point or complex, got {input._spec!r}; cast with .float() "
            "first"
        )
    count = _count(input, dim, "var")
    if count <= correction:
        warn(
            f"var or std: degrees of freedom is <= 0, for {count} elements and a correction of "
            f"{correction}; give more elements or correction=0"
        )
    away = e.sub(input, wide_mean(input, dim, True))
    total = sum(size_squared(away), dim, keepdim)
    return e.div(total, float(max(count - correction, 0)))


@composite("logsumexp", out="cast", pure=True, special="logsumexp", autocast={"gpu": "float32"})
def logsumexp(input: Value, dim: Dims, keepdim: bool = False) -> Value:
    """log(sum(exp(input))) without overflow.

    Example:
        >>> torch.logsumexp(torch.zeros(2), dim=0)
        tensor(0.6931)
    """
    if input._spec.dtype.kind == "c":
        top = call.detached(amax(parts.real_part(input), dim, True))
        top = e.select(e.isfinite(top), top, 0.0)
        total = e.add(e.log(sum(e.exp(e.sub(input, top)), dim, True)), top)
        return (
            total
            if keepdim
            else views.reshape(
                total,
                _reduced_shape(
                    input._spec.shape, wrap_dims(dim, len(input._spec.shape), "logsumexp")
                ),
            )
        )
    dtype = input._spec.dtype if input._spec.dtype in FLOAT else get_default()
    return reduce_dims(_logsumexp, e.cast(input, dtype), dim, keepdim)


def _finite_or_zero(x: Expr) -> Expr:
    """A row of -inf has no shift; its result must be -inf, not NaN."""
    return s.where(s.absolute(x).eq(float("inf")), const(0, x.dtype), x)


def _logsumexp_body(r: Rows, x: Expr) -> Expr:
    shift = _finite_or_zero(r.max(x, constant=True))
    return s.log(r.sum(s.exp(x - shift))) + shift


_logsumexp = rowwise(
    "logsumexp",
    _logsumexp_body,
    "log(sum(exp(x))) along an axis.",
    kinds=("row",),
    vjp=lambda r, g, out, x: g * s.exp(x - _finite_or_zero(out)),
)


def sum_to(g: Value, shape: Shape) -> Value:
    """The sum of a broadcast value's copies: the gradient of a broadcast."""
    lead = len(g._spec.shape) - len(shape)
    dims = [i for i, n in enumerate(g._spec.shape) if i < lead or (shape[i - lead] == 1 and n != 1)]
    if dims:
        g = reduce_dims(_sum, g, dims, True)
    return views.reshape(g, shape)
