"""PyTorch's `torch.fx.subgraph_rewriter`: calls of a graph exchanged for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.compat.fx._symbolic_trace import symbolic_trace
from rushlight.compat.fx.graph import Graph
from rushlight.compat.fx.graph_module import GraphModule
from rushlight.compat.fx.node import Node
from rushlight.nn.module import Module


class Match(NamedTuple):
    """A part of a graph that is a pattern: its last node, and what stands for each of its nodes."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Exchange every part of a module's graph that does what a pattern does; the parts found.

    Args:
        gm (GraphModule): The module, which is changed.
        pattern (callable or GraphModule): What is looked for; its arguments stand for any values.
        replacement (callable or GraphModule): What takes its place, of as many arguments.
    """
    wanted, made = _graph_of(pattern), _graph_of(replacement)
    inputs, new_inputs = (graph.find_nodes(op="placeholder") for graph in (wanted, made))
    if len(inputs) != len(new_inputs):
        raise ValueError(
            f"replace_pattern: the pattern takes {len(inputs)} arguments and the replacement "
            f"{len(new_inputs)}"
        )
    last = wanted.output_node().args[0]
    if not isinstance(last, Node) or last.op == "placeholder":
        raise ValueError("replace_pattern: a pattern gives the result of one call")
    found: list[Match] = []
    for anchor in list(gm.graph.nodes):
        mapping: dict[Node, Any] = {}
        taken = {id(node) for match in found for node in _inner(match)}
        if _fits(last, anchor, mapping) and _is_alone(anchor, mapping, taken):
            found.append(Match(anchor, mapping))
    replaced: dict[Node, Any] = {}
    for match in found:
        # An argument may be the result of a part that was exchanged before.
        given = [match.nodes_map.get(node) for node in inputs]
        values: list[Any] = [replaced.get(v, v) if isinstance(v, Node) else v for v in given]
        with gm.graph.inserting_before(match.anchor):
            result = gm.graph.graph_copy(made, dict(zip(new_inputs, values, strict=True)))
        match.anchor.replace_all_uses_with(result)
        replaced[match.anchor] = result
        for node in sorted(_inner(match), key=gm.graph.nodes.index, reverse=True):
            gm.graph.erase_node(node)
    _bring_modules(gm, made, replacement)
    gm.recompile()
    return found


def _graph_of(pattern: Any) -> Graph:
    graph: Graph = (pattern if isinstance(pattern, GraphModule) else symbolic_trace(pattern)).graph
    return graph


def _inner(match: Match) -> list[Node]:
    """The nodes of a graph that a match takes the place of."""
    return [found for node, found in match.nodes_map.items() if node.op != "placeholder"]


def _fits(wanted: Any, found: Any, mapping: dict[Node, Any]) -> bool:
    """Whether an argument is what a pattern's is; nodes are noted in `mapping`."""
    if isinstance(wanted, Node):
        if wanted in mapping:
            return mapping[wanted] is found
        if wanted.op != "placeholder":
            if not isinstance(found, Node) or (wanted.op, wanted.target) != (
                found.op,
                found.target,
            ):
                return False
            same = _fits(wanted.args, found.args, mapping)
            if not same or not _fits(wanted.kwargs, found.kwargs, mapping):
                return False
        mapping[wanted] = found
        return True
    if isinstance(wanted, (tuple, list)):
        if type(wanted) is not type(found) or len(wanted) != len(found):
            return False
        return all(_fits(a, b, mapping) for a, b in zip(wanted, found, strict=True))
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or list(wanted) != list(found):
            return False
        return all(_fits(value, found[name], mapping) for name, value in wanted.items())
    return not isinstance(found, Node) and type(wanted) is type(found) and wanted == found


def _is_alone(anchor: Node, mapping: dict[Node, Any], taken: set[int]) -> bool:
    """Whether no other call uses what the part computes on its way, and no other part has it."""
    inner = _inner(Match(anchor, mapping))
    own = {id(node) for node in inner}
    return not own & taken and all(
        node is anchor or all(id(user) in own for user in node.users) for node in inner
    )


def _bring_modules(gm: GraphModule, made: Graph, replacement: Callable[..., Any]) -> None:
    """Give the module the submodules and attributes that the replacement names and it lacks."""
    if not isinstance(replacement, Module):
        return
    for node in made.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        *path, name = str(node.target).split(".")
        there: Any = gm
        source: Any = replacement
        for part in path:
            source = getattr(source, part)
            if not hasattr(there, part):
                setattr(there, part, Module())
            there = getattr(there, part)
        if not hasattr(there, name):
            setattr(there, name, getattr(source, name))
