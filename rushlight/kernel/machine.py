"""The arguments of a launch, and the arrays by which a kernel's meaning is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rushlight.core.dtypes import DType
from rushlight.scalar.interpret import Arithmetic

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one launch, sorted."""

    addresses: tuple[int, ...]
    sizes: Sizes
    strides: tuple[Sizes, ...]
    params: tuple[bool | int | float, ...]


class Machine(Protocol):
    """Arrays and their memory. Values are in compute types; views are memory in storage types."""

    arithmetic: Arithmetic

    def view(self, address: int, dtype: DType, sizes: Sizes, strides: Sizes) -> Any: ...
    def load(self, dtype: DType, view: Any) -> Any: ...
    def store(self, dtype: DType, view: Any, values: Any) -> None: ...
    def number(self, dtype: DType, value: bool | int | float) -> Any: ...
    def positions(self, sizes: Sizes) -> Any:
        """int64 positions in row-major order, of shape `sizes`."""

    def fold(self, kind: str, dtype: DType, values: Any, sizes: Sizes) -> Any:
        """`values` broadcast to `sizes` and folded along axis 1, which stays with length 1."""

    def contract(self, compute: DType, a: Any, b: Any) -> Any: ...
    def convolve(self, of: str, compute: DType, a: Any, b: Any, geometry: Sequence[Sizes]) -> Any:
        """The kind `of` of a `Convolve`: "image", "back" or "weights".

        The arrays have the axes listed there; `geometry` has the six sizes of `rank` numbers each.
        """

    def gather(self, out: Any, source: Any, index: Any) -> bool:
        """Copy the elements that `index` picks along axis 1; True if an index was out of range."""

    def scatter(self, kind: str, dtype: DType, out: Any, source: Any, index: Any) -> bool: ...
    def search(self, line: Any, wanted: Any, right: bool) -> Any:
        """int64 counts of values in rows, by the bisection of `Search`."""

    def order(self, dtype: DType, source: Any, descending: bool) -> Any:
        """int64 positions that sort memory along axis 1, stable, NaN the largest."""
