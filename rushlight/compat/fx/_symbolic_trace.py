"""PyTorch's `torch.fx._symbolic_trace`: run a forward on proxies and record its graph.

# Note [Tracing]
1. Functions of the package do not know proxies. While a trace runs they ask `__torch_function__`
   of their arguments (Note [Torch function]); a Proxy's records a node.
2. A module of `nn` is a leaf: its call is one node. Others are run.
3. While a trace runs, a parameter that is read from a module is a proxy, so that what is computed
   from parameters alone is in the graph, too, and is computed again by each call. Buffers are
   values; one that meets a proxy is a `get_attr` node.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from rushlight.compat import dispatch
from rushlight.compat.fx.graph import Graph
from rushlight.compat.fx.graph_module import GraphModule
from rushlight.compat.fx.node import has_side_effect
from rushlight.compat.fx.proxy import Proxy, TraceError, TracerBase
from rushlight.nn.containers import Sequential
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter

_WRAPPED: dict[tuple[int, str], dict[str, Any]] = {}  # globals of functions that are leaves
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


@has_side_effect
def check_concrete(given: Any, value: Any, name: str) -> None:
    """Refuse a call with another value than the one for which a graph was traced."""
    if given is not value and not (type(given) is type(value) and given == value):
        raise RuntimeError(f"{name} was {value!r} when the graph was traced, got {given!r}")


def _taking_all(function: Any) -> Callable[..., Any]:
    """The function with `*args` and `**kwargs` as its last arguments, which may be proxies."""
    if not isinstance(function, FunctionType):
        raise TraceError(f"{function} takes any arguments, and is no function of Python")
    code = function.__code__
    stars = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & stars).bit_count()
    whole = code.replace(co_argcount=count, co_kwonlyargcount=0, co_flags=code.co_flags & ~stars)
    return FunctionType(whole, function.__globals__, closure=function.__closure__)


def compatibility(is_backward_compatible: bool = True) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function


def wrap(fn_or_name: Any) -> Any:
    """Make a function of the calling module a leaf: a trace records its call and does not run it.

    Args:
        fn_or_name (callable or str): The function, or its name in the calling module.
    """
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    found = frame.f_back.f_globals
    _WRAPPED[id(found), name] = found
    return fn_or_name


class Tracer(TracerBase):
    """Records the graph of a module or a function. A subclass may choose other leaves."""

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self.root: Any = None
        self.graph = Graph()
        self.autowrap_functions = autowrap_functions
        self.param_shapes_constant = param_shapes_constant
        self.paths: dict[int, str] = {}
        self.parameters: dict[int, str] = {}  # names by identity
        self.constants = 0

    # ---- what a subclass may change ----

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether the call of a module is one node."""
        home = type(m).__module__
        return home.startswith("rushlight.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule."""
        found = self.paths.get(id(mod))
        if found is None:
            raise NameError(f"{type(mod).__name__} is no submodule of {type(self.root).__name__}")
        return found

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        """The call of a submodule: a node for a leaf, else what its forward does."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What reading a parameter of a module gives: its proxy, one for each name."""
        name = self.parameters.get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    # ---- the trace ----

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """The function and its arguments: a placeholder for each parameter."""
        given: list[Any] = [self.root] if is_module else []
        named: dict[str, Any] = {}
        starred: list[Any] = []
        for name, parameter in list(inspect.signature(root_fn).parameters.items())[is_module:]:
            default = () if parameter.default is parameter.empty else (parameter.default,)
            stars = _STARS.get(parameter.kind, "")
            made: Any = self.create_proxy("placeholder", stars + name, default, {})
            if concrete_args is not None and name in concrete_args:
                value = concrete_args[name]
                self.create_node("call_function", check_concrete, (made.node, value, name), {})
                made = value
            if stars:
                starred.append(made)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = made
            else:
                given.append(made)
        if starred:
            return _taking_all(root_fn), [*given, *named.values(), *starred]
        return functools.partial(root_fn, **named), given

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or a function.

        Args:
            root (Module or callable): What is traced.
            concrete_args (dict): Arguments that are values and no placeholders.
        """
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        function = type(root).forward if is_module else root
        self.paths = {id(m): name for name, m in reversed(list(self.root.named_modules()))}
        self.parameters = {id(p): name for name, p in self.root.named_parameters()}
        self.graph = Graph(tracer_cls=type(self))
        self.constants = 0
        called, args = self.create_args_for_root(function, is_module, concrete_args)
        with dispatch.asking(), self._calls(), self._leaves(), self._parameters_are_proxies():
            result = called(*args)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _calls(self) -> Any:
        """A block in which the call of a submodule is `call_module`."""
        original = Module.__call__
        tracer = self

        def call(self: Module, *args: Any, **kwargs: Any) -> Any:
            return tracer.call_module(self, functools.partial(original, self), args, kwargs)

        return dispatch.exchanged([(Module, "__call__", call)])

    @contextlib.contextmanager
    def _parameters_are_proxies(self) -> Iterator[None]:
        """A block in which reading a parameter of a module is `getattr`."""
        tracer, made = self, dict[str, Proxy]()

        def read(module: Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            return tracer.getattr(name, value, made) if isinstance(value, Parameter) else value

        Module.__getattribute__ = read  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del Module.__getattribute__

    def _leaves(self) -> Any:
        """A block in which wrapped functions record their calls."""
        exchanged = [
            (found, name, dispatch.asking_function(found[name]))
            for (_, name), found in _WRAPPED.items()
            if callable(found.get(name))
        ]
        return dispatch.exchanged(exchanged)


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """The graph of a module or a function, as a module.

    Args:
        root (Module or callable): What is traced.
        concrete_args (dict): Arguments that are values and no placeholders.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
