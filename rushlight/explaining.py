"""`explain`: the tape of a tensor, the kernels of its calls and of their derivatives.

Records are listed oldest first, each with the user's line. A record's kernels are found by making
its plan again while builds are noted (nothing is built twice), those of its derivative by running
that on a gradient of zeros, which changes no `.grad` and frees nothing.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.kernel.show import show
from rushlight.ops.family.build import noted_builds
from rushlight.ops.family.pairs import is_complex
from rushlight.tape.memory.recipe import Recipe
from rushlight.tape.memory.saved_tensor_hooks import PACKED
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.op import Plan
from rushlight.tape.record.source_line import SourceLine
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Leaf, Node, Output, Value
from rushlight.tape.record.written import HIDDEN
from rushlight.tape.walk.backward import saved_values
from rushlight.tape.walk.shown import FunctionNode


class Explanation(str):
    """Text that a prompt or a notebook displays unquoted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(
    tensor: Value,
    *,
    most: int = 40,
    backward: bool = True,
    source: bool = False,
    file: TextIO | None = None,
) -> Explanation:
    """How a tensor was made: its records with source lines, and the bodies of their kernels.

    A script prints the text, to `file` or to the standard output. A prompt or a notebook shows the
    returned value, so nothing is printed there unless `file` is given.

    `most` bounds how many records are shown, the nearest ones; `backward=False` leaves out the
    derivatives' kernels; `source=True` adds the text that the device compiles, some hundred lines
    for each kernel.

    Args:
        tensor (Tensor): The tensor.
        most (int): How many records are shown, the nearest ones.
        backward (bool): Show the kernels of derivatives.
        source (bool): Show the text that the device compiles.
        file (file): Where the text is printed.
    """
    if not isinstance(tensor, Value):
        raise TypeError(f"explain: takes a tensor, got {type(tensor).__name__}")
    root = edge_of(tensor)
    kernels = _Kernels()
    lines = [_handle(tensor), ""]
    if root is None:
        lines.append("no record: it was made from constants, under no_grad(), or after .detach()")
        lines += _recipe(tensor._memory.recipe, kernels)
    else:
        lines += _tape(root, most, backward, kernels)
    lines += ["", *kernels.texts(tensor._spec.device.device, source)]
    text = Explanation("\n".join(lines).rstrip())
    if file is not None or not hasattr(sys, "ps1"):  # a prompt or a notebook sets it
        print(text, file=file)
    return text


class _Kernels:
    """The kernels met so far, and the users of each."""

    def __init__(self) -> None:
        self.uses: dict[Any, list[str]] = {}

    def of_plan(self, plan: Plan, user: str) -> str:
        """Note a plan's kernels; they are named in the line of the record."""
        if plan.launch is None:
            return "a view"
        with noted_builds() as found:
            try:
                plan.op.make_plan(plan.ins, plan.static)
            # A user's function, or a write into another's memory: it cannot be repeated.
            except Exception:
                return "no kernel of its own"
        for kernel in dict.fromkeys(found):
            users = self.uses.setdefault(kernel, [])
            if user not in users:
                users.append(user)
        order = list(self.uses)
        return ", ".join(f"kernel {order.index(k)}" for k in dict.fromkeys(found)) or "no kernel"

    def texts(self, device: Any, source: bool) -> Iterator[str]:
        for number, (kernel, users) in enumerate(self.uses.items()):
            yield f"kernel {number} on {device.name}, for {', '.join(users)}:"
            yield _indented(show(kernel))
            if source and not is_complex(kernel):
                text = device.emit(kernel)
                yield f"  its source on {device.name}, {len(text.splitlines())} lines:"
                yield _indented(text, 4)
            yield ""


def _indented(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line if line else "" for line in text.rstrip().splitlines())


def _handle(tensor: Value) -> str:
    spec, storage = tensor._spec, tensor._memory
    parts = [
        f"{spec!r} on {spec.device.device.name}",
        f"{storage.room} bytes" if storage.present_address else "dropped",
    ]
    if not spec.contiguous:
        parts.append(f"strides {list(spec.strides)}")
    if tensor._base is not None:
        parts.append(f"a view of {tensor._base._spec!r} from byte {tensor._offset}")
    if storage.version:
        written = getattr(storage, "written", None)
        last = f", last at {SourceLine(*written)}" if written is not None else ""
        count = storage.version % HIDDEN + storage.version // HIDDEN
        parts.append(f"written to in place {count} times{last}")
    return ", ".join(parts)


def _recipe(recipe: Recipe | None, kernels: _Kernels) -> list[str]:
    """The recipe of bytes that have no record."""
    if recipe is None:
        return []
    return [
        f"its bytes can be made again by {recipe.plan.op.name}: "
        f"{kernels.of_plan(recipe.plan, recipe.plan.op.name)}"
    ]


