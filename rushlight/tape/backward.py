"""Reverse mode: from roots to leaves, in Kahn's order, without recursion.

# Note [Backward]
1. A node runs when all gradients that can reach it have arrived; they are summed in the order of arrival, which is fixed.
2. Un-broadcasting, casting and adding up happen here and nowhere else (`_fit`, `_arrive`).
3. Hooks see the sum, once. A leaf's `.grad` is a buffer of its own: what is shared or a view is copied first.
4. Saved values are given back as soon as their node has run, unless the graph is retained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import GraphFreedError, InplaceError, RushlightError
from rushlight.core.shapes import Spec
from rushlight.tape.call import make_value
from rushlight.tape.needed import Needed
from rushlight.tape.op import Shadow
from rushlight.tape.region import restore_saves
from rushlight.tape.state import Changed
from rushlight.tape.value import Leaf, Node, Output, Value


class Sum:
    """A gradient being added up; `owned` tells whether its buffer may be written to."""

    __slots__ = ("owned", "value")

    def __init__(self, value: Value, owned: bool) -> None:
        self.value = value
        self.owned = owned

    def add(self, value: Value, in_place: bool) -> None:
        if self.owned and in_place:
            Needed.add_into(self.value, value)
        else:
            self.value = Needed.add(self.value, value)
            self.owned = True


def run_backward(
    roots: Sequence[Value],
    gradients: Sequence[Value],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Value] | None = None,
) -> dict[Any, Value]:
    """Send `gradients` from `roots` to the leaves; with `inputs`, give their gradients instead of touching `.grad`.

    The result maps an input's node (or (node, index)) to its gradient.
    """
    walk = _Walk(retain_graph, create_graph, inputs)
    edges = [root.node for root in roots]
    walk.count(edges)
    with Changed(grad=create_graph):
        for edge, gradient in zip(edges, gradients, strict=True):
            walk.arrive(edge, gradient, owned=False)
        walk.run()
    return walk.found


class _Walk:
    def __init__(self, retain: bool, create: bool, inputs: Sequence[Value] | None) -> None:
        self.retain = retain
        self.create = create
        self.waiting: dict[Any, int] = {}  # gradients still to come, per node
        self.sums: dict[Any, Any] = {}  # Sum per Leaf or one-result node; {index: Sum} for several results
        self.ready: list[Any] = []
        self.found: dict[Any, Value] = {}
        self.wanted = None if inputs is None else {_key(v.node) for v in inputs}
        self.useful: set[Any] | None = None

    def count(self, edges: Sequence[Any]) -> None:
        waiting = self.waiting
        order: list[Any] = []
        stack: list[Any] = []
        for edge in edges:
            node = edge.node if type(edge) is Output else edge
            if node not in waiting:
                waiting[node] = 0
                stack.append(node)
        self.roots = list(stack)
        while stack:
            node = stack.pop()
            order.append(node)
            if type(node) is Leaf:
                continue
            for edge in node.edges:
                if edge is None:
                    continue
                if type(edge) is Output:
                    edge = edge.node
                if edge in waiting:
                    waiting[edge] += 1
                else:
                    waiting[edge] = 1
                    stack.append(edge)
        if self.wanted is not None:
            self._mark_useful(order)

    def _mark_useful(self, order: list[Any]) -> None:
        """The nodes from which a wanted input can be reached: only they run."""
        assert self.wanted is not None
        users: dict[Any, list[Any]] = {}
        for node in order:
            if type(node) is not Leaf:
                for edge in node.edges:
                    if edge is not None:
                        users.setdefault(edge.node if type(edge) is Output else edge, []).append(node)
        stack = [k[0] if type(k) is tuple else k for k in self.wanted]
        useful: set[Any] = set()
        while stack:
            for user in users.get(stack.pop(), ()):
                if user not in useful:
                    useful.add(user)
                    stack.append(user)
        self.useful = useful

    def arrive(self, edge: Any, value: Value, owned: bool) -> None:
        sums = self.sums
        if type(edge) is Output:
            sums = sums.setdefault(edge.node, {})
            edge = edge.index
        present = sums.get(edge)
        if present is None:
            sums[edge] = Sum(value, owned)
        else:
            present.add(value, not self.create)

    def run(self) -> None:
        waiting = self.waiting
        ready = self.ready = [n for n in self.roots if not waiting[n]]
        while ready:
            node = ready.pop()
            arrived = self.sums.pop(node, None)
            if type(node) is Leaf:
                if arrived is not None:
                    self._finish_leaf(node, arrived)
                continue
            parts = self._run_node(node, arrived) if arrived is not None else None
            for i, edge in enumerate(node.edges):
                if edge is None:
                    continue
                if parts is not None and parts[i] is not None:
                    self.arrive(edge, parts[i], _is_owned(parts, i, arrived))
                target = edge.node if type(edge) is Output else edge
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)

    def _run_node(self, node: Node, arrived: Any) -> Sequence[Value | None] | None:
        several = type(arrived) is dict
        if several:
            grads = [arrived[i].value if i in arrived else None for i in range(len(node.plan.outs))]
        else:
            grads = [arrived.value]
        if node.hooks is not None:
            for i, g in enumerate(grads):
                if g is not None:
                    grads[i] = run_hooks(node.hooks.get(i), g)
        if self.wanted is not None:
            self._collect(node, grads, several)
            if self.useful is not None and node not in self.useful:
                return None
        values = saved_values(node)
        parts = node.grad.rule(grads, values, node.params)
        if not self.retain:
            node.saved = None
            node.outs = ()
        return _fit(node, parts)

    def _collect(self, node: Node, grads: list[Value | None], several: bool) -> None:
        assert self.wanted is not None
        for i, g in enumerate(grads):
            key = (node, i) if several else node
            if g is not None and key in self.wanted:
                self.found[key] = g

    def _finish_leaf(self, leaf: Leaf, arrived: Sum) -> None:
        g = run_hooks(leaf.hooks, arrived.value)
        if self.wanted is not None:
            if leaf in self.wanted:
                self.found[leaf] = g
            return
        owned = arrived.owned and g is arrived.value
        if leaf.grad is None:
            leaf.grad = g if self.create or (owned and g.spec.contiguous) else Needed.clone(g)
        elif self.create:
            leaf.grad = Needed.add(leaf.grad, g)
        else:
            Needed.add_into(leaf.grad, g)
        handle = leaf.handle()
        if handle is not None:
            for hook in list(leaf.post_hooks.values()):
                hook(handle)


def _key(edge: Any) -> Any:
    return (edge.node, edge.index) if type(edge) is Output else edge


def _is_owned(parts: Sequence[Value | None], i: int, arrived: Any) -> bool:
    """Whether gradient `i` has a buffer nobody else sees: not passed through, not a view, not given out twice."""
    part = parts[i]
    assert part is not None
    if part.base is not None:
        return False
    storage = part.storage
    for j, other in enumerate(parts):
        if j != i and other is not None and other.storage is storage:
            return False
    sums = arrived.values() if type(arrived) is dict else (arrived,)
    return all(s.value.storage is not storage for s in sums)


def _fit(node: Node, parts: Sequence[Value | None]) -> Sequence[Value | None]:
    """Each gradient with the shape and type of its input."""
    ins = node.plan.ins
    if len(parts) != len(ins):
        raise RushlightError(
            f"{node.plan.op.name}: its derivative gave {len(parts)} gradients for {len(ins)} inputs"
        )
    fitted = None
    for i, part in enumerate(parts):
        if part is None:
            continue
        spec: Spec = ins[i]
        if part.spec.shape != spec.shape or part.spec.dtype is not spec.dtype:
            if fitted is None:
                fitted = list(parts)
            if part.spec.shape != spec.shape:
                part = Needed.sum_to(part, spec.shape)
            if part.spec.dtype is not spec.dtype:
                part = Needed.cast(part, spec.dtype)
            fitted[i] = part
    return parts if fitted is None else fitted


def saved_values(node: Node) -> list[Any]:
    """A value per input and per output of the node's call; shadows for those not saved."""
    if node.saved is None:
        raise GraphFreedError(
            f"{node.plan.op.name}: backward a second time through a graph whose saved values were given back; "
            f"pass retain_graph=True to the first backward"
        )
    if node.dropped is not None:
        restore_saves(node)
    plan, grad = node.plan, node.grad
    version = 0
    values: list[Any] = [Shadow(spec) for spec in plan.ins]
    for i, value in zip(grad.saves_in, node.saved, strict=True):
        version += value.storage.version
        values[i] = value
    outs: list[Any] = [Shadow(spec) for spec in plan.outs]
    for j, storage in zip(grad.saves_out, node.outs, strict=True):
        version += storage.version
        edge = node if len(plan.outs) == 1 else Output(node, j)
        outs[j] = make_value(plan.outs[j], storage, 0, edge)
    if version != node.version:
        raise InplaceError(
            f"{plan.op.name}: a value saved for its backward was overwritten in place since (operands "
            f"{', '.join(map(repr, plan.ins))}); write to a clone instead, or after backward"
        )
    return values + outs


def run_hooks(hooks: dict[int, Any] | None, g: Value) -> Value:
    for hook in list(hooks.values()) if hooks else ():
        replaced = hook(g)
        if replaced is not None:
            g = replaced
    return g
