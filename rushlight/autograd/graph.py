"""The recorded graph for users: PyTorch's `torch.autograd.graph`."""

from __future__ import annotations

import abc
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight.autograd.saved import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from rushlight.core.errors import NotDifferentiable
from rushlight.lazy import shown
from rushlight.tape.record import value
from rushlight.tape.record.hook_tables import RemovableHandle
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import WALK
from rushlight.tape.record.value import Leaf, Output, Value
from rushlight.tape.record.written import mark_written
from rushlight.tape.walk.edges import GradientEdge, get_gradient_edge
from rushlight.tape.walk.hooks import Waiting, hook_value

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


def __dir__() -> list[str]:
    return shown(__name__)


class Node(abc.ABC):
    """A node of the graph: the record of a call, or a leaf's gradient accumulator."""

    @abc.abstractmethod
    def name(self) -> str:
        """The op's name."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Per input: its node, and the index of the result there."""

    @property
    @abc.abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""

    @abc.abstractmethod
    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after the derivative ran."""

    @abc.abstractmethod
    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before the derivative runs."""


Node.register(value.Node)
Node.register(Leaf)


def increment_version(tensor: Value | Iterable[Value]) -> None:
    """Count a write to memory that was not made by an op: saves of it raise when they are read."""
    for one in [tensor] if isinstance(tensor, Value) else list(tensor):
        mark_written(one._memory)


# ---- one hook on several tensors ----


class _Gathering:
    """The gradients of some tensors so far, per running backward pass."""

    def __init__(self, edges: Sequence[Any], hook: Callable[..., Any]) -> None:
        # Weakly: the nodes hold the hooks.
        self.places = [
            (weakref.ref(e.node), e.index) if type(e) is Output else (weakref.ref(e), None)
            for e in edges
        ]
        self.hook = hook
        # None: no gradient.
        self.passes: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()
        self.lock = threading.Lock()

    def _expected(self, walk: Any) -> int:
        count = 0
        for reference, index in self.places:
            node = reference()
            if node is not None:
                count += walk.reaches(node if index is None else Output(node, index))
        return count

    def meet_all(self, i: int, gradient: Any) -> None:
        walk = WALK.get()
        with self.lock:
            came = self.passes.setdefault(walk, {})
            came[i] = gradient
            complete = len(came) == self._expected(walk)
        if complete:
            self.hook([came.get(k) for k in range(len(self.places))])

    def meet_any(self, i: int, gradient: Any) -> None:
        if gradient is None:
            return
        walk = WALK.get()
        with self.lock:
            first = walk not in self.passes
            self.passes[walk] = {}
        if first:
            self.hook(gradient)


def register_multi_grad_hook(
    tensors: Sequence[Value], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` once in each backward pass.

    With mode "all": `fn(gradients)` when the gradients of all tensors in the pass are known, None
    for the others and for those without a gradient. With "any": `fn(gradient)` with the first. Its
    result is not used.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: mode is 'all' or 'any', got {mode!r}")
    edges = [edge_of(t) for t in tensors]
    if not edges or None in edges:
        raise NotDifferentiable(
            "register_multi_grad_hook: tensors that all require gradients are needed"
        )
    gathering = _Gathering(edges, fn)
    meet = gathering.meet_all if mode == "all" else gathering.meet_any

    def hook_for(i: int) -> Callable[[Any], None]:
        return lambda gradient: meet(i, gradient)

    first, *others = [hook_value(edge, Waiting(hook_for(i))) for i, edge in enumerate(edges)]
    first.others = tuple(others)
    return first
