"""Parameter: a tensor that a module learns; Buffer: one that it keeps.

And both without a shape yet.

# Note [Uninitialised parameters]
1. Underneath is an empty tensor with the dtype, device and `requires_grad`. Reading `_spec`, which
   every op does, raises: so nothing can be computed with it, and the hot path has no test for it.
2. `materialize` gives it memory and makes it a Parameter or a Tensor. The object stays the same, so
   optimisers and modules that hold it stay valid.
"""

from __future__ import annotations

import copy
from typing import Any

from rushlight import interop
from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.lazy import shown
from rushlight.methods import disabled_torch_function
from rushlight.naming import device_of
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.tape.record import call
from rushlight.tape.record.value import Leaf, Value
from rushlight.tensor import Tensor

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
    "replace_content",
]


def __dir__() -> list[str]:
    return shown(__name__)


class _OrMarked(type):
    """The class of Parameter: a tensor of a subclass that was made one is an instance, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and "_is_param" in vars(instance)


class Parameter(Tensor, metaclass=_OrMarked):
    """A leaf that a module lists among its parameters.

    It shares the memory of the tensor it is made of. A tensor of a user's subclass keeps its class.
    """

    __slots__ = ()

    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        source = creation.empty(0) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(
                f"Parameter: made of a tensor, got {type(source).__name__}; wrap it in "
                "rushlight.tensor(...)"
            )
        kind: Any = type(source)
        if (
            kind is not Tensor
            and cls is Parameter
            and kind.__torch_function__ is not disabled_torch_function
        ):
            return _marked(source, requires_grad)
        made = object.__new__(cls)
        made._spec, made._memory, made._offset = source._spec, source._memory, source._offset
        made._node = None
        made._base = None
        call.rooted(made)
        creation.requiring(made, requires_grad)
        return made

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __reduce__(self) -> Any:
        make = _parameter if type(self) is Parameter else type(self)
        return make, (self.detach(), self.requires_grad), interop.noted(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is not None:
            return known
        if not self.is_leaf:
            raise RushlightError("only leaves can be deep-copied; .detach() or .clone() a result")
        out = type(self)(interop.copied(self, memo), self.requires_grad)  # type: ignore[arg-type]
        memo[id(self)] = out
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return out

    def __copy__(self) -> Parameter:
        out = type(self)(self.detach(), self.requires_grad)
        out.__dict__.update(self.__dict__)
        return out


def _marked(source: Tensor, requires_grad: bool) -> Any:
    """A parameter of a user's class: the tensor without its record."""
    made = source.detach().requires_grad_(requires_grad)
    if type(made) is not type(source):
        raise RushlightError(
            f"Parameter: {type(source).__name__}.detach() gives a {type(made).__name__}; a tensor "
            "of the same class is needed"
        )
    made.__dict__["_is_param"] = True
    return made


def replace_content(target: Tensor, source: Tensor) -> None:
    """Give a leaf the memory, dtype and device of another tensor.

    The object stays, so that optimisers still hold it.
    """
    if type(target).data is not Tensor.data:  # a class whose content is more than its memory
        target.data = source
        return
    target._spec, target._memory, target._offset, target._base = (
        source._spec,
        source._memory,
        source._offset,
        None,
    )
    if source._offset or not source._spec.dense:
        call.rooted(target)
    if type(target._node) is Leaf:
        target._node.spec = source._spec


