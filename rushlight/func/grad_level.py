"""One level of differentiation on the one tape.

# Note [Gradient levels]
1. A level gives the function a new handle per input: a leaf, or a view of the input where the input
   has a record. Derivatives are taken with respect to that handle's node, which no other level has:
   so levels cannot be confused, in any nesting, and a second level is another walk over the first
   one's records.
2. Whether a result depends on anything outside is read from the record: does it reach a leaf that
   is not of an ended level? Only then is the derivative itself recorded, and only then does a
   result keep its record.
3. `no_grad` and `inference_mode` outside apply to the results of the level, not inside it: as in
   `torch.func`.
4. The forward derivative is the derivative of the reverse one, which is linear in its cotangent. It
   is exact, for every op that is twice differentiable, and needs no second set of rules.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rushlight.core.errors import DTypeError, LayoutError
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.state import STATE, Changed, is_inference
from rushlight.tape.record.value import Leaf, Output, Value
from rushlight.tape.vmap.batched import levels_of, lift, peel, unpeel
from rushlight.tape.walk.backward import run_backward
from rushlight.tape.walk.bounded import BoundedWalk
from rushlight.tape.walk.edges import key_of

# Leaves of ended levels: a record that reaches only these is dropped.
_ENDED: weakref.WeakSet[Leaf] = weakref.WeakSet()


class GradLevel:
    """The inputs of one level: the function's handles (`values`) and their nodes (`marks`)."""

    def __init__(self, name: str, inputs: Sequence[Any]) -> None:
        self.outside = STATE.get().grad
        self.values: list[Any] = []
        self.marks: list[Any] = []
        self.leaves: list[Leaf] = []
        self.tracked: set[Any] = set()  # the nodes of inputs that have a record outside
        for x in inputs:
            check_input(name, x)
            x = lift(x)  # under vmap the gradient is one per example
            inner = self._tracked(x) if self.outside and edge_of(x) is not None else self._fresh(x)
            self.values.append(inner)
            # Read here: an in-place write gives the handle another node.
            self.marks.append((inner._node, levels_of(inner)))

    def _tracked(self, x: Value) -> Value:
        # Dimensions in their own order: a view of the whole.
        inner = views.permute(x, tuple(range(len(x._spec.shape))))
        self.tracked.add(inner._node)
        return inner

    def _fresh(self, x: Value) -> Value:
        # A value of inference mode cannot be saved: it is copied.
        with Changed(grad=False, inference=False):
            inner = e.clone(x) if is_inference(x._memory) else call.detached(x)
        dual = STATE.get().dual
        if dual is not None:
            dual.alias(x, inner)
        leaf = inner._node = Leaf(inner)
        self.leaves.append(leaf)
        return inner

    def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call the function, recorded in any outer mode, and end the level."""
        try:
            with Changed(grad=True, inference=False):
                return function(*args, **named)
        finally:
            _ENDED.update(self.leaves)

    def pull(
        self, outputs: Sequence[Value], cotangents: Sequence[Value], create: bool, retain: bool
    ) -> list[Any]:
        """The gradient of each input, None where the outputs do not depend on it."""
        return pull(outputs, self.marks, cotangents, create, retain, self.tracked)

    def pull_all(self, output: Value, cotangent: Value) -> list[Any]:
        """`pull` by the plain, faster pass, where the output depends on this level only."""
        run_backward([output._node], [peel(cotangent, levels_of(output))], False, False)
        parts = []
        for leaf, (_, levels) in zip(self.leaves, self.marks, strict=True):
            part, leaf.grad = leaf.grad, None
            parts.append(None if part is None else unpeel(part, levels))
        return parts

    def is_all(self, output: Value) -> bool:
        """Whether the output has a record, and it reaches this level's own leaves and no others."""
        return (
            edge_of(output) is not None
            and not self.tracked
            and not depends([output], (), set(self.leaves))
        )

    def leave(self, value: Any) -> Any:
        """A result for the outside: without a record that reaches only ended levels."""
        if not isinstance(value, Value) or not hasattr(value, "_memory") or edge_of(value) is None:
            return value
        return value if self.depends([value]) else call.detached(value)

    def depends(self, values: Sequence[Value]) -> bool:
        """Whether an outer level may differentiate the values again."""
        return self.outside and depends(values, self.tracked)


def check_input(name: str, x: Any) -> None:
    if not isinstance(x, Value):
        raise ValueError(
            f"{name}: tensors are differentiated, got {type(x).__name__}; wrap it in "
            "rushlight.tensor(...), or leave it out with argnums"
        )
    if not hasattr(x, "_memory"):
        raise LayoutError(
            f"{name}: a sparse tensor cannot be differentiated here; pass indices and values"
        )
    if not x._spec.differentiable:
        raise DTypeError(
            f"{name}: only floating-point and complex tensors can require gradients, got "
            f"{x._spec!r}; cast with .to(dtype), or leave it out with argnums"
        )


def pull(
    outputs: Sequence[Value],
    marks: Sequence[Any],
    cotangents: Sequence[Value],
    create: bool,
    retain: bool,
    ends: Collection[Any] = (),
) -> list[Any]:
    """Vector-Jacobian products from recorded outputs to the marked nodes; None without a gradient.

    `ends` are nodes behind which no mark is.
    """
    reached = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if edge_of(y) is not None]
    if not reached or not marks:
        return [None] * len(marks)
    keys = [key_of(edge) for edge, _ in marks]
    seeds = [peel(Needed.cast(g, y._spec.dtype), levels_of(y)) for y, g in reached]
    make = functools.partial(BoundedWalk, ends=ends) if ends else None
    found = run_backward([y._node for y, _ in reached], seeds, retain, create, set(keys), make=make)
    parts = [found.get(key) for key in keys]
    return [
        part if part is None else unpeel(part, levels)
        for part, (_, levels) in zip(parts, marks, strict=True)
    ]


def depends(
    values: Sequence[Value], known: Collection[Any] = (), ended: Collection[Leaf] = _ENDED
) -> bool:
    """Whether a value's record reaches a leaf of no ended level, or one of the known nodes."""
    stack = [edge for edge in map(edge_of, values) if edge is not None]
    seen: set[Any] = set()
    while stack:
        edge = stack.pop()
        node = edge.node if edge.__class__ is Output else edge
        if node in seen:
            continue
        seen.add(node)
        if node.__class__ is not Leaf:
            stack.extend([edge for edge in node.edges if edge is not None])
            found = node in known
        else:
            found = node not in ended
        if found:
            return True
    return False


def leaves_under(values: Sequence[Value], ends: Collection[Any] = ()) -> set[Leaf]:
    """The leaves that the values' records reach, without going behind `ends`."""
    stack = [edge for edge in map(edge_of, values) if edge is not None]
    seen: set[Any] = set(ends)
    while stack:
        edge = stack.pop()
        node = edge.node if edge.__class__ is Output else edge
        if node not in seen:
            seen.add(node)
            if node.__class__ is not Leaf:
                stack.extend([edge for edge in node.edges if edge is not None])
    return {node for node in seen if node.__class__ is Leaf}


def or_zeros(part: Value | None, like: Value) -> Any:
    return creation.zeros_like(call.detached(like)) if part is None else part
