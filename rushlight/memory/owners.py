"""Who owns memory: the tensors of modules, leaves, optimisers and records that are alive."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rushlight.devices.shared.allocator import Storage
from rushlight.memory.watching import FORWARD, Birth, Recorder
from rushlight.tape.record.value import Leaf, Node, Value

PARAMETERS, BUFFERS, GRADIENTS = "parameters", "buffers", "gradients"
STATE, DATA, ACTIVATIONS = "optimizer state", "data", "activations"
FLIGHT, TEMPORARIES, WORKSPACES = "gradients in flight", "temporaries", "workspaces"
OTHER = "other"
KINDS = (
    *(PARAMETERS, BUFFERS, GRADIENTS, STATE, DATA),
    *(ACTIVATIONS, FLIGHT, TEMPORARIES, WORKSPACES, OTHER),
)

Mark = tuple[str, str]  # a kind, and a name
_SLOTS: list[Any] = [vars(Value)[name] for name in ("_memory", "_node", "_spec")]
_SPEC = _SLOTS[-1]  # the slot: a lazy parameter refuses the attribute


class Owners:
    """The kinds and names of storages, as far as objects that are alive tell them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.first = True  # the first look notes storages from before the recording
        self.marks: dict[Birth, Mark] = {}

    def look(self) -> None:
        """Go over all objects: at the start of a recording, and at its end."""
        values, nodes, modules, optimisers = _objects()
        self._name_modules(modules)
        leaves = [v for v in values if v._node.__class__ is Leaf]
        for optimiser in optimisers:
            self._mark_state(optimiser)
        for value in leaves:
            grad = value._node.grad
            if grad is not None and _is_filled(grad):
                self._mark(grad._memory, GRADIENTS, self._name_of(value), grad)
        if self.first:
            self.first = False
            for value in values:
                birth = self.recorder.known(value._memory)
                if birth is not None and value._base is None:
                    birth.spec = _SPEC.__get__(value)
            for node in nodes:
                self._mark_saves(node)

    def gradient_name(self, handle: Any) -> str:
        leaf = handle()
        return "" if leaf is None else self._name_of(leaf)

    def _name_of(self, value: Value) -> str:
        birth = self.recorder.birth_of(value._memory)
        return self.marks.get(birth, ("", ""))[1] if birth is not None else ""

    def _mark(self, storage: Storage, kind: str, name: str, value: Value | None = None) -> None:
        note = self.recorder.known if self.first else self.recorder.birth_of
        birth = note(storage)
        if birth is not None:
            self.marks.setdefault(birth, (kind, name))
            if birth.spec is None and value is not None:
                birth.spec = _SPEC.__get__(value)

    def _name_modules(self, modules: list[Any]) -> None:
        """Paths from modules that no other has, and the owners of parameters and buffers.

        Paths are those of `named_modules()`; the class's name stands before them where two such
        modules have a member of one name.
        """
        inner = {id(child) for m in modules for child in m._modules.values()}
        roots = [m for m in modules if id(m) not in inner]
        members = Counter(name for root in roots for name in _members(root))
        for root in roots:
            start = type(root).__name__
            shared = any(members[name] > 1 for name in _members(root))
            for path, module in root.named_modules():
                words = [start, path] if shared and path else [path or start]
                self.recorder.paths.setdefault(weakref.ref(module), ".".join(words))
            prefix = f"{start}." if shared else ""
            for name, value in root.named_parameters():
                self._mark(value._memory, PARAMETERS, prefix + name, value)
            for name, value in root.named_buffers():
                self._mark(value._memory, BUFFERS, prefix + name, value)

    def _mark_state(self, optimiser: Any) -> None:
        for parameter, state in list(optimiser.state.items()):
            owner = self._name_of(parameter) if isinstance(parameter, Value) else ""
            for key, value in _values_in(state):
                name = f"{key} of {owner}" if owner else key
                self._mark(value._memory, STATE, name, value)

    def _mark_saves(self, node: Node) -> None:
        """The saves of a record from before the recording."""
        values = [v for v in node.saved or () if isinstance(v, Value)]  # a checkpoint leaves None
        for storage in [*[v._memory for v in values], *node.outs]:
            birth = self.recorder.birth_of(storage)
            if birth is not None and birth not in self.marks:
                self.marks[birth] = ACTIVATIONS, ""
                birth.place, birth.op, birth.phase = node.place, node.plan.op.name, FORWARD
                birth.module = self.recorder.path_of(node.chain)


def _members(module: Any) -> list[str]:
    """The names of what a module has itself: modules, parameters and buffers."""
    return [*module._modules, *module._parameters, *module._buffers]


def _objects() -> tuple[list[Value], list[Node], list[Any], list[Any]]:
    """All tensors, records, modules and optimisers that are alive.

    The classes of the library are looked up, not imported: without them there is no such object.
    """
    module_class = _loaded("rushlight.nn.module", "Module")
    optimiser_class = _loaded("rushlight.optim.optimizer", "Optimizer")
    values: list[Value] = []
    nodes: list[Node] = []
    modules: list[Any] = []
    optimisers: list[Any] = []
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, Value):
            if _is_filled(thing):
                values.append(thing)
        elif issubclass(kind, Node):
            nodes.append(thing)
        elif issubclass(kind, module_class) and hasattr(thing, "_modules"):
            modules.append(thing)
        elif issubclass(kind, optimiser_class) and hasattr(thing, "state"):
            optimisers.append(thing)
    return values, nodes, modules, optimisers


def _is_filled(value: Value) -> bool:
    """Whether a handle has memory: a sparse tensor and one that is being made have none."""
    try:
        for slot in _SLOTS:
            slot.__get__(value)
    except AttributeError:
        return False
    return True


class _Absent:
    """In place of a class that is not loaded."""


def _loaded(module: str, name: str) -> type:
    found: type = getattr(sys.modules.get(module), name, _Absent)
    return found


def _values_in(state: Any) -> Iterator[tuple[str, Value]]:
    if not isinstance(state, dict):
        return
    for key, value in state.items():
        many: Iterable[Any] = value if isinstance(value, (list, tuple)) else (value,)
        for each in many:
            if isinstance(each, Value) and _is_filled(each):
                yield str(key), each
