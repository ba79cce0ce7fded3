"""Attributes that load when first used.

# Note [Lazy names]
1. A public module lists the modules that define its names. Its `__getattr__` (PEP 562) imports one
   of them at the first use of a name and stores the attribute, so a later use is a plain lookup.
2. A function that a namespace changes (checks of arguments, `out=`) is made at that first use.
3. Two threads that use a name first get one object: the first to store it decides.
4. `dir()` of a public module shows what is its own and not what it imports.
5. `MissingName` looks for the nearest name when it is printed, so that `hasattr` costs nothing.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class MissingName(AttributeError):
    """A module has no such name. The text, made when it is read, tells the nearest one."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__(f"module {module!r} has no attribute {name!r}", name=name)
        self.module = module

    def __str__(self) -> str:
        found = sys.modules.get(self.module)
        near = difflib.get_close_matches(str(self.name), dir(found), 1, 0.7)
        return f"{self.args[0]}; the nearest is {near[0]!r}" if near else self.args[0]

    def __reduce__(self) -> Any:
        return MissingName, (self.module, self.name)


class Names:
    """The names of one public module: where each is defined, or how each is made."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.sources: dict[str, Callable[[str], Any]] = {}

    def modules(self, names: str) -> None:
        """Submodules."""
        for name in names.split():
            self.sources[name] = lambda name: importlib.import_module(f"{self.module}.{name}")

    def modules_of(self, package: str, names: str) -> None:
        """Submodules that are another package's: `rushlight.compat` has those of PyTorch alone."""
        for name in names.split():
            self.sources[name] = lambda name: importlib.import_module(f"{package}.{name}")

    def defined(
        self, places: Mapping[str, str], change: Callable[[str, Any], Any] | None = None
    ) -> None:
        """Names by the module that defines them; `take=from_dlpack` is `take` by another name."""
        for module, names in places.items():
            for word in names.split():
                attribute, _, name = word.partition("=")
                self.sources[name or attribute] = _loader(module, attribute, change)

    def made(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        """Names whose objects `make(name)` returns."""
        self.sources.update(dict.fromkeys(names, make))

    def find(self, name: str) -> Any:
        """The module's `__getattr__`."""
        source = self.sources.get(name)
        if source is None:
            raise MissingName(self.module, name)
        return vars(sys.modules[self.module]).setdefault(name, source(name))

    def listed(self) -> list[str]:
        """The module's `__dir__`."""
        return sorted({*shown(self.module), *(name for name in self.sources if name[0] == "_")})


def shown(module: str) -> list[str]:
    """`dir()` of a public module: `__all__`, submodules, names with underscores; no helpers."""
    found = vars(sys.modules[module])
    kept = [name for name in found if name[0] == "_" or f"{module}.{name}" in sys.modules]
    return sorted({*found["__all__"], *kept})


def _loader(
    module: str, attribute: str, change: Callable[[str, Any], Any] | None
) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        found = getattr(importlib.import_module(module), attribute)
        return found if change is None else change(name, found)

    return load
