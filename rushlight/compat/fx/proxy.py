"""PyTorch's `torch.fx.proxy`: values that record what is done with them."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat import dispatch
from rushlight.compat.fx.node import Node, map_aggregate
from rushlight.tensor import Tensor


class TraceError(ValueError):
    """A program asks for a value that is not known while it is traced."""


class Proxy:
    """The result of a node: calls with it, and its methods, become nodes."""

    def __init__(self, node: Node, tracer: Any = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __bool__(self) -> bool:
        if self._is_asserted():
            return True
        decided: bool = self.tracer.to_bool(self)
        return decided

    def _is_asserted(self) -> bool:
        """Whether the truth is asked by an `assert`."""
        frame = inspect.currentframe()
        caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
        if caller is None:
            return False
        following = [i for i in dis.get_instructions(caller.f_code) if i.offset > caller.f_lasti]
        return len(following) > 1 and any(i.opname == "LOAD_ASSERTION_ERROR" for i in following[:3])

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is not None:
            after = [i for i in dis.get_instructions(caller.f_code) if i.offset >= caller.f_lasti]
            if after and after[0].opname == "UNPACK_SEQUENCE":
                whole: Any = self
                return (whole[i] for i in range(after[0].argval))
        found: Iterator[Any] = self.tracer.iter(self)
        return found

    def __len__(self) -> int:
        raise TraceError("len() of a value that is traced; use .shape or .size()")

    def __index__(self) -> int:
        raise TraceError(f"{self.node} is traced: its number is not known")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def keys(self) -> Any:
        """The keys of a traced dict."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None
    ) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers: list[Any] = []

        def note(leaf: Any) -> None:
            if isinstance(leaf, Proxy):
                tracers.append(leaf.tracer)

        map_aggregate((args, kwargs), note)
        return tracers[0].create_proxy("call_function", orig_method, args, kwargs)


class Attribute(Proxy):
    """An attribute of a proxy: a node when it is used, or the name of a method when called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of the attribute's value."""
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    return method


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    return method


_BOTH = "add and_ floordiv lshift mod mul matmul or_ pow rshift sub truediv xor"
for _name in _BOTH.split():
    _plain = _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _operator(_name))
    setattr(Proxy, f"__r{_plain}__", _reflected(_name))
# Python's own names of operators, which `operator` has too.
_OTHER = "__eq__ __ne__ __lt__ __gt__ __le__ __ge__ __neg__ __pos__ __invert__ __abs__"
for _name in (*_OTHER.split(), "__getitem__", "__setitem__"):
    setattr(Proxy, _name, _operator(_name.strip("_")))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


class TracerBase:
    """Makes the nodes of what is done with proxies."""

    root: Any = None  # the module that holds parameters and constants
    graph: Any
    constants = 0

    def to_bool(self, obj: Proxy) -> bool:
        """Refuses: a traced value decides nothing."""
        raise TraceError(
            f"the way of the program depends on {obj.node}, whose value is not known while it is "
            "traced"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Refuses: the number of elements is not known."""
        raise TraceError(f"a loop over {obj.node}, whose length is not known while it is traced")

    def keys(self, obj: Proxy) -> Any:
        """The keys of a traced dict."""
        return self.create_proxy("call_method", "keys", (obj,), {})

    def create_node(self, *args: Any, **named: Any) -> Node:
        """A node of the graph."""
        return self.graph.create_node(*args, **named)

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: str | None = None,
        type_expr: Any = None,
        **named: Any,
    ) -> Proxy:
        """A node of these arguments, and its proxy."""
        given, by_name = self.create_arg(args), self.create_arg(kwargs)
        return self.proxy(self.create_node(kind, target, given, by_name, name, type_expr))

    def create_arg(self, a: Any) -> Any:
        """An argument as a node holds it: proxies as nodes, parameters by name."""
        return map_aggregate(a, self._leaf)

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Tensor):
            return self._named(a)
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        return a

    def _named(self, a: Tensor) -> Node:
        """The attribute of the module that is this tensor; a new one where there is none."""
        for name, value in (*self.root.named_parameters(), *self.root.named_buffers()):
            if value is a:
                return self.create_node("get_attr", name, (), {})
        name = f"_tensor_constant{self.constants}"
        self.constants += 1
        setattr(self.root, name, a)
        return self.create_node("get_attr", name, (), {})


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph, where it inserts them."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.root = graph.owning_module
        dispatch.ask_from_now_on()  # its proxies may be given to functions at any time