class Buffer(Tensor):
    """A tensor that a module keeps, when it is assigned, as state that is not learned."""

    __slots__ = ("persistent",)

    __torch_function__ = disabled_torch_function

    persistent: bool  # whether it is part of state_dict

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        source = creation.empty(0) if data is None else data
        made = object.__new__(cls)
        made._spec, made._memory, made._offset = source._spec, source._memory, source._offset
        made._node = None
        made._base = None
        made.persistent = persistent
        call.rooted(made)
        if source.requires_grad:
            made.requires_grad_()
        return made

    def __reduce__(self) -> Any:
        return _buffer, (self.detach(), self.persistent), interop.noted(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Buffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(e.clone(self.detach()), persistent=self.persistent)
            memo[id(self)].__dict__.update(copy.deepcopy(self.__dict__, memo))
        return memo[id(self)]


def _parameter(data: Tensor, requires_grad: bool) -> Parameter:
    return Parameter(data, requires_grad)


def _buffer(data: Tensor, persistent: bool) -> Buffer:
    return Buffer(data, persistent=persistent)


# ---- before the shape is known ----

_slot: Any = Value.__dict__["_spec"]  # the slot behind the property


class UninitializedError(RushlightError, ValueError):
    """Use of a parameter or buffer that has no shape yet."""


class UninitializedTensorMixin:
    """Attributes that are known, and refusals, before there is a shape."""

    __slots__ = ()

    cls_to_become: type[Tensor]

    @property
    def _spec(self) -> Any:
        raise UninitializedError(
            f"{type(self).__name__}: a parameter or buffer of a lazy module is used before it has "
            "a shape; call the module once with a batch, which shows it the sizes, or "
            "materialize(shape) it"
        )

    @_spec.setter
    def _spec(self, value: Any) -> None:
        _slot.__set__(self, value)

    @property
    def shape(self) -> Any:
        raise UninitializedError(
            "shape: a parameter or buffer of a lazy module has none before the module's first "
            "call; in load_state_dict it means that the state was saved before that and the module "
            "is past it"
        )

    @property
    def device(self) -> Any:
        return device_of(_slot.__get__(self).device.device.name)

    @property
    def dtype(self) -> DType:
        kind: DType = _slot.__get__(self).dtype
        return kind

    def detach(self) -> Any:
        """The empty tensor underneath."""
        spec: Any = _slot.__get__(self)
        me: Any = self
        return call.lay(spec, me._memory)

    def to(self, *args: Any, **named: Any) -> Any:
        return type(self)(_like=self.detach().to(*args, **named), _like_of=self)  # type: ignore[call-arg]

    def materialize(self, shape: Any, device: Any = None, dtype: DType | None = None) -> None:
        """Set a shape, with uninitialised memory."""
        me: Any = self
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        made = creation.empty(
            size, device=self.device if device is None else device, dtype=dtype or self.dtype
        )
        me.__class__ = self.cls_to_become
        replace_content(me, made)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __format__(self, _: str) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self.to(self.dtype)
        return memo[id(self)]


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape is not known yet."""

    __slots__ = ()

    cls_to_become = Parameter

    def __new__(
        cls,
        requires_grad: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        _like: Any = None,
        _like_of: Any = None,
    ) -> UninitializedParameter:
        source = creation.empty(0, device=device, dtype=dtype) if _like is None else _like
        plain = Parameter(source, requires_grad if _like_of is None else _like_of.requires_grad)
        plain.__class__ = cls
        return plain  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        make = _parameter_without_shape if type(self) is UninitializedParameter else type(self)
        return make, (self.requires_grad, str(self.device), self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet."""

    __slots__ = ()

    cls_to_become = Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        persistent: bool = True,
        *,
        _like: Any = None,
        _like_of: Any = None,
    ) -> UninitializedBuffer:
        plain: Any = creation.requiring(
            creation.empty(0, device=device, dtype=dtype) if _like is None else _like, requires_grad
        )
        plain.__class__ = cls
        return plain

    def __reduce__(self) -> Any:
        make = _buffer_without_shape if type(self) is UninitializedBuffer else type(self)
        return make, (self.requires_grad, str(self.device), self.dtype)


# Pickles name functions, not classes: `rushlight run` gives classes PyTorch's names.
def _parameter_without_shape(requires_grad: bool, device: str, dtype: DType) -> Any:
    return UninitializedParameter(requires_grad, device, dtype)


def _buffer_without_shape(requires_grad: bool, device: str, dtype: DType) -> Any:
    return UninitializedBuffer(requires_grad, device, dtype)


def is_lazy(value: Any) -> bool:
    """Whether this is a parameter or buffer without a shape yet."""
    return isinstance(value, UninitializedTensorMixin)
