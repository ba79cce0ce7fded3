"""Sparse matrices by rows (CSR): the start of each row, and the column of each value.

# Note [Compressed rows]
1. A `CsrTensor` holds the tensors of a coalesced sparse matrix, in the same order, so its values
   and their gradient are the same. The starts of rows are computed on demand.
2. Its functions are those of the matrix by coordinates; a result that is a sparse matrix is
   converted to rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight import interop, printing
from rushlight.core.dtypes import DType, int32, int64
from rushlight.core.errors import BoundsError, LayoutError, RushlightError, ShapeError
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.sparse.coo import SparseTensor, brief, make, shared, words
from rushlight.tensor import Tensor, as_tensor, tensor


class CsrTensor(SparseTensor):
    """A sparse matrix by rows."""

    __slots__ = ("_kind",)

    _kind: DType  # dtype of the public indices

    @property
    def layout(self) -> Any:
        return creation.sparse_csr

    @property
    def is_sparse(self) -> bool:
        """False: in PyTorch it applies to coordinates."""
        return False

    @property
    def is_sparse_csr(self) -> bool:
        return True

    # ---- indices and values ----

    def crow_indices(self) -> Any:
        """For each row the number of values before it; at the end, the number of all."""
        rows = creation.arange(self._size[0] + 1, device=self._at.device)
        return REGISTRY["searchsorted"].function(self._at[0].contiguous(), rows).to(self._kind)

    def col_indices(self) -> Any:
        """The column of each value."""
        return self._at[1].to(self._kind)

    def values(self) -> Any:
        """The values, row by row; the gradient passes."""
        return shared(self._of)

    def _of_coordinates(self) -> Any:
        raise LayoutError(
            f"indices and coalesce are for sparse tensors by coordinates, got {brief(self)}; use "
            ".to_sparse()"
        )

    indices = coalesce = is_coalesced = _indices = _of_coordinates

    # ---- conversions ----

    def to_sparse_coo(self) -> SparseTensor:
        """The same by coordinates."""
        return make(self._at, self._of, self._size, True)

    def to_sparse(self, *args: Any, layout: Any = None, **named: Any) -> Any:
        if args or named or layout not in (None, creation.sparse_coo, creation.sparse_csr):
            raise LayoutError(
                f"to_sparse: of {brief(self)} by rows one by coordinates is made, not {layout!r} "
                f"{named}"
            )
        return self if layout is creation.sparse_csr else self.to_sparse_coo()

    def to_sparse_csr(self, dense_dim: int | None = None) -> CsrTensor:
        return self

    @property
    def grad(self) -> Any:
        part = self._of.grad
        return None if part is None else by_rows(make(self._at, part, self._size, True), self._kind)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            raise LayoutError("grad: the gradient of a sparse tensor can be set to None only")
        self._of.grad = None

    def instead(self, name: str, args: Any, named: dict[str, Any]) -> Any:
        run = through(lambda *a, **n: self.to_sparse_coo().instead(name, a, n))
        return run(*args, **named)

    def __repr__(self) -> str:
        parts = [
            ("crow_indices", self.crow_indices()),
            ("col_indices", self.col_indices()),
            ("values", self._of),
        ]
        return printing.show_sparse(parts, self._of, self._size, self._nnz(), "sparse_csr")

    def __reduce__(self) -> Any:
        leaf = self.requires_grad and self.is_leaf
        given = (self.crow_indices(), self.col_indices(), self._of.detach(), self._size, leaf)
        return from_pickle, given, self.__dict__ or None


def by_rows(x: SparseTensor, kind: DType = int64) -> CsrTensor:
    """A sparse matrix by coordinates as one by rows."""
    if x.ndim != 2 or x.dense_dim():
        raise LayoutError(
            f"to_sparse_csr: a matrix without dense dimensions is needed, got {brief(x)}"
        )
    whole = x.coalesce()
    made = object.__new__(CsrTensor)
    made._at, made._of, made._size, made._coalesced, made._kind = (
        whole._at,
        whole._of,
        whole._size,
        True,
        kind,
    )
    made._node = made._base = None
    return made


def check_pickled(crow: Any, col: Any, values: Any, size: Any) -> tuple[int, ...]:
    """The size of a pickled matrix, if its tensors fit; elements are read."""
    sizes = interop.pickled_shape(size)
    rows, columns = sizes if len(sizes) == 2 else (-1, -1)
    if any(
        not isinstance(part, Tensor) or isinstance(part, SparseTensor)
        for part in (crow, col, values)
    ):
        raise LayoutError("a pickled sparse matrix: its three parts are dense tensors")
    kinds, ranks = (crow.dtype, col.dtype), (crow.ndim, col.ndim, values.ndim)
    if (
        kinds not in ((int32, int32), (int64, int64))
        or ranks != (1, 1, 1)
        or crow.shape[0] != rows + 1
    ):
        raise LayoutError(
            f"a pickled sparse matrix: parts {crow._spec!r}, {col._spec!r} do not fit a size "
            f"{list(sizes)}"
        )
    if col.shape != values.shape or not crow.device == col.device == values.device:
        raise LayoutError(
            f"a pickled sparse matrix: {col._spec!r} and {values._spec!r} are not as many, in one "
            "place"
        )
    begins, at = crow.numpy(force=True), col.numpy(force=True)
    steps = begins[1:] - begins[:-1]
    if (
        begins[0] != 0
        or begins[-1] != at.size
        or (steps.size and (steps.min() < 0 or begins.min() < 0))
    ):
        raise BoundsError("a pickled sparse matrix: its rows do not begin one behind the other")
    if at.size and (at.min() < 0 or at.max() >= columns):
        raise BoundsError(f"a pickled sparse matrix: a column lies outside of {columns}")
    begun = set(begins.tolist())
    if any(i + 1 not in begun for i in (at[1:] <= at[:-1]).nonzero()[0].tolist()):
        raise RushlightError(
            "a pickled sparse matrix: the columns of a row are not in order, each once"
        )
    return rows, columns


def from_pickle(
    crow: Tensor, col: Tensor, values: Tensor, size: Any, requires_grad: bool
) -> CsrTensor:
    whole = check_pickled(crow, col, values, size)
    made: Any = sparse_csr_tensor(crow, col, values.detach(), whole, check_invariants=False)
    return made.requires_grad_(requires_grad)


# ---- functions ----


def _plain(value: Any) -> Any:
    if isinstance(value, CsrTensor):
        return value.to_sparse_coo()
    return type(value)(_plain(v) for v in value) if isinstance(value, (list, tuple)) else value


def through(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of matrices by coordinates, with sparse results by rows."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        given = next((a for a in (*args, *named.values()) if isinstance(a, CsrTensor)), None)
        result = function(
            *[_plain(a) for a in args], **{name: _plain(a) for name, a in named.items()}
        )
        fits = isinstance(result, SparseTensor) and result.ndim == 2 and not result.dense_dim()
        return by_rows(result, given._kind) if fits and given is not None else result

    return run


_IN_PLACE = (
    "copy_",
    "zero_",
    "mul_",
    "div_",
    "add_",
    "sub_",
    "__imul__",
    "__itruediv__",
    "requires_grad_",
    "detach_",
)
_OWN = (
    "__init__",
    "__new__",
    "__reduce__",
    "__repr__",
    "__deepcopy__",
    "__format__",
    "__len__",
    "__bool__",
    "instead",
)


def install() -> None:
    """Give the class the methods of sparse tensors."""
    for name, method in vars(SparseTensor).items():
        if callable(method) and name not in (*_IN_PLACE, *_OWN) and name not in vars(CsrTensor):
            setattr(CsrTensor, name, through(method))
    rows: Any = CsrTensor
    coordinates: Any = SparseTensor
    rows.T = property(through(coordinates.t))
    for name in ("copy_", "add_", "sub_"):
        setattr(CsrTensor, name, _refused(name))
    coordinates.to_sparse_csr = lambda self, dense_dim=None: by_rows(self)


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **named: Any) -> Any:
        raise LayoutError(
            f"{name}: {brief(self)} by rows keeps its places; make a new one, or write to .values()"
        )

    return method


# ---- construction ----


def _check_invariants(crow: Any, col: Any, values: Any, size: tuple[int, ...]) -> None:
    """Check PyTorch's invariants; elements are read."""

    def require(held: Any, what: str) -> None:
        if not bool(held):
            raise RushlightError(f"sparse_csr_tensor: `{what}` is not satisfied.")

    require(crow[0] == 0, "crow_indices[..., 0] == 0")
    require(crow[-1] == values.shape[0], "crow_indices[..., -1] == nnz")
    steps = crow[1:] - crow[:-1]
    require(
        ((steps >= 0) & (steps <= size[1])).all(),
        "0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols",
    )
    if not values.shape[0]:
        return
    require((col.amin() >= 0) & (col.amax() < size[1]), "0 <= col_indices < ncols")
    rises = col[1:] > col[:-1]
    begins = (
        creation.zeros_like(col)
        .to(crow.dtype)
        .index_fill(0, crow[:-1][crow[:-1] < values.shape[0]].long(), 1)
        > 0
    )
    require(
        (rises | begins[1:]).all(),
        "col_indices[..., crow_indices[..., i - 1]:crow_indices[..., i]] are sorted and distinct",
    )


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CsrTensor:
    """A sparse matrix of the starts of rows, the column of each value, and the values.

    The columns of a row are sorted and distinct. That is checked, which reads the indices, unless
    `check_invariants` is False.
    """
    given = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    kept: Any = shared(given.to(device, dtype))
    crow, col = (x if isinstance(x, Tensor) else tensor(x) for x in (crow_indices, col_indices))
    if crow.dtype not in (int32, int64) or crow.dtype is not col.dtype:
        raise LayoutError(
            f"sparse_csr_tensor: indices are int64 or int32, both the same, got {crow._spec!r}, "
            f"{col._spec!r}"
        )
    if (
        crow.ndim != 1
        or col.ndim != 1
        or kept.ndim != 1
        or col.shape != kept.shape
        or crow.shape[0] < 1
    ):
        raise ShapeError(
            f"sparse_csr_tensor: vectors are needed, a column for each value, got {crow._spec!r}, "
            f"{col._spec!r}, {kept._spec!r}"
        )
    kind = crow.dtype
    crow, col = (as_tensor(x, int64, kept.device).detach() for x in (crow, col))
    if size is None:
        size = (crow.shape[0] - 1, int(col.amax()) + 1 if col.shape[0] else 0)
    size = tuple(int(n) for n in size)
    if len(size) != 2 or size[0] != crow.shape[0] - 1:
        raise ShapeError(
            f"sparse_csr_tensor: a size {list(size)} does not fit {crow.shape[0] - 1} rows of a "
            "matrix"
        )
    if check_invariants is not False:
        _check_invariants(crow, col, kept, size)
    rows = creation.arange(size[0], device=kept.device)
    at = REGISTRY["stack"].function(
        [REGISTRY["repeat_interleave"].function(rows, crow[1:] - crow[:-1]), col]
    )
    if requires_grad:
        kept = kept.detach().requires_grad_()
    return by_rows(make(at, kept, size, True), kind)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    layout: Any = None,
    **named: Any,
) -> CsrTensor:
    """`sparse_csr_tensor`, by its layout."""
    if layout is not creation.sparse_csr:
        raise LayoutError(f"sparse_compressed_tensor: the layout is sparse_csr, got {layout!r}")
    return sparse_csr_tensor(compressed_indices, plain_indices, values, size, **named)


def sampled_addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0
) -> CsrTensor:
    """beta * input + alpha * (mat1 @ mat2), at the stored elements of the CSR `input` only."""
    if not isinstance(input, CsrTensor):
        raise LayoutError(
            f"sampled_addmm: a sparse tensor by rows is needed, got {words(input)}; call "
            ".to_sparse_csr()"
        )
    if (
        mat1.ndim != 2
        or mat2.ndim != 2
        or (mat1.shape[0], mat2.shape[1]) != input._size
        or mat1.shape[1] != mat2.shape[0]
    ):
        raise ShapeError(
            f"sampled_addmm: {words(mat1)} and {words(mat2)} do not make {brief(input)}"
        )
    rows, columns = input._at[0], input._at[1]
    products = (mat1.index_select(0, rows) * mat2.index_select(1, columns).mT).sum(1)
    return by_rows(
        make(input._at, input._of * beta + products * alpha, input._size, True), input._kind
    )
