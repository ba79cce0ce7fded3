"""The names by which `grad_fn` shows what a call saved: PyTorch's for the operands.

See Note [Shown saves]. A kernel's declaration states those that differ from `self`, `other` and
`result`. They go by the op's name: a record that stands for a whole composite shows its kernel's
names.
"""

from __future__ import annotations

from rushlight.tape.record.value import Node
from rushlight.tape.walk.shown import Where, name_saves

DEFAULT = ("self", "other", *[f"input{i}" for i in range(2, 12)])
LOSS = ("self", "target", "weight")

_OPERANDS: dict[str, tuple[str, ...]] = {}
_RESULTS: dict[str, tuple[str, ...]] = {}


def name_operands(op: str, *names: str) -> None:
    """State the operands' names of an op."""
    _OPERANDS[op] = names
    _show(*names)


def name_results(op: str, *names: str) -> None:
    """State the names of an op's results, if several or not `result`."""
    _RESULTS[op] = names
    _show(*names)


def _show(*names: str) -> None:
    name_saves([name for name in names if not hasattr(Node, f"_saved_{name}")], describe)


def _operand(name: str, i: int) -> str:
    names = _OPERANDS.get(name, DEFAULT)
    return names[i] if i < len(names) else f"input{i}"


def _result(name: str, j: int, count: int) -> str:
    names = _RESULTS.get(name, ())
    return names[j] if j < len(names) else "result" if count == 1 else f"result{j}"


def describe(node: Node) -> dict[str, Where]:
    """The source of each of a record's names: operands of the call first, then saved results."""
    plan = node.plan
    name = plan.op.name
    is_pattern = getattr(plan.op, "static_is_pattern", False)
    pattern = plan.static if is_pattern else (None,) * len(plan.ins)
    found: dict[str, Where] = {}
    tensors = numbers = 0
    for i, kind in enumerate(pattern):
        if kind is None:
            found[_operand(name, i)] = ("operand", tensors)
            tensors += 1
        else:
            found[_operand(name, i)] = ("number", node.params[numbers])
            numbers += 1
    for j in node.grad.saves_out:
        found[_result(name, j, len(plan.outs))] = ("result", j)
    return found


_show(*DEFAULT, "result", *[f"result{j}" for j in range(8)])
