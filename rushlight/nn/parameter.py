"""Parameter: the tensor a module learns."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops import creation, elementwise as e
from rushlight.tape import call
from rushlight.tape.value import Leaf
from rushlight.tensor import Tensor

__all__ = ["Parameter", "replace_content"]


class Parameter(Tensor):
    """A leaf that a module lists among its parameters. It shares the memory of the tensor it is made of."""

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        source = creation.empty(0) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(
                f"Parameter: made of a tensor, got {type(source).__name__}; wrap it in rushlight.tensor(...)"
            )
        made = object.__new__(cls)
        made.spec, made.storage, made.offset = source.spec, source.storage, source.offset
        made.node = None
        made.base = None
        call.rooted(made)
        creation.requiring(made, requires_grad)
        return made

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __reduce__(self) -> Any:
        return type(self), (self.detach(), self.requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is not None:
            return known
        if not self.is_leaf:
            raise RushlightError("only leaves can be deep-copied; .detach() or .clone() a result")
        out = type(self)(e.clone(self.detach()), self.requires_grad)
        memo[id(self)] = out
        return out


def replace_content(target: Tensor, source: Tensor) -> None:
    """Give a leaf the bytes, type and device of another tensor; the handle stays, so an optimiser still knows it."""
    target.spec, target.storage, target.offset, target.base = source.spec, source.storage, source.offset, None
    call.rooted(target)
    if type(target.node) is Leaf:
        target.node.spec = source.spec
