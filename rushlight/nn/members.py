"""A module's members by name: parameters, buffers and submodules.

# Note [Members]
1. A member's value is an ordinary attribute, so that reading it costs no Python call;
   `Module._kinds` maps names of members to their kinds, in the order of registration.
2. `_parameters`, `_buffers` and `_modules` are views of that, not stores: writing to one writes the
   attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

PARAMETER, BUFFER, MODULE = "parameter", "buffer", "module"


class Members(MutableMapping[str, Any]):
    """One kind of a module's members as a dict."""

    __slots__ = ("kind", "kinds", "values_of")

    def __init__(self, module: Any, kind: str) -> None:
        self.kind = kind
        self.kinds: dict[str, str] = module.__dict__["_kinds"]
        self.values_of: dict[str, Any] = module.__dict__

    def __getitem__(self, name: str) -> Any:
        if self.kinds.get(name) != self.kind:
            raise KeyError(name)
        return self.values_of[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.kinds[name] = self.kind
        self.values_of[name] = value

    def __delitem__(self, name: str) -> None:
        if self.kinds.get(name) != self.kind:
            raise KeyError(name)
        del self.kinds[name]
        del self.values_of[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, kind in self.kinds.items() if kind == self.kind])

    def __len__(self) -> int:
        return sum(kind == self.kind for kind in self.kinds.values())

    def __repr__(self) -> str:
        return repr(dict(self))


def check_name(module: Any, name: str, kind: str) -> None:
    """Refuse a name under which a member could not be looked up."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {kind} must be a string, got {type(name).__name__}")
    if not name:
        raise KeyError(f"the name of a {kind} must not be empty")
    if "." in name:
        raise KeyError(
            f"the name of a {kind} must not contain '.', which separates modules; got {name!r}"
        )
    if module._kinds.get(name) != kind and hasattr(module, name):
        raise KeyError(
            f"{type(module).__name__} already has an attribute {name!r}; choose another name"
        )
