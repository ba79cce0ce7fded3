"""Modules that hold modules: a chain, a list, a dict."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rushlight.nn.members import MODULE
from rushlight.nn.module import Module
from rushlight.nn.showing import show_list


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
        if not isinstance(at, slice):
            return items[operator.index(at)]
        part = type(self)()
        part._renumber(items[at])
        return part

    def __setitem__(self, at: int, module: Module) -> None:
        self.add_module(list(self._modules)[operator.index(at)], module)

    def __delitem__(self, at: int | slice) -> None:
        items = self._items()
        del items[at]
        self._renumber(items)

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        for module in modules:
            self.append(module)
        return self

    def insert(self, at: int, module: Module) -> Any:
        items = self._items()
        items.insert(at, module)
        self._renumber(items)
        return self


class Sequential(_Numbered):
    """Each module's result is the next one's input. Made of modules, or of one dict that names them."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def forward(self, input: Any) -> Any:
        own = self.__dict__
        for name, kind in self._kinds.items():
            if kind == MODULE:
                input = own[name](input)
        return input


class ModuleList(_Numbered):
    """A list of modules; it has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __repr__(self) -> str:
        return show_list(self)


class ModuleDict(Module):
    """Modules by name; it has no forward of its own."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for name, module in dict(modules).items():
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
