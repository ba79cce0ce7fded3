"""The classes of the tape.

# Note [Tape records]
1. A `Value` is a handle: it owns storage. A `Node` is the record of one call: plan, launch
   parameters, edges to the nodes of its inputs, and the values its derivative declared it needs.
   Edges hold no storage.
2. `Value._node` is None (no gradient), a `Leaf` (gradient is summed there), a `Node`, or an
   `Output` of a node that has several.
3. A node never refers to a handle of its own results, so that nothing is cyclic and reference
   counts free the graph.
4. In a region (checkpoint, budget) every call also leaves a `Recipe` on the storage it filled. See
   Note [Replay].
"""

from __future__ import annotations

import functools
import re
import weakref
from types import CodeType
from typing import Any, ClassVar

from rushlight.core.cache import cached
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record.hook_tables import (
    METADATA,
    Hook,
    Hooks,
    Last,
    RemovableHandle,
    Table,
    add_to,
    hooks_of,
)
from rushlight.tape.record.source_line import Chain, SourceLine
from rushlight.tape.record.state import WALK


class Value:
    """A tensor's content: its bytes, their layout, and its record.

    `Tensor` adds the user's methods.
    """

    __slots__ = ("__weakref__", "_base", "_history", "_memory", "_node", "_offset", "_spec")

    _spec: Spec
    _memory: Storage
    _offset: int  # bytes from the start of the storage
    _node: Any  # Node | Output | Leaf | None
    _base: Value | None  # the value this one is a view of
    _history: int  # the base's count of rewrites when this view was made; unset means 0


def history_of(value: Value) -> int:
    # A `__getattr__` with the default would make every read of every slot slow. Reading an unset
    # slot takes a tenth of a small call, so it is set the first time.
    found: int | None = getattr(value, "_history", None)
    if found is None:
        found = value._history = 0
    return found


class Leaf:
    """The accumulator of a leaf's gradient. It is the leaf's node.

    It refers to the handle weakly.
    """

    __slots__ = ("__weakref__", "grad", "handle", "hooks", "post_hooks", "spec", "sums")

    every: ClassVar[dict[int, weakref.ref[Leaf]]] = {}  # of the leaves that are alive

    def __init__(self, value: Value) -> None:
        key = id(self)
        # What takes it out again is no Python code, in which Ctrl-C would be lost.
        Leaf.every[key] = weakref.ref(self, functools.partial(Leaf.every.pop, key))
        self.grad: Value | None = None
        self.handle = weakref.ref(value)
        self.spec = value._spec
        self.hooks: Table = {}
        self.post_hooks: Table = {}
        self.sums = False  # whether a pass has added to a gradient: Note [Requirement] 7

    @property
    def variable(self) -> Value | None:
        """The leaf, or None after it was freed."""
        return self.handle()

    next_functions: tuple[tuple[Any, int], ...] = ()

    op_name = "AccumulateGrad"

    def name(self) -> str:
        return f"torch::autograd::{self.op_name}"

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""
        return METADATA.setdefault(self, {})

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call `hook((gradient,))` before the gradient is added to the leaf's.

        It may return another, in a tuple.
        """

        def alone(g: Value) -> Any:
            # Nothing is added where gradients are the result.
            given = None if WALK.get().collect else hook((g,))
            if given is None or (isinstance(given, (tuple, list)) and len(given) == 1):
                return None if given is None else given[0]
            raise TypeError(
                f"a leaf {self.spec!r}: its node's prehook gives a tuple of one gradient, or None"
            )

        return add_to(self.hooks, Last(alone))

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook((), (gradient,))` after the gradient was added to the leaf's."""
        seen: list[Any] = [None]

        def notice(g: Value) -> None:
            if not WALK.get().collect:  # else nothing is added, and `finish` is not called
                seen[0] = g

        def finish(_: Value) -> None:
            g, seen[0] = seen[0], None
            hook((), (g,))

        handle = add_to(self.hooks, Last(notice))
        handle.others = (add_to(self.post_hooks, finish),)
        return handle

    def __repr__(self) -> str:
        return f"<AccumulateGrad of {self.spec!r}>"


class Output:
    """One result of a node that has several."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index


class Node:
    """The record of one call."""

    __slots__ = (
        "__weakref__",
        "at",  # the source line of the call, with `code` and `chain`: see Note [Source lines]
        "chain",
        "code",
        "edges",  # per input: the input's node, or None
        "grad",  # the derivative for the inputs that need one
        "hooks",
        "outs",  # saved output storages, in order of grad.saves_out
        "params",
        "plan",
        "dropped",  # the checkpoints that dropped some of the saves, or None
        "saved",  # saved input values; None when freed
        "version",  # the sum of the saves' storage versions when they were saved
    )

    plan: Any
    edges: tuple[Any, ...]
    params: tuple[Any, ...]
    saved: tuple[Value, ...] | None
    outs: tuple[Storage, ...]
    grad: Any
    version: int
    hooks: Hooks | None
    dropped: tuple[Any, ...] | None
    code: CodeType
    at: int
    chain: Chain | None

    @property
    def place(self) -> SourceLine:
        """The source line of the call in the user's program, and its module."""
        return SourceLine(self.code, self.at, self.chain)

    @property
    def arity(self) -> int:
        """The number of inputs of the call; a user's function has its saves after them."""
        inputs: int | None = self.plan.op.inputs
        return len(self.edges) if inputs is None else inputs

    @property
    def op_name(self) -> str:
        return str(self.plan.op.name)

    def name(self) -> str:
        """PyTorch's kind of name: MulBackward0; of a user's function Pair it is PairBackward."""
        words = re.findall("[A-Za-z0-9]+", self.op_name)
        ending = "Backward0" if self.plan.op.inputs is None else "Backward"
        return "".join([word[0].upper() + word[1:] for word in words]) + ending

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Per input: its node, or None, and the index of the result there."""
        return tuple(
            (shown(e.node), e.index) if type(e) is Output else (shown(e), 0)
            for e in self.edges[: self.arity]
        )

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""
        return METADATA.setdefault(self, {})

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_outputs)` before the derivative runs; it may return others.

        See Note [Hooks].
        """
        return add_to(hooks_of(self).before, hook)

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after the derivative ran.

        It may return other gradients of the inputs.
        """
        return add_to(hooks_of(self).after, hook)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


# The class of a leaf's node has PyTorch's name, as `shown` gives it to the others.
Leaf.__name__ = Leaf.__qualname__ = Leaf.op_name


def shown(node: Any) -> Any:
    """A record as a user gets it: from here on of a class of its op, which has PyTorch's name.

    A call makes a plain `Node`, so that this costs nothing where nobody looks.
    """
    if isinstance(node, Node) and not hasattr(node.__class__, "of_op"):
        kind = node.__class__
        node.__class__ = _class_of(getattr(kind, "seen", kind), node.name())
    return node


@cached
def _class_of(kind: type, name: str) -> Any:
    return type(name, (kind,), {"__slots__": (), "of_op": True})


def is_of_op(node: Any) -> bool:
    """Whether it is the record of an op, not a leaf and not of a user's function."""
    return isinstance(node, Node) and node.plan.op.inputs is None


def is_leaf(value: Value) -> bool:
    return value._node is None or type(value._node) is Leaf


def needs_grad(value: Value) -> bool:
    return value._node is not None
