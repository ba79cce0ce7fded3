"""Hooks: user functions of gradients in a pass, which may replace them.

# Note [Hooks]
1. When all gradients of a node's results are summed: the hooks of each result
   (`Tensor.register_hook`), then `retain_grad`, then the node's prehooks, which get the gradients
   of all results; then the derivative runs; then the node's hooks get the gradients of its inputs
   and of its results. Each kind runs in the order of registration.
2. A hook's result, unless it is None, replaces the gradient; it must have the same shape, dtype and
   device.
3. A hook may keep its argument: the walk does not write to it after that.
4. A walk stores nothing on the nodes, so after an error in a hook the same pass can be repeated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import DeviceError, DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import kept_strides
from rushlight.tape.memory.replay import cut
from rushlight.tape.record.hook_tables import (
    Hook,
    RemovableHandle,
    Table,
    add_before_last,
    add_to,
    hooks_of,
)
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import WALK
from rushlight.tape.record.value import Leaf, Node, Output, Value

Gradients = tuple[Value | None, ...]


def check_same(what: Callable[[], str], spec: Any, given: Any) -> Value:
    """A replacement of a gradient, checked to have the same shape, dtype and device."""
    if not isinstance(given, Value) or not hasattr(given, "_memory"):
        raise TypeError(
            f"{what()} gave a {type(given).__name__} in place of a gradient {spec!r}; give a "
            "tensor or None"
        )
    if given._spec.shape != spec.shape:
        raise ShapeError(
            f"{what()} changed the shape of a gradient: {spec!r} became {given._spec!r}"
        )
    if given._spec.dtype is not spec.dtype:
        raise DTypeError(
            f"{what()} changed the type of a gradient: {spec!r} became {given._spec!r}"
        )
    if given._spec.device is not spec.device:
        raise DeviceError(
            f"{what()} moved a gradient to another device: {spec!r} became {given._spec!r}"
        )
    return given


def _named(hook: Any, owner: Any) -> str:
    of = (
        f"a leaf {owner.spec!r}"
        if type(owner) is Leaf
        else f"{owner.op_name}, called at {owner.place}"
    )
    return f"{of}: hook {getattr(hook, '__name__', type(hook).__name__)!r}"


def run_hooks(hooks: Table, g: Value, owner: Leaf | Node) -> Value:
    """The gradient after the hooks of a value."""
    for hook in list(hooks.values()):
        given = hook(g)
        if given is not None:
            g = check_same(lambda hook=hook: _named(hook, owner), g._spec, given)  # type: ignore[misc]
    return g


def run_post_hooks(leaf: Leaf, handle: Value) -> None:
    """Run the hooks of a leaf after its gradient was added; their results are not used."""
    for hook in list(leaf.post_hooks.values()):
        if hook(handle) is not None:
            raise RushlightError(
                f"{_named(hook, leaf)} runs after the gradient was added and must return None; "
                "write to leaf.grad instead"
            )


class Waiting:
    """A hook that is also called when there is no gradient: `hook(None)`."""

    __slots__ = ("hook",)

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def __call__(self, g: Value | None) -> None:
        self.hook(g)


def tell_absent(hooks: Table) -> None:
    """Call such hooks of a value that gets no gradient."""
    for hook in list(hooks.values()):
        if type(hook) is Waiting:
            hook(None)


def run_value_hooks(node: Node, index: int, g: Value) -> Value:
    """Rule 1 of Note [Hooks] for one result of a node."""
    hooks = hooks_of(node)
    found = hooks.values.get(index)
    if found:
        g = run_hooks(found, g, node)
    for reference in list(hooks.kept.get(index, {}).values()):
        kept = reference()
        if kept is not None:
            WALK.get().changed.append((kept, kept.grad, None))  # Note [Backward] 5
            kept.take(g)
    return g


def _replaced(
    hook: Any, owner: Any, old: Sequence[Value | None], given: Any, specs: Sequence[Any]
) -> list[Any]:
    if not isinstance(given, (tuple, list)):
        raise TypeError(
            f"{_named(hook, owner)} gave a {type(given).__name__}; a node's hook gives a tuple or "
            "None"
        )
    if len(given) != len(old):
        raise RushlightError(
            f"{_named(hook, owner)} gave {len(given)} gradients in place of {len(old)}"
        )
    pairs = zip(given, specs, strict=True)
    return [
        None if g is None else check_same(lambda: _named(hook, owner), spec, g) for g, spec in pairs
    ]


def run_before(node: Node, grads: list[Any]) -> list[Any]:
    for hook in list(hooks_of(node).before.values()):
        given = hook(tuple(grads))
        if given is not None:
            grads = _replaced(hook, node, grads, given, node.plan.outs)
    return grads


def run_after(node: Node, parts: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
    count = node.arity
    seen, rest = list(parts[:count]), list(parts[count:])
    for hook in list(hooks_of(node).after.values()):
        given = hook(tuple(seen), tuple(grads))
        if given is not None:
            seen = _replaced(hook, node, seen, given, node.plan.ins[:count])
    return seen + rest


class Kept:
    """The retained gradient of a tensor that is no leaf. The tensor holds it.

    Nodes refer to it weakly.
    """

    __slots__ = ("__weakref__", "grad", "handle", "retains")

    def __init__(self) -> None:
        self.grad: Value | None = None
        self.retains = False
        self.handle: RemovableHandle | None = None

    def take(self, g: Value) -> None:
        # A copy: the walk, or another value, may have the same buffer.
        made = (
            Needed.laid(g, kept_strides(g._spec)) if self.grad is None else Needed.add(self.grad, g)
        )
        if made._memory.recipe is not None:
            cut(made._memory)  # a kept gradient must not keep the whole step's recipes
        self.grad = made

    def follow(self, edge: Any) -> None:
        """Retain the gradient of this record instead of an older one."""
        self.retains = True
        if self.handle is not None:
            self.handle.remove()
        if type(edge) is Leaf or edge is None:
            return
        node, index = (edge.node, edge.index) if type(edge) is Output else (edge, 0)
        self.handle = add_to(hooks_of(node).kept.setdefault(index, {}), weakref.ref(self))


def follow(value: Value) -> None:
    """Retain a value's gradient, if requested, also after its record was rewritten."""
    kept: Kept | None = getattr(value, "kept_grad", None)
    if kept is not None and kept.retains:
        kept.follow(value._node)


def hook_value(edge: Any, hook: Hook) -> RemovableHandle:
    """Register a hook of a value by its record."""
    if type(edge) is Leaf:
        return add_before_last(edge.hooks, hook)
    node, index = (edge.node, edge.index) if type(edge) is Output else (edge, 0)
    return add_to(hooks_of(node).values.setdefault(index, {}), hook)
