"""Tensors of users' classes: how they are made, and what the default `__torch_function__` gives.

# Note [Subclasses]
1. A tensor of a subclass is a handle like others: kernels and the tape read its slots and do not
   look at its class. What a function gives is a plain tensor; the default `__torch_function__`
   makes it one of the subclass, by a view (Note [Torch function]).
2. The first such tensor lets functions ask. A class that inherits `Parameter`'s
   `__torch_function__`, which is disabled, does not.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

from rushlight.compat import dispatch
from rushlight.compat.torch_function import DisableTorchFunctionSubclass, overrides
from rushlight.core.errors import RushlightError
from rushlight.methods import disabled_torch_function
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record import call
from rushlight.tape.record.value import Leaf, Value
from rushlight.tensor import Tensor

_SLOTS = ("_spec", "_memory", "_offset", "_node", "_base", "_history", "kept_grad")


def _prepare(kind: type) -> None:
    if not issubclass(kind, Tensor):
        raise TypeError(f"a subclass of Tensor is needed, got {kind.__name__}")
    own = inspect.getattr_static(kind, "__torch_dispatch__", disabled_torch_function)
    if own is not disabled_torch_function:
        raise RushlightError(
            f"{kind.__name__}: its __torch_dispatch__ would never be called, for there is no "
            "dispatcher here; use __torch_function__"
        )
    if overrides(kind):
        dispatch.ask_from_now_on()


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same memory as a tensor of a subclass, recorded as a view.

    Args:
        cls (type): The subclass.
    """
    _prepare(cls)
    with DisableTorchFunctionSubclass():
        made = REGISTRY["view"].function(self, tuple(self._spec.shape))
    made.__class__ = cls
    return made


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, **named: Any) -> Any:
    """The memory of a tensor as a leaf of a subclass."""
    _prepare(cls)
    made: Any = object.__new__(cls)
    made._spec, made._memory, made._offset = data._spec, data._memory, data._offset
    made._node = made._base = None
    call.rooted(made)
    return creation.requiring(made, require_grad)


def _make_wrapper_subclass(cls: type, *args: Any, **named: Any) -> Any:
    """Refused: a tensor without memory computes by PyTorch's dispatcher alone."""
    raise RushlightError(
        f"_make_wrapper_subclass: {cls.__name__} would compute by __torch_dispatch__, and there is "
        "no dispatcher here; use Tensor._make_subclass and __torch_function__"
    )


def construct(kind: type, args: tuple[Any, ...], device: Any) -> Any:
    """`MyTensor(data)` or `MyTensor(2, 3)`, as `Tensor(...)`."""
    made = Tensor(*args, device=device)
    return _make_subclass(kind, made, made.requires_grad)


def __torch_function__(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Call the function; its tensors become those of the class, where all types allow it."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
        return found if func in get_default_nowrap_functions() else _converted(found, cls)


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose results keep their class."""
    kind: Any = Tensor
    return {kind.grad.__get__, kind._base.__get__}


def _converted(found: Any, cls: type) -> Any:
    if cls is Tensor:
        return found
    if isinstance(found, Tensor) and not isinstance(found, cls):
        return as_subclass(found, cls)
    if isinstance(found, tuple | list):
        made = [_converted(each, cls) for each in found]
        if hasattr(found, "_fields"):
            return type(found)(*made)
        return type(found)(made)
    return found


def reduced(value: Tensor) -> Any:
    """The pickle of a tensor of a subclass: its class, a plain tensor, and its attributes."""
    is_leaf = type(value._node) is Leaf
    plain = creation.requiring(call.detached(value), is_leaf)
    get_state = getattr(type(value), "__getstate__", object.__getstate__)
    own = value.__dict__ or None
    state = own if get_state is object.__getstate__ else get_state(value)
    return rebuild, (type(value), plain, state)


def rebuild(kind: type, plain: Tensor, state: Any) -> Any:
    """A pickled tensor of a subclass."""
    made = _make_subclass(kind, plain, plain.requires_grad)
    set_state = getattr(kind, "__setstate__", None)
    if set_state is not None and state is not None:
        set_state(made, state)
    elif state:
        made.__dict__.update(state)
    return made


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange two tensors: class, attributes, memory, record and gradient.

    Args:
        t1 (Tensor): The one tensor.
        t2 (Tensor): The other.
    """
    first, second = _content(t1), _content(t2)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for target, content in ((t1, second), (t2, first)):
        for name in _SLOTS:
            if name in content:
                object.__setattr__(target, name, content[name])
            elif hasattr(target, name):
                object.__delattr__(target, name)
        if type(target._node) is Leaf:
            target._node.handle = weakref.ref(target)


def _content(value: Value) -> dict[str, Any]:
    found = {}
    for name in _SLOTS:
        try:
            found[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return found


make_subclass = staticmethod(_make_subclass)
make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
default_torch_function: Any = classmethod(__torch_function__)
