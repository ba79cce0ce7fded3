"""The user's handle: operators, methods, printing, indexing, interop.

Methods that are ops come from the registry; the others are written here.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from rushlight import interop, methods
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import OperandError, RushlightError, RushlightWarning, ShapeError
from rushlight.core.shapes import Size
from rushlight.devices.shared.registry import pool_of
from rushlight.naming import device as device, device_of
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface import wiring
from rushlight.ops.view import complex_parts, inplace, layouts
from rushlight.tape.program.known import PLAIN
from rushlight.tape.record import call
from rushlight.tape.record.hook_tables import RemovableHandle, add_to
from rushlight.tape.record.needed import Needed, edge_of, provide_later
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Leaf, Node, Output, Value, shown
from rushlight.tape.record.written import mark_hidden
from rushlight.tape.walk.hooks import Kept, check_same, hook_value
from rushlight.tape.walk.roots import backward, backward_from

__all__ = ["RemovableHandle", "Size", "Tensor", "device", "tensor", "wiring"]


class Tensor(Value):
    """An n-dimensional array on a device, with its record on the tape."""

    # For attributes that users set; copies and files keep them.
    __slots__ = (
        "__dict__",
        "kept_grad",
    )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        # Set by `methods.install`; declared here as far as the package uses them.
        __getitem__: Any
        __setitem__: Any
        __neg__: Any
        __add__: Any
        __sub__: Any
        __mul__: Any
        __truediv__: Any
        __matmul__: Any

    def __new__(cls, *args: Any, device: Any = None) -> Any:
        """PyTorch's older constructor: memory of a shape (sizes), or data in the default dtype.

        The package itself makes tensors with `object.__new__`.
        """
        if cls is not Tensor:
            return Needed.construct_subclass(cls, args, device)
        if len(args) == 1 and isinstance(args[0], Value):
            return args[0].view(*args[0]._spec.shape).detach()  # type: ignore[attr-defined]
        if len(args) == 1 and not isinstance(args[0], (int, Size)):
            return tensor(args[0], dtype=dtypes.get_default(), device=device)
        return creation.empty(*(args or (0,)), device=device)

    # ---- attributes ----

    @property
    def shape(self) -> Size:
        """The size of each dimension."""
        return self._spec.size

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._spec.dtype

    @property
    def device(self) -> Any:
        """The device that holds the elements."""
        return device_of(self._spec.device.device.name)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._spec.shape)

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self._spec.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self._spec.size if dim is None else self._spec.shape[dim]

    @property
    def real(self) -> Any:
        return complex_parts.real_part(self)

    @real.setter
    def real(self, value: Any) -> None:
        complex_parts.real_part(self).copy_(value)  # type: ignore[attr-defined]

    @property
    def imag(self) -> Any:
        return complex_parts.imag_part(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        complex_parts.imag_part(self).copy_(value)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        if not self._spec.shape:
            raise TypeError("len() of a 0-dim tensor")
        return self._spec.shape[0]

    # ---- gradients ----

    @property
    def requires_grad(self) -> bool:
        """Whether gradients of this tensor are computed."""
        return edge_of(self) is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients of this leaf are computed."""
        edge = edge_of(self)
        if requires_grad and edge is None:
            kept = self._kept()
            creation.requiring(self, True)
            self._node.grad = None if kept is None else kept.grad
        elif not requires_grad and edge is not None:
            if type(edge) is not Leaf:
                raise RushlightError(
                    "requires_grad can only be changed on leaves; use .detach() on a result"
                )
            self._node = None
            self._keep(edge.grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        edge = edge_of(self)
        return edge is None or type(edge) is Leaf

    @property
    def grad_fn(self) -> Node | None:
        """The record of the op that made this tensor; None for a leaf."""
        edge = edge_of(self)
        if edge is None or type(edge) is Leaf:
            return None
        return shown(edge.node if type(edge) is Output else edge)  # type: ignore[no-any-return]

    def _kept(self) -> Kept | None:
        try:
            found: Kept = object.__getattribute__(self, "kept_grad")
            return found
        except AttributeError:
            return None

    def _keep(self, grad: Value | None) -> None:
        """Store this gradient, where there is no leaf for it."""
        kept = self._kept()
        if kept is None and grad is not None:
            kept = self.kept_grad = Kept()
        if kept is not None:
            kept.grad = grad

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` summed here, or None."""
        edge = self._node
        if type(edge) is Leaf:
            return edge.grad  # type: ignore[return-value]
        kept = self._kept()
        return None if kept is None else kept.grad  # type: ignore[return-value]

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if value is self:
                raise RushlightError("grad: a tensor cannot be its own gradient")
            if isinstance(value, Tensor) and value.is_sparse:
                value.check_as_gradient(self._spec)
            else:
                check_same(lambda: "grad: what is assigned", self._spec, value)
        edge = self._node
        if type(edge) is Leaf:
            edge.grad = value
        else:
            self._keep(value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
        *,
        workers: int = 1,
    ) -> None:
        """Sum the gradients of this value into the leaves' `.grad`."""
        usual = inputs is None and not create_graph and type(workers) is int and workers == 1
        if usual and backward_from(self, gradient, bool(retain_graph)):
            return
        backward([self], [gradient], retain_graph, create_graph, None, inputs, workers=workers)

    def detach(self) -> Tensor:
        """The same memory without a record."""
        return call.detached(self)  # type: ignore[return-value]

    @property
    def data(self) -> Tensor:
        """The same memory without a record; assigning replaces the memory.

        Writes to it are not counted by `_version`: see Note [Writes through data].
        """
        made = self.detach()
        if not made._spec.hidden:
            mark_hidden(made)
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        Needed.replace_data(self, value)

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook` with the summed gradient of this value.

        a result that is not None replaces it.
        """
        if edge_of(self) is None:
            raise RushlightError("register_hook: the tensor does not require gradients")
        return hook_value(self._node, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> RemovableHandle:
        """Call `hook` with this leaf after its `.grad` has been summed."""
        if type(self._node) is not Leaf:
            raise RushlightError(
                "register_post_accumulate_grad_hook: only leaves that require gradients have one"
            )
        return add_to(self._node.post_hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a value that is not a leaf in its `.grad`."""
        if edge_of(self) is None:
            raise RushlightError("retain_grad: the tensor does not require gradients")
        if type(self._node) is Leaf or self.retains_grad:
            return
        kept = self._kept()
        if kept is None:
            kept = self.kept_grad = Kept()
        kept.follow(self._node)

    @property
    def retains_grad(self) -> bool:
        """Whether this is no leaf and its gradient is kept."""
        kept = self._kept()
        return kept is not None and kept.retains and not self.is_leaf

    # ---- dtypes, devices, host ----

    def to(self, *args: Any, **named: Any) -> Tensor:
        """Another dtype or device: to(dtype), to(device), to(other), to(device, dtype)."""
        dtype: DType | None = dtypes.PYTHON.get(named.get("dtype"), named.pop("dtype", None))
        where: Any = named.pop("device", None)
        copy = named.pop("copy", False)
        memory_format = named.pop("memory_format", None)
        given_other = named.pop("other", None)
        non_blocking = named.pop("non_blocking", False)
        creation.take("to", named)
        flags: list[Any] = []  # non_blocking, copy
        for given in args if given_other is None else (*args, given_other):
            if isinstance(given, DType) or given in dtypes.PYTHON:
                dtype = dtypes.PYTHON.get(given, given)
            elif isinstance(given, Value):
                dtype, where = given._spec.dtype, given._spec.device.device.name
            elif isinstance(given, (str, device)):
                where = given
            elif isinstance(given, dtypes_bool):
                flags.append(given)
            elif isinstance(given, int):  # a card's number
                where = given
            elif given is not None:
                raise TypeError(
                    f"to(): takes a type, a device or a tensor, got {type(given).__name__}"
                )
        copy = flags[1] if len(flags) > 1 else copy
        if dtype is not None and self._spec.dtype.kind == "c" and dtype.kind not in "cb":
            warnings.warn(
                f"to: complex numbers as {dtype.name} lose their imaginary parts",
                UserWarning,
                stacklevel=2,
            )
        out: Value = self if dtype is None else e.cast(self, dtype)
        if where is not None:
            non_blocking = bool(flags[0] if flags else non_blocking)
            out = interop.move(out, pool_of(creation.device_name(where)), non_blocking)
        if copy and out is self:
            out = layouts.clone(self)
        kept = memory_format is None or memory_format is creation.preserve_format
        return out if kept else layouts.converted(out, memory_format)  # type: ignore[return-value]

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:
        """The dtype's legacy name (torch.FloatTensor), or the tensor in another dtype."""
        if dtype is None:
            word = dtypes.WORDS.get(self._spec.dtype, self._spec.dtype.name)
            return f"torch.{'cuda.' if self.device.type == 'cuda' else ''}{word}Tensor"
        if dtype is Tensor:
            return self.to(dtypes.get_default())
        where: Any
        if isinstance(dtype, str):
            wanted, where = dtypes.by_word(dtype), "cuda" if ".cuda." in dtype else "cpu"
        else:  # a dtype, or a legacy class
            wanted, where = getattr(dtype, "dtype", dtype), getattr(dtype, "where", None)
        if where == "cpu" and self.device.type != "cuda":  # also another device has these names
            where = None
        return self.to(dtype=wanted, device=where, non_blocking=non_blocking)

    def float(self, memory_format: Any = None) -> Tensor:
        """The tensor in float32."""
        return self.to(dtypes.float32, memory_format=memory_format)

    def double(self, memory_format: Any = None) -> Tensor:
        """The tensor in float64."""
        return self.to(dtypes.float64, memory_format=memory_format)

    def half(self, memory_format: Any = None) -> Tensor:
        """The tensor in float16."""
        return self.to(dtypes.float16, memory_format=memory_format)

    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """The tensor in bfloat16."""
        return self.to(dtypes.bfloat16, memory_format=memory_format)

    def byte(self, memory_format: Any = None) -> Tensor:
        """The tensor in uint8."""
        return self.to(dtypes.uint8, memory_format=memory_format)

    def char(self, memory_format: Any = None) -> Tensor:
        """The tensor in int8."""
        return self.to(dtypes.int8, memory_format=memory_format)

    def short(self, memory_format: Any = None) -> Tensor:
        """The tensor in int16."""
        return self.to(dtypes.int16, memory_format=memory_format)

    def int(self, memory_format: Any = None) -> Tensor:
        """The tensor in int32."""
        return self.to(dtypes.int32, memory_format=memory_format)

    def long(self, memory_format: Any = None) -> Tensor:
        """The tensor in int64."""
        return self.to(dtypes.int64, memory_format=memory_format)

    def bool(self, memory_format: Any = None) -> Tensor:
        """The tensor in bool: whether each element is nonzero."""
        return self.to(dtypes.bool_, memory_format=memory_format)

    def cfloat(self, memory_format: Any = None) -> Tensor:
        """The tensor in complex64."""
        return self.to(dtypes.complex64, memory_format=memory_format)

    def cdouble(self, memory_format: Any = None) -> Tensor:
        """The tensor in complex128."""
        return self.to(dtypes.complex128, memory_format=memory_format)

    def cpu(self, memory_format: Any = None) -> Tensor:
        """The tensor on the CPU; itself if it is there."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(
        self, device: Any = None, non_blocking: Any = False, memory_format: Any = None
    ) -> Tensor:
        """The tensor on an NVIDIA GPU; itself if it is there."""
        return self.to(
            "cuda"
            if device is None
            else f"cuda:{device}"
            if isinstance(device, dtypes_int)
            else device,
            non_blocking=non_blocking,
        )

    def pin_memory(self, device: Any = None) -> Tensor:
        """A copy in page-locked host memory, from which a GPU copies beside its work.

        The tensor itself where it is pinned, or where no device has such copies.
        """
        return interop.pin(self)  # type: ignore[return-value]

    def is_pinned(self, device: Any = None) -> Any:
        """Whether the tensor lies in page-locked host memory."""
        return interop.is_pinned(self)

    def numpy(self, *, force: Any = False) -> Any:
        """The elements as a NumPy array: the same memory on the CPU."""
        if not force and self._node is not None and STATE.get().grad:
            raise RushlightError("numpy(): the tensor requires gradients; call .detach() first")
        return interop.to_numpy(self, copy=force)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"__array__: {array.dtype} as {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: Any = False) -> Tensor:
        """Wrap NumPy's results of functions of this tensor."""
        return tensor(array)

    def item(self) -> Any:
        """The one element as a Python number."""
        if self._spec.numel != 1:
            raise ShapeError(
                f"item(): a tensor of {self._spec.numel} elements ({self._spec!r}) is not one "
                "number"
            )
        return interop.to_list(self)[0]

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; of a 0-dim tensor the number."""
        return interop.to_numpy(self.detach(), copy=True).tolist()

    def __float__(self) -> Any:
        # As in PyTorch; a tensor passed as a number is converted by it.
        if self._node is not None:
            warnings.warn(
                "float() of a tensor that requires gradients: no gradient will come from the "
                "number; say so with .detach() or .item()",
                RushlightWarning,
                stacklevel=2,
            )
        return dtypes_float(self._real_item())

    def __int__(self) -> Any:
        return dtypes_int(self._real_item())

    def _real_item(self) -> Any:
        value = self.item()
        if not isinstance(value, complex):
            return value
        if value.imag:
            raise RushlightError(
                f"the complex number {value} is no real one; take .real or .abs() first"
            )
        return value.real

    def __index__(self) -> Any:
        if self._spec.differentiable:
            raise TypeError(
                f"only integer tensors of one element can be an index, got {self._spec!r}"
            )
        return dtypes_int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> Any:
        if self._spec.numel != 1:
            raise RushlightError(
                f"the truth value of a tensor of {self._spec.numel} elements is ambiguous; use "
                ".any() or .all()"
            )
        return dtypes_bool(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        if not self._spec.shape:
            raise TypeError("a 0-dim tensor cannot be iterated over")
        return iter(REGISTRY["unbind"].function(self))

    def __reversed__(self) -> Any:
        """The slices along the first dimension in reverse order."""
        return REGISTRY["flip"].function(self, (0,)) if self.ndim else self

    def __contains__(self, value: Any) -> Any:
        found = self == value
        if not isinstance(found, Value):
            raise OperandError(
                f"in: a tensor holds numbers, not {type(value).__name__}; ask for a number or a "
                "tensor"
            )
        return dtypes_bool(found.any())  # type: ignore[attr-defined]

    def __format__(self, spec: str) -> str:
        """Of one number the number's own format, so that f"{loss}" works.

        Of several only the plain text.
        """
        return (
            format(self.item(), spec)
            if type(self) is Tensor and not self._spec.shape
            else object.__format__(self, spec)
        )

    def __reduce__(self) -> Any:
        if _is_users(type(self)):
            return Needed.reduce_subclass(self)
        leaf = self.requires_grad and self.is_leaf
        given: tuple[Any, ...] = (
            interop.to_bytes(self),
            self._spec.dtype,
            self._spec.shape,
            self._spec.device.device.name,
            leaf,
        )
        if self._spec.dense and not self._spec.contiguous:
            given = (*given, self._spec.strides)
        return interop.from_pickle, given, interop.noted(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RushlightError("only leaves can be deep-copied; .detach() or .clone() a result")
        out = interop.copied(self, memo)
        if _is_users(type(self)):
            out.__class__ = type(self)
        creation.requiring(out, self.requires_grad)
        memo[id(self)] = out
        if self.grad is not None:
            kept = self.grad.is_leaf
            out.grad = copy.deepcopy(self.grad, memo) if kept else layouts.clone(self.grad)  # type: ignore[attr-defined]
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return out  # type: ignore[return-value]

    def __copy__(self) -> Tensor:
        """Another handle of the same memory; a leaf."""
        out = creation.requiring(self.detach(), self.requires_grad)
        if _is_users(type(self)):
            out.__class__ = type(self)
        out.__dict__.update(self.__dict__)
        return out  # type: ignore[return-value]

    # ---- shape shorthands ----

    def new_zeros(self, *size: Any, **named: Any) -> Any:
        """Zeros of a shape, with this tensor's dtype and device unless others are given."""
        return creation.zeros(*size, **creation.options_of("new_zeros", self, named))

    def new_ones(self, *size: Any, **named: Any) -> Any:
        """Ones of a shape, with this tensor's dtype and device unless others are given."""
        return creation.ones(*size, **creation.options_of("new_ones", self, named))

    def new_tensor(self, data: Any, **named: Any) -> Tensor:
        """A tensor of data, with this tensor's dtype and device unless others are given."""
        return tensor(data, **creation.options_of("new_tensor", self, named))

    def where(self, condition: Tensor, other: Any) -> Any:
        """The tensor's elements where the condition is true, else those of `other`."""
        return REGISTRY["where"].function(condition, self, other)

    # ---- indexing ----

    def __delitem__(self, key: Any) -> None:
        raise TypeError("a tensor's elements cannot be deleted; index what is to be kept")

    # ---- in place ----

    def copy_(self, other: Any, non_blocking: Any = False) -> Tensor:
        """Write another tensor's elements here, broadcast and cast; returns this tensor.

        `non_blocking`: the host does not wait for a copy to or from pinned memory.
        """
        if non_blocking and isinstance(other, Value):
            if interop.copy_out_beside(self, other):
                return self
            other = interop.move(other, self._spec.device, non_blocking=True)
        return inplace.copy_(
            self, interop.move(other, self._spec.device) if isinstance(other, Value) else other
        )  # type: ignore[return-value]

    # ---- operators ----

    __hash__ = object.__hash__
    __array_priority__ = 1000  # NumPy's numbers then defer `number * tensor` to the tensor

    def __pos__(self) -> Tensor:
        return self


# The class body above shadows these three names with PyTorch's cast methods.
dtypes_float, dtypes_int, dtypes_bool = float, int, bool


def _is_users(kind: type) -> Any:
    """Whether it is a subclass that a program defined. See Note [Subclasses]."""
    asked: Any = getattr(kind, "__torch_function__")  # noqa: B009
    return kind is not Tensor and asked is not methods.disabled_torch_function


methods.install(Tensor)
call.set_handle(Tensor)
PLAIN.append(device)
provide_later(
    construct_subclass="rushlight.compat.subclasses:construct",
    moved="rushlight.interop:move",
    reduce_subclass="rushlight.compat.subclasses:reduced",
    sparse_gradients="rushlight.sparse.gradients:look_for_sparse",
)


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested lists, arrays, tensors.

    Args:
        data: Numbers, nested lists, an array or a tensor.
        dtype (dtype): The dtype; None for that of `data`.
        device (device): The device; None for that of `data`, or the default.
        requires_grad (bool): Whether gradients of the tensor are wanted.
        pin_memory (bool): Has no effect.
    """
    made = interop.from_data(data, dtypes.PYTHON.get(dtype, dtype), creation.resolve_pool(device))
    return creation.requiring(made, requires_grad)  # type: ignore[return-value]


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor: itself or the same memory where dtype and device allow, else a copy.

    Args:
        data: Numbers, nested lists, an array or a tensor.
        dtype (dtype): The dtype; None for that of `data`.
        device (device): The device; None for that of `data`, or the default.
    """
    if isinstance(data, Tensor):
        return data.to(device, dtype)
    is_array = hasattr(data, "__array_interface__") and data.ndim > 0
    if is_array and creation.resolve_pool(device) is pool_of("cpu"):
        return interop.from_numpy(data).to(dtype)  # type: ignore[attr-defined]
    return tensor(data, dtype=dtype, device=device)
