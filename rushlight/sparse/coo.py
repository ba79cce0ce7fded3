"""The sparse tensor: coordinates and values, and its attributes; no arithmetic.

# Note [Sparse operands]
1. A `SparseTensor` holds two ordinary tensors, the indices (int64, [sparse_dim, nnz]) and the
   values ([nnz, *dense sizes]), and a shape. All of its functions are made of ops on those two, so
   every device and order of derivative follow.
2. It is a `Tensor` for isinstance and has no storage and no spec: reading `_spec` raises
   `SparseOperandError`. Every op reads its operands' specs first, so no dense op can compute with a
   sparse operand by mistake, and the hot path has no test for it.
3. An op's slow path (`declare.elementwise`, `out.tensors_only`) catches the error and calls
   `instead` of the sparse operand: a function of the same name in `FUNCTIONS`, or an error that
   names the op.
4. The gradient belongs to the values. A sparse leaf's values are a leaf, and its `.grad` shows
   their gradient as a sparse tensor, each index once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight import interop, printing
from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import (
    BoundsError,
    LayoutError,
    RushlightError,
    ShapeError,
    SparseOperandError,
)
from rushlight.core.shapes import Size
from rushlight.methods import disabled_torch_function
from rushlight.ops.create import creation
from rushlight.sparse.linear_index import added_up, coordinates, linear_index
from rushlight.tensor import Tensor, as_tensor, tensor

# Implementations for sparse operands, by the op's name.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


class SparseTensor(Tensor):
    """A tensor of which only some elements are stored, each with its coordinates.

    Equal ones add up.
    """

    __slots__ = ("_at", "_coalesced", "_of", "_size")

    __torch_function__ = disabled_torch_function

    _at: Any  # the indices
    _of: Any  # the values
    _size: tuple[int, ...]
    _coalesced: bool  # whether the indices are sorted and distinct

    # ---- attributes ----

    @property
    def _spec(self) -> Any:  # type: ignore[override]
        raise SparseOperandError(
            f"a dense tensor is needed, got {brief(self)}; call .to_dense() first", self
        )

    _memory = storage = _spec

    def instead(self, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """The implementation of the op of that name for sparse operands."""
        function = FUNCTIONS.get(name)
        if function is None:
            raise SparseOperandError(
                f"{name}: takes no sparse tensors, got {brief(self)}; call .to_dense() first", self
            )
        return function(*args, **named)

    @property
    def shape(self) -> Size:
        return Size(self._size)

    @property
    def dtype(self) -> DType:
        return self._of.dtype

    @property
    def device(self) -> Any:
        return self._of.device

    @property
    def ndim(self) -> int:
        return len(self._size)

    @property
    def layout(self) -> Any:
        return creation.sparse_coo

    @property
    def is_sparse(self) -> bool:
        return True

    @property
    def is_cuda(self) -> bool:
        return self._of.is_cuda

    @property
    def is_cpu(self) -> bool:
        return self._of.is_cpu

    @property
    def itemsize(self) -> int:
        return self._of.itemsize

    @property
    def nbytes(self) -> int:
        raise RushlightError(
            "nbytes: not defined for sparse tensors; add those of ._indices() and ._values()"
        )

    def dim(self) -> int:
        return len(self._size)

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        return Size(self._size) if dim is None else self._size[dim]

    def numel(self) -> int:
        return math.prod(self._size)

    nelement = numel

    def __len__(self) -> int:
        return self._size[0]

    def sparse_dim(self) -> int:
        return self._at.shape[0]

    def dense_dim(self) -> int:
        return self._of.ndim - 1

    def _nnz(self) -> int:
        return self._at.shape[1]

    def is_coalesced(self) -> bool:
        return self._coalesced

    def is_floating_point(self) -> Any:
        return self._of.is_floating_point()

    def is_complex(self) -> Any:
        return self._of.is_complex()

    def element_size(self) -> int:
        return self._of.itemsize

    def get_device(self) -> int:
        return self._of.get_device()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    # ---- indices and values ----

    def _indices(self) -> Tensor:
        return self._at

    def _values(self) -> Tensor:
        return self._of.detach()

    def indices(self) -> Tensor:
        """The coordinates of a coalesced tensor, [sparse_dim, nnz]."""
        _check_coalesced(self, "indices")
        return self._at

    def values(self) -> Tensor:
        """The values of a coalesced tensor; the gradient passes."""
        _check_coalesced(self, "values")
        return shared(self._of)

    def coalesce(self) -> SparseTensor:
        """The same tensor with sorted, distinct indices.

        Values of equal ones are added in their order.
        """
        if self._coalesced:
            return self
        sizes = self._size[: self.sparse_dim()]
        line, place = linear_index(self._at, sizes).unique(return_inverse=True)
        return make(
            coordinates(line, sizes), added_up(self._of, place, line.shape[0]), self._size, True
        )

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Any:
        sizes = self._size[: self.sparse_dim()]
        values = self._of if dtype is None else self._of.to(dtype)
        return added_up(values, linear_index(self._at, sizes), math.prod(sizes)).reshape(self._size)

    def to_sparse(self, *args: Any, **named: Any) -> SparseTensor:
        if args or named:
            raise LayoutError(f"to_sparse: {brief(self)} is sparse already; call .to_dense() first")
        return self

    # ---- gradients ----

    @property
    def requires_grad(self) -> bool:
        return self._of.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._of.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self._of.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._of.grad_fn

    @property
    def grad(self) -> Any:
        part = self._of.grad
        return None if part is None else as_gradient(self, part)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            raise LayoutError("grad: the gradient of a sparse tensor can be set to None only")
        self._of.grad = None

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
        *,
        workers: int = 1,
    ) -> None:
        if gradient is None or gradient.shape != self._size:
            given = "none" if gradient is None else str(list(gradient.shape))
            raise ShapeError(
                f"backward: a gradient of the shape of {brief(self)} is needed, got {given}"
            )
        self._of.backward(
            gradient.sparse_mask(self)._of, retain_graph, create_graph, inputs, workers=workers
        )

    def retain_grad(self) -> None:
        self._of.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        raise LayoutError(
            "register_hook: takes no sparse tensors; put the hook on the values it is made of"
        )

    register_post_accumulate_grad_hook = register_hook

    # ---- copies ----

    def detach(self) -> SparseTensor:
        return make(self._at, self._of.detach(), self._size, self._coalesced)

    def detach_(self) -> SparseTensor:
        self._of = self._of.detach()
        return self

    def clone(self, memory_format: Any = None) -> SparseTensor:
        return make(self._at.clone(), self._of.clone(), self._size, self._coalesced)

    def to(self, *args: Any, **named: Any) -> SparseTensor:
        named = {name: a._of if isinstance(a, SparseTensor) else a for name, a in named.items()}
        values = self._of.to(*[a._of if isinstance(a, SparseTensor) else a for a in args], **named)
        if values is self._of:
            return self
        return make(self._at.to(values.device), values, self._size, self._coalesced)

    def copy_(self, other: Any, non_blocking: Any = False) -> SparseTensor:
        """Copy the indices and values of another sparse tensor of the shape into this one."""
        return self._hold(self._fitted(other))

    def _fitted(self, source: Any) -> SparseTensor:
        """A copy of a sparse tensor in this one's dtype and on its device, for `_hold`."""
        if not isinstance(source, SparseTensor) or source._size != self._size or self.requires_grad:
            raise LayoutError(
                f"copy_: {brief(self)} takes a sparse tensor of its shape, without a gradient"
            )
        copied: SparseTensor = source.detach().to(self).clone()
        return copied

    def _hold(self, other: SparseTensor) -> SparseTensor:
        """Hold the indices and values of another of the shape, which has no other holder.

        It cannot fail.
        """
        self._at, self._of, self._coalesced = other._at, other._of, other._coalesced
        return self

    def zero_(self) -> SparseTensor:
        none = (
            self._at.new_zeros((self.sparse_dim(), 0)),
            self._of.detach().new_zeros((0, *self._of.shape[1:])),
        )
        return self.copy_(make(*none, self._size, True))

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:
        if dtype is not None:
            return self.to(dtype=self._of.type(dtype).dtype)
        head, _, word = self._of.type().rpartition(".")
        return f"{head}.sparse.{word}"

    def numpy(self, *, force: Any = False) -> Any:
        raise TypeError(
            f"numpy: takes no sparse tensors, got {brief(self)}; call .to_dense() first"
        )

    def tolist(self) -> Any:
        raise LayoutError(
            f"tolist: takes no sparse tensors, got {brief(self)}; call .to_dense() first"
        )

    def item(self) -> Any:
        if self.numel() != 1:
            raise ShapeError(f"item: {brief(self)} is not one number")
        return self.to_dense().item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RushlightError(f"the truth value of {brief(self)} is ambiguous")
        return bool(self.item())

    def __repr__(self) -> str:
        parts = [("indices", self._at), ("values", self._of)]
        return printing.show_sparse(parts, self._of, self._size, self._nnz(), "sparse_coo")

    def __format__(self, spec: str) -> str:
        return str(self)

    def __reduce__(self) -> Any:
        leaf = self.requires_grad and self.is_leaf
        return (
            from_pickle,
            (self._at, self._of.detach(), self._size, self._coalesced, leaf),
            self.__dict__ or None,
        )

    def __deepcopy__(self, memo: dict[Any, Any]) -> SparseTensor:
        if not self.is_leaf:
            raise RushlightError("only leaves can be deep-copied; .detach() or .clone() a result")
        memo[id(self)] = out = self.detach().clone().requires_grad_(self.requires_grad)
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return out


