"""PyTorch's `torch.fx.interpreter`: run a graph node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rushlight.compat.fx._symbolic_trace import Tracer
from rushlight.compat.fx.graph import Graph
from rushlight.compat.fx.graph_module import GraphModule
from rushlight.compat.fx.node import Node, map_aggregate, map_arg
from rushlight.compat.fx.proxy import Proxy


class Interpreter:
    """Runs a GraphModule. A subclass may change what a kind of node does."""

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Any = None) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.garbage_collect_values = garbage_collect_values

    def run(self, *args: Any, initial_env: Any = None, enable_io_processing: bool = True) -> Any:
        """The result of the graph."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        last = {used: node for node in self.graph.nodes for used in node.all_input_nodes}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for used in node.all_input_nodes:
                    if last[used] is node:
                        del self.env[used]
        return None

    def run_node(self, n: Node) -> Any:
        """The result of a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Arguments with the results of nodes in their places."""
        return map_arg(args, lambda node: self.env[node])

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by path."""
        found = self.module
        for part in target.split("."):
            found = getattr(found, part)
        return found

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"run: the argument {target!r} is missing") from None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a method."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of the graph."""
        return args[0]


class Transformer(Interpreter):
    """Runs a graph on proxies: the result of `transform` is a new GraphModule."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.tracer = Tracer()
        self.tracer.root = module
        self.tracer.graph = self.new_graph = Graph()

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("placeholder", target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        result = self.run()
        self.new_graph.output(map_aggregate(result, node_of))
        return GraphModule(self.module, self.new_graph)


def node_of(result: Any) -> Any:
    """The node of a proxy; anything else itself."""
    return result.node if isinstance(result, Proxy) else result
