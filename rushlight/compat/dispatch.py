"""Functions and methods that ask `__torch_function__` of their arguments, while somebody wants it.

# Note [Torch function]
1. The package's functions know nothing of `__torch_function__`. While a trace or a mode is in
   place, and from the first tensor of a subclass on, they ask first. So calls cost what they cost
   as long as nobody asks.
2. A function asks by other code: its `__code__` is exchanged, and a copy has the plain one. The
   object stays, so names that were imported before, tables by function and comparisons hold.
3. Public functions, methods, operators and properties of tensors ask, and the functions that
   declare ops, which layers call. What `__torch_function__` gets is the public function; of an
   operator the method (`Tensor.add` of `x + y`), of a property its `__get__`, as in PyTorch.
4. The default `__torch_function__`, and a backward pass, run with asking off (`OFF`).
5. Modes are those of a thread. Codes are exchanged for all threads, between any two instructions of
   theirs: each code finds its defaults before and after.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import CodeType, FunctionType
from typing import Any

from rushlight.compat.torch_function import (
    OFF,
    handle_torch_function,
    has_torch_function_unary,
    overrides,
)
from rushlight.core import locks
from rushlight.ops import declared
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record.template import compiled
from rushlight.tensor import Tensor

NAMESPACES = (
    "rushlight",
    "rushlight.nn.functional",
    "rushlight.nn.init",
    "rushlight.linalg",
    "rushlight.fft",
    "rushlight.special",
)
MODES: ContextVar[tuple[Any, ...]] = ContextVar("torch_function_modes", default=())
# Written by the language, or read while a class or a handle is made.
_LEFT_OUT = {"__init_subclass__", "__torch_function__", "__array_priority__", "__reduce__"} | {
    "as_subclass"  # its result has the class that is asked for
}
_OFF_INSIDE = {"backward", "grad"}
# Functions that ask modes alone, as in PyTorch: `tensor` of a subclass gives a plain tensor.
_ASK_MODES = {"tensor", "as_tensor", "asarray", "save", "load", "is_tensor", "typename"}

_ASKING = """\
def bind({names}):
    def function(*args, _ask, **named):
        if False:
            ({names})
        return _ask(args, named)
    return function
"""


# ---- one call ----


def _ask(
    plain: Callable[..., Any], public: Any, off: bool, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Call `__torch_function__` of a mode or of an argument's class; else the plain function."""
    modes = MODES.get()
    if modes:
        return _ask_mode(modes, public, args, named)
    if not OFF.get():
        for arg in (*args, *named.values()) if named else args:
            kind = arg.__class__
            if kind is Tensor or kind is float or kind is int:
                continue
            if overrides(kind) or ((kind is list or kind is tuple) and any(map(_is_asked, arg))):
                return handle_torch_function(public, _flat(args, named), *args, **named)
        if off:
            return _without_asking(plain, args, named)
    return plain(*args, **named)