def make(indices: Any, values: Any, shape: Sequence[int], coalesced: bool) -> SparseTensor:
    """A sparse tensor of indices and values that are known to fit.

    Its values' record is its own.
    """
    made = object.__new__(SparseTensor)
    made._at = indices
    made._of = values
    made._size = tuple(shape)
    made._coalesced = coalesced
    made._node = made._base = None
    return made


def check_pickled(indices: Any, values: Any, shape: Any) -> tuple[int, ...]:
    """The shape of a pickled sparse tensor, if its tensors fit; no element is read."""
    size = interop.pickled_shape(shape)
    if any(
        not isinstance(part, Tensor) or isinstance(part, SparseTensor) for part in (indices, values)
    ):
        raise LayoutError("a pickled sparse tensor: indices and values are dense tensors")
    if indices.dtype is not int64 or indices.device != values.device:
        raise LayoutError(
            "a pickled sparse tensor: indices are int64, where the values are, got "
            f"{indices._spec!r}"
        )
    _check_parts(indices, values)
    _check_bounds(indices, values, size)
    return size


def check_pickled_indices(indices: Any, size: Sequence[int], coalesced: bool) -> None:
    """Check that the indices are in range, and, where `coalesced`, sorted and distinct."""
    at = indices.numpy(force=True)
    bounds = list(zip(at, size, strict=False))
    if at.shape[1] and any(row.min() < 0 or row.max() >= most for row, most in bounds):
        raise BoundsError(
            f"a pickled sparse tensor: indices lie outside of {list(size[: at.shape[0]])}"
        )
    if not coalesced:
        return
    rises, ties = at[0, 1:] > at[0, :-1], at[0, 1:] == at[0, :-1]
    for row in at[1:]:
        rises |= ties & (row[1:] > row[:-1])
        ties &= row[1:] == row[:-1]
    if not rises.all():
        raise RushlightError(
            "a pickled sparse tensor: it is said to be coalesced, but its indices are not in order"
        )


