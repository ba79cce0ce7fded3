"""Element types and how they combine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight.core.errors import DTypeError

SHOWN_PACKAGE = ["rushlight"]  # the last is the package's name in texts; `compat.hook` adds "torch"


class DType:
    """One element type. There is one object per type, so identity is equality."""

    __slots__ = ("itemsize", "kind", "name", "rank")

    def __init__(self, name: str, kind: str, itemsize: int, rank: int) -> None:
        self.name = name
        self.kind = kind  # "b" bool, "i" signed, "u" unsigned, "f" float, "c" complex
        self.itemsize = itemsize
        self.rank = rank  # order of promotion inside one kind

    def __repr__(self) -> str:
        return f"{SHOWN_PACKAGE[-1]}.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return by_name, (self.name,)

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    def to_complex(self) -> DType:
        return complex_type(self)

    def to_real(self) -> DType:
        return real_type(self)

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc" and self is not float8_e8m0fnu


bool_ = DType("bool", "b", 1, 0)
uint8 = DType("uint8", "u", 1, 0)
uint16 = DType("uint16", "u", 2, 1)
uint32 = DType("uint32", "u", 4, 2)
uint64 = DType("uint64", "u", 8, 3)
int8 = DType("int8", "i", 1, 0)
int16 = DType("int16", "i", 2, 1)
int32 = DType("int32", "i", 4, 2)
int64 = DType("int64", "i", 8, 3)
# Stored and cast only: `scalar/float8.py` has their formulas, `ops/family/codes.py` their kernels.
float8_e4m3fn = DType("float8_e4m3fn", "f", 1, 0)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f", 1, 0)
float8_e5m2 = DType("float8_e5m2", "f", 1, 0)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f", 1, 0)
float8_e8m0fnu = DType("float8_e8m0fnu", "f", 1, 0)
bfloat16 = DType("bfloat16", "f", 2, 1)
float16 = DType("float16", "f", 2, 1)
float32 = DType("float32", "f", 4, 2)
float64 = DType("float64", "f", 8, 3)
complex64 = DType("complex64", "c", 8, 2)
complex128 = DType("complex128", "c", 16, 3)

FLOAT = (float16, bfloat16, float32, float64)
FLOAT8 = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu)
COMPLEX = (complex64, complex128)
SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INDEX = (int32, int64)  # dtypes of positions
INTEGER = (uint8, uint16, uint32, uint64, int8, int16, int32, int64)
NUMBER = INTEGER + FLOAT
ALL = (bool_, *NUMBER)
ANY = ALL + COMPLEX
STORED = ANY + FLOAT8  # every type of elements
FIELD = FLOAT + COMPLEX
ARITHMETIC = NUMBER + COMPLEX

# Types that files and libraries name and no device stores: tensors of them are refused.
_NAMED: dict[str, tuple[str, int]] = {
    "float4_e2m1fn_x2": ("f", 1),
    **dict.fromkeys(("quint8", "quint4x2", "quint2x4"), ("u", 1)),
    "qint8": ("i", 1),
    "qint32": ("i", 4),
    "complex32": ("c", 4),
    **{f"uint{bits}": ("u", 1) for bits in range(1, 8)},
    **{f"int{bits}": ("i", 1) for bits in range(1, 8)},
}
NAMED_ONLY = {name: DType(name, kind, size, 0) for name, (kind, size) in _NAMED.items()}

_BY_NAME = {d.name: d for d in STORED} | NAMED_ONLY
_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def by_name(name: str) -> DType:
    return _BY_NAME[name]


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    bits = 8 * dtype.itemsize
    return (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)
    )


# PyTorch's legacy name of each dtype, as in torch.FloatTensor.
WORDS = {
    bool_: "Bool",
    uint8: "Byte",
    uint16: "UInt16",
    uint32: "UInt32",
    uint64: "UInt64",
    int8: "Char",
    int16: "Short",
    int32: "Int",
    int64: "Long",
    float16: "Half",
    bfloat16: "BFloat16",
    float32: "Float",
    float64: "Double",
    complex64: "ComplexFloat",
    complex128: "ComplexDouble",
    **{dtype: dtype.name.capitalize() for dtype in FLOAT8},
}


def by_word(name: str) -> DType:
    """The dtype of a legacy name such as "torch.FloatTensor" or "torch.cuda.LongTensor"."""
    found = [d for d, word in WORDS.items() if name.rpartition(".")[2] == f"{word}Tensor"]
    if not found:
        raise ValueError(
            f"no type is called {name!r}; known are "
            f"{', '.join(f'{w}Tensor' for w in WORDS.values())}"
        )
    return found[0]


def compute_type(dtype: DType) -> DType:
    """The type of arithmetic: halves and small integers are storage types and compute in 32
    bits.
    """
    if dtype.itemsize >= 4 or dtype is bool_:
        return dtype
    return float32 if dtype.kind == "f" else int32


_PARTS = {complex64: float32, complex128: float64}


def real_type(dtype: DType) -> DType:
    """The type of a complex number's parts; any other type itself."""
    return _PARTS.get(dtype, dtype)


