"""Products of vectors and matrices, all made of `matmul` and elementwise products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import ARITHMETIC, bool_, int32, promote
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import broadcast_shapes, numel, wrap_dim
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.older import rearranged
from rushlight.ops.linalg.matmul import added_product, is_half, linear, matmul
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.complex_numbers import conjugate
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import casts, composite, stores
from rushlight.ops.view import views
from rushlight.tape.record.value import Value


def _check_ranks(op: str, *expected: tuple[str, Value, int]) -> None:
    for name, value, rank in expected:
        if not isinstance(value, Value):
            raise DTypeError(f"{op}: {name} must be a tensor, got {type(value).__name__}")
        if len(value._spec.shape) != rank:
            raise ShapeError(f"{op}: {name} must have {rank} dimensions, got {value._spec!r}")


def _check_same(op: str, a: Value, b: Value) -> None:
    if a._spec.dtype is not b._spec.dtype:
        raise DTypeError(
            f"{op}: operands must have one dtype, got {a._spec!r} and {b._spec!r}; cast with "
            ".to(dtype)"
        )


@composite("mm", out="exact", pure=True, autocast="lower")
def mm(input: Value, mat2: Value) -> Value:
    """Product of two matrices.

    Example:
        >>> torch.mm(torch.ones(2, 3), torch.ones(3, 4)).shape
        rushlight.Size([2, 4])
    """
    _check_ranks("mm", ("input", input, 2), ("mat2", mat2, 2))
    return matmul(input, mat2)


@composite("bmm", out="exact", pure=True, autocast="lower")
def bmm(input: Value, mat2: Value) -> Value:
    """Products of two batches of matrices of one length.

    Example:
        >>> torch.bmm(torch.ones(5, 2, 3), torch.ones(5, 3, 4)).shape
        rushlight.Size([5, 2, 4])
    """
    _check_ranks("bmm", ("input", input, 3), ("mat2", mat2, 3))
    if input._spec.shape[0] != mat2._spec.shape[0]:
        raise ShapeError(f"bmm: the batches of {input._spec!r} and {mat2._spec!r} differ in length")
    return matmul(input, mat2)


@composite("mv", out="exact", pure=True, autocast={"gpu": "lower"})
def mv(input: Value, vec: Value) -> Value:
    """Product of a matrix and a vector."""
    _check_ranks("mv", ("input", input, 2), ("vec", vec, 1))
    return matmul(input, vec)


@composite("dot", out="exact", pure=True, autocast={"gpu": "widest"})
def dot(input: Value, tensor: Value) -> Value:
    """Sum of the products of two vectors."""
    _check_ranks("dot", ("input", input, 1), ("tensor", tensor, 1))
    return matmul(input, tensor)


@composite("vdot", out="exact", pure=True, autocast={"gpu": "widest"})
def vdot(input: Value, other: Value) -> Value:
    """Sum of the products of two vectors, the first conjugated."""
    _check_ranks("vdot", ("input", input, 1), ("other", other, 1))
    return matmul(conjugate(input), other)


@composite("inner", out="exact", pure=True, autocast={"cpu": "lower", "gpu": "widest"})
def inner(input: Value, other: Value) -> Value:
    """Sums of products along the last dimension of both; a 0-dim operand multiplies."""
    _check_same("inner", input, other)
    left, right = input._spec.shape, other._spec.shape
    if not left or not right:
        return e.mul(input, other)
    if left[-1] != right[-1]:
        raise ShapeError(f"inner: the last sizes of {input._spec!r} and {other._spec!r} differ")
    return tensordot(input, other, ([-1], [-1]))


def _outer(input: Value, vec2: Value) -> Value:
    return e.mul(views.unsqueeze(input, 1), vec2)


@composite("outer", out="cast", pure=True)
def outer(input: Value, vec2: Value) -> Value:
    """Each element of a vector times each of another.

    Example:
        >>> torch.outer(torch.tensor([1, 2]), torch.tensor([3, 4]))
        tensor([[3, 4],
                [6, 8]])
    """
    _check_ranks("outer", ("input", input, 1), ("vec2", vec2, 1))
    return _outer(input, vec2)


@composite("ger", out="cast")
def ger(input: Value, vec2: Value) -> Value:
    """Each element of a vector times each of another; another name of outer."""
    _check_ranks("ger", ("input", input, 1), ("vec2", vec2, 1))
    return _outer(input, vec2)


# ---- beta * input + alpha * product; `older`: calls with beta and alpha among the tensors ----

_FACTORS = ("beta", "alpha")


def _scaled(value: Value, factor: Any) -> Value:
    if not value._spec.differentiable:
        factor = int(factor)  # as in PyTorch: the fraction is dropped
    return value if factor == 1 else e.mul(value, factor)


def _plus(op: str, input: Value, product: Value, beta: float, alpha: float) -> Value:
    shape = product._spec.shape
    if broadcast_shapes([input._spec.shape, shape], op, [input._spec, product._spec]) != shape:
        raise ShapeError(
            f"{op}: {input._spec!r} does not expand to the product's shape {list(shape)}"
        )
    _check_same(op, input, product)
    product = _scaled(product, alpha)
    # With beta 0 the input is not read: its NaN must not propagate.
    return product if beta == 0 else views.contiguous(e.add(_scaled(input, beta), product))


def _plus_product(op: str, input: Value, a: Value, b: Value, beta: float, alpha: float) -> Value:
    """`_plus` of a product. See Note [One rounding]."""
    dtype = a._spec.dtype
    if beta == 0 or not is_half(dtype) or any(v._spec.dtype is not dtype for v in (input, b)):
        return _plus(op, input, matmul(a, b), beta, alpha)
    shape = (*a._spec.shape[:-1], b._spec.shape[-1])
    if broadcast_shapes([input._spec.shape, shape], op, [input._spec, a._spec]) != shape:
        raise ShapeError(
            f"{op}: {input._spec!r} does not expand to the product's shape {list(shape)}"
        )
    return added_product(input, a, b, beta, alpha)


@composite("addmm", inplace="result", out="exact", pure=True, autocast="lower")
def addmm(
    input: Value, mat1: Value, mat2: Value, *older: Any, beta: float = 1, alpha: float = 1
) -> Value:
    """beta * input + alpha * (mat1 @ mat2).

    Example:
        >>> torch.addmm(torch.ones(2), torch.eye(2), torch.eye(2), beta=2.0)
        tensor([[3., 2.],
                [2., 3.]])
    """
    if older:
        tensors, factors = rearranged("addmm", (input, mat1, mat2, *older), 3, _FACTORS)
        return addmm(*tensors, **factors)
    _check_ranks("addmm", ("mat1", mat1, 2), ("mat2", mat2, 2))
    (_, k), (rows, n) = mat1._spec.shape, mat2._spec.shape
    dtype = input._spec.dtype
    is_bias = dtype.kind == "f" and k == rows and input._spec.shape == (n,)
    if beta == alpha == 1 and is_bias and dtype is mat1._spec.dtype is mat2._spec.dtype:
        return linear(mat1, views.transpose(mat2, 0, 1), input)
    return _plus_product("addmm", input, mat1, mat2, beta, alpha)


@composite(
    "addmv", inplace="result", inplace_top=True, out="exact", pure=True, autocast={"gpu": "lower"}
)
def addmv(
    input: Value, mat: Value, vec: Value, *older: Any, beta: float = 1, alpha: float = 1
) -> Value:
    """beta * input + alpha * (mat @ vec)."""
    if older:
        tensors, factors = rearranged("addmv", (input, mat, vec, *older), 3, _FACTORS)
        return addmv(*tensors, **factors)
    _check_ranks("addmv", ("mat", mat, 2), ("vec", vec, 1))
    if not is_half(mat._spec.dtype):
        return _plus("addmv", input, matmul(mat, vec), beta, alpha)
    column = views.unsqueeze(input, -1) if input._spec.shape else input
    out = _plus_product("addmv", column, mat, views.unsqueeze(vec, -1), beta, alpha)
    return views.squeeze(out, -1)


@composite("addr", inplace="result", out="cast", pure=True, autocast={"gpu": "lower"})
def addr(
    input: Value, vec1: Value, vec2: Value, *older: Any, beta: Any = 1, alpha: Any = 1
) -> Value:
    """beta * input + alpha * outer(vec1, vec2)."""
    if older:
        tensors, factors = rearranged("addr", (input, vec1, vec2, *older), 3, _FACTORS)
        return addr(*tensors, **factors)
    _check_ranks("addr", ("vec1", vec1, 1), ("vec2", vec2, 1))
    dtype = promote(promote(vec1._spec.dtype, vec2._spec.dtype), input._spec.dtype)
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, bool) and dtype is not bool_:
            raise DTypeError(
                f"addr: a bool {name} is for bool tensors, the result is {dtype.name}; give a "
                "number"
            )
        if isinstance(factor, float) and dtype.kind in "biu":
            raise DTypeError(
                f"addr: the {name} of {dtype.name} tensors is an integer, got {factor}"
            )
        if isinstance(factor, complex) and dtype.kind != "c":
            raise DTypeError(f"addr: {name} {factor} is complex, and the result is {dtype.name}")
    if dtype is bool_:
        input, vec1, vec2 = (e.cast(v, int32) for v in (input, vec1, vec2))
        return e.cast(_plus("addr", input, _outer(vec1, vec2), bool(beta), bool(alpha)), bool_)
    return _plus("addr", e.cast(input, dtype), e.cast(_outer(vec1, vec2), dtype), beta, alpha)


@composite("baddbmm", inplace="result", out="exact", pure=True, autocast="lower")
def baddbmm(
    input: Value, batch1: Value, batch2: Value, *older: Any, beta: float = 1, alpha: float = 1
) -> Value:
    """beta * input + alpha * bmm(batch1, batch2).

    Example:
        >>> torch.baddbmm(torch.zeros(1), torch.ones(2, 1, 3), torch.ones(2, 3, 1)).shape
        rushlight.Size([2, 1, 1])
    """
    if older:
        tensors, factors = rearranged("baddbmm", (input, batch1, batch2, *older), 3, _FACTORS)
        return baddbmm(*tensors, **factors)
    _check_ranks("baddbmm", ("batch1", batch1, 3), ("batch2", batch2, 3))
    if batch1._spec.shape[0] != batch2._spec.shape[0]:
        raise ShapeError(
            f"baddbmm: the batches of {batch1._spec!r} and {batch2._spec!r} differ in length"
        )
    return _plus_product("baddbmm", input, batch1, batch2, beta, alpha)


@composite("addbmm", inplace="result", out="exact", pure=True, autocast="lower")
def addbmm(
    input: Value, batch1: Value, batch2: Value, *older: Any, beta: float = 1, alpha: float = 1
) -> Value:
    """beta * input + alpha * the sum of bmm(batch1, batch2) over the batch."""
    if older:
        tensors, factors = rearranged("addbmm", (input, batch1, batch2, *older), 3, _FACTORS)
        return addbmm(*tensors, **factors)
    _check_ranks("addbmm", ("batch1", batch1, 3), ("batch2", batch2, 3))
    if batch1._spec.shape[0] != batch2._spec.shape[0]:
        raise ShapeError(
            f"addbmm: the batches of {batch1._spec!r} and {batch2._spec!r} differ in length"
        )
    # One sum over the batch and the inner size: the batch's matrices side by side.
    (batch, rows, inner), (_, _, columns) = batch1._spec.shape, batch2._spec.shape
    if batch2._spec.shape[1] != inner:
        raise ShapeError(f"addbmm: {batch1._spec!r} and {batch2._spec!r} do not fit")
    left = views.reshape(views.permute(batch1, (1, 0, 2)), (rows, batch * inner))
    right = views.reshape(batch2, (batch * inner, columns))
    return _plus_product("addbmm", input, left, right, beta, alpha)


# ---- any dimensions ----


def _dims_pair(a: Value, b: Value, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, Value):
        dims = dims.tolist()  # type: ignore[attr-defined]
    ranks = len(a._spec.shape), len(b._spec.shape)
    if isinstance(dims, int):
        if not 0 <= dims <= min(ranks):
            raise RushlightError(
                f"tensordot: {dims} dimensions of {a._spec!r} and {b._spec!r} cannot be summed over"
            )
        return list(range(ranks[0] - dims, ranks[0])), list(range(dims))
    if isinstance(dims, str) or len(dims) != 2:
        raise RushlightError(
            f"tensordot: dims is an int or two lists of dimensions, got {dims!r:.60}"
        )
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise ShapeError(
            f"tensordot: as many dimensions of each are needed, got {first} and {second}"
        )
    return [wrap_dim(d, ranks[0], "tensordot") for d in first], [
        wrap_dim(d, ranks[1], "tensordot") for d in second
    ]


@composite(
    "tensordot", method=False, out="exact", pure=True, autocast={"cpu": "lower", "gpu": "widest"}
)
def tensordot(a: Value, b: Value, dims: Any = 2) -> Value:
    """Sums of products over the last dims of a and the first of b, or over pairs of dimensions.

    Args:
        dims: How many dimensions, or which of `a` and which of `b`.

    Example:
        >>> torch.tensordot(torch.ones(2, 3, 4), torch.ones(3, 4, 5), dims=2).shape
        rushlight.Size([2, 5])
    """
    _check_same("tensordot", a, b)
    first, second = _dims_pair(a, b, dims)
    for i, j in zip(first, second, strict=True):
        n, m = a._spec.shape[i], b._spec.shape[j]
        if n != m and 1 not in (n, m):
            raise ShapeError(
                f"tensordot: dimension {i} of {a._spec!r} and {j} of {b._spec!r} differ in size"
            )
        if n == 1 and m != 1:  # a size of 1 broadcasts: the other is summed by itself
            b = reductions.sum(b, j, True, dtype=b._spec.dtype)
        elif m == 1 and n != 1:
            a = reductions.sum(a, i, True, dtype=a._spec.dtype)
    left, right = a._spec.shape, b._spec.shape
    rows = [i for i in range(len(left)) if i not in first]
    columns = [j for j in range(len(right)) if j not in second]
    inside = numel([left[i] for i in first])
    flat_a = views.reshape(
        views.permute(a, (*rows, *first)), (numel([left[i] for i in rows]), inside)
    )
    flat_b = views.reshape(
        views.permute(b, (*second, *columns)), (inside, numel([right[j] for j in columns]))
    )
    return views.reshape(
        matmul(flat_a, flat_b), (*[left[i] for i in rows], *[right[j] for j in columns])
    )


@composite("kron", out="cast", pure=True)
def kron(input: Value, other: Value) -> Value:
    """Kronecker product: a block of `other` for each element of `input`.

    Example:
        >>> torch.kron(torch.eye(2), torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2., 0., 0.],
                [0., 0., 1., 2.]])
    """
    rank = max(len(input._spec.shape), len(other._spec.shape))
    left, right = ((1,) * (rank - len(v._spec.shape)) + v._spec.shape for v in (input, other))
    a = views.reshape(input, tuple(n for size in left for n in (size, 1)))
    b = views.reshape(other, tuple(n for size in right for n in (1, size)))
    return views.reshape(e.mul(a, b), tuple(n * m for n, m in zip(left, right, strict=True)))


_cross_element = elementwise(
    "cross",
    lambda a, b, c, d: a * b - c * d,
    "One element of a cross product.",
    accepts=ARITHMETIC,
    listed=False,
)


@composite("cross", out="exact", pure=True, autocast={"gpu": "widest"})
def cross(input: Value, other: Value, dim: int | None = None) -> Value:
    """Cross product of 3-vectors along a dimension; by default the first of size 3.

    Example:
        >>> torch.cross(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]), dim=0)
        tensor([0., 0., 1.])
    """
    shape = broadcast_shapes(
        [input._spec.shape, other._spec.shape], "cross", [input._spec, other._spec]
    )
    if dim is None:
        if 3 not in shape:
            raise ShapeError(f"cross: no dimension of {list(shape)} has size 3")
        dim = shape.index(3)
    dim = wrap_dim(dim, len(shape), "cross")
    if not shape or shape[dim] != 3 or len(input._spec.shape) != len(other._spec.shape):
        raise ShapeError(
            f"cross: {input._spec!r} and {other._spec!r} need as many dimensions and size 3 along "
            f"{dim}"
        )
    a, b = (views.unbind(views.expand(x, shape), dim) for x in (input, other))
    return views.stack(
        [_cross_element(a[i - 2], b[i - 1], a[i - 1], b[i - 2]) for i in range(3)], dim
    )


@composite("chain_matmul", method=False, autocast="lower")
def chain_matmul(*matrices: Value) -> Value:
    """Product of any number of matrices, in the order with the fewest multiplications."""
    given = matrices[0] if len(matrices) == 1 and not isinstance(matrices[0], Value) else matrices
    if not given:
        raise RushlightError("chain_matmul: at least one matrix is needed")
    _check_ranks("chain_matmul", *((f"matrix {i}", m, 2) for i, m in enumerate(given)))
    return given[0] if len(given) == 1 else multi_dot(given)


@composite("bilinear", method=False, pure=True, autocast={"gpu": "widest"})
def bilinear(input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    """For each output the sum of input1[i] * weight[output, i, j] * input2[j], plus bias."""
    _check_ranks("bilinear", ("weight", weight, 3))
    left, right, (count, n, m) = input1._spec.shape, input2._spec.shape, weight._spec.shape
    fits = left and right and left[:-1] == right[:-1] and left[-1] == n and right[-1] == m
    if not fits or (bias is not None and bias._spec.shape != (count,)):
        raise ShapeError(
            f"bilinear: {input1._spec!r}, {input2._spec!r} and weight {weight._spec!r} do not fit"
        )
    rows = numel(left[:-1])
    table = views.reshape(views.permute(weight, (1, 0, 2)), (n, count * m))
    half = views.reshape(matmul(views.reshape(input1, (rows, n)), table), (rows, count, m))
    whole = matmul(half, views.reshape(input2, (rows, m, 1)))
    out = views.reshape(whole, (*left[:-1], count))
    return out if bias is None else e.add(out, bias)


@casts("lower")
def vecdot(x: Value, y: Value, dim: int = -1) -> Value:
    """Sum of products along a dimension, the first conjugated: linalg.vecdot."""
    product = e.mul(conjugate(x), y)
    if product._spec.dtype is bool_:
        raise DTypeError(f"vecdot: does not take bool, got {x._spec!r} and {y._spec!r}")
    return reductions.sum(product, dim, dtype=product._spec.dtype)


@stores("exact")
def multi_dot(tensors: Sequence[Value]) -> Value:
    """Product of a chain whose ends may be vectors, in the cheapest order: linalg.multi_dot."""
    given = list(tensors)
    if len(given) < 2:
        raise RushlightError(f"multi_dot: at least two tensors are needed, got {len(given)}")
    _check_ranks("multi_dot", *((f"tensor {i + 1}", m, 2) for i, m in enumerate(given[1:-1])))
    for end in (given[0], given[-1]):
        if len(end._spec.shape) not in (1, 2):
            raise ShapeError(
                f"multi_dot: the first and last tensor are vectors or matrices, got {end._spec!r}"
            )
    if len(given) == 2:
        return matmul(given[0], given[1])
    row, column = len(given[0]._spec.shape) == 1, len(given[-1]._spec.shape) == 1
    given[0] = views.unsqueeze(given[0], 0) if row else given[0]
    given[-1] = views.unsqueeze(given[-1], 1) if column else given[-1]
    out = _chained(given, _splits([m._spec.shape[0] for m in given] + [given[-1]._spec.shape[1]]))
    out = views.squeeze(out, 0) if row else out
    return views.squeeze(out, -1) if column else out


def _splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """The cut of each range of a chain of matrices with the fewest multiplications.

    Matrix i is (sizes[i], sizes[i + 1]).
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = {
                k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            }
            cuts[i, j] = min(options, key=options.__getitem__)
            cost[i, j] = options[cuts[i, j]]
    return cuts


def _chained(matrices: Sequence[Value], cuts: dict[tuple[int, int], int]) -> Value:
    """The products in the order of the cuts."""
    parts: dict[tuple[int, int], Value] = {(i, i): m for i, m in enumerate(matrices)}
    wanted = [(0, len(matrices) - 1)]
    for i, j in wanted:  # it grows during the loop
        if i < j:
            wanted += [(i, cuts[i, j]), (cuts[i, j] + 1, j)]
    for i, j in reversed(wanted):
        if i < j:
            parts[i, j] = matmul(parts[i, cuts[i, j]], parts[cuts[i, j] + 1, j])
    return parts[wanted[0]]
