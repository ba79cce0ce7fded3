"""A module's members by name: parameters, buffers and submodules.

# Note [Members]
1. `_parameters`, `_buffers` and `_modules` are dicts in the module's `__dict__`, in the order of
   registration: they may be read, changed, copied and assigned.
2. A member is an ordinary attribute as well, so that reading it costs no Python call: what is
   written to a `Members` is written to the module's `__dict__` too. It refers to the module
   weakly: a module is freed without a collection of cycles.
3. A class with a `__getattr__` of its own decides what reading a member gives, so the members of
   its instances are in the dicts alone, where `Module.__getattr__` finds them.
4. Deep copies and pickles have plain dicts, and other code may write a module's `__dict__`
   (`__setstate__` of a class, a wrapper that takes over the `__dict__` of another module). Reading
   `module._parameters` binds such dicts (`Place`).
5. A shallow copy has the dicts of its original, as in PyTorch: they have several owners then, and a
   write reaches the attributes of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any
from weakref import ref

PARAMETER, BUFFER, MODULE = "parameter", "buffer", "module"
PLACES = {PARAMETER: "_parameters", BUFFER: "_buffers", MODULE: "_modules"}
_ABSENT = object()


class Members(dict[str, Any]):
    """One kind of a module's members. See Note [Members]."""

    __slots__ = ("others", "owner")

    def __init__(self, items: Collection[Any] = (), owner: Callable[[], Any] | None = None) -> None:
        if items:
            super().__init__(items)
        self.owner = owner  # a weak reference: a module is freed by its count of references
        self.others: tuple[Callable[[], Any], ...] = ()  # the shallow copies
        if items:
            self.update(dict(self))

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        if self.others:
            for module in self.owners():
                module.__dict__[name] = value
        elif self.owner is not None and (owner := self.owner()) is not None:
            owner.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        for owner in self.owners():
            owner.__dict__.pop(name, None)

    def owners(self) -> list[Any]:
        """The modules whose attributes these are."""
        if self.owner is None:
            return []
        found = (self.owner(), *[other() for other in self.others])
        return [module for module in found if module is not None]

    def join(self, module: Any) -> None:
        """Be the members of this module as well."""
        if all(owner is not module for owner in self.owners()):
            self.others = (*[other for other in self.others if other() is not None], ref(module))
        module.__dict__.update(self)

    def leave(self, module: Any) -> None:
        """Stop being the members of this module."""
        if self.owner is not None and self.owner() is module:
            self.owner = _nothing
        self.others = tuple([other for other in self.others if other() is not module])

    def pop(self, name: str, default: Any = _ABSENT) -> Any:
        if name not in self and default is not _ABSENT:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *given: Any, **named: Any) -> None:
        for name, value in dict(*given, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def look_up(module: Any, name: str) -> Any:
    """`Module.__getattr__`: a member that is no attribute. See Note [Members]."""
    own = module.__dict__
    for place in PLACES.values():
        members = own.get(place)
        if members is not None and name in members:
            return members[name]
    raise AttributeError(
        f"{type(module).__name__!r} object has no attribute {name!r}", name=name, obj=module
    )


class Place:
    """The attribute `_parameters`, `_buffers` or `_modules` of modules. See Note [Members]."""

    def __set_name__(self, kind: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, kind: type | None = None) -> Any:
        if module is None:
            return self
        held = module.__dict__.get(self.name)
        if held is None:
            return look_up(module, self.name)  # which raises
        owner = held.owner if held.__class__ is Members else _nothing
        if owner is None or owner() is module:
            return held
        if held.__class__ is Members and any(other() is module for other in held.others):
            return held
        bind(module)
        return module.__dict__[self.name]

    def __set__(self, module: Any, held: dict[str, Any]) -> None:
        own = module.__dict__
        before = own.get(self.name, {})
        for name in before:
            own.pop(name, None)
        if before.__class__ is Members:
            before.leave(module)
        own[self.name] = held
        bind(module)


def _nothing() -> None:
    """The owner of a dict that is not bound."""


def bind(module: Any) -> None:
    """Let the dicts of a module's `__dict__` be its members, and attributes: see Note [Members]."""
    own = module.__dict__
    shown = type(module).__getattr__ is look_up
    for place in PLACES.values():
        held = own.get(place, {})
        if held.__class__ is Members and shown and held.owner is not None:
            held.join(module)
            continue
        for name in held:
            own.pop(name, None)
        own[place] = Members(held, ref(module) if shown else None)


def _has(module: Any, name: str) -> bool:
    """`hasattr`, without the error that `look_up` makes of a name that is free."""
    kind: Any = type(module)
    if kind.__getattr__ is not look_up or kind.__getattribute__ is not object.__getattribute__:
        return hasattr(module, name)
    own = module.__dict__
    return (
        name in own
        or any(name in own[place] for place in PLACES.values())
        or any(name in vars(base) for base in kind.__mro__)
    )


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
    if name not in module.__dict__[PLACES[kind]] and _has(module, name):
        raise KeyError(
            f"{type(module).__name__} already has an attribute {name!r}; choose another name"
        )


# Modules whose functions a class may have as attributes.
_PUBLIC = frozenset(
    f"rushlight{path}" for path in ("", ".nn.functional", ".special", ".linalg", ".fft")
)


def unbind_functions(kind: type) -> None:
    """Let a class not bind the package's functions that are its attributes.

    PyTorch's functions, which are builtins, are not bound either.
    """
    for name, held in list(vars(kind).items()):
        if held.__class__ is FunctionType and held.__module__ in _PUBLIC:
            public = vars(sys.modules[held.__module__]).get(held.__name__)
            if public is held:
                setattr(kind, name, staticmethod(public))
