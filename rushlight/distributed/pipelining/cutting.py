"""Cutting a model into stages at module paths, by the graph of its calls (`torch.fx`)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from rushlight.compat.fx._symbolic_trace import Tracer
from rushlight.compat.fx.graph import Graph
from rushlight.compat.fx.graph_module import GraphModule
from rushlight.compat.fx.node import Node
from rushlight.core.errors import RushlightError
from rushlight.distributed.pipelining.stages import PipelineStage
from rushlight.nn.module import Module


class SplitPoint(enum.Enum):
    """Where a model is cut: before a module, or after it."""

    BEGINNING = 1
    END = 2


class _Paths(Tracer):
    """Traces a model; the modules at which it is cut are single calls."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self.single = frozenset(paths)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.single or super().is_leaf_module(
            m, module_qualified_name
        )


class Pipe(Module):
    """A model in stages; called, it runs all of them here.

    Args:
        stages (list): The stages' modules, each of which gets the outputs of the one before.
    """

    def __init__(self, stages: Sequence[Module]) -> None:
        super().__init__()
        for n, stage in enumerate(stages):
            self.add_module(f"submod_{n}", stage)
        self.num_stages = len(stages)

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"get_stage_module: stage {stage_idx} of {self.num_stages}")
        return self.get_submodule(f"submod_{stage_idx}")

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """A stage for this rank."""
        module = self.get_stage_module(stage_index).to(device)
        return PipelineStage(module, stage_index, self.num_stages, device, group=group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        made: Any = self.get_stage_module(0)(*args, **kwargs)
        for n in range(1, self.num_stages):
            given = made if isinstance(made, tuple) else (made,)
            made = self.get_stage_module(n)(*given)
        return made


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Cut a model into stages at module paths.

    The model's forward is traced by `torch.fx`: it may not branch on elements of tensors. A model
    that cannot be traced is cut by hand, by a `PipelineStage` of each part.

    Args:
        module (Module): The model.
        mb_args (tuple): Arguments of one microbatch: the stages must give what the model gives.
        mb_kwargs (dict): Arguments by name.
        split_spec (dict): By module path, whether the model is cut before or after it.
        split_policy: Must be None.
    """
    if split_policy is not None:
        raise RushlightError("pipeline: split_policy is not supported; give split_spec")
    points = dict(split_spec or {})
    known = {name for name, _ in module.named_modules()}
    for path, point in points.items():
        if path not in known:
            raise ValueError(f"pipeline: the model has no module {path!r}")
        if not isinstance(point, SplitPoint):
            raise TypeError(f"pipeline: {path!r} is cut at SplitPoint.BEGINNING or END: {point!r}")
    named = mb_kwargs or {}
    try:
        graph = _Paths([*points]).trace(module)
    except Exception as error:
        raise RushlightError(
            f"pipeline: the model cannot be traced ({error}); cut it by hand: PipelineStage(part, "
            "index, count, device) on each rank"
        ) from error
    parts = _parts(graph, points)
    pipe = Pipe([_stage(module, nodes, n, parts) for n, nodes in enumerate(parts)])
    _check_tied(pipe)
    pipe(*mb_args, **named)
    return pipe


def _parts(graph: Graph, points: dict[str, SplitPoint]) -> list[list[Node]]:
    """The nodes of each stage, without inputs and output."""
    parts: list[list[Node]] = [[]]
    met = set()
    for node in graph.nodes:
        point = points.get(str(node.target)) if node.op == "call_module" else None
        if point is not None:
            met.add(str(node.target))
        if point is SplitPoint.BEGINNING and parts[-1]:
            parts.append([])
        if node.op not in ("placeholder", "output"):
            parts[-1].append(node)
        if point is SplitPoint.END:
            parts.append([])
    missed = sorted(points.keys() - met)
    if missed:
        raise RushlightError(f"pipeline: forward does not call {missed}")
    if not parts[-1]:
        parts.pop()
    return parts


def _stage(root: Module, nodes: list[Node], number: int, parts: list[list[Node]]) -> Module:
    """The module of one stage: it gives what later stages, or the caller, read."""
    whole: Any = nodes[0].graph
    output = whole.output_node()
    inputs = [node for node in whole.nodes if node.op == "placeholder"]
    earlier = [node for part in parts[:number] for node in part]
    later = [node for part in parts[number + 1 :] for node in part]
    coming = inputs if number == 0 else _read([*inputs, *earlier], [*nodes, *later, output])
    graph = Graph()
    made = {node: graph.placeholder(node.name) for node in coming}
    for node in nodes:
        made[node] = graph.node_copy(node, lambda one: made[one])
    if later:
        going = _read([*inputs, *earlier, *nodes], [*later, output])
        graph.output(tuple(made[node] for node in going))
    else:
        graph.node_copy(output, lambda one: made[one])
    return GraphModule(root, graph, f"Stage{number}")


def _read(made: Sequence[Node], readers: Sequence[Node]) -> list[Node]:
    """Those nodes that others read, in order."""
    wanted = {source for reader in readers for source in reader.all_input_nodes}
    return [node for node in made if node in wanted]


def _check_tied(pipe: Pipe) -> None:
    """Refuse parameters of several stages: their gradients would need a sum over ranks."""
    owner: dict[int, int] = {}
    for n in range(pipe.num_stages):
        for name, parameter in pipe.get_stage_module(n).named_parameters():
            first = owner.setdefault(id(parameter), n)
            if first != n:
                raise RushlightError(
                    f"pipeline: {name} is a parameter of the stages {first} and {n}; untie it"
                )
