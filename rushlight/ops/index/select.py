"""Reading and writing elements by an index or a mask.

Note [Scattering] in scatter.py has the writes.
"""

from __future__ import annotations

from numbers import Number
from typing import Any

from rushlight.core.dtypes import bool_, int32, int64, real_type, scalar_dtype
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, broadcast_shapes, contiguous_strides, numel, wrap_dim
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import brought
from rushlight.ops.index import gather, nonzero as compaction
from rushlight.ops.index.scatter import LOWEST, extreme, filled, scattered, spread
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import REGISTRY, composite
from rushlight.ops.sort.searchsorted import search
from rushlight.ops.sort.sort import ordered
from rushlight.ops.view import views
from rushlight.ops.view.formats import packed
from rushlight.ops.view.reshaping import ravel
from rushlight.tape.record import call
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.value import Value

_MANY = 1 << 20  # comparisons
NARROW = (1 << 31) - 1  # positions that int32 can count


def lifted(x: Value) -> Value:
    return x if x._spec.shape else views.reshape(x, (1,))


def hits(index: Value, dim: int, shape: Shape) -> Value:
    """How often index names each position of `shape`, in int32."""
    ones = spread(index, int32, index._spec.shape, 1)
    return gather.scatter_add(filled(index, int32, shape, 0), dim, index, ones)


def _check_scatter(op: str, x: Value, dim: int, index: Value, src: Value | None) -> None:
    gather.check_index(op, index)
    shape, wanted = x._spec.shape, index._spec.shape
    fits = len(shape) == len(wanted) and all(
        n <= m for i, (n, m) in enumerate(zip(wanted, shape, strict=True)) if i != dim
    )
    if src is not None:
        given = src._spec.shape
        fits = (
            fits
            and len(given) == len(wanted)
            and all(n <= m for n, m in zip(wanted, given, strict=True))
        )
        if src._spec.dtype is not x._spec.dtype:
            raise DTypeError(
                f"{op}: src {src._spec!r} must have the dtype of {x._spec!r}; cast with .to(dtype)"
            )
    if not fits:
        between = "" if src is None else f"src {src._spec!r} and, except in dimension {dim}, "
        raise ShapeError(f"{op}: index {index._spec!r} must fit into {between}{x._spec!r}")


