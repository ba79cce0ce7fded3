"""PyTorch's `torch.fx.node`: one call of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rushlight.utils._pytree import tree_map

Target = Callable[..., Any] | str
Argument = Any
base_types = (str, int, float, bool, complex)
_EFFECTS: set[Any] = {operator.setitem}


def has_side_effect(fn: Any) -> Any:
    """Keep calls of a function though nothing uses their results."""
    _EFFECTS.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`a` with `fn` of every leaf of its tuples, lists, dicts and slices."""
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return tree_map(
        lambda leaf: map_aggregate(leaf, fn) if isinstance(leaf, slice) else fn(leaf), a
    )


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`a` with `fn` of every node in it."""
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


class Node:
    """One call: its kind (`op`), what is called (`target`), its arguments and its users."""

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.stack_trace: str | None = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set(args, kwargs)

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for used in self.all_input_nodes:
            used.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for used in self.all_input_nodes:
            used.users[self] = None

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; nodes stand for their results."""
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    @property
    def next(self) -> Node:
        """The node after this one."""
        nodes = self.graph.nodes
        return nodes[nodes.index(self) + 1]

    @property
    def prev(self) -> Node:
        """The node before this one."""
        nodes = self.graph.nodes
        return nodes[nodes.index(self) - 1]

    def update_arg(self, idx: int, arg: Any) -> None:
        """Exchange a positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Exchange an argument by name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node in the arguments."""
        args, kwargs = map_arg(
            (self._args, self._kwargs), lambda node: new_input if node is old_input else node
        )
        self._set(args, kwargs)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let every user of this node, or those that the function names, use another."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def append(self, x: Node) -> None:
        """Move a node behind this one."""
        nodes = self.graph.nodes
        nodes.remove(x)
        nodes.insert(nodes.index(self) + 1, x)

    def prepend(self, x: Node) -> None:
        """Move a node before this one."""
        nodes = self.graph.nodes
        nodes.remove(x)
        nodes.insert(nodes.index(self), x)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the call does more than its result."""
        return self.op in ("placeholder", "output") or self.target in _EFFECTS

    def __repr__(self) -> str:
        return self.name

    def format_node(self, *args: Any) -> str:
        """A line of text."""
        if self.op == "output":
            return f"return {self._args[0]}"
        shown = getattr(self.target, "__name__", self.target)
        head = f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={shown}]"
        if self.op == "placeholder":
            return f"{head}(default={self._args[0]!r})" if self._args else head
        return (
            head if self.op == "get_attr" else f"{head}(args={self._args}, kwargs={self._kwargs})"
        )
