"""Gives Tensor its methods: ops by name, their in-place forms, operators, and its metadata.

An op's declaration in `ops/` states its forms. A method is made when it is first used. See
Note [Lazy names].
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rushlight.core import locks
from rushlight.core.dtypes import bool_
from rushlight.ops import declared
from rushlight.ops.arguments import checked
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface import metadata_methods, operators, public
from rushlight.ops.surface.documentation import describe_in_place
from rushlight.tape.record.value import Value

Method = Callable[..., Any]

# Methods of dense tensors that other rooms define, by module; `typed_storage=storage` is another
# name.
ELSEWHERE = {
    "rushlight.array_api.array": "Array.__array_namespace__=__array_namespace__",
    "rushlight.compat.subclasses": (
        "as_subclass default_torch_function=__torch_function__ make_subclass=_make_subclass "
        "make_wrapper_subclass=_make_wrapper_subclass"
    ),
    "rushlight.dlpack": "device_pair=__dlpack_device__ give=__dlpack__",
    "rushlight.mapping": "apply_ map2_ map_",
    "rushlight.ops.surface.brackets": "get_item=__getitem__ set_item=__setitem__",
    "rushlight.printing": "show=__repr__",
    "rushlight.sharing": "is_shared share_memory_",
    "rushlight.sparse.methods": (
        "_indices _nnz _values coalesce col_indices crow_indices dense_dim indices is_coalesced "
        "sparse_dim sparse_mask to_dense to_sparse to_sparse_coo to_sparse_csr values"
    ),
    "rushlight.storage": (
        "new storage_type typed_storage=_typed_storage typed_storage=storage untyped_storage"
    ),
}
_SETTING = locks.reentrant_lock()


class Unmade:
    """A method in the class until its first use, which puts the made one in its place."""

    __slots__ = ("kind", "make", "name")

    def __init__(self, kind: type, name: str, make: Callable[[], Any]) -> None:
        self.kind = kind
        self.name = name
        self.make = make

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        made = public.method_located(self.kind, self.name, self.make())
        with _SETTING:  # the first of several threads decides
            if vars(self.kind)[self.name] is self:
                setattr(self.kind, self.name, made)
        return vars(self.kind)[self.name].__get__(instance, owner)


def disabled_torch_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that functions do not ask. See Note [Torch function]."""
    return func(*args, **(kwargs or {}))


def _of_ints(method: Method) -> Method:
    """The method with its sizes or dimension converted to ints, else unchanged.

    See Note [Arguments].
    """
    hints = [hint for name, hint in method.__annotations__.items() if name != "return"]
    return checked(method.__name__, method) if any("int" in hint for hint in hints) else method


def install(tensor: type[Value]) -> None:
    """Set every method that is not written in the class itself."""
    found: dict[str, Callable[[], Any]] = {}
    found |= {name: _op(name) for name in declared.METHODS}
    found |= {name: _in_place(name.removesuffix("_")) for name in declared.IN_PLACE}
    found |= {name: _other(file, name) for name, file in declared.OTHER_METHODS.items()}
    for module, words in ELSEWHERE.items():
        for word in words.split():
            attribute, _, name = word.partition("=")
            found[name or attribute] = _defined(module, attribute)
    for symbol, name in declared.OPERATORS.items():
        found |= _operators(symbol, name)
    found |= {"__abs__": _op("abs"), "__invert__": _op("bitwise_not"), "__neg__": _op("neg")}
    found |= {"__matmul__": _product, "__rmatmul__": _reflected_product}
    found["__rdiv__"] = found["__rtruediv__"]  # under its older name
    for name, make in found.items():
        if name not in vars(tensor):
            setattr(tensor, name, Unmade(tensor, name, make))
    for name, (read, doc) in metadata_methods.PROPERTIES.items():
        setattr(tensor, name, property(read, doc=doc))


def _op(name: str) -> Callable[[], Any]:
    return lambda: public.method_of_tensor(name)


def _in_place(name: str) -> Callable[[], Any]:
    def make() -> Any:
        forms = importlib.import_module("rushlight.ops.surface.inplace_forms")
        entry = REGISTRY[name]
        if name in declared.OTHER_METHODS:  # the method takes other arguments than the function
            own = _other(declared.OTHER_METHODS[name], name)()
            entry = replace(entry, function=own)
        method = forms.in_place_form(entry)
        describe_in_place(method, name, entry.function)
        return method

    return make


def _other(file: str, name: str) -> Callable[[], Any]:
    def make() -> Any:
        methods = importlib.import_module(f"rushlight.ops.{file}").METHODS
        return _of_ints(next(method for method in methods if method.__name__ == name))

    return make


def _defined(module: str, attribute: str) -> Callable[[], Any]:
    return lambda: operator.attrgetter(attribute)(importlib.import_module(module))


def _operators(symbol: str, name: str) -> dict[str, Callable[[], Any]]:
    """`x <symbol> y`, its reflected and its in-place form."""

    own = getattr(e, name, None)  # without the public function's further checks

    def kernel() -> Any:
        return own or REGISTRY[name].function

    def divides() -> bool:
        return REGISTRY[name].inplace == "divisor"

    def is_checked() -> bool:
        return name in ("sub", "pow") or divides()

    def plain() -> Any:
        if is_checked():
            return operators.leaving(REGISTRY[name].function)
        return operators.binary(kernel())

    def reflected() -> Any:
        return operators.reflected(REGISTRY[name].function if is_checked() else kernel())

    def in_place() -> Any:
        return operators.in_place(name, kernel().op, divides())

    if own is not None and own.op.result is bool_:  # a comparison, which Python itself reflects
        return {f"__{symbol}__": lambda: operators.binary(own)}
    return {
        f"__{symbol}__": plain,
        f"__r{symbol}__": reflected,
        f"__i{symbol}__": in_place,
    }


def _product() -> Any:
    return operators.product(REGISTRY["matmul"].function)


def _reflected_product() -> Any:
    return operators.reflected(REGISTRY["matmul"].function)
