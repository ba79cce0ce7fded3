"""Dual values: tensors with tangents, as in PyTorch's `torch.autograd.forward_ad`.

# Note [Dual values]
1. While `State.dual` is set, every call whose operands have tangents also makes those of its
   results (`DualLevel.follow`). It needs the op's derivative only: the gradient is linear in its
   cotangent, so its own derivative by that is the tangent (`pushed`). That works for every op with
   a derivative, and costs two passes over each op.
2. A tangent belongs to a handle that is no view, and has its layout. A view's tangent is that view
   of its base's, so writes through either are visible in both. Another handle of the same memory
   (`detach`) has none.
3. A record keeps saved results as memory, not as handles: the tangent of a call's result is also
   found by its record.
4. Tangents are made of ops: where the mode records, they have records, and a backward pass inside a
   level gives gradients that have tangents. In such a pass nothing is summed in place.
5. A level ends with its block, and with it all tangents. Features that cannot carry one refuse:
   hooks that pack saved tensors, and in-place changes of a tensor's own shape. Checkpoints inside a
   level drop nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of, fits, fitted
from rushlight.tape.record.op import Plan, Shadow
from rushlight.tape.record.state import STATE, Changed, is_inference
from rushlight.tape.record.value import Leaf, Node, Output, Value
from rushlight.tape.vmap.batched import physical_of, wrap
from rushlight.tape.walk.backward import run_backward

# The state for the ops that make a tangent: a plain program in any surroundings of the call.
_PLAIN: dict[str, Any] = {
    "dual": None, (
        "region"
    ): None, "autocast": None, "trace": None, "saving": None, "batch": (), "inference": False
}  # fmt: skip


class DualLevel:
    """The tangents of one level."""

    def __init__(self) -> None:
        self.alive = True
        # By the identity of a handle: the handle, weakly, and its tangent.
        self.tangents: dict[int, tuple[weakref.ref[Value], Value]] = {}
        self.made: weakref.WeakKeyDictionary[Node, dict[int, Value]] = weakref.WeakKeyDictionary()

    def end(self) -> None:
        self.alive = False
        self.tangents.clear()
        self.made.clear()

    # ---- the tangent of a value ----

    def tangent_of(self, value: Value) -> Value | None:
        """The tangent, in the value's layout; None where it has none."""
        if value._spec.hidden:
            found = self.tangent_of(physical_of(value))
            return None if found is None else wrap(found, value.levels)  # type: ignore[attr-defined]
        root = _root_of(value)
        known = self._of_root(root)
        if known is None or root is value:
            return known
        with Changed(**_PLAIN):
            return Needed.view_of(known, value._spec, value._offset - root._offset)

    def _of_root(self, root: Value) -> Value | None:
        entry = self.tangents.get(id(root))
        if entry is not None:
            return entry[1]
        edge = root._node
        if edge is None or edge.__class__ is Leaf:
            return None
        node, index = (edge.node, edge.index) if edge.__class__ is Output else (edge, 0)
        return self.made.get(node, {}).get(index)

    def set_root(self, root: Value, tangent: Value) -> None:
        """Set the tangent of a handle that is no view."""
        key, table = id(root), self.tangents

        def forget(_: Any) -> None:
            table.pop(key, None)

        table[key] = (weakref.ref(root, forget), _laid_out(tangent, root._spec))

    def forget(self, value: Value) -> None:
        self.tangents.pop(id(value), None)

    def store(self, target: Value, tangent: Value) -> None:
        """Set the tangent of a value that was written to, and so of its base."""
        base = _root_of(target)
        if base is target:
            self.set_root(target, tangent)
            return
        with Changed(**_PLAIN):
            whole = self._of_root(base)
            whole = Needed.full(base._spec, 0.0) if whole is None else whole
            self.set_root(
                base, Needed.with_view(whole, tangent, target._spec, target._offset - base._offset)
            )

    def move(self, source: Value, target: Value) -> None:
        """Give a handle that is no view the tangent of one that will be a view of it."""
        entry = self.tangents.pop(id(source), None)
        if entry is not None:
            self.set_root(target, entry[1])

    def alias(self, source: Value, target: Value) -> None:
        """Give another handle of a value its tangent."""
        found = self.tangent_of(source)
        if found is not None:
            self.attach(target, found)

    def attach(self, target: Value, tangent: Value) -> None:
        """Set a new handle's tangent; of a batched handle, that of the whole batch."""
        if target._spec.hidden:
            levels = target.levels  # type: ignore[attr-defined]
            self.store(physical_of(target), Needed.spread(tangent, levels))
        else:
            self.store(target, tangent)

    # ---- calls ----

    def follow(
        self, plan: Plan, inputs: Sequence[Value], params: tuple[Any, ...], result: Any
    ) -> None:
        """Make the tangents of a call's results. A view of one operand needs none of its own."""
        if (
            not self.alive
            or not (self.tangents or self.made)
            or (plan.launch is None and len(inputs) == 1)
        ):
            return
        outs: Sequence[Value] = result if isinstance(result, tuple) else (result,)
        made = self.pushed(plan, inputs, params, outs)
        if made is None:
            return
        for j, (out, tangent) in enumerate(zip(outs, made, strict=True)):
            if tangent is None:
                continue
            if out._base is not None:  # one operand, as a function of the others
                self.store(out, tangent)
                continue
            self.set_root(out, tangent)
            edge = out._node
            if edge is not None:
                node = edge.node if edge.__class__ is Output else edge
                self.made.setdefault(node, {})[j] = self.tangents[id(out)][1]

    def pushed(
        self,
        plan: Plan,
        inputs: Sequence[Value],
        params: tuple[Any, ...],
        outs: Sequence[Value] | None,
    ) -> list[Value | None] | None:
        """A tangent per result, None where no operand has one.

        Without `outs` the results do not exist yet.
        """
        given = [self.tangent_of(v) if v._spec.differentiable else None for v in inputs]
        if all(t is None for t in given):
            return None
        state = STATE.get()
        tangents = [t for t in given if t is not None]
        record = state.grad and any(edge_of(v) is not None for v in (*inputs, *tangents))
        with Changed(**_PLAIN):
            return pushed(plan, inputs, params, outs, given, record)

    # ---- refusals ----

    def refuse(self, what: str, fix: str, *values: Value) -> None:
        """Raise where one of the values has a tangent."""
        for value in values:
            if self.tangent_of(value) is not None:
                raise RushlightError(
                    f"forward_ad: {what} of a dual tensor ({value._spec!r}) loses its tangent; "
                    f"{fix}"
                )