def _tape(root: Any, most: int, backward: bool, kernels: _Kernels) -> list[str]:
    shown, records, leaves = _nearest(root, most)
    names = {node: f"%{i}" for i, node in enumerate(shown)}
    saved = _saved_bytes(shown)
    lines = [
        f"tape: {_count(records, 'record', 'records')}, {_count(leaves, 'leaf', 'leaves')}; "
        f"{saved} bytes saved for backward by the records shown"
    ]
    if records + leaves > len(shown):
        lines.append(f"(the nearest {len(shown)} are shown; pass most={records + leaves} for all)")
    for node in shown:
        lines.append("")
        lines += (
            _leaf(node, names) if type(node) is Leaf else _record(node, names, backward, kernels)
        )
    return lines


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _nearest(root: Any, most: int) -> tuple[list[Any], int, int]:
    """The nodes nearest to the root, oldest first, and the numbers of all records and leaves."""
    start = root.node if type(root) is Output else root
    seen: dict[Any, None] = {start: None}
    queue = [start]
    records = leaves = 0
    for node in queue:
        if type(node) is Leaf:
            leaves += 1
            continue
        records += 1
        for edge in node.edges:
            if edge is not None:
                inner = edge.node if type(edge) is Output else edge
                if inner not in seen:
                    seen[inner] = None
                    queue.append(inner)
    return _oldest_first(queue[: max(most, 1)]), records, leaves


def _oldest_first(nodes: list[Any]) -> list[Any]:
    """The nodes in topological order, inputs first."""
    among, done, order = set(nodes), set(), []
    stack = [(nodes[0], False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            if type(node) is not Leaf:
                inner = [e.node if type(e) is Output else e for e in node.edges if e is not None]
                stack.extend((n, False) for n in reversed(inner) if n in among)
    return order


def _saved_bytes(nodes: list[Any]) -> int:
    """The bytes that records hold for backward, each storage once."""
    storages = {}
    for node in nodes:
        if type(node) is not Leaf:
            for kept in (*(node.saved or ()), *node.outs):
                # Dropped, or packed.
                storage = kept if isinstance(kept, Storage) else getattr(kept, "_memory", None)
                if storage is not None:
                    storages[id(storage)] = storage.room
    return sum(storages.values())


def _leaf(leaf: Leaf, names: dict[Any, str]) -> list[str]:
    gradient = "none yet" if leaf.grad is None else repr(leaf.grad._spec)
    return [f"{names[leaf]} = leaf {leaf.spec!r}; its gradient: {gradient}"]


def _record(node: Node, names: dict[Any, str], backward: bool, kernels: _Kernels) -> list[str]:
    name, plan = names[node], node.plan
    operands = [
        _operand(edge, spec, names) for edge, spec in zip(node.edges, plan.ins, strict=True)
    ]
    params = () if isinstance(node, FunctionNode) else node.params  # its context
    static = [repr(x) for x in (*plan.static, *params) if x is not None]
    results = ", ".join(map(repr, plan.outs))
    place = node.place
    lines = [
        f"{name} = {plan.op.name}({', '.join(operands + static)}) -> {results}",
        f"    at {place}",
    ]
    text = linecache.getline(place.file, place.line).strip()
    if text:
        lines.append(f"    {place.line} | {text}")
    lines.append(f"    forward: {kernels.of_plan(plan, f'{name} {plan.op.name}')}")
    lines.append(f"    saves: {_saves(node)}")
    if backward:
        lines += [f"    backward: {line}" for line in _derivative(node, name, kernels)]
    return lines


def _operand(edge: Any, spec: Spec, names: dict[Any, str]) -> str:
    if edge is None:
        return repr(spec)
    if type(edge) is Output:
        return f"{names.get(edge.node, '...')}[{edge.index}]"
    return names.get(edge, "...")


def _saves(node: Node) -> str:
    grad, plan = node.grad, node.plan
    if not grad.saves_in and not grad.saves_out:
        return "nothing"
    if node.saved is None:
        return "nothing: a backward pass gave it back"
    parts = [f"operand {i} {plan.ins[i]!r}" for i in grad.saves_in]
    parts += [f"result {plan.outs[j]!r}" for j in grad.saves_out]
    if node.dropped is PACKED:
        return ", ".join(parts) + " (as the hooks for saved tensors keep them)"
    return ", ".join(parts) + (
        " (in part dropped, to be made again)" if node.dropped is not None else ""
    )


def _derivative(node: Node, name: str, kernels: _Kernels) -> list[str]:
    """The calls of a record's derivative, run on zeros; or the reason why it cannot run."""
    if node.saved is None and (node.grad.saves_in or node.grad.saves_out):
        return ["unknown: the graph was freed"]
    notes: list[Any] = []
    try:
        with Changed(grad=False, region=None, trace=notes):
            zeros = [Needed.full(Spec.of(o.device, o.dtype, o.shape), 0.0) for o in node.plan.outs]
            del notes[:]
            node.grad.rule(zeros, saved_values(node), node.params)
    except Exception as error:
        return [f"it would raise {type(error).__name__}: {error}"]
    calls = [n for n in notes if n is not None]
    if not calls:
        return ["the gradient passes as it is"]
    user = f"backward of {name} {node.plan.op.name}"
    return [f"{plan.op.name}: {kernels.of_plan(plan, user)}" for plan, *_ in calls]
