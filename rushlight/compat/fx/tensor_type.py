"""PyTorch's `torch.fx.tensor_type`: shapes of which some sizes are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class _DynType:
    """A size, or a tensor, of which nothing is known."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __repr__(self) -> str:
        return "Dyn"

    __str__ = __repr__


Dyn = _DynType()


class TensorType:
    """A tensor's sizes: ints, Dyn, or names.

    Args:
        dim (sequence): The sizes.
    """

    def __init__(self, dim: Sequence[Any]) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        sizes = args[0]
        return TensorType(tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,))


def _pairs(t1: Any, t2: Any) -> Any:
    """The sizes of two tensors side by side; None where their numbers differ."""
    if not (isinstance(t1, TensorType) and isinstance(t2, TensorType)):
        return None
    if len(t1.__args__) != len(t2.__args__):
        return None
    return zip(t1.__args__, t2.__args__, strict=True)


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether both can be of one tensor: known sizes are equal.

    Args:
        t1 (TensorType): Or Dyn, or a size.
        t2 (TensorType): Or Dyn, or a size.
    """
    if Dyn in (t1, t2) or t1 == t2:
        return True
    pairs = _pairs(t1, t2)
    return pairs is not None and all(is_consistent(a, b) for a, b in pairs)


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether the first says all that the second says.

    Args:
        t1 (TensorType): Or Dyn, or a size.
        t2 (TensorType): Or Dyn, or a size.
    """
    if t1 == t2 or t2 == Dyn:
        return True
    pairs = _pairs(t1, t2)
    return pairs is not None and all(is_more_precise(a, b) for a, b in pairs)
