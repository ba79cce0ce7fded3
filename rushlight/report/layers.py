"""`summary`: the layers of a model, from one forward pass.

The pass runs under the profiler's recorder: every launch tells its module and its multiplications,
and the tape of the result tells what is saved for backward. Buffers and the random state are put
back afterwards.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from rushlight.nn.module import Module
from rushlight.ops.create.creation import zeros
from rushlight.profiler.recorder import Launch, Recorder
from rushlight.profiler.table import shown_bytes
from rushlight.random import fork_rng
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.source_line import module_path
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tape.record.value import Leaf, Node, Output
from rushlight.tensor import Tensor

_HEADS = ("Layer", "Output shape", "Parameters", "MACs", "Output", "Saved")


class Layer:
    """One module of a model: what its calls gave and kept."""

    def __init__(self, name: str, module: Module) -> None:
        self.name = name  # the path, "" for the model itself
        self.kind = type(module).__name__
        self.outer = ""  # the path of the layer that it is shown in
        self.depth = 0  # layers around it
        own = [p for p in module._parameters.values() if p is not None]
        self.parameters = sum([p.numel() for p in own])  # its own, not those of modules in it
        self.trainable = sum([p.numel() for p in own if p.requires_grad])
        self.is_innermost = not module._modules
        self.calls = 0
        self.output_shape: Any = None  # of the last call: a list of sizes, or a nest of them
        self.output_bytes = 0
        self.macs = 0  # multiplications in products and convolutions, outside of inner modules
        self.saved_bytes = 0  # kept for backward by its own calls, each storage once

    @property
    def label(self) -> str:
        shown = self.name[len(self.outer) :].lstrip(".")
        return "  " * self.depth + (f"{shown}: {self.kind}" if shown else self.kind)

    def cells(self) -> tuple[str, ...]:
        """Text for each column."""
        shape = "not called" if not self.calls else _shown_shape(self.output_shape)
        return (
            self.label,
            shape,
            f"{self.parameters:,}" if self.parameters else "",
            f"{self.macs:,}" if self.macs else "",
            shown_bytes(self.output_bytes) if self.output_bytes else "",
            shown_bytes(self.saved_bytes) if self.saved_bytes else "",
        )

    def __repr__(self) -> str:
        return f"<{self.label.strip()} {_shown_shape(self.output_shape)}>"


def _shown_shape(shape: Any) -> str:
    if shape and isinstance(shape, dict):
        return ", ".join(f"{name} {_shown_shape(each)}" for name, each in shape.items())
    if isinstance(shape, list) and shape and not isinstance(shape[0], int):
        return ", ".join([_shown_shape(each) for each in shape if each is not None])
    return "" if shape is None else str(shape)


class Summary:
    """The layers of a model in the order of their first calls, and totals."""

    def __init__(self, layers: list[Layer], depth: int | None, model: Module, given: int) -> None:
        own = list(model.parameters())
        self.parameters = sum([p.numel() for p in own])
        self.trainable = sum([p.numel() for p in own if p.requires_grad])
        self.parameter_bytes = sum([p.numel() * p.element_size() for p in own])
        self.buffer_bytes = sum([b.numel() * b.element_size() for b in model.buffers()])
        self.input_bytes = given
        self.macs = sum([layer.macs for layer in layers])
        self.output_bytes = sum([layer.output_bytes for layer in layers if layer.is_innermost])
        self.saved_bytes = sum([layer.saved_bytes for layer in layers])
        self.layers = _to_depth(layers, depth)

    total_params = property(lambda self: self.parameters)
    total_mult_adds = property(lambda self: self.macs)

    def _notes(self) -> list[str]:
        frozen = self.parameters - self.trainable
        return [
            f"Parameters: {self.parameters:,} ({shown_bytes(self.parameter_bytes)})"
            + (f", {frozen:,} of them frozen" if frozen else ""),
            f"MACs: {self.macs:,}",
            f"Outputs of layers: {shown_bytes(self.output_bytes)}; "
            f"saved for backward: {shown_bytes(self.saved_bytes)}; "
            f"inputs: {shown_bytes(self.input_bytes)}; buffers: {shown_bytes(self.buffer_bytes)}",
        ]

    def __str__(self) -> str:
        rows = [_HEADS, *[layer.cells() for layer in self.layers]]
        wide = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
        rule = "  ".join("-" * width for width in wide)
        lines = [
            "  ".join(
                text.ljust(width) if i < 2 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, wide, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([lines[0], rule, *lines[1:], rule, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(cells: Iterable[str], tag: str) -> str:
            styles = ["text-align:left;white-space:pre", "text-align:left"]
            made = [
                f'<{tag} style="{styles[i] if i < 2 else "text-align:right"}">'
                f"{html.escape(cell)}</{tag}>"
                for i, cell in enumerate(cells)
            ]
            return f"<tr>{''.join(made)}</tr>"

        body = "".join(row(layer.cells(), "td") for layer in self.layers)
        notes = "<br>".join(map(html.escape, self._notes()))
        return (
            f"<table><thead>{row(_HEADS, 'th')}</thead><tbody>{body}</tbody></table><p>{notes}</p>"
        )


def summary(
    model: Module,
    *inputs: Any,
    depth: int | None = None,
    file: TextIO | None = None,
    **named: Any,
) -> Summary:
    """The layers of a model: output shapes, parameters, MACs, bytes of outputs and of saves.

    Two forward passes run, in the model's mode: a first call may launch more than a later one.
    Buffers and the random state stay as they were. MACs are the multiplications of products
    and convolutions. A script prints the table, to `file` or to the standard output; a prompt or a
    notebook shows the returned value.

    Args:
        model (Module): The model.
        inputs (Tensor or shape): Its arguments; a tuple of sizes stands for zeros.
        depth (int): Levels of modules to show; None for all. A hidden module counts for the one
            around it.
        file (TextIO): Where to print.
        named (object): Its keyword arguments.
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary: takes a model and its inputs, got {type(model).__name__}")
    given = tuple(_as_input(model, each) for each in inputs)
    found = _Pass(model)
    launches, result = found.run(given, named)
    tensors = [*_tensors(given), *_tensors(named)]
    found.count(launches, result, tensors)
    given_bytes = sum([t.numel() * t.element_size() for t in tensors])
    made = Summary(found.ordered(), depth, model, given_bytes)
    if file is not None or not hasattr(sys, "ps1"):  # a prompt or a notebook sets it
        print(made, file=file)
    return made


