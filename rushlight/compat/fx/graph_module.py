"""PyTorch's `torch.fx.graph_module`: a module whose forward is a graph."""

from __future__ import annotations

import copy
import linecache
from typing import Any

from rushlight.compat.fx.graph import Graph, PythonCode
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.tensor import Tensor

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Let a module have an attribute of another, at the same path."""
    *above, leaf = target.split(".")
    for name in above:
        inner = getattr(from_module, name)
        held = getattr(to_module, name, None)
        if held is inner:
            return
        if held is None:
            held = Module()
            setattr(to_module, name, held)
        from_module, to_module = inner, held
    value = getattr(from_module, leaf)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(leaf, value)
    else:
        setattr(to_module, leaf, value)


class _CodeOnlyModule(Module):
    """A module that has attributes and no code."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


class GraphModule(Module):
    """A module that runs a graph. After a change of the graph call `recompile`."""

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        kind = type(self)
        if kind.__name__ != class_name or "forward" not in vars(kind):
            self.__class__ = type(class_name, (kind,), {"__module__": kind.__module__})
        self.training = getattr(root, "training", True)
        targets = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
        for target in sorted(dict.fromkeys(targets), key=lambda t: t.count(".")):
            if isinstance(root, Module):
                _copy_attr(root, self, target)
            else:
                setattr(self, target, root[target])
        self._graph = graph
        graph.owning_module = self
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {}))
        self.recompile()

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of the forward."""
        return self._code

    def recompile(self) -> PythonCode:
        """Write the forward of the graph as it is."""
        made = self._graph.python_code()
        self._code = made.src
        name = f"<graph of {type(self).__name__} {id(self)}>"
        linecache.cache[name] = (len(made.src), None, made.src.splitlines(True), name)
        found = dict(made.globals)
        exec(compile(made.src, name, "exec"), found)
        setattr(type(self), "forward", found["forward"])  # noqa: B010
        return made

    def delete_submodule(self, target: str) -> bool:
        """Take out a submodule; whether there was one."""
        path, _, name = target.rpartition(".")
        try:
            holder = self.get_submodule(path)
        except AttributeError:
            return False
        if name not in dict(holder.named_children()):
            return False
        delattr(holder, name)
        return True

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a submodule at a path; modules on the way are made."""
        *above, name = target.split(".")
        holder: Any = self
        for part in above:
            if getattr(holder, part, None) is None:
                setattr(holder, part, Module())
            holder = getattr(holder, part)
        setattr(holder, name, m)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the submodules that the graph does not call."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                if node.op == "call_module":
                    inner = self.get_submodule(str(node.target))
                    used.update(
                        f"{node.target}.{name}" for name, _ in inner.named_modules() if name
                    )
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        whole = _CodeOnlyModule({})
        for name, child in self.named_children():
            setattr(whole, name, copy.deepcopy(child, memo))
        for name, parameter in self.named_parameters(recurse=False):
            setattr(whole, name, copy.deepcopy(parameter, memo))
        for name, value in self.named_buffers(recurse=False):
            whole.register_buffer(name, copy.deepcopy(value, memo))
        whole.training = self.training
        graph = Graph()
        known: dict[Any, Any] = {}
        result = graph.graph_copy(self._graph, known)
        graph.output(result)
        return GraphModule(whole, graph, type(self).__name__)

    def __reduce__(self) -> Any:
        raise TypeError("a GraphModule is not pickled; save its state_dict")

    def print_readable(self, print_output: bool = True, **named: Any) -> str:
        """The text of the forward, which is printed."""
        if print_output:
            print(self.code)
        return self.code