def _ask_modes(
    plain: Callable[..., Any], public: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Call `__torch_function__` of a mode; else the plain function, inside of which nobody asks."""
    modes = MODES.get()
    if modes:
        return _ask_mode(modes, public, args, named)
    return _without_asking(plain, args, named)


def _ask_mode(
    modes: tuple[Any, ...], public: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    token = MODES.set(modes[:-1])
    try:
        kinds = tuple({type(a) for a in _flat(args, named) if has_torch_function_unary(a)})
        return modes[-1].__torch_function__(public, kinds, args, named)
    finally:
        MODES.reset(token)


def _without_asking(plain: Callable[..., Any], args: tuple[Any, ...], named: Any) -> Any:
    token = OFF.set(True)
    try:
        return plain(*args, **named)
    finally:
        OFF.reset(token)


def _is_asked(arg: Any) -> bool:
    return overrides(arg.__class__)


def _flat(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments, and the elements of lists and tuples among them."""
    found: list[Any] = []
    for arg in (*args, *kwargs.values()):
        found.extend(arg) if isinstance(arg, list | tuple) else found.append(arg)
    return found


# ---- functions that ask ----


class Asking:
    """A function and the two codes between which it is exchanged."""

    def __init__(self, function: FunctionType, public: Any, name: str) -> None:
        self.function = function
        self.plain = _copy(function)
        self.ask = functools.partial(_ask, self.plain, public or function, name in _OFF_INSIDE)
        if name in _ASK_MODES:
            self.ask = functools.partial(_ask_modes, self.plain, public or function)
        self.signed = "__signature__" in vars(function)
        # Who gives the function its code at its first call: see Note [Memo], Note [Arguments].
        given = (getattr(function, "kinds", None), getattr(function, "checked_by", None))
        self.makers: list[Any] = [
            each for each in given if getattr(each, "public", None) is function
        ]

    def put_in(self) -> None:
        function = self.function
        for maker in self.makers:
            maker.public = self.plain
        if not self.signed:
            function.__signature__ = inspect.signature(self.plain)  # type: ignore[attr-defined]
        function.__kwdefaults__ = self._named()
        function.__code__ = _asking(len(self.plain.__code__.co_freevars))

    def _named(self) -> dict[str, Any]:
        """The defaults by name of both codes."""
        return {**(self.plain.__kwdefaults__ or {}), "_ask": self.ask}

    def put_back(self) -> None:
        function = self.function
        for maker in self.makers:
            maker.public = function
        function.__defaults__ = self.plain.__defaults__
        function.__kwdefaults__ = self._named()
        function.__code__ = self.plain.__code__
        function.__kwdefaults__ = self.plain.__kwdefaults__
        if not self.signed:
            del function.__signature__  # type: ignore[attr-defined]


def _copy(function: FunctionType) -> FunctionType:
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    vars(made).update(vars(function))
    return made


@functools.cache
def _asking(free: int) -> CodeType:
    """The code that asks, for a function with a number of free variables."""
    names = ", ".join([f"free{i}" for i in range(free)])
    found: dict[str, Any] = {}
    exec(compiled(_ASKING.format(names=names), "torch function"), found)
    code: CodeType = found["bind"](*[None] * free).__code__
    return code


def _is_public(name: str, value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return (
        isinstance(value, FunctionType)
        and not name.startswith("__")
        and home.partition(".")[0] == "rushlight"
    )


@functools.cache
def _surface() -> list[Asking]:
    """Every function that may ask. See Note [Torch function] 3."""
    found: dict[int, Asking] = {}

    def add(function: Any, public: Any = None, name: str = "") -> None:
        if isinstance(function, FunctionType) and id(function) not in found:
            found[id(function)] = Asking(function, public, name)

    by_name: dict[str, Any] = {}
    for module in map(importlib.import_module, NAMESPACES):
        for name in dir(module):
            value = getattr(module, name)
            if _is_public(name, value):
                by_name.setdefault(name, value)
                add(value, None, name)
    for name in ("backward", "grad"):
        add(getattr(importlib.import_module("rushlight.autograd"), name), None, name)
    for name, value in _members(Tensor):
        if isinstance(value, property):
            add(value.fget, value.__get__)
            add(value.fset, value.__set__)
        else:
            add(value, _method_of(name), name)
    for name in REGISTRY:
        public = by_name.get(name) or getattr(Tensor, name, None)
        add(REGISTRY[name].function, public)
        add(REGISTRY.declared[name].function, public)
        home = importlib.import_module(f"rushlight.ops.{declared.MODULES[name]}")
        add(vars(home).get(name), public)
    for home in {importlib.import_module(f"rushlight.ops.{m}") for m in declared.MODULES.values()}:
        for name, value in vars(home).items():
            if hasattr(value, "op"):  # a kernel of composites, which layers call too
                add(value, by_name.get(name))
    return list(found.values())


def _members(kind: type) -> list[tuple[str, Any]]:
    for name in dir(kind):
        getattr(kind, name)  # a method is made at its first use
    return [(name, value) for name, value in vars(kind).items() if name not in _LEFT_OUT]


def _method_of(name: str) -> Any:
    """The method that an operator stands for; None of a method, which stands for itself."""
    symbol = name[2:-2] if name.startswith("__") and name.endswith("__") else ""
    op = declared.OPERATORS.get(symbol)
    if op is None and symbol[:1] in ("r", "i"):
        op = declared.OPERATORS.get(symbol[1:])
        if op is not None and symbol[0] == "i":
            op = f"{op}_"
        elif op not in ("add", "mul"):
            op = None  # with its operands exchanged it is an operation of its own
    op = {"abs": "abs", "neg": "neg", "matmul": "matmul", "invert": "bitwise_not"}.get(symbol, op)
    return getattr(Tensor, op, None) if op else None


# ---- while somebody asks ----

_CHANGING = locks.reentrant_lock()
_WANTED = [0]


def start_asking() -> None:
    """Let every function ask, until as many calls of `stop_asking`."""
    with _CHANGING:
        _WANTED[0] += 1
        if _WANTED[0] == 1:
            for function in _surface():
                function.put_in()


def stop_asking() -> None:
    """The end of a `start_asking`."""
    with _CHANGING:
        _WANTED[0] -= 1
        if _WANTED[0] == 0:
            for function in _surface():
                function.put_back()


@functools.cache
def ask_from_now_on() -> None:
    """Let functions ask in this process: there is a tensor of a subclass."""
    start_asking()


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """A block in which public functions ask `__torch_function__`. See Note [Torch function]."""
    start_asking()
    try:
        yield
    finally:
        stop_asking()


@contextlib.contextmanager
def exchanged(places: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """A block in which attributes of modules' dicts and of classes have other values."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for holder, name, value in places:
            held = holder[name] if isinstance(holder, dict) else getattr(holder, name)
            before.append((holder, name, held))
            _put(holder, name, value)
        yield
    finally:
        for holder, name, value in reversed(before):
            _put(holder, name, value)


def _put(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


def asking_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function that asks before it is called: a leaf of a trace."""

    @functools.wraps(function)
    def asks(*args: Any, **kwargs: Any) -> Any:
        return _ask(function, function, False, args, kwargs)

    return asks
