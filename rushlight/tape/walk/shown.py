"""A record's saves as attributes of `grad_fn`: `_saved_self`, `_saved_result`, `saved_tensors`.

# Note [Shown saves]
1. A record keeps values by position. The op's operands and results have names, which `ops/` gives
   (`name_saves`); each name is a property of `Node`, because a `__getattr__` would make every read
   of a record's slots slower.
2. An operand that this record did not save is None, a result that no record of the op saves is no
   attribute. After the saves were freed reading one raises `GraphFreedError`, and after they were
   written to `InplaceError`, as in backward.
3. `_raw_saved_self` and so on refer to the stored value: `register_hooks(pack, unpack)` packs it,
   as in Note [Saved tensor hooks]. The record's other saves are then packed by the identity.
4. A user's function has its own class of records. One that a user asked for also shows the
   attributes of `ctx`: by a `__getattr__`, so it gets that class then (`value.shown`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from rushlight.core.errors import RushlightError
from rushlight.tape.memory.saved_tensor_hooks import PACKED, Packed, Saving
from rushlight.tape.record import call
from rushlight.tape.record.value import Node, Output, Value
from rushlight.tape.walk.saves import saves_of

# The target of a name: an operand or a result of the call by index, or a number given in place of a
# tensor.
Where = tuple[str, Any]

_describe: list[Callable[[Node], dict[str, Where]]] = []  # set by `ops/`


def name_saves(names: Iterable[str], describe: Callable[[Node], dict[str, Where]]) -> None:
    """Make records show their saves by these names; `describe` gives those of a record's op."""
    _describe[:] = [describe]
    for name in names:
        setattr(Node, f"_saved_{name}", property(_reader(name)))
        setattr(Node, f"_raw_saved_{name}", property(_raw_reader(name)))


def _reader(name: str) -> Callable[[Node], Any]:
    def read(node: Node) -> Any:
        kind, at = _where(node, f"_saved_{name}", name)
        if kind == "number":
            return at
        outs, ins = saves_of(node)
        grad = node.grad
        places, values = (grad.saves_in, ins) if kind == "operand" else (grad.saves_out, outs)
        return values[places.index(at)] if at in places else None

    return read


def _raw_reader(name: str) -> Callable[[Node], Any]:
    def read(node: Node) -> Any:
        kind, at = _where(node, f"_raw_saved_{name}", name)
        places = node.grad.saves_in if kind == "operand" else node.grad.saves_out
        if kind == "number":
            raise AttributeError(
                f"{node!r} has no attribute '_raw_saved_{name}': a number was given"
            )
        return SavedTensor(node, kind, places.index(at) if at in places else None)

    return read


def _where(node: Node, attribute: str, name: str) -> Where:
    found = shown_names(node).get(name)
    if found is None:
        raise AttributeError(
            f"{node!r} has no attribute {attribute!r}; it has "
            f"{', '.join(_attributes(node)) or 'none'}"
        )
    return found


def shown_names(node: Node) -> dict[str, Where]:
    """The names of the possible saves of a record's op."""
    if not _describe or node.plan.op.inputs is not None:  # a user's function has `saved_tensors`
        return {}
    return _describe[0](node)


def _attributes(node: Node) -> list[str]:
    return [f"_saved_{name}" for name in shown_names(node)]


def _listed(node: Node) -> list[str]:
    """The result of `dir`: of the saves' names those of this op."""
    others = [
        name for name in object.__dir__(node) if not name.startswith(("_saved_", "_raw_saved_"))
    ]
    own = [name for name, (kind, _) in shown_names(node).items() if kind != "number"]
    return [*others, *_attributes(node), *[f"_raw_saved_{name}" for name in own]]


Node.__dir__ = _listed  # type: ignore[assignment]


class SavedTensor:
    """A value stored in a record."""

    __slots__ = ("_at", "_kind", "_node")

    def __init__(self, node: Node, kind: str, at: int | None) -> None:
        self._node = node
        self._kind = kind
        self._at = at

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Replace the tensor by `pack_hook(tensor)`; backward calls `unpack_hook` of that."""
        node, at = self._node, self._at
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                f"{node.op_name}: register_hooks takes two functions, pack_hook and unpack_hook"
            )
        if at is None:
            raise RushlightError(
                f"{node.op_name}: register_hooks of a value that this record did not save (it is "
                "None)"
            )
        if node.saved is None or node.dropped is not PACKED:
            # Rebuilds dropped saves; raises where they were freed, or written to.
            saves_of(node)
            _AS_IT_IS.pack_saves(node)
        kept: list[Any] = list(node.saved if self._kind == ("operand") else node.outs)  # type: ignore[arg-type]
        packed = kept[at]
        if packed.saving is not _AS_IT_IS:
            raise RushlightError(
                f"{node.op_name}: hooks for this saved tensor were set already, by register_hooks "
                "or saved_tensors_hooks"
            )
        value = call.make_value(
            packed.held._spec, packed.held._memory, packed.held._offset, packed.edge
        )
        kept[at] = Packed(Saving(pack_hook, unpack_hook), value, node)
        if self._kind == "operand":
            node.saved = tuple(kept)
        else:
            node.outs = tuple(kept)


_AS_IT_IS = Saving(lambda value: value, lambda value: value)


# ---- a user's function ----


class FunctionNode(Node):
    """The record of a user's function."""

    __slots__ = ("context",)

    context: Any
    seen: ClassVar[type[Node]]  # its class where a user gets it: `SeenFunctionNode`

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to `save_for_backward`, until a backward pass frees them."""
        found: tuple[Any, ...] = self.context._left.ordered(saves_of(self)[1])
        return found

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor | None, ...]:
        places = iter(range(len(self.grad.saves_in)))
        return tuple(
            SavedTensor(self, "operand", next(places)) if there else None
            for there in self.context._left.order
        )


class SeenFunctionNode(FunctionNode):
    """A record of a user's function as `grad_fn`: it shows the attributes of `ctx`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "context":
            raise AttributeError(name)
        try:
            return self.context.__dict__[name]
        except KeyError:
            raise AttributeError(
                f"{self!r} has no attribute {name!r}, and its forward set none on ctx"
            ) from None

    def __dir__(self) -> list[str]:
        return [*_listed(self), *self.context.__dict__]


FunctionNode.seen = SeenFunctionNode


def result_again(node: Node, value: Value, index: int, alone: bool) -> Value:
    """A saved result with its record, which the record itself cannot keep."""
    edge = node if alone else Output(node, index)
    return call.rooted(call.make_value(value._spec, value._memory, value._offset, edge))