def from_pickle(
    indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool, requires_grad: bool
) -> SparseTensor:
    size = check_pickled(indices, values, shape)
    check_pickled_indices(indices, size, coalesced)
    return make(indices.detach(), values.detach(), size, bool(coalesced)).requires_grad_(
        requires_grad
    )


def as_gradient(of: SparseTensor, part: Any) -> SparseTensor:
    """The gradient of a sparse tensor from that of its values; equal indices are shown once."""
    if of._coalesced or part.shape[0] < 2:
        return make(of._at, part, of._size, of._coalesced)
    sizes = of._size[: of.sparse_dim()]
    line, place = linear_index(of._at, sizes).unique(return_inverse=True)
    once = part.new_zeros((line.shape[0], *part.shape[1:])).index_copy(0, place, part)
    return make(coordinates(line, sizes), once, of._size, True)


def brief(x: SparseTensor) -> str:
    """A short description for messages."""
    return f"a sparse tensor {x.dtype.name}{list(x._size)} of {x._nnz()} values on {x.device}"


def words(x: Any) -> str:
    """The same of any operand."""
    return (
        brief(x)
        if isinstance(x, SparseTensor)
        else repr(x._spec)
        if isinstance(x, Tensor)
        else type(x).__name__
    )


def as_sparse(op: str, x: Any) -> SparseTensor:
    if not isinstance(x, SparseTensor):
        raise LayoutError(
            f"{op}: a sparse tensor is needed, got {words(x)}; call .to_sparse() first"
        )
    return x


