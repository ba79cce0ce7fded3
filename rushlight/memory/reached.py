"""The state that a function reaches: tensors, optimisers, generators; saved and restored.

Reached are arguments, closures, defaults, the globals a function names, attributes, and the
contents of lists, dicts and modules.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import random
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.interop import from_pickle, to_bytes
from rushlight.nn.module import Module
from rushlight.ops.random.random import Generator, default_generator
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.source_line import is_ours
from rushlight.tape.record.state import Changed, no_grad
from rushlight.tape.record.value import Leaf, Output
from rushlight.tensor import Tensor

# Of a tensor: the name of its dtype, its shape, its bytes, its dtype. Other state has no dtype.
Bits = tuple[str, tuple[int, ...], bytes, DType | None]


def bits_of(tensor: Tensor) -> Bits:
    """The content of a tensor; a sparse one as a dense one."""
    dense = tensor.detach() if hasattr(tensor, "_memory") else tensor.detach().to_dense()
    with Changed(grad=False, region=None, saving=None):
        raw = bytes(to_bytes(dense))
    return dense._spec.dtype.name, dense._spec.shape, raw, dense._spec.dtype


def tensors_in(thing: Any) -> list[tuple[str, Tensor]]:
    """The tensors in a nest of containers, with their paths: "[0]['loss']"."""
    found: list[tuple[str, Tensor]] = []
    stack = [("", thing)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, Tensor):
            found.append((path, item))
        else:
            stack.extend(reversed([(path + step, part) for step, part in _parts(item)]))
    return found


def _parts(thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        return [(f"[{key!r}]", part) for key, part in thing.items()]
    if isinstance(thing, (list, tuple)):
        return [(f"[{i}]", part) for i, part in enumerate(thing)]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [(f".{f.name}", getattr(thing, f.name)) for f in dataclasses.fields(thing)]
    return []


def with_leaves(thing: Any) -> Any:
    """A nest of arguments, with tensors that have a record detached: their graph is not walked."""
    if isinstance(thing, Tensor) and thing.requires_grad and not thing.is_leaf:
        return thing.detach().requires_grad_()
    if type(thing) in (list, tuple):
        return type(thing)([with_leaves(part) for part in thing])
    if type(thing) is dict:
        return {key: with_leaves(part) for key, part in thing.items()}
    return thing


def leaves_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The leaves of the tensors' graphs."""
    stack = [t._node for t in tensors]
    seen: set[int] = set()
    found = []
    while stack:
        edge = stack.pop()
        node = edge.node if type(edge) is Output else edge
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is Leaf:
            handle: Any = node.handle()
            if handle is not None:
                found.append(handle)
        else:
            stack.extend(node.edges)
    return found


class _Saved:
    """A tensor's content and gradient at the start."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.tensor = tensor
        self.content = bits_of(tensor)
        self.gradient = tensor.grad if tensor.is_leaf else None
        self.slope = None if self.gradient is None else bits_of(self.gradient)

    def restore(self) -> None:
        _put(self.tensor, self.content)
        if self.tensor.is_leaf:
            if self.tensor.grad is not self.gradient:
                self.tensor.grad = self.gradient
            if self.gradient is not None and self.slope is not None:
                _put(self.gradient, self.slope)

    def has_new_gradient(self) -> bool:
        gradient = self.tensor.grad if self.tensor.is_leaf else None
        return gradient is not None and bits_of(gradient) != self.slope


def _put(tensor: Tensor, content: Bits) -> None:
    """Restore a tensor's bits where they changed."""
    if not hasattr(tensor, "_memory") or bits_of(tensor) == content:
        return
    _, shape, raw, dtype = content
    assert dtype is not None
    with no_grad():
        tensor.detach().copy_(from_pickle(raw, dtype, shape, tensor.device.type, False))


