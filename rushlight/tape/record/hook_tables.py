"""Tables of hooks. Note [Hooks] in `tape/walk/hooks.py` says when they run."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

Hook = Callable[..., Any]
Table = dict[int, Any]  # hooks in order of registration, by number

numbers = itertools.count()

# Users' metadata of nodes, by node: rare, so a node has no slot for it.
METADATA: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


class RemovableHandle:
    """The handle of a registered hook: `remove()`, or the end of a `with` block, removes it."""

    def __init__(self, hooks: Table, key: int, *others: RemovableHandle) -> None:
        self.hooks = hooks
        self.key = key
        self.others = others  # hooks that are removed together with this one

    @property
    def id(self) -> int:
        return self.key

    def remove(self) -> None:
        self.hooks.pop(self.key, None)
        for other in self.others:
            other.remove()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def add_to(table: Table, hook: Any) -> RemovableHandle:
    key = next(numbers)
    table[key] = hook
    return RemovableHandle(table, key)


class Last:
    """A hook of a leaf's node, in the leaf's own table: these run before the node's."""

    __slots__ = ("hook",)

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def __call__(self, g: Any) -> Any:
        return self.hook(g)


def add_before_last(table: Table, hook: Any) -> RemovableHandle:
    """Add a hook before those that are to be last."""
    handle = add_to(table, hook)
    for key in [key for key, known in table.items() if type(known) is Last]:
        table[key] = table.pop(key)
    return handle


class Hooks:
    """The hooks of one node; most nodes have none."""

    __slots__ = ("after", "before", "kept", "values")

    def __init__(self) -> None:
        self.values: dict[int, Table] = {}  # per result: hooks of the value
        # Per result: weak references to the handles that keep its gradient.
        self.kept: dict[int, Table] = {}
        self.before: Table = {}  # of the node: before its derivative runs
        self.after: Table = {}  # of the node: after it ran


def hooks_of(node: Any) -> Hooks:
    found: Hooks | None = node.hooks
    if found is None:
        found = node.hooks = Hooks()
    return found