def _check_coalesced(x: SparseTensor, what: str) -> None:
    if not x._coalesced:
        raise RushlightError(
            f"{what}: {brief(x)} is not coalesced; call .coalesce() first, or take ._{what}()"
        )


def shared(values: Any) -> Any:
    """The same memory under a new handle: a leaf there is none here."""
    return values.view(values.shape) if values.requires_grad else values.detach()


# ---- construction ----


def _indices_and_values(
    indices: Any, values: Any, dtype: DType | None, device: Any
) -> tuple[Any, Any]:
    """Both as tensors on one device, the values with a record of their own."""
    if isinstance(values, SparseTensor) or isinstance(indices, SparseTensor):
        raise LayoutError("sparse_coo_tensor: indices and values are dense tensors")
    given = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    kept = shared(given.to(device, dtype))
    at = indices if isinstance(indices, Tensor) else tensor(indices)
    return as_tensor(at, int64, kept.device).detach(), kept


def _check_parts(at: Any, values: Any) -> None:
    if at.ndim != 2:
        raise ShapeError(f"sparse_coo_tensor: indices must be sparse_dim x nnz, got {at._spec!r}")
    if not at.shape[0]:
        raise ShapeError(
            f"sparse_coo_tensor: at least one sparse dimension is needed, got indices {at._spec!r}"
        )
    if not values.ndim or values.shape[0] != at.shape[1]:
        raise ShapeError(
            f"sparse_coo_tensor: indices {at._spec!r} and values {values._spec!r} must have the "
            "same nnz, the last size of the one and the first of the other"
        )


def _check_bounds(at: Any, values: Any, size: tuple[int, ...]) -> None:
    sparse = at.shape[0]
    if len(size) != sparse + values.ndim - 1:
        raise ShapeError(
            f"sparse_coo_tensor: a size {list(size)} needs {len(size)} dimensions, got {sparse} "
            f"sparse and {values.ndim - 1} dense ones"
        )
    if any(n < 0 for n in size) or values.shape[1:] != size[sparse:]:
        raise ShapeError(
            f"sparse_coo_tensor: the size {list(size)} does not fit values {values._spec!r}"
        )


def _check_indices(at: Any, size: tuple[int, ...]) -> None:
    """Check that every index is in range; its elements are read."""
    if not at.shape[1]:
        return
    for d, (least, most) in enumerate(zip(at.amin(1).tolist(), at.amax(1).tolist(), strict=True)):
        if least < 0:
            raise RushlightError(f"sparse_coo_tensor: found negative index {least} for dim {d}")
        if most >= size[d]:
            raise RushlightError(
                f"sparse_coo_tensor: size is inconsistent with indices: for dim {d}, size is "
                f"{size[d]} but found index {most}"
            )


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor of coordinates [sparse_dim, nnz] and values; of a size alone, all zeros.

    Indices are checked against the size, which reads their minimum and maximum, unless
    `check_invariants` is False.
    """
    if values is None:
        size = tuple(indices if size is None else size)
        empty = creation.zeros(len(size), 0, dtype=int64, device=device)
        none = creation.zeros(0, dtype=dtype, device=device)
        return make(empty, none, size, True).requires_grad_(requires_grad)
    at, kept = _indices_and_values(indices, values, dtype, device)
    _check_parts(at, kept)
    if size is None:
        most = at.amax(1).tolist() if at.shape[1] else [-1] * at.shape[0]
        size = (*[n + 1 for n in most], *kept.shape[1:])
    size = tuple(int(n) for n in size)
    _check_bounds(at, kept, size)
    if check_invariants is not False:
        _check_indices(at, size)
    if requires_grad:
        kept = kept.detach().requires_grad_()
    return make(at, kept, size, bool(is_coalesced) or at.shape[1] < 2)
