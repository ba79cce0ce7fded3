"""PyTorch's `torch._dynamo`: names of its compiler that libraries touch. Calls stay eager."""

from __future__ import annotations

from typing import Any

from rushlight.compat._dynamo import (
    _trace_wrapped_higher_order_op as _trace_wrapped_higher_order_op,
    config as config,
    eval_frame as eval_frame,
    external_utils as external_utils,
    utils as utils,
)
from rushlight.compat._dynamo.eval_frame import OptimizedModule as OptimizedModule
from rushlight.compat.compiler import (
    allow_in_graph as allow_in_graph,
    assume_constant_result as assume_constant_result,
    compile as _compile,
    disable as disable,
    is_compiling as is_compiling,
    list_backends as list_backends,
    reset as reset,
    substitute_in_graph as substitute_in_graph,
)


def optimize(*args: Any, **named: Any) -> Any:
    """A decorator that changes nothing."""
    return _compile()


def graph_break(msg: str = "") -> None:
    """Accepted: there is no graph to break."""


def mark_dynamic(t: Any, index: Any, **named: Any) -> None:
    """Accepted: shapes are never fixed."""


def mark_static(t: Any, index: Any = None) -> None:
    """Accepted: no graph is made for a size."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Accepted: no graph is made for an address."""


maybe_mark_dynamic = mark_unbacked = mark_dynamic
