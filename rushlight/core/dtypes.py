"""Element types and how they combine."""

from __future__ import annotations

from collections.abc import Iterable


class DType:
    """One element type. There is one object per type, so identity is equality."""

    __slots__ = ("itemsize", "kind", "name", "rank")

    def __init__(self, name: str, kind: str, itemsize: int, rank: int) -> None:
        self.name = name
        self.kind = kind  # "b" bool, "i" signed, "u" unsigned, "f" float
        self.itemsize = itemsize
        self.rank = rank  # order of promotion inside one kind

    def __repr__(self) -> str:
        return f"rushlight.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return by_name, (self.name,)

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"


bool_ = DType("bool", "b", 1, 0)
int32 = DType("int32", "i", 4, 1)
int64 = DType("int64", "i", 8, 2)
# Random bits are made of 32-bit words; tensors of this type do not exist.
uint32 = DType("uint32", "u", 4, 0)
bfloat16 = DType("bfloat16", "f", 2, 1)
float16 = DType("float16", "f", 2, 1)
float32 = DType("float32", "f", 4, 2)
float64 = DType("float64", "f", 8, 3)

ALL = (bool_, int32, int64, float16, bfloat16, float32, float64)
FLOAT = (float16, bfloat16, float32, float64)
INTEGER = (int32, int64)
NUMBER = INTEGER + FLOAT

_BY_NAME = {d.name: d for d in (*ALL, uint32)}
_KIND_ORDER = "buif"


def by_name(name: str) -> DType:
    return _BY_NAME[name]


def compute_type(dtype: DType) -> DType:
    """The type arithmetic is done in: halves are storage formats and compute in float32."""
    return float32 if dtype.kind == "f" and dtype.itemsize == 2 else dtype


def promote(a: DType, b: DType) -> DType:
    """The common type of two operands of equal standing."""
    if a is b:
        return a
    if a.kind != b.kind:
        return a if _KIND_ORDER.index(a.kind) > _KIND_ORDER.index(b.kind) else b
    if a.rank == b.rank:
        return float32  # float16 with bfloat16: neither holds the other
    return a if a.rank > b.rank else b


def scalar_dtype(value: object) -> DType:
    """The type a bare Python number stands for."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    return _default


def result_type(tensors: Iterable[tuple[DType, int]], scalars: Iterable[DType] = ()) -> DType:
    """PyTorch's rule: tensors with dimensions, then 0-dim tensors, then Python numbers.

    A later group changes the result only when its kind is higher than all groups before it.
    """
    pairs = list(tensors)
    groups = (
        [d for d, ndim in pairs if ndim > 0],
        [d for d, ndim in pairs if ndim == 0],
        list(scalars),
    )
    result: DType | None = None
    for group in groups:
        common: DType | None = None
        for dtype in group:
            common = dtype if common is None else promote(common, dtype)
        if common is None:
            continue
        if result is None or _KIND_ORDER.index(common.kind) > _KIND_ORDER.index(result.kind):
            result = common
    assert result is not None
    return result


_default = float32


def get_default() -> DType:
    return _default


def set_default(dtype: DType) -> None:
    global _default
    if dtype.kind != "f":
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype!r}")
    _default = dtype
