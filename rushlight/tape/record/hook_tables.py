"""Tables of hooks. Note [Hooks] in `tape/walk/hooks.py` says when they run."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

Hook = Callable[..., Any]
Table = dict[int, Any]  # hooks in order of registration, by number

numbers = itertools.count()

# Users' metadata of nodes, by node: rare, so a node has no slot for it.
METADATA: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


class RemovableHandle:
    """The handle of a registered hook: `remove()`, or the end of a `with` block, removes it.

    Its number `id` is the hook's key in `hooks_dict`, and in the tables of `extra_dict`, which say
    more about the hook.
    """

    def __init__(self, hooks_dict: Table, *, extra_dict: Table | list[Table] | None = None) -> None:
        more = extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.tables = (hooks_dict, *[table for table in more if table is not None])
        # A table from a file has the numbers of another process.
        self.id = next(number for number in numbers if number not in hooks_dict)
        self.others: tuple[RemovableHandle, ...] = ()  # hooks that are removed with this one

    def remove(self) -> None:
        for table in self.tables:
            table.pop(self.id, None)
        for other in self.others:
            other.remove()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __getstate__(self) -> tuple[Any, ...]:  # PyTorch's, for files
        return self.tables[0], self.id, self.tables[1:]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        first, self.id, *more = state
        self.tables = ({} if first is None else first, *(more[0] if more else ()))
        self.others = ()


def add_to(
    table: Table, hook: Any, first: bool = False, said: Sequence[Table] = ()
) -> RemovableHandle:
    """Add a hook, also before all others; `said` are the tables of what is true of it."""
    handle = RemovableHandle(table, extra_dict=list(said))
    rest = dict(table) if first else {}
    if first:
        table.clear()
    table[handle.id] = hook
    table.update(rest)
    for true_of in said:
        true_of[handle.id] = True
    return handle


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