def _as_input(model: Module, given: Any) -> Any:
    if isinstance(given, tuple) and given and all(isinstance(n, int) for n in given):
        first = next(iter(model.parameters()), None)
        if first is None:
            return zeros(given)
        return zeros(given, dtype=first.dtype, device=first.device)
    return given


class _Pass:
    """A forward pass, and the layers that it met."""

    def __init__(self, model: Module) -> None:
        self.model = model
        self.layers: dict[str, Layer] = {}
        self.names = {id(module): name for name, module in model.named_modules()}
        self.order: list[str] = []

    def run(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Launch], Any]:
        kept = [(buffer, buffer.detach().clone()) for buffer in self.model.buffers()]
        handles = []
        recorder = Recorder(devices=False)
        try:
            with fork_rng(), enable_grad():
                self.model(*given, **named)  # the programs of its calls are known after it
            for name, module in self.model.named_modules():
                self.layers[name] = Layer(name, module)
                handles.append(module.register_forward_pre_hook(self._enter))
                handles.append(module.register_forward_hook(self._leave))
            recorder.start()
            try:
                with fork_rng(), enable_grad():
                    result = self.model(*given, **named)
            finally:
                recorder.stop()
        finally:
            for handle in handles:
                handle.remove()
            with no_grad():
                for buffer, content in kept:
                    buffer.copy_(content)
        return recorder.called(), result

    def _enter(self, module: Module, args: Any) -> None:
        name = self.names[id(module)]
        if name not in self.order:
            self.order.append(name)

    def _leave(self, module: Module, args: Any, result: Any) -> None:
        layer = self.layers[self.names[id(module)]]
        layer.calls += 1
        layer.output_shape = _shape_of(result)
        layer.output_bytes += sum([t.numel() * t.element_size() for t in _tensors(result)])

    def layer_at(self, path: str) -> Layer | None:
        """The layer of a module's path; that of the model where it has none."""
        return self.layers.get(path) or self.layers.get("")

    def count(self, launches: list[Launch], result: Any, given: list[Tensor]) -> None:
        """Add multiplications and saves to the layers."""
        for launch in launches:
            layer = self.layer_at(launch.module)
            if layer is not None:
                layer.macs += launch.plan.products
        members = [*self.model.parameters(), *self.model.buffers(), *given]
        seen = {id(member._memory) for member in members}
        for node in _nodes(result):
            layer = self.layer_at(module_path(node.chain))
            for storage in _saved_storages(node):
                if id(storage) not in seen and layer is not None:
                    seen.add(id(storage))
                    layer.saved_bytes += storage.room

    def ordered(self) -> list[Layer]:
        """Layers in the order of their first calls.

        One that was not called, but has parameters, follows the module that it is in.
        """
        order = list(self.order)
        for name, layer in self.layers.items():
            if name not in order and layer.parameters:
                outer = name.rpartition(".")[0]
                inside = [i for i, n in enumerate(order) if f"{n}.".startswith(f"{outer}.")]
                order.insert(max(inside if outer else [], default=len(order) - 1) + 1, name)
        found = {name: self.layers[name] for name in order}
        for name, layer in found.items():
            parts = name.split(".") if name else []
            around = [".".join(parts[:i]) for i in range(len(parts))]
            around = [outer for outer in around if outer in found]
            layer.depth, layer.outer = len(around), around[-1] if around else ""
        return list(found.values())


def _shape_of(result: Any) -> Any:
    if isinstance(result, Tensor):
        return list(result.shape)
    if isinstance(result, dict):
        return {str(key): _shape_of(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [_shape_of(each) for each in result]
    return None


def _tensors(nest: Any) -> Iterator[Tensor]:
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, dict):
        for each in nest.values():
            yield from _tensors(each)
    elif isinstance(nest, (list, tuple)):
        for each in nest:
            yield from _tensors(each)


def _nodes(result: Any) -> Iterator[Node]:
    """The records that the result was made by."""
    stack = [edge_of(tensor) for tensor in _tensors(result)]
    seen: set[int] = set()
    while stack:
        edge = stack.pop()
        node = edge.node if isinstance(edge, Output) else edge
        if node is None or isinstance(node, Leaf) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack += node.edges


def _saved_storages(node: Node) -> Iterator[Any]:
    for value in node.saved or ():
        storage = getattr(value, "_memory", None)  # what a hook packed has none
        if storage is not None:
            yield storage
    yield from node.outs


def _to_depth(layers: list[Layer], depth: int | None) -> list[Layer]:
    """Layers down to a depth; what lies deeper counts for the layer around it."""
    by_name = {layer.name: layer for layer in layers}
    kept = []
    for layer in layers:
        if depth is None or layer.depth <= depth:
            kept.append(layer)
            continue
        into = by_name[layer.outer]
        while into.depth > depth:
            into = by_name[into.outer]
        into.parameters += layer.parameters
        into.trainable += layer.trainable
        into.macs += layer.macs
        into.saved_bytes += layer.saved_bytes
    return kept