def complex_type(dtype: DType) -> DType:
    """The complex type with parts as precise as `dtype`."""
    return dtype if dtype.kind == "c" else complex128 if dtype is float64 else complex64


def promote(type1: DType, type2: DType) -> DType:
    """The promoted dtype of two operands of one group (tensors, 0-dim tensors or numbers)."""
    a, b = type1, type2
    if a is b:
        return a
    if a in FLOAT8 or b in FLOAT8:
        raise DTypeError(
            f"{a!r} and {b!r} have no common type, a float8 type has none with another; cast one "
            "of them with .to(dtype)"
        )
    if _CATEGORY[a.kind] != _CATEGORY[b.kind]:
        low, high = (a, b) if _CATEGORY[a.kind] < _CATEGORY[b.kind] else (b, a)
        return (
            complex_type(promote(real_type(high), low))
            if high.kind == "c" and low.kind == "f"
            else high
        )
    if a.kind != b.kind:
        signed, unsigned = (a, b) if a.kind == "i" else (b, a)
        if unsigned is uint64:
            raise TypeError(
                f"no type holds both {a.name} and {b.name}; cast one of them with .to(dtype)"
            )
        return SIGNED[max(signed.rank, unsigned.rank + 1)]
    if a.rank == b.rank:
        return float32  # float16 with bfloat16: neither holds the other
    return a if a.rank > b.rank else b


# A Python type given as a dtype means the widest dtype of its kind.
PYTHON: dict[Any, Any] = {float: float64, int: int64, bool: bool_, complex: complex128}


def castable(source: DType, target: DType) -> bool:
    """Whether a result may be cast to `target` without losing its category.

    Categories are bool, integer, float and complex, in this order.
    """
    return _CATEGORY[source.kind] <= _CATEGORY[target.kind]


def scalar_dtype(value: object) -> DType:
    """The dtype of a Python number."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    return complex_type(_default) if isinstance(value, complex) else _default


def result_type(tensors: Iterable[tuple[DType, int]], scalars: Iterable[DType] = ()) -> DType:
    """PyTorch's rule: tensors with dimensions, then 0-dim tensors, then Python numbers.

    A later group changes the result only when its category (bool, integer, float, complex) is
    above all groups before it; a complex number then takes the precision of the floats it meets.
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
        if result is None or _CATEGORY[common.kind] > _CATEGORY[result.kind]:
            keeps_precision = result is not None and result.kind == "f" and common.kind == "c"
            result = complex_type(result) if keeps_precision and result is not None else common
    assert result is not None
    return result


_default = float32
# Called when the default dtype changes.
when_default_changes: list[Callable[[], None]] = []


def get_default() -> DType:
    return _default


def set_default(d: DType) -> None:
    global _default
    if d.kind != "f" or d in FLOAT8:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    if d is not _default:
        _default = d
        for forget in when_default_changes:
            forget()
