"""Borders as layers: of zeros, of one value, or of the input's own elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.ops.view.windows import numbers
from rushlight.tensor import Tensor


class _Pad(Module):
    """A border around the last dimensions; one number stands for all sides."""

    rank: int
    mode: str = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        sides = numbers(padding)
        if len(sides) == 1 and not isinstance(padding, Sequence):
            sides *= 2 * self.rank
        if len(sides) != 2 * self.rank:
            raise ShapeError(
                f"{type(self).__name__}: padding is one number or {2 * self.rank}, got "
                f"{list(sides)}"
            )
        self.padding = sides

    def forward(self, input: Tensor) -> Tensor:
        if self.mode == "circular" and input.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{type(self).__name__}: input must have {self.rank + 1} or {self.rank + 2} "
                f"dimensions, got {input._spec!r}"
            )
        return functional.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _Constant(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_Constant):
    """A border of one value around a length."""

    rank = 1


class ConstantPad2d(_Constant):
    """A border of one value around an image."""

    rank = 2


class ConstantPad3d(_Constant):
    """A border of one value around a volume."""

    rank = 3


class _Zero(_Pad):
    def _pytorch_attributes(self) -> dict[str, Any]:
        return {"value": 0.0}


class ZeroPad1d(_Zero):
    """A border of zeros around a length."""

    rank = 1


class ZeroPad2d(_Zero):
    """A border of zeros around an image."""

    rank = 2


class ZeroPad3d(_Zero):
    """A border of zeros around a volume."""

    rank = 3


class ReflectionPad1d(_Pad):
    """A border that mirrors a length at its ends."""

    rank, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """A border that mirrors an image at its edges."""

    rank, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """A border that mirrors a volume at its faces."""

    rank, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """A border that repeats the ends of a length."""

    rank, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """A border that repeats the edges of an image."""

    rank, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """A border that repeats the faces of a volume."""

    rank, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """A border from the other end of a length."""

    rank, mode = 1, "circular"


class CircularPad2d(_Pad):
    """A border from the other side of an image."""

    rank, mode = 2, "circular"


class CircularPad3d(_Pad):
    """A border from the other side of a volume."""

    rank, mode = 3, "circular"
