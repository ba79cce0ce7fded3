"""PyTorch's `torch.fx.graph`: calls in order, and the Python text that makes them."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rushlight.compat.fx.node import Node, Target, map_arg


class PythonCode(NamedTuple):
    """The text of a forward, and the objects that it names."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """Writes the text of a graph; a subclass may change it."""


class Nodes(list[Node]):
    """The nodes of a graph; a loop over them may add and erase nodes."""

    def __iter__(self) -> Iterator[Node]:
        at = 0
        while at < len(self):
            node, length = self[at], len(self)
            yield node
            if at < len(self) and self[at] is node:
                at += 1
            elif node in self:
                at = self.index(node) + 1
            else:  # erased; what was added before it is passed over
                at += len(self) - length + 1


class Graph:
    """Nodes in the order of their execution."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, **named: Any) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self.nodes = Nodes()
        self._names: set[str] = set()
        # Before which nodes new ones go, by blocks; None is the end.
        self._before: list[Node | None] = [None]
        self._codegen = CodeGen()

    # ---- making nodes ----

    def _new_name(self, wish: str) -> str:
        name = re.sub(r"\W", "_", wish).lower() or "_"
        name = f"_{name}" if name[0].isdigit() else name
        taken = self._names | set(keyword.kwlist) | set(dir(builtins))
        found, number = name, 0
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node at the place of insertion."""
        wish = name or (target if isinstance(target, str) else getattr(target, "__name__", op))
        node = Node(
            self, self._new_name(str(wish)), op, target, args or (), kwargs or {}, type_expr
        )
        before = self._before[-1]
        self.nodes.insert(len(self.nodes) if before is None else self.nodes.index(before), node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An argument of the graph."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs)

    def call_function(
        self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The result of the graph."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of another graph's node."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], *args: Any) -> Any:
        """Copies of another graph's nodes; the result is what its output has."""
        for node in g.nodes:
            if node.op == "output":
                return map_arg(node.args[0], lambda n: val_map[n])
            if node not in val_map:
                val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # ---- changing it ----

    @contextlib.contextmanager
    def _inserting(self, at: int) -> Iterator[None]:
        self._before.append(self._from(at))
        try:
            yield
        finally:
            self._before.pop()

    def _from(self, at: int) -> Node | None:
        return self.nodes[at] if at < len(self.nodes) else None

    def inserting_before(self, n: Node | None = None) -> Any:
        """A block in which new nodes go before a node."""
        return self._inserting(0 if n is None else self.nodes.index(n))

    def inserting_after(self, n: Node | None = None) -> Any:
        """A block in which new nodes go behind a node."""
        return self._inserting(len(self.nodes) if n is None else self.nodes.index(n) + 1)

    def erase_node(self, to_erase: Node) -> None:
        """Take out a node that nothing uses."""
        if to_erase.users:
            raise RuntimeError(f"erase_node: {to_erase} is used by {list(to_erase.users)}")
        to_erase._set((), {})
        if to_erase in self._before:
            after = self._from(self.nodes.index(to_erase) + 1)
            self._before = [after if node is to_erase else node for node in self._before]
        self.nodes.remove(to_erase)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out nodes whose results nothing uses; whether there were any."""
        keep = is_impure_node or Node.is_impure
        dead = [node for node in reversed(self.nodes) if not node.users and not keep(node)]
        changed = bool(dead)
        while dead:
            for node in dead:
                self.erase_node(node)
            dead = [node for node in reversed(self.nodes) if not node.users and not keep(node)]
        return changed

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind."""
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    def output_node(self) -> Node:
        """The node of the result."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def lint(self) -> None:
        """Raise where a node is used before it is made."""
        seen: set[Node] = set()
        for node in self.nodes:
            for used in node.all_input_nodes:
                if used not in seen:
                    raise RuntimeError(f"{node} uses {used}, which is not made before it")
            seen.add(node)

    # ---- text ----

    def python_code(self, root_module: str = "self", **named: Any) -> PythonCode:
        """The text of a function `forward` and its globals."""
        given = {node: str(node.target).lstrip("*") for node in self.find_nodes(op="placeholder")}
        found = dict.fromkeys([root_module, *given.values(), *[n.name for n in self.nodes]], _LOCAL)
        parameters = [root_module, *[_parameter(node, found) for node in given]]
        renamed = {node.name: name for node, name in given.items() if node.name != name}
        lines = []
        if renamed:
            lines.append(f"    {', '.join(renamed)} = {', '.join(renamed.values())}")
        last = {used: node for node in self.nodes for used in (node, *node.all_input_nodes)}
        done: dict[Node, list[str]] = {}  # values that nothing after a node uses
        for used, node in last.items():
            done.setdefault(node, []).append(used.name)
        for node in self.nodes:
            if node.op != "placeholder":
                lines.append(f"    {_line(node, root_module, found)}")
                if node.op != "output" and node in done:
                    lines[-1] += f";  {' = '.join(done[node])} = None"
        head = f"def forward({', '.join(parameters)}):"
        found = {name: value for name, value in found.items() if value is not _LOCAL}
        return PythonCode("\n".join([head, *(lines or ["    pass"])]) + "\n", found)

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(f"    {node.format_node()}" for node in self.nodes)

    def print_tabular(self) -> None:
        """Print the nodes."""
        print(self)


_LOCAL = object()  # in a table of globals: a local variable has the name


def _constant(value: Any, found: dict[str, Any]) -> str:
    """The text of an argument; what has none is a global."""
    if isinstance(value, Node):
        return value.name
    if isinstance(value, slice):
        parts = (_constant(part, found) for part in (value.start, value.stop, value.step))
        return f"slice({', '.join(parts)})"
    if type(value) is tuple:
        inner = ", ".join(_constant(part, found) for part in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) is list:
        return f"[{', '.join(_constant(part, found) for part in value)}]"
    if isinstance(value, dict):
        pairs = (f"{key!r}: {_constant(part, found)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if type(value) in (int, str, bool, type(None), type(...)):
        return repr(value)
    return _global(value, getattr(value, "__name__", type(value).__name__), found)


def _global(value: Any, wish: str, found: dict[str, Any]) -> str:
    name = "_" + re.sub(r"\W", "_", wish)
    while name in found and found[name] is not value:
        name += "_"
    found[name] = value
    return name


def _parameter(node: Node, found: dict[str, Any]) -> str:
    default = f"={_constant(node.args[0], found)}" if node.args else ""
    return f"{node.target}{default}"


def _arguments(args: Any, kwargs: Any, found: dict[str, Any]) -> str:
    given = [_constant(arg, found) for arg in args]
    given += [f"{name}={_constant(arg, found)}" for name, arg in kwargs.items()]
    return ", ".join(given)


def _path(root: str, target: str) -> str:
    """`self.blocks.0.norm` as an expression."""
    made = root
    for part in target.split("."):
        made = f"{made}.{part}" if part.isidentifier() else f"getattr({made}, {part!r})"
    return made


def _line(node: Node, root: str, found: dict[str, Any]) -> str:
    if node.op == "output":
        return f"return {_constant(node.args[0], found)}"
    if node.op == "get_attr":
        return f"{node.name} = {_path(root, str(node.target))}"
    if node.op == "call_method":
        rest = _arguments(node.args[1:], node.kwargs, found)
        return f"{node.name} = {_constant(node.args[0], found)}.{node.target}({rest})"
    called = (
        _path(root, str(node.target))
        if node.op == "call_module"
        else _global(node.target, getattr(node.target, "__name__", "function"), found)
    )
    return f"{node.name} = {called}({_arguments(node.args, node.kwargs, found)})"
