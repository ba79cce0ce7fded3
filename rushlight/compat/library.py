"""PyTorch's `torch.library`: users' ops by name, `torch.ops.mylib.myop`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rushlight.core.errors import NotDifferentiable, RushlightError
from rushlight.tape.function import Function
from rushlight.tensor import Tensor

_OPS: dict[str, dict[str, Any]] = {}  # ops by namespace and name


class Namespace:
    """`torch.ops.mylib`: the ops of one namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        found = _OPS.get(self.name, {}).get(name)
        if found is None:
            raise AttributeError(f"'_OpNamespace' {self.name!r} has no op {name!r}", name=name)
        return found

    def __dir__(self) -> list[str]:
        return sorted(_OPS.get(self.name, {}))


def namespace(name: str) -> Namespace | None:
    """The namespace of a name, where ops were defined in it."""
    return Namespace(name) if name in _OPS else None


def _split(qualname: str) -> tuple[str, str]:
    space, _, name = qualname.partition("::")
    if not space or not name:
        raise ValueError(f"{qualname!r} is no name of an op; write mylib::myop")
    return space, name.partition(".")[0]


class CustomOpDef:
    """A user's op: `custom_op`'s result. Call it, or `torch.ops.mylib.myop`."""

    def __init__(self, qualname: str, function: Callable[..., Any] | None) -> None:
        self._namespace, self._name = _split(qualname)
        self._qualname = qualname
        self._by_device: dict[str | None, Callable[..., Any]] = {}
        if function is not None:
            self._by_device[None] = function
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self._fake: Callable[..., Any] | None = None
        self.__name__, self.__doc__ = self._name, getattr(function, "__doc__", None)
        self._kind = _function_of(self)
        _OPS.setdefault(self._namespace, {})[self._name] = self

    @property
    def default(self) -> CustomOpDef:
        """The op itself: it has one overload."""
        return self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _chosen(self, args: Iterable[Any]) -> Callable[..., Any]:
        first = next((a for a in args if isinstance(a, Tensor)), None)
        kind = None if first is None else first.device.type
        if kind == "meta" and self._fake is not None:
            return self._fake
        found = self._by_device.get(kind) or self._by_device.get(None)
        if found is None:
            raise NotImplementedError(f"{self._qualname} has no implementation for {kind}")
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named and self._by_device:
            bound = inspect.signature(next(iter(self._by_device.values()))).bind(*args, **named)
            bound.apply_defaults()
            args, named = bound.args, bound.kwargs
        if named or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return self._chosen(args)(*args, **named)
        return self._kind.apply(*args)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Use `fn` for tensors on the device meta."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Set the derivative: `backward(ctx, *grads)`, `setup_context(ctx, inputs, output)`."""
        self._backward, self._setup = backward, setup_context

    def register_kernel(
        self,
        device_types: str | Iterable[str | None] | None,
        fn: Callable[..., Any] | None = None,
        /,
    ) -> Any:
        """Use `fn` on devices of these types; None is every other type."""
        kinds = (
            [device_types]
            if device_types is None or isinstance(device_types, str)
            else device_types
        )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._by_device.update(dict.fromkeys(kinds, function))
            return function

        return register if fn is None else register(fn)

    def register_vmap(self, func: Any = None) -> Any:
        """Refuses: ops are batched by their own code."""
        raise RushlightError(f"{self._qualname}.register_vmap is not supported")


def _function_of(op: CustomOpDef) -> type[Function]:
    """The Function that runs an op and knows its derivative."""

    class Called(Function):
        """One user's op."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            made = op._chosen(args)(*args)
            if op._setup is not None:
                op._setup(ctx, args, made)
            return made

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if op._backward is None:
                raise NotDifferentiable(
                    f"{op._qualname} has no derivative; register_autograd gives it one"
                )
            return op._backward(ctx, *gradients)

    Called.__name__ = Called.__qualname__ = op._name
    return Called


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Any = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """An op of a Python function: `@custom_op("mylib::myop", mutates_args=())`."""

    def define(function: Callable[..., Any]) -> CustomOpDef:
        if device_types is None:
            return CustomOpDef(name, function)
        made = CustomOpDef(name, None)
        made.register_kernel(device_types, function)
        return made

    return define if fn is None else define(fn)


triton_op = custom_op


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel itself."""
    return triton_kernel


def _op_of(op: Any) -> CustomOpDef:
    """The op of a name or of itself; a new one where the name has none."""
    if isinstance(op, CustomOpDef):
        return op
    space, name = _split(str(op))
    found = _OPS.get(space, {}).get(name)
    return CustomOpDef(f"{space}::{name}", None) if found is None else found


def register_fake(op: Any, func: Any = None, /, **named: Any) -> Any:
    """Set the function of an op for tensors on the device meta."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _op_of(op).register_fake(function)
        return function

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Any = None
) -> None:
    """Set the derivative of an op."""
    _op_of(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Set the function of an op on devices of these types."""
    return _op_of(op).register_kernel(device_types, func)


def define(qualname: str, schema: Any = "", *, lib: Any = None, tags: Any = ()) -> None:
    """Name an op; `impl` gives it a function."""
    _op_of(qualname)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Set the function of an op; types are device types or "default"."""
    kinds = [types] if isinstance(types, str) else list(types)
    chosen = [_DEVICE_OF_KEY.get(kind, kind.lower()) for kind in kinds]
    return _op_of(qualname).register_kernel(chosen, func)


_DEVICE_OF_KEY: dict[str, str | None] = {
    "default": None,
    "CompositeExplicitAutograd": None,
    "CompositeImplicitAutograd": None,
    "": None,
    "Meta": "meta",
}


class Library:
    """Ops of a namespace that are defined by schema and implemented by device."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        _OPS.setdefault(ns, {})

    def define(self, schema: str, *args: Any, **named: Any) -> str:
        """Name an op: "myop(Tensor x) -> Tensor"."""
        name = schema.partition("(")[0].strip()
        _op_of(f"{self.ns}::{name}")
        return name

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **named: Any) -> None:
        """Set the function of an op."""
        name = getattr(op_name, "_qualname", op_name)
        qualname = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key
        if key.startswith("Autograd"):
            raise RushlightError(f"Library.impl: {key} of {qualname}: use register_autograd")
        if key == "Meta":
            _op_of(qualname).register_fake(fn)
        else:
            impl(qualname, key, fn)


# By package: the module here that has the ops of its C++ library `_C`.
_IN_PLACE_OF = {"torchvision": "rushlight.compat.vision"}


def load_library(path: Any) -> None:
    """`torch.ops.load_library`: the ops of a package's C++ library, where they are defined here.

    Other files are refused: they are compiled against PyTorch.

    Args:
        path (str): The file.
    """
    file = Path(path)
    if file.name.startswith("_C.") and file.parent.name in _IN_PLACE_OF:
        importlib.import_module(_IN_PLACE_OF[file.parent.name]).provide()
        return
    raise OSError(f"{path} is compiled against PyTorch's C++ library, which Rushlight has not")


def opcheck(*args: Any, **named: Any) -> dict[str, str]:
    """Refuses: ops of users are Python functions, with no schema to check."""
    raise RushlightError("library.opcheck is not supported; autograd.gradcheck checks derivatives")
