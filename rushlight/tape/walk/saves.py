"""The saves of a node's derivative, checked and, where a checkpoint dropped them, rebuilt."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.errors import GraphFreedError, InplaceError
from rushlight.tape.memory import replay
from rushlight.tape.memory.checkpoint import restore_saves
from rushlight.tape.memory.saved_tensor_hooks import PACKED, unpacked
from rushlight.tape.record.call import make_value, rooted
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Leaf, Node, Output, Value
from rushlight.tape.record.written import are_hidden, describe_writes, spared


def saves_of(node: Node) -> tuple[Sequence[Value], Sequence[Value]]:
    """The saved outputs and inputs, in the order of `grad.saves_out` and `grad.saves_in`."""
    if node.saved is None:
        if not (node.grad.saves_in or node.grad.saves_out):
            return (), ()  # nothing was saved, so nothing is missing
        raise GraphFreedError(
            f"{node.plan.op.name}, called at {node.place}: backward a second time through a graph "
            "whose saved values were given back; pass retain_graph=True to the first backward"
        )
    if node.dropped is not None:
        if node.dropped is PACKED:
            return unpacked(node)
        restore_saves(node)
    saved = node.saved
    outs: Sequence[Value] = ()
    version, constant = 0, False
    for value in saved:
        version += value._memory.version
        constant = constant or value._node is None
    if node.outs:
        plan = node.plan
        outs = []
        for j, storage in zip(node.grad.saves_out, node.outs, strict=True):
            version += storage.version
            outs.append(
                make_value(
                    plan.outs[j], storage, 0, node if len(plan.outs) == 1 else Output(node, j)
                )
            )
    if version != node.version and not _is_spared(node, version - node.version, outs):
        storages = [*[v._memory for v in saved], *node.outs]
        raise InplaceError(
            f"{node.plan.op.name}: a value saved for its backward was overwritten in place "
            f"{describe_writes(storages)}; it was saved at {node.place} (operands "
            f"{', '.join(map(repr, node.plan.ins))}); write to a clone instead, or after backward"
        )
    if STATE.get().region is not None:
        replay.fetch([*[v._memory for v in saved], *node.outs])
    return outs, _as_recorded(node, saved) if constant else saved


def _is_spared(node: Node, versions: int, outs: Sequence[Value]) -> bool:
    """Whether what a node saved is as it was: see Note [Writes through data]."""
    kept = [(value._memory, value._spec, value._offset) for value in (*(node.saved or ()), *outs)]
    return are_hidden(versions) and spared(versions, kept)


def _as_recorded(node: Node, saved: Sequence[Value]) -> Sequence[Value]:
    """A handle that was detached in place since it was saved, as the result it was."""
    found = []
    for i, value in zip(node.grad.saves_in, saved, strict=True):
        edge = node.edges[i]
        lost = value._node is None and edge is not None and edge.__class__ is not Leaf
        found.append(
            rooted(make_value(value._spec, value._memory, value._offset, edge)) if lost else value
        )
    return found
