"""Modules that hold modules or parameters: a chain, lists, dicts."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rushlight.nn.members import MODULE
from rushlight.nn.module import Module
from rushlight.nn.module_repr import show_list
from rushlight.nn.parameter import Parameter
from rushlight.tensor import Tensor


class _Numbered(Module):
    """Submodules under the names "0", "1", ..."""

    def _items(self) -> list[Module]:
        return [child for _, child in self._members(MODULE)]

    def _renumber(self, modules: Iterable[Module]) -> None:
        for name in list(self._modules):
            del self._modules[name]
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items())

    def __getitem__(self, at: Any) -> Any:
        items = self._items()
        return self._rebuild(items[at]) if isinstance(at, slice) else items[operator.index(at)]

    def _rebuild(self, modules: Iterable[Module]) -> Any:
        """A container of the same class with these modules."""
        return type(self)(modules)

    def __setitem__(self, at: int, module: Module) -> None:
        setattr(self, list(self._modules)[operator.index(at)], module)

    def __delitem__(self, at: int | slice) -> None:
        items = self._items()
        del items[at]
        self._renumber(items)

    def pop(self, at: int | slice) -> Any:
        """Remove a module, or a slice of them."""
        module = self[at]
        del self[at]
        return module

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend: takes modules, got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        items = self._items()
        items.insert(index, module)
        self._renumber(items)
        return self


class Sequential(_Numbered):
    """Each module's result is the next one's input.

    Made of modules, or of one dict of named modules.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def _rebuild(self, modules: Iterable[Module]) -> Any:
        return type(self)(*modules)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):  # under their own names
            return type(self)(OrderedDict(list(self._modules.items())[at]))
        return super().__getitem__(at)

    def insert(self, index: int, module: Module) -> Sequential:
        if not isinstance(module, Module):
            raise AssertionError(
                f"Sequential.insert: a module is needed, got {type(module).__name__}"
            )
        if not -len(self) <= index <= len(self):
            raise IndexError(
                f"Sequential.insert: index {index} is out of range for {len(self)} modules"
            )
        return super().insert(index, module)

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *self._checked(other))

    def __iadd__(self, other: Any) -> Any:
        return self.extend(self._checked(other))

    def _checked(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                f"Sequential + {type(other).__name__}: only a Sequential can be added; or "
                ".extend(modules)"
            )
        return other

    def _times(self, count: Any) -> list[Module]:
        if not isinstance(count, int):
            raise TypeError(f"Sequential * {type(count).__name__}: an int is needed")
        if count <= 0:
            raise ValueError(f"Sequential * {count}: a positive number is needed")
        return self._items() * count

    def __mul__(self, count: int) -> Sequential:
        return Sequential(*self._times(count))

    __rmul__ = __mul__

    def __imul__(self, count: int) -> Any:
        return self.extend(self._times(count)[len(self) :])

    def forward(self, input: Any) -> Any:
        for module in self.__dict__["_modules"].values():
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules; it has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __add__(self, modules: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *modules])

    def __repr__(self) -> str:
        return show_list(self)


class ModuleDict(Module):
    """Modules by name; it has no forward of its own."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for name, module in _named_values("ModuleDict", modules):
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return self._modules.items()

    def pop(self, key: str) -> Module:
        module = self[key]
        del self[key]
        return module

    def clear(self) -> None:
        for name in list(self):
            del self[name]


def _named_values(kind: str, given: Any) -> list[tuple[str, Any]]:
    """Names and values of a dict, or of an iterable of pairs."""
    if hasattr(given, "items"):
        return list(given.items())
    if not isinstance(given, Iterable):
        raise TypeError(
            f"{kind}.update: takes a dict or pairs of name and value, got {type(given).__name__}"
        )
    pairs = list(given)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{kind}.update: element {i} is no pair of name and value, but "
                f"{type(pair).__name__}"
            )
        if len(tuple(pair)) != 2:
            raise ValueError(
                f"{kind}.update: element {i} has {len(tuple(pair))} parts; a name and a value are "
                "needed"
            )
    return [tuple(pair) for pair in pairs]


def _as_parameter(value: Any) -> Any:
    """A tensor as a parameter; anything else unchanged."""
    return (
        Parameter(value)
        if isinstance(value, Tensor) and not isinstance(value, Parameter)
        else value
    )


class ParameterList(Module):
    """A list of parameters; a value that is no tensor is kept, but is not part of the state."""

    _size: int

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(() if values is None else values)

    def _name(self, at: int) -> str:
        at = operator.index(at)
        if not -self._size <= at < self._size:
            raise IndexError(f"ParameterList: index {at} is out of range for {self._size} entries")
        return str(at % self._size)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return type(self)(self[i] for i in range(*at.indices(self._size)))
        return getattr(self, self._name(at))

    def __setitem__(self, at: int, value: Any) -> None:
        setattr(self, self._name(at), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(
                f"ParameterList.extend: takes a list of parameters, got {type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """Parameters by name; a value that is no tensor is kept, but is not part of the state."""

    _keys: dict[str, None]

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys = {}
        self.update({} if parameters is None else parameters)

    def __getitem__(self, name: str) -> Any:
        if name not in self._keys:
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(
                "ParameterDict: the name of a parameter must be a string, got "
                f"{type(name).__name__}"
            )
        if name not in self._keys and hasattr(self, name):
            raise KeyError(
                f"ParameterDict: it already has an attribute {name!r}; choose another name"
            )
        self._keys[name] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, name: str) -> None:
        del self._keys[name]
        delattr(self, name)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __or__(self, other: Mapping[str, Any] | ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other: Mapping[str, Any] | ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        return [self[name] for name in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        return [(name, self[name]) for name in self._keys]

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self._keys:
            self[key] = default
        return self[key]

    def update(self, parameters: Any) -> None:
        pairs = _named_values("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            # PyTorch's order, which is that of the parameters.
            pairs = sorted(pairs, key=lambda pair: pair[0])
        for name, value in pairs:
            self[name] = value

    def pop(self, key: str) -> Any:
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self._keys))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self._keys):
            del self[name]

    def copy(self) -> ParameterDict:
        return type(self)(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        return type(self)((name, default) for name in keys)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({name}): {_describe(value)}" for name, value in self.items())


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    return f"{kind} containing: [{value.dtype!r} of size {size}]"
