"""PyTorch's `torch.fx`: a module's forward as a graph of calls, recorded with proxies."""

from __future__ import annotations

from rushlight.compat.fx import (
    _symbolic_trace as _symbolic_trace,
    experimental as experimental,
    graph as graph,
    graph_module as graph_module,
    interpreter as interpreter,
    node as node,
    proxy as proxy,
    subgraph_rewriter as subgraph_rewriter,
)
from rushlight.compat.fx._symbolic_trace import (
    Tracer as Tracer,
    symbolic_trace as symbolic_trace,
    wrap as wrap,
)
from rushlight.compat.fx.graph import CodeGen as CodeGen, Graph as Graph
from rushlight.compat.fx.graph_module import GraphModule as GraphModule
from rushlight.compat.fx.interpreter import Interpreter as Interpreter, Transformer as Transformer
from rushlight.compat.fx.node import (
    Node as Node,
    has_side_effect as has_side_effect,
    map_arg as map_arg,
)
from rushlight.compat.fx.proxy import Proxy as Proxy, TraceError as TraceError
from rushlight.compat.fx.subgraph_rewriter import replace_pattern as replace_pattern
