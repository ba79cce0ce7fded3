"""`graph`: the records behind a tensor, drawn as SVG."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from typing import Any

from rushlight.report.layout import Laid, lay_out
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.source_line import module_path
from rushlight.tape.record.value import Leaf, Node, Output, Value

_LETTER = 6.7  # the width of a letter at 11 pixels
_HEIGHT, _STEP, _MARGIN = 42.0, 78.0, 24.0
_STYLE = """
.rl { --paper: #ffffff; --ink: #1d1d1f; --soft: #6b6b70; --line: #9a9aa2; --op: #eef2f8;
  --op-edge: #8fa5c6; --leaf: #fdf3dc; --leaf-edge: #d0a139; --out: #e2f3e5; --out-edge: #4f9d5d;
  --view: #f4f4f6; --view-edge: #b9b9c0; background: var(--paper);
  font: 11px ui-monospace, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { .rl { --paper: #17181c; --ink: #ececf0; --soft: #a3a3ad;
  --line: #71717c; --op: #222a38; --op-edge: #5b7399; --leaf: #3a2f16; --leaf-edge: #b98f34;
  --out: #17321d; --out-edge: #58a868; --view: #212227; --view-edge: #55565f; } }
.rl text { fill: var(--ink); text-anchor: middle; } .rl .soft { fill: var(--soft); }
.rl .name { font-weight: 600; } .rl path { fill: none; stroke: var(--line); }
.rl rect { stroke-width: 1.2; } .rl .paper { fill: var(--paper); stroke: none; }
.rl .op { fill: var(--op); stroke: var(--op-edge); }
.rl .leaf { fill: var(--leaf); stroke: var(--leaf-edge); }
.rl .out { fill: var(--out); stroke: var(--out-edge); }
.rl .view { fill: var(--view); stroke: var(--view-edge); }
.rl marker path { fill: var(--line); stroke: none; }
"""


class Drawing:
    """A picture of a graph; a notebook shows it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


class _Drawn:
    """One box: its text, the text of its tooltip, and its kind."""

    def __init__(self, kind: str, name: str, below: str, tip: str) -> None:
        self.kind = kind
        self.name = name
        self.below = below
        self.tip = tip

    @property
    def width(self) -> float:
        return max(len(self.name), len(self.below)) * _LETTER + 20


def graph(
    tensor: Value,
    path: Any = None,
    *,
    params: Any = None,
    most: int = 1000,
) -> Drawing:
    """Draw how a tensor was made: ops, views and leaves, from the leaves down to the tensor.

    Args:
        tensor (Tensor): A result with a record, as a loss.
        path (str): A file that ends in .svg; None writes none. A notebook shows the result.
        params (Module or dict): Names of leaves: a model, or names and tensors. Parameters of
            modules that were called are found without it.
        most (int): The most records that are drawn, the nearest ones.
    """
    if not isinstance(tensor, Value):
        raise TypeError(f"graph: takes a tensor, got {type(tensor).__name__}")
    if path is not None and not os.fspath(path).endswith(".svg"):
        raise ValueError(f"graph: the name of the file must end in .svg, got {os.fspath(path)!r}")
    root = edge_of(tensor)
    if root is None:
        raise ValueError("graph: the tensor has no record: no input of it requires a gradient")
    order, cut = _collect(root, most)
    names = _names_of(params)
    for node in order:
        if isinstance(node, Node):
            _add_names(node, names)
    number = {id(node): i for i, node in enumerate(order)}
    boxes = [_box(node, names) for node in order]
    boxes.append(_Drawn("out", "result", _shape(tensor._spec), ""))
    edges = []
    for node in order:
        for edge in node.edges if isinstance(node, Node) else ():
            source = edge.node if isinstance(edge, Output) else edge
            if source is not None and id(source) in number:
                edges.append((number[id(source)], number[id(node)]))
    first = root.node if isinstance(root, Output) else root
    edges.append((number[id(first)], len(boxes) - 1))
    laid = lay_out([box.width for box in boxes], edges)
    note = f"{cut} earlier records are not shown" if cut else ""
    drawing = Drawing(_svg(boxes, laid, note))
    if path is not None:
        drawing.save(path)
    return drawing


def _collect(root: Any, most: int) -> tuple[list[Any], int]:
    """The nearest records and leaves, sources first, and how many others there are."""
    first = root.node if isinstance(root, Output) else root
    found: dict[int, Any] = {id(first): first}
    queue = [first]
    for node in queue:  # it grows
        for edge in getattr(node, "edges", ()) or ():
            source = edge.node if isinstance(edge, Output) else edge
            if source is not None and id(source) not in found:
                found[id(source)] = source
                queue.append(source)
    kept = {id(node) for node in queue[:most]}
    order: list[Any] = []
    done: set[int] = set()
    stack: list[tuple[Any, bool]] = [(first, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            for edge in reversed(getattr(node, "edges", ()) or ()):
                source = edge.node if isinstance(edge, Output) else edge
                if source is not None and id(source) in kept and id(source) not in done:
                    stack.append((source, False))
    return order, len(queue) - len(kept)


def _names_of(params: Any) -> dict[int, str]:
    """Names by the identity of a tensor's leaf."""
    if params is None:
        return {}
    pairs = params.items() if isinstance(params, Mapping) else params.named_parameters()
    return {id(value._node): str(name) for name, value in pairs if value._node is not None}


def _add_names(node: Node, names: dict[int, str]) -> None:
    """Name the parameters of the module that was called."""
    chain = node.chain
    module = chain[1]() if chain is not None else None
    if chain is None or module is None:
        return
    path = module_path(chain) if chain[0] is not None else ""
    for name, value in getattr(module, "_parameters", {}).items():
        leaf = getattr(value, "_node", None)
        if leaf is not None:
            names.setdefault(id(leaf), f"{path}.{name}" if path else name)


def _shape(spec: Any) -> str:
    return f"{spec.dtype.name} {list(spec.shape)}"


def _box(node: Any, names: dict[int, str]) -> _Drawn:
    if isinstance(node, Leaf):
        return _Drawn("leaf", names.get(id(node), "leaf"), _shape(node.spec), "needs a gradient")
    plan = node.plan
    kind = "view" if plan.launch is None else "op"
    shape = _shape(plan.outs[0]) + (f" and {len(plan.outs) - 1} more" if len(plan.outs) > 1 else "")
    name = plan.op.name
    module = node.chain[1]() if node.chain is not None else None
    if name.startswith("_") and module is not None:  # several calls of a layer in one record
        name = type(module).__name__
    return _Drawn(kind, name, shape, f"{plan.op.name}\n{node.place}")


def _svg(boxes: list[_Drawn], laid: Laid, note: str) -> str:
    width = laid.width + 2 * _MARGIN
    height = (laid.layers - 1) * _STEP + _HEIGHT + 2 * _MARGIN + (20 if note else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rl" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="rl-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 z"/></marker></defs>',
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
    ]
    for line in laid.lines:
        parts.append(f'<path marker-end="url(#rl-end)" d="{_curve(line)}"/>')
    for box, place in zip(boxes, laid.boxes, strict=True):
        x, y = place.x + _MARGIN, place.layer * _STEP + _MARGIN
        tip = f"<title>{escape(box.tip)}</title>" if box.tip else ""
        parts.append(
            f'<g>{tip}<rect class="{box.kind}" x="{x - box.width / 2:.1f}" y="{y:.1f}" '
            f'width="{box.width:.1f}" height="{_HEIGHT:.0f}" rx="6"/>'
            f'<text class="name" x="{x:.1f}" y="{y + 17:.1f}">{escape(box.name)}</text>'
            f'<text class="soft" x="{x:.1f}" y="{y + 33:.1f}">{escape(box.below)}</text></g>'
        )
    if note:
        parts.append(f'<text x="{width / 2:.1f}" y="{height - 12:.1f}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _curve(line: list[Any]) -> str:
    """From the lower side of a box through points to the upper side of another."""
    x, y = line[0].x + _MARGIN, line[0].layer * _STEP + _MARGIN + _HEIGHT
    text = f"M{x:.1f},{y:.1f}"
    for place in line[1:]:
        to_x, to_y = place.x + _MARGIN, place.layer * _STEP + _MARGIN
        last = place is line[-1]
        bend = (to_y - y) / 2
        text += f" C{x:.1f},{y + bend:.1f} {to_x:.1f},{to_y - bend:.1f} {to_x:.1f},{to_y:.1f}"
        x, y = to_x, to_y
        if not last:
            y += _HEIGHT
            text += f" L{x:.1f},{y:.1f}"
    return text
