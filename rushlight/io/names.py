"""Names of PyTorch in files: those of objects here, and the objects of names.

# Note [Names in files]
1. A file names PyTorch's classes and functions where they mean the same there: tensors, dtypes,
   devices, layers, functions. So PyTorch finds them, and so does this package.
2. Anything else of this package (an optimiser, a distribution) is named as what it is: PyTorch's
   class of that name has other attributes.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Size
from rushlight.naming import device
from rushlight.nn import parameter
from rushlight.nn.hooks import BeforeLoading
from rushlight.ops.create.creation import MemoryFormat
from rushlight.ops.random.random import Generator
from rushlight.tensor import RemovableHandle, Tensor


class Named:
    """A name of PyTorch in a pickle."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self) -> None:
        """Nothing: a pickle only calls what can be called."""


UNTYPED = Named("torch.storage", "UntypedStorage")
TENSOR = Named("torch._utils", "_rebuild_tensor_v2")
TYPED_TENSOR = Named("torch._utils", "_rebuild_tensor_v3")
WITHOUT_MEMORY = Named("torch._utils", "_rebuild_meta_tensor_no_storage")
SPARSE = Named("torch._utils", "_rebuild_sparse_tensor")
PARAMETER = Named("torch._utils", "_rebuild_parameter")
PARAMETER_WITH_STATE = Named("torch._utils", "_rebuild_parameter_with_state")
WITH_STATE = Named("torch._tensor", "_rebuild_from_type_v2")
LAYOUT = Named("torch.serialization", "_get_layout")
PLAIN = Named("torch", "Tensor")
SIZE = Named("torch", "Size")
DEVICE = Named("torch", "device")

_CLASSES: dict[type, Named] = {
    Tensor: PLAIN,
    Size: SIZE,
    device: DEVICE,
    MemoryFormat: Named("torch", "memory_format"),
    DType: Named("torch", "dtype"),
    RemovableHandle: Named("torch.utils.hooks", "RemovableHandle"),
    BeforeLoading: Named("torch.nn.modules.module", "_WrappedHook"),
    **{
        kind: Named("torch.nn.parameter", kind.__name__)
        for kind in (
            *(parameter.Parameter, parameter.Buffer),
            *(parameter.UninitializedParameter, parameter.UninitializedBuffer),
        )
    },
}


@functools.cache
def _layers() -> dict[type, Named]:
    """PyTorch's names of the layers."""
    modules = importlib.import_module("rushlight.nn.modules")
    found = {modules.Module: Named("torch.nn.modules.module", "Module")}
    for file, members in modules.FILES.items():
        for name, kind in members.items():
            found[kind] = Named(f"torch.nn.modules.{file}", name)
    return found


def of(thing: Any) -> Named | None:
    """PyTorch's name of a class or a function of this package; None where it has none."""
    if isinstance(thing, type) and thing in _CLASSES:
        return _CLASSES[thing]
    place = getattr(thing, "__module__", None)
    if not isinstance(place, str) or place.partition(".")[0] != "rushlight":
        return None
    if isinstance(thing, type):
        return _layers().get(thing) if place.startswith("rushlight.nn.") else None
    name = getattr(thing, "__name__", "")
    for path in ("", ".nn.functional"):
        holder = importlib.import_module(f"rushlight{path}")
        if getattr(holder, name, None) is thing:
            return Named(f"torch{path}", name)
    return None


class shown:
    """Let the classes of tensors, shapes, dtypes and devices have PyTorch's names, until `end`.

    Libraries tell what a value is by `type(x).__module__`. Objects of these classes are pickled by
    functions, so that a pickle made meanwhile is read where `torch` is not served.
    """

    def __init__(self) -> None:
        named = {kind: (at.module, at.name) for kind, at in _CLASSES.items() if at.module in _SHOWN}
        named[Generator] = ("torch._C", "Generator")
        self.before = [(kind, kind.__module__, kind.__qualname__) for kind in named]
        for kind, (module, name) in named.items():
            kind.__module__, kind.__qualname__, kind.__name__ = module, name, name

    def end(self) -> None:
        for kind, module, name in self.before:
            kind.__module__, kind.__qualname__, kind.__name__ = module, name, name


_SHOWN = ("torch", "torch.nn.parameter")

# Places of PyTorch's functions that are written in C++, with the public ones of the same names.
_NATIVE = {
    "torch._C._nn": "torch.nn.functional",
    "torch._C._VariableFunctions": "torch",
    "torch._C._VariableFunctionsClass": "torch",
}


def find(module: str, name: str) -> Any:
    """The object here that a name of PyTorch stands for."""
    served = importlib.import_module("rushlight.compat.hook").served
    dotted = f"{module}.{name}"
    found: Any = served(_NATIVE.get(module, module))
    if dotted in _NATIVE:
        return served(_NATIVE[dotted])
    try:
        return functools.reduce(getattr, name.split("."), found)
    except AttributeError:
        raise RushlightError(
            f"load: the file asks for {dotted}, and there is no such name here"
        ) from None