class State:
    """What a run may change: tensors, optimisers and the like, generators, random states."""

    def __init__(self, roots: Any) -> None:
        self.saved: dict[int, _Saved] = {}
        self.holders: dict[str, tuple[Any, Any]] = {}  # objects and their states at the start
        self.generators: dict[int, tuple[Generator, Generator]] = {}
        self.seen: dict[int, Any] = {}
        self._explore("", roots)
        self._reach("", default_generator)
        self.randomness = HostRandomness()

    # ---- finding ----

    def _explore(self, name: str, thing: Any) -> None:
        stack = [(name, thing)]
        while stack:
            name, item = stack.pop()
            if id(item) not in self.seen:
                self.seen[id(item)] = item
                stack.extend(reversed(self._reach(name, item)))

    def _reach(self, name: str, thing: Any) -> list[tuple[str, Any]]:
        """Note a thing's own state; what else it reaches, with names."""
        if isinstance(thing, Tensor):
            self.saved.setdefault(id(thing), _Saved(name or "a tensor", thing))
        elif isinstance(thing, Generator):
            self.generators[id(thing)] = thing, thing.clone_state()
        elif isinstance(thing, Module):
            return _of_module(name, thing)
        elif isinstance(thing, (type, types.ModuleType)):
            return []
        elif callable(getattr(type(thing), "load_state_dict", None)):
            kind = f"{type(thing).__name__} {len(self.holders)}"
            self.holders[kind] = thing, copy.deepcopy(thing.state_dict())
            groups = thing.param_groups if isinstance(thing, Optimizer) else []
            return [("a parameter of " + kind, p) for group in groups for p in group["params"]]
        else:
            return _of_code(thing) or [
                (name + step, part) for step, part in _parts(thing) or _attributes(thing)
            ]
        return []

    def add(self, leaves: Iterable[Tensor]) -> None:
        """Leaves that a graph reaches, before gradients arrive there."""
        for leaf in leaves:
            self._explore("a leaf", leaf)

    # ---- comparing and restoring ----

    def has_new_gradients(self) -> bool:
        return any(saved.has_new_gradient() for saved in self.saved.values())

    def bits(self) -> dict[str, Bits]:
        """The present content, by name."""
        found: dict[str, Bits] = {}
        for saved in self.saved.values():
            if saved.tensor.is_leaf and saved.tensor.grad is not None:
                found[_free(f"the gradient of {saved.name}", found)] = bits_of(saved.tensor.grad)
        for saved in self.saved.values():
            found[_free(saved.name, found)] = bits_of(saved.tensor)
        for name, (holder, _) in self.holders.items():
            found |= _bits_in(f"the state of {name}", holder.state_dict())
        for generator, _ in self.generators.values():
            where = "the random state"
            found[_free(where, found)] = _written(generator.words)
        now = HostRandomness()
        found["the state of Python's random"] = _written(now.python)
        found["the state of numpy.random"] = _written(now.numpy)
        return found

    def restore(self) -> None:
        for saved in self.saved.values():
            saved.restore()
        for name, (holder, before) in self.holders.items():
            if _bits_in(name, holder.state_dict()) != _bits_in(name, before):
                holder.load_state_dict(copy.deepcopy(before))
        for generator, start in self.generators.values():
            generator.graphsafe_set_state(start.clone_state())
        self.randomness.restore()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """A block after which the state is as at the start."""
        try:
            yield
        finally:
            self.restore()


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A name that is not taken."""
    count = 2
    made = name
    while made in taken:
        made, count = f"{name} ({count})", count + 1
    return made


def _of_module(name: str, module: Module) -> list[tuple[str, Any]]:
    """A module's parameters and buffers, and the attributes of each submodule."""
    found: list[tuple[str, Any]] = [
        *[(f"parameter {n!r}", p) for n, p in module.named_parameters()],
        *[(f"buffer {n!r}", b) for n, b in module.named_buffers()],
    ]
    for path, inner in module.named_modules():
        for key, part in vars(inner).items():
            if key[0] != "_":
                found.append((f"attribute {path + '.' if path else ''}{key}", part))
    return found


def _of_code(thing: Any) -> list[tuple[str, Any]]:
    """What a function, a method or a partial call reaches."""
    if isinstance(thing, functools.partial):
        return [("", thing.func), ("", thing.args), ("", thing.keywords)]
    if isinstance(thing, types.MethodType):
        return [("", thing.__self__), ("", thing.__func__)]
    if not isinstance(thing, types.FunctionType) or is_ours(thing.__code__.co_filename):
        return []
    found: list[tuple[str, Any]] = [("", thing.__defaults__), ("", thing.__kwdefaults__)]
    for key, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            found.append((f"{key!r}", cell.cell_contents))
    named = [n for n in names_in(thing.__code__) if n in thing.__globals__]
    return [*found, *[(f"{n!r}", thing.__globals__[n]) for n in named]]


def names_in(code: types.CodeType) -> list[str]:
    """The names of globals and attributes in a function's code and in functions inside it."""
    found: list[str] = []
    codes = [code]
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        found += code.co_names
    return found


def of_standard_library(kind: type) -> bool:
    """Whether Python's own library has the class, in a module or in a module of a package."""
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """The attributes of an object of a user's class."""
    module = sys.modules.get(type(thing).__module__)
    file = getattr(module, "__file__", None)
    if file is None or is_ours(file) or of_standard_library(type(thing)):
        return []
    return [(f".{key}", part) for key, part in getattr(thing, "__dict__", {}).items()]


def _bits_in(name: str, nest: Any) -> dict[str, Bits]:
    """The tensors in a nest, and its other content as text."""
    tensors = tensors_in(nest)
    found = {f"{name}{path}": bits_of(t) for path, t in tensors}
    known = {id(t): path for path, t in tensors}
    found[name] = _written(_skeleton(nest, known))
    return found


def _skeleton(nest: Any, known: Mapping[int, str]) -> Any:
    if id(nest) in known:
        return known[id(nest)]
    parts = _parts(nest)
    return [(step, _skeleton(part, known)) for step, part in parts] if parts else nest


def _written(thing: Any) -> Bits:
    return "text", (), repr(thing).encode(), None


class HostRandomness:
    """The states of Python's generator, and of NumPy's where NumPy is imported."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy = None
        if "numpy" in sys.modules:  # which imports numpy.random when it is first used
            self.numpy = importlib.import_module("numpy.random").get_state()

    def restore(self) -> None:
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)
