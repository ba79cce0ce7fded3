"""`out=`: a result stored in tensors that are there already.

# Note [Out arguments]
1. Only functions of a module take `out`, never methods. A declaration states which, and what is stored (`Entry.out`);
   `accept` gives a module's functions the keyword, once, when the package is made.
2. The elementwise call sites and the short composites take `out` themselves (`takes_out`), because a function around
   them would cost a tenth of the call; under `memo` the function that looks for the keyword runs only where a call is
   not known. All others are called by such a function.
3. The result is made first and then stored, so `out` may overlap the inputs. It is resized where its shape is another,
   with PyTorch's warning where it had elements, and cast where PyTorch would.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from rushlight.core.dtypes import castable, uint8
from rushlight.core.errors import DeviceError, DTypeError, RushlightError, SparseOperandError
from rushlight.ops.arguments import checked
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY, Entry, Out
from rushlight.ops.surface import inplace
from rushlight.ops.surface.inplace_views import resize_
from rushlight.ops.surface.keywords import Names
from rushlight.ops.view import views
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value


def store(name: str, out: Any, result: Any, kind: Out | None = None) -> Any:
    """Put a result, or one for each of several outs, where it is wanted; what is given back is `out`."""
    if kind is None:
        kind = REGISTRY[name].out
    if isinstance(result, Value):
        _check_one(name, out, result, kind)
        return _store_one(name, out, result)
    if (
        not isinstance(result, (tuple, list))
        or not isinstance(out, (tuple, list))
        or len(out) != len(result)
    ):
        wanted = (
            f"a tuple of {len(result)} tensors"
            if isinstance(result, (tuple, list))
            else "no tensor"
        )
        raise TypeError(f"{name}(): out must be {wanted}, got {type(out).__name__}")
    for place, part in zip(out, result, strict=True):  # all of them, before anything is written
        _check_one(name, place, part, kind)
    stored = [_store_one(name, place, part) for place, part in zip(out, result, strict=True)]
    several: Any = type(result)
    return several(*stored) if hasattr(result, "_fields") else tuple(stored)


def _check_one(name: str, out: Any, result: Value, kind: Out) -> None:
    if not isinstance(out, Value):
        raise TypeError(f"{name}(): out must be a tensor, got {type(out).__name__}")
    if STATE.get().grad and (edge_of(out) is not None or edge_of(result) is not None):
        raise RushlightError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            f"arguments requires grad; use no_grad(), or the result without out"
        )
    if out._spec.device is not result._spec.device:
        raise DeviceError(
            f"{name}(): out {out._spec!r} is on another device than the result {result._spec!r}"
        )
    if kind == "exact" or (kind == "flags" and out._spec.dtype is not uint8):
        _check_exact(name, out, result)
    if not castable(result._spec.dtype, out._spec.dtype):
        raise DTypeError(
            f"{name}(): result type {result._spec.dtype.name} can't be cast to the desired output type "
            f"{out._spec.dtype.name}; give an out of type {result._spec.dtype.name}"
        )
    if out._spec.shape == result._spec.shape:  # another is resized first
        inplace.check_writable(out, name)


def _store_one(name: str, out: Value, result: Value) -> Value:
    with Changed(grad=False):
        if out._spec.shape != result._spec.shape:
            _resize(name, out, result)
        return inplace.copy_(out, result)


def _check_exact(name: str, out: Value, result: Value) -> None:
    if out._spec.dtype is not result._spec.dtype:
        raise RushlightError(
            f"{name}(): expected out to have type {result._spec.dtype.name}, but got {out._spec!r}; give an out of that type"
        )


def _resize(name: str, out: Value, result: Value) -> None:
    if out._spec.numel:
        warnings.warn(
            f"{name}(): An output with one or more elements was resized since it had shape {list(out._spec.shape)}, "
            f"which does not match the required output shape {list(result._spec.shape)}. Resize it with "
            f"out.resize_(0) first to reuse it for another shape.",
            stacklevel=5,
        )
    resize_(out, result._spec.shape)


def tensors_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose error for something else than a tensor is PyTorch's class and says what was given."""

    names = Names(function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if named:
            args, named = names.of(args, named)
        try:
            return function(*args, **named)
        except SparseOperandError as error:  # See Note [Sparse operands]
            sparse = error.obj
        except AttributeError as error:
            refuse_kind(name, error, (*args, *named.values()))
            raise
        return sparse.instead(name, args, named)

    called.takes_names = True  # type: ignore[attr-defined]  # whatever is put around it with functools.wraps says so too
    return called


def refuse_kind(name: str, error: AttributeError, given: Iterable[Any]) -> None:
    """Raise for something else than a tensor, if it was an argument that lacks an attribute of tensors."""
    lacking = error.obj
    if isinstance(error, RushlightError) or isinstance(lacking, (Value, ModuleType)):
        return
    if error.name == "_spec" or _is_among(lacking, given, 3):
        raise DTypeError(
            f"{name}(): a tensor is needed where {type(lacking).__name__} was given; make one with rushlight.tensor(...)"
        ) from None


def _is_among(thing: Any, given: Iterable[Any], depth: int) -> bool:
    kind = type(thing)  # what was converted on the way is of the same class
    return any(
        type(each) is kind
        or (depth > 0 and isinstance(each, (tuple, list)) and _is_among(thing, each, depth - 1))
        for each in given
    )


def check_kinds(module: dict[str, Any], names: Iterable[str] | None = None) -> None:
    """Have a module's own public functions, or those among `names`, refuse arguments of other kinds by name."""
    own = [
        k
        for k, f in module.items()
        if getattr(f, "__module__", None) == module["__name__"] and k[0] != "_"
    ]
    for name in own if names is None else names:
        if isinstance(module.get(name), FunctionType) and not hasattr(module[name], "op"):
            module[name] = _kinds_only(name, checked(name, module[name]))


def _kinds_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except AttributeError as error:
            refuse_kind(name, error, (*args, *named.values()))
            raise

    return called


def check_tensors(module: dict[str, Any], names: Iterable[str]) -> None:
    """Give the functions of a module that are among `names` that error; elementwise ops have their own."""
    for name in names:
        function = module.get(name)
        if (
            callable(function)
            and not hasattr(function, "op")
            and not hasattr(function, "takes_out")
        ):
            module[name] = tensors_only(name, function)


def with_out(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with an `out` keyword."""
    kind: Out = function.stores  # type: ignore[attr-defined]
    makes = kind in ("made", "line")
    parameters = list(inspect.signature(function).parameters)
    flag = parameters.index("inplace") if "inplace" in parameters else len(parameters)
    if not hasattr(function, "op"):
        function = tensors_only(name, function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        out = named.pop("out", None) if named else None
        if out is None:
            return function(*args, **named)
        if named.get("inplace") or any(args[flag : flag + 1]):
            raise TypeError(f"{name}(): pass out or inplace, not both")
        if makes and isinstance(out, Value):
            if named.get("dtype") not in (None, out._spec.dtype):
                raise RushlightError(
                    f"{name}(): dtype {named['dtype']!r} does not match that of out, {out._spec!r}"
                )
            named |= {"dtype": out._spec.dtype, "device": out._spec.device.device.name}
        if kind in ("dtype", "same") and isinstance(out, Value):
            if named.get("dtype") not in (None, out._spec.dtype):
                raise RushlightError(
                    f"{name}(): dtype {named['dtype']!r} does not match that of out, {out._spec!r}"
                )
            if kind == "dtype":
                named["dtype"] = out._spec.dtype
        made = function(*args, **named)
        if (
            kind == "bounds"
            and isinstance(out, Value)
            and not any(isinstance(v, Value) for v in (*args[1:], *named.values()))
        ):
            _check_exact(name, out, made)
        if kind == "numbers" and isinstance(out, Value):
            made = e.cast(made, out._spec.dtype)
        if kind == "line" and isinstance(out, Value) and out._spec.numel == made._spec.numel:
            made = views.reshape(made, out._spec.shape)  # a line fills an out of any shape
        return store(name, out, made, kind)

    called.takes_out = True  # type: ignore[attr-defined]
    return called


def accept(module: dict[str, Any], takes: Callable[[Entry], bool] = lambda entry: True) -> None:
    """Give a module's functions that store something in `out` that keyword; ops where `takes` says so."""
    for name, function in list(module.items()):
        if not isinstance(function, FunctionType) or hasattr(function, "takes_out"):
            continue
        if not getattr(function, "stores", ""):
            continue
        entry = REGISTRY.get(function.__name__)
        if entry is None or takes(entry):
            module[name] = with_out(name, function)


def settle_names(namespace: dict[str, Any]) -> None:
    """Have each function of a public module be found where it says it is, so that it can be pickled and shown by name."""
    where = namespace["__name__"]
    for name, function in namespace.items():
        if (
            isinstance(function, FunctionType)
            and not name.startswith("_")
            and not is_where_it_says(function)
        ):
            function.__module__, function.__qualname__ = where, name


def is_where_it_says(function: FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    return module is not None and vars(module).get(function.__qualname__) is function