def pushed(
    plan: Plan,
    inputs: Sequence[Value],
    params: tuple[Any, ...],
    outs: Sequence[Value] | None,
    tangents: Sequence[Value | None],
    record: bool,
) -> list[Value | None]:
    """The derivative of a call along tangents: that of its gradient by the cotangent."""
    needs = sum(1 << i for i, t in enumerate(tangents) if t is not None)
    grad = plan.grads.get(needs) or plan.grad(needs)
    if grad.saves_out and outs is None:
        raise AssertionError(f"{plan.op.name}: its derivative reads a result that is not there yet")
    keep: Callable[[Value], Value] = (lambda v: v) if record else _without_record
    values: list[Any] = [Shadow(spec) for spec in (*plan.ins, *plan.outs)]
    for i in grad.saves_in:
        values[i] = keep(inputs[i])
    for j in grad.saves_out:
        assert outs is not None
        values[len(plan.ins) + j] = keep(outs[j])
    with Changed(grad=True):
        seeds = [_seed(spec) if spec.differentiable else None for spec in plan.outs]
        parts = grad.rule(seeds, values, params)
        both = zip(parts, tangents, plan.ins, strict=True)
        pulled = [(fitted(p, spec), t) for p, t, spec in both if p is not None and t is not None]
    pulled = [(p, t) for p, t in pulled if edge_of(p) is not None]
    leaves = [None if s is None else s._node for s in seeds]
    wanted = {leaf for leaf in leaves if leaf is not None}
    found: dict[Any, Value] = {}
    if pulled:
        found = run_backward(
            [p._node for p, _ in pulled], [t for _, t in pulled], False, record, wanted
        )
    return [
        None if leaf is None else found[leaf] if leaf in found else Needed.full(spec, 0.0)
        for leaf, spec in zip(leaves, plan.outs, strict=True)
    ]


def _without_record(value: Value) -> Value:
    """The value without a record; a value of inference mode cannot be saved, and is copied."""
    return Needed.clone(value) if is_inference(value._memory) else call.detached(value)


def _root_of(value: Value) -> Value:
    root = value
    while root._base is not None:  # a value that became a view in place is the base of older views
        root = root._base
    return root


def _seed(spec: Spec) -> Value:
    value = Needed.full(Spec.of(spec.device, spec.dtype, spec.shape), 0.0)
    value._node = Leaf(value)
    return value


def _laid_out(tangent: Value, spec: Spec) -> Value:
    """The tangent as a handle that is no view, in the layout of its value."""
    if tangent._spec is spec and tangent._base is None and fits(tangent, spec):
        return tangent
    with Changed(**_PLAIN):
        return Needed.laid(tangent, spec.strides) if spec.dense else Needed.clone(tangent)