@composite("scatter", inplace="scatter", out="exact", pure=True)
def scatter(
    input: Value,
    dim: int,
    index: Value,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Value:
    """The input with src, a tensor or a number, at the positions of index along a dimension.

    Example:
        >>> index = torch.tensor([[0, 2], [1, 0]])
        >>> torch.scatter(torch.zeros(2, 3), 1, index, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[1., 0., 2.],
                [4., 3., 0.]])
    """
    if src is not None and value is not None:
        raise TypeError("scatter(): pass src or value, not both")
    src = value if src is None else src
    if isinstance(src, Number) and hasattr(src, "item"):
        src = src.item()  # a NumPy number
    if not isinstance(src, (Value, bool, int, float, complex)):
        raise DTypeError(f"scatter: src must be a tensor or a number, got {type(src).__name__}")
    dim = wrap_dim(dim, len(input._spec.shape), "scatter")
    x, at = lifted(input), lifted(index)
    if not isinstance(src, Value):
        number: Any = src
        number = number if input._spec.differentiable else int(number)
        src = spread(input, input._spec.dtype, at._spec.shape, number)
    src = lifted(src)
    if at._spec.numel == 0:
        gather.check_index("scatter", index)
        return e.clone(input)
    _check_scatter("scatter", x, dim, at, src)
    if reduce is not None:
        kinds = {"add": "sum", "multiply": "prod"}
        if reduce not in kinds:
            raise ShapeError(f"scatter: reduce is 'add' or 'multiply', got {reduce!r}")
        return scatter_reduce(input, dim, index, src, kinds[reduce])
    return views.reshape(scattered("set", x, dim, at, _first(src, at)), input._spec.shape)


def _first(src: Value, index: Value) -> Value:
    """The part of src that an index uses: the index may be smaller."""
    for i, n in enumerate(index._spec.shape):
        src = views.slice_dim(src, i, 0, n)
    return src


def _multiplied(x: Value, dim: int, index: Value, src: Value) -> Value:
    """x times src at index, slice by slice, for complex numbers."""
    for k in range(index._spec.shape[dim]):
        at = views.slice_dim(index, dim, k, 1)
        x = scattered(
            "set", x, dim, at, e.mul(gather.gather(x, dim, at), views.slice_dim(src, dim, k, 1))
        )
    return x


def _reduced(
    x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool
) -> Value:
    dtype = x._spec.dtype
    if not include_self:
        start = extreme(dtype, LOWEST[reduce]) if reduce in LOWEST else int(reduce == "prod")
        x = scattered("set", x, dim, index, spread(x, dtype, index._spec.shape, start))
    if reduce == "prod" and dtype.kind == "c":
        return _multiplied(x, dim, index, src)
    if reduce not in ("sum", "mean"):
        return scattered(reduce, x, dim, index, src)
    total = gather.scatter_add(x, dim, index, src)
    if reduce == "sum":
        return total
    counts = hits(index, dim, x._spec.shape)
    parts = e.add(counts, 1) if include_self else e.maximum(counts, 1)
    if dtype.kind in "fc":
        return e.div(total, e.cast(parts, real_type(dtype)))
    return e.cast(e.floor_divide(total, e.cast(parts, int64)), dtype)


@composite("scatter_reduce", inplace="fold", out="exact", pure=True)
def scatter_reduce(
    input: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The input reduced with src at index: sum, prod, mean, amax or amin.

    Equal ones share a gradient. Example:
        >>> index = torch.tensor([0, 1, 0])
        >>> src = torch.tensor([1.0, 2.0, 3.0])
        >>> torch.scatter_reduce(torch.zeros(2), 0, index, src, 'amax')
        tensor([3., 2.])
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ShapeError(f"scatter_reduce: reduce is sum, prod, mean, amax or amin, got {reduce!r}")
    dim = wrap_dim(dim, len(input._spec.shape), "scatter_reduce")
    x, at, given = lifted(input), lifted(index), lifted(src)
    if at._spec.numel == 0:
        return e.clone(input)
    _check_scatter("scatter_reduce", x, dim, at, given)
    given = _first(given, at)
    if x._spec.dtype is bool_:
        x, given = e.cast(x, int32), e.cast(given, int32)
    out = _reduced(x, dim, at, given, reduce, include_self)
    return views.reshape(e.cast(out, input._spec.dtype), input._spec.shape)


# ---- slices of a dimension ----


def _slices(
    op: str, x: Value, dim: int, index: Value, source: Value | None
) -> tuple[int, Value, Value | None]:
    """(dim, the 1-d index expanded over x's other dimensions, the source), checked."""
    dim = wrap_dim(dim, len(x._spec.shape), op)
    gather.check_index(op, index)
    if len(index._spec.shape) > 1:
        raise IndexError(f"{op}: the index must have one dimension, got {index._spec!r}")
    wide, count = lifted(x)._spec.shape, index._spec.numel
    shape = (*wide[:dim], count, *wide[dim + 1 :])
    if source is not None:
        source = lifted(source)
        if source._spec.dtype is not x._spec.dtype:
            raise DTypeError(
                f"{op}: source {source._spec!r} must have the dtype of {x._spec!r}; cast with "
                ".to(dtype)"
            )
        if source._spec.shape != shape:
            raise ShapeError(
                f"{op}: source {source._spec!r} must have the shape {list(shape)} for {x._spec!r}"
            )
    line = views.reshape(index, (count,) + (1,) * (len(wide) - dim - 1))
    return dim, views.expand(line, shape), source


@composite("index_add", inplace="scatter", out="exact", pure=True)
def index_add(input: Value, dim: int, index: Value, source: Value, *, alpha: float = 1) -> Value:
    """The input with slices of source, times alpha, added to those at index.

    Example:
        >>> torch.index_add(torch.zeros(3), 0, torch.tensor([2, 2]), torch.tensor([1.0, 5.0]))
        tensor([0., 0., 6.])
    """
    dim, _, given = _slices("index_add", input, dim, index, source)
    assert given is not None
    given = given if alpha == 1 else e.mul(given, alpha)
    out = added_slices(lifted(input), dim, index, e.cast(given, input._spec.dtype))
    return views.reshape(out, input._spec.shape)


@composite("index_copy", inplace="scatter", out="exact", pure=True, autocast={"cpu": "widest"})
def index_copy(input: Value, dim: int, index: Value, source: Value) -> Value:
    """The input with the slices at index replaced by those of source.

    Example:
        >>> torch.index_copy(torch.zeros(3), 0, torch.tensor([2, 0]), torch.tensor([1.0, 5.0]))
        tensor([5., 0., 1.])
    """
    dim, at, given = _slices("index_copy", input, dim, index, source)
    assert given is not None
    x = lifted(input)
    if at._spec.numel == 0:
        return e.clone(input)
    return views.reshape(scattered("set", x, dim, at, given), input._spec.shape)


def written_slices(x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with the slices of a dimension at a vector of indices replaced.

    The last of equal ones stays.
    """
    dim, at, _ = _slices("index", x, dim, index, None)
    return scattered("set", x, dim, at, source)


def added_slices(x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with slices added to those of a dimension at a vector of indices.

    Bools are combined by `or`.
    """
    dim, at, _ = _slices("index", x, dim, index, None)
    if x._spec.dtype is not bool_:
        return gather.scatter_add(x, dim, at, source)
    return e.cast(gather.scatter_add(e.cast(x, int32), dim, at, e.cast(source, int32)), bool_)


@composite("index_fill", inplace="scatter", pure=True)
def index_fill(input: Value, dim: int, index: Value, value: complex | Value) -> Value:
    """The input with the slices at index filled with a number or a 0-dim tensor.

    Example:
        >>> torch.index_fill(torch.zeros(2, 3), 1, torch.tensor([0, 2]), 7.0)
        tensor([[7., 0., 7.],
                [7., 0., 7.]])
    """
    if isinstance(value, Value) and value._spec.shape:
        raise ShapeError(f"index_fill: the value must be a number or 0-dim, got {value._spec!r}")
    if isinstance(value, Value):
        value = brought(value, input._spec.device)
    if isinstance(value, complex) and input._spec.dtype.kind != "c":
        raise DTypeError(
            f"index_fill: the complex number {value} does not fit into {input._spec!r}"
        )
    dim, _, _ = _slices("index_fill", input, dim, index, None)
    x = lifted(input)
    line = gather.from_end(views.reshape(index, (index._spec.numel,)), x._spec.shape[dim])
    if not line._spec.numel or not x._spec.numel:
        return e.clone(input)
    if isinstance(value, Value) and is_followed(value):
        return _filled_where(x, dim, line, value, input)
    dim, at, _ = _slices("index_fill", x, dim, line, None)
    number: Any = value
    new = value if isinstance(value, Value) else filled(input, input._spec.dtype, (), number)
    src = views.expand(e.cast(new, input._spec.dtype), at._spec.shape)
    return views.reshape(scattered("set", x, dim, at, src), input._spec.shape)


def _filled_where(x: Value, dim: int, line: Value, value: Value, input: Value) -> Value:
    """`index_fill` by a mask, so that a slice named twice counts once in the value's gradient."""
    size = x._spec.shape[dim]
    column = views.reshape(hits(line, 0, (size,)), (size, *(1,) * (len(x._spec.shape) - 1 - dim)))
    out = e.select(e.gt(column, 0), e.cast(value, x._spec.dtype), x)
    return views.reshape(views.contiguous(out), input._spec.shape)


@composite("index_reduce", inplace="fold", out="exact")
def index_reduce(
    input: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The input with slices of source reduced into those at index: prod, mean, amax or amin.

    Example:
        >>> index = torch.tensor([0, 0])
        >>> torch.index_reduce(torch.ones(2), 0, index, torch.tensor([3.0, 4.0]), 'prod')
        tensor([12.,  1.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ShapeError(f"index_reduce: reduce is prod, mean, amax or amin, got {reduce!r}")
    dim, at, given = _slices("index_reduce", input, dim, index, source)
    assert given is not None
    return views.reshape(
        scatter_reduce(lifted(input), dim, at, given, reduce, include_self=include_self),
        input._spec.shape,
    )


# ---- single elements ----


@composite("take", out="exact", pure=True)
def take(input: Value, index: Value) -> Value:
    """The elements at row-major positions; negative ones count from the end.

    Example:
        >>> torch.take(torch.tensor([[4, 3], [5, 2]]), torch.tensor([0, 3]))
        tensor([4, 2])
    """
    gather.check_index("take", index)
    flat = ravel(input)
    at = gather.from_end(views.reshape(index, (index._spec.numel,)), flat._spec.numel)
    return views.reshape(gather.gather(flat, 0, at), index._spec.shape)


@composite("put", inplace="scatter", pure=True)
def put(input: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """The input with source at row-major positions, or added there.

    Example:
        >>> torch.put(torch.zeros(2, 2), torch.tensor([1, 2]), torch.tensor([5.0, 6.0]))
        tensor([[0., 5.],
                [6., 0.]])
    """
    gather.check_index("put", index)
    if source._spec.dtype is not input._spec.dtype:
        raise DTypeError(
            f"put: source {source._spec!r} must have the dtype of {input._spec!r}; cast with "
            ".to(dtype)"
        )
    if source._spec.numel != index._spec.numel:
        raise IndexError(
            f"put: source {source._spec!r} must have as many elements as index {index._spec!r}"
        )
    if not index._spec.numel:
        return e.clone(input)
    flat, new = ravel(input), ravel(source)
    at = gather.from_end(ravel(index), flat._spec.numel)
    if not accumulate:
        return views.reshape(scattered("set", flat, 0, at, new), input._spec.shape)
    if flat._spec.dtype is bool_:
        flat, new = e.cast(flat, int32), e.cast(new, int32)
    out = e.cast(gather.scatter_add(flat, 0, at, new), input._spec.dtype)
    return views.reshape(out, input._spec.shape)


@composite("take_along_dim", out="exact", pure=True)
def take_along_dim(input: Value, indices: Value, dim: int | None = None) -> Value:
    """`gather` with an index that broadcasts against the input in the other dimensions.

    Example:
        >>> x = torch.tensor([[3, 1, 2]])
        >>> torch.take_along_dim(x, torch.argsort(x, 1), 1)
        tensor([[1, 2, 3]])
    """
    gather.check_index("take_along_dim", indices)
    if dim is None:
        return gather.gather(ravel(input), 0, gather.from_end(ravel(indices), input._spec.numel))
    rank = len(input._spec.shape)
    if len(indices._spec.shape) != rank:
        raise ShapeError(
            f"take_along_dim: {indices._spec!r} and {input._spec!r} must have equally many "
            "dimensions"
        )
    dim = wrap_dim(dim, rank, "take_along_dim")
    shape, wanted = list(input._spec.shape), list(indices._spec.shape)
    size, count = shape[dim], wanted[dim]
    shape[dim] = wanted[dim] = 1
    common = list(
        broadcast_shapes(
            [tuple(shape), tuple(wanted)], "take_along_dim", [input._spec, indices._spec]
        )
    )
    wide = views.expand(input, (*common[:dim], size, *common[dim + 1 :]))
    at = views.expand(gather.from_end(indices, size), (*common[:dim], count, *common[dim + 1 :]))
    return gather.gather(wide, dim, at)


# ---- masks ----


def check_mask(op: str, mask: Value) -> Value:
    if mask._spec.dtype is not bool_:
        raise DTypeError(f"{op}: the mask must be bool, got {mask._spec!r}; cast with .bool()")
    return mask


@composite("masked_select", out="exact")
def masked_select(input: Value, mask: Value) -> Value:
    """The elements where the mask is true, as a vector; their number is read from the device.

    Example:
        >>> x = torch.tensor([1, -2, 3])
        >>> torch.masked_select(x, x > 0)
        tensor([1, 3])
    """
    check_mask("masked_select", mask)
    shape = broadcast_shapes(
        [input._spec.shape, mask._spec.shape], "masked_select", [input._spec, mask._spec]
    )
    flat = views.reshape(views.expand(input, shape), (numel(shape),))
    return gather.gather(flat, 0, compaction.chosen(views.expand(mask, shape)))


@composite("masked_scatter", inplace="result")
@packed
def masked_scatter(input: Value, mask: Value, source: Value) -> Value:
    """The input with the first elements of source, in order, where the mask is true.

    Example:
        >>> mask = torch.tensor([True, False, True])
        >>> torch.masked_scatter(torch.zeros(3), mask, torch.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    check_mask("masked_scatter", mask)
    if source._spec.dtype is not input._spec.dtype:
        raise DTypeError(
            f"masked_scatter: source {source._spec!r} must have the dtype of {input._spec!r}"
        )
    shape = broadcast_shapes(
        [input._spec.shape, mask._spec.shape], "masked_scatter", [input._spec, mask._spec]
    )
    if not numel(shape):
        return e.clone(views.expand(input, shape))
    chosen = views.expand(mask, shape)
    flat = views.reshape(chosen, (numel(shape),))
    number = e.sub(compaction.running(flat), 1)
    # A position beyond the source is an index out of range there, which raises; unselected elements
    # read the first.
    at = e.select(flat, number, 0)
    given = ravel(source) if source._spec.numel else filled(source, source._spec.dtype, (1,), 0)
    new = views.reshape(gather.gather(given, 0, at), shape)
    return e.select(chosen, new, views.expand(input, shape))


def _coordinates(places: Value, shape: Shape, missing: int | None = None) -> list[Value]:
    """Row-major positions as an index per dimension."""
    narrow = numel(shape) <= NARROW  # devices divide int32 several times as fast
    rest = e.cast(places, int32) if narrow and len(shape) > 1 else places
    found = []
    for step in contiguous_strides(shape)[:-1]:
        here = e.floor_divide(rest, max(step, 1))
        rest = e.sub(rest, e.mul(here, step))
        found.append(here)
    found = [e.cast(c, int64) for c in (*found, rest)]
    return found if missing is None else [e.select(e.lt(places, 0), missing, c) for c in found]


def nonzero_each(x: Value) -> list[Value]:
    """An index vector per dimension of the nonzero elements.

    Their number is read from the device.
    """
    return _coordinates(compaction.chosen(e.cast(x, bool_)), x._spec.shape)


@composite("nonzero", out="exact")
def nonzero(input: Value, *, as_tuple: bool = False) -> Any:
    """The nonzero elements: a row of coordinates each, or an index vector per dimension.

    Example:
        >>> torch.nonzero(torch.tensor([[0, 1], [2, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    if as_tuple:
        return tuple(nonzero_each(lifted(input)))
    if not input._spec.shape:
        count = compaction.count_of(e.cast(input, bool_))
        return filled(input, int64, (count, 0), 0)
    return views.stack(nonzero_each(input), 1)


@composite("argwhere")
def argwhere(input: Value) -> Value:
    """The nonzero elements: a row of coordinates each.

    Example:
        >>> torch.argwhere(torch.tensor([0, 3, 4]))
        tensor([[1],
                [2]])
    """
    return nonzero(input)


@composite("nonzero_static", out="exact")
def nonzero_static(input: Value, *, size: int, fill_value: int = -1) -> Value:
    """`nonzero` cut or filled up to `size` rows: nothing is read from the device."""
    if size < 0:
        raise ShapeError(f"nonzero_static: size must not be negative, got {size}")
    shape = input._spec.shape
    if not shape or not size:
        return filled(input, int64, (size, len(shape)), fill_value)
    places = compaction.places(e.cast(input, bool_), size, -1)
    return views.stack(_coordinates(places, shape, fill_value), 1)


# ---- comparisons ----


@composite(
    "isin",
    method=False,
    out="exact",
    pure=True,
    keywords={"element": "elements", "test_element": "test_elements"},
)
def isin(
    elements: Value | float,
    test_elements: Value | float,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Value:
    """Whether each element is among the others: compared with each, or, for many, by binary search.

    Example:
        >>> torch.isin(torch.tensor([1, 2, 3]), torch.tensor([3, 1]))
        tensor([ True, False,  True])
    """
    known = elements if isinstance(elements, Value) else test_elements
    if not isinstance(known, Value):
        raise DTypeError("isin: at least one of elements and test_elements must be a tensor")
    if not isinstance(elements, Value):
        elements = filled(known, scalar_dtype(elements), (), elements)
    if not isinstance(test_elements, Value):
        found = e.eq(elements, test_elements)
    elif (
        elements._spec.numel * test_elements._spec.numel > _MANY and test_elements._spec.numel > 64
    ):
        line = ordered(ravel(call.detached(test_elements)), 0, op="isin")[0]
        wanted = ravel(call.detached(elements))
        place = e.minimum(search(line, wanted, False), line._spec.numel - 1)
        found = views.reshape(e.eq(gather.gather(line, 0, place), wanted), elements._spec.shape)
    else:
        found = reductions.any_(e.eq(views.unsqueeze(elements, -1), ravel(test_elements)), -1)
    return e.logical_not(found) if invert else found


@composite("equal")
def equal(input: Value, other: Value) -> bool:
    """Whether shapes and all elements are equal; the result is read from the device."""
    if input._spec.shape != other._spec.shape:
        return False
    return bool(read_back.read(reductions.all_(e.eq(input, other)))[0])


@composite("allclose")
def allclose(
    input: Value, other: Value, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close; the result is read from the device."""
    close = REGISTRY["isclose"].function(input, other, rtol, atol, equal_nan)
    return bool(read_back.read(reductions.all_(close))[0])
