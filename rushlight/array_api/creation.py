"""New arrays, and their dtypes and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import dlpack, settings
from rushlight.array_api.array import Array, op, promoted, unwrap, wrap
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.shapes import broadcast_shapes as _broadcast_shapes
from rushlight.ops.create import creation, dtype_limits
from rushlight.tensor import Tensor, device as Device, tensor as make_tensor

Shape = int | tuple[int, ...]


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None
) -> Array:
    """Numbers, nested sequences, arrays and DLPack objects as an array.

    The same memory where possible.
    """
    if isinstance(obj, Array):
        obj = obj._tensor
    if isinstance(obj, (list, tuple)):
        obj = _unwrapped(obj)
    if isinstance(obj, (bool, int, float, complex, list)):
        if copy is False:
            raise ValueError(
                f"asarray: {type(obj).__name__} has no memory to share; leave copy at None"
            )
        return wrap(make_tensor(obj, dtype=dtype, device=device))
    if (
        not isinstance(obj, Tensor)
        and not hasattr(obj, "__dlpack__")
        and not hasattr(obj, "__array_interface__")
    ):
        raise TypeError(f"asarray: {type(obj).__name__} is no array, number or sequence")
    made = settings.asarray(obj, dtype=dtype, device=device, copy=copy)
    return wrap(made)


def _unwrapped(rows: Any) -> Any:
    if isinstance(rows, (list, tuple)):
        return [_unwrapped(row) for row in rows]
    return rows._tensor if isinstance(rows, Array) else rows


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The memory of another library's array."""
    return wrap(dlpack.take(x, device=device, copy=copy))


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """start, start + step, ... up to but without stop; empty where stop is not ahead."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: the step must not be 0")
    if (stop - start) / step <= 0:
        whole = all(isinstance(n, int) for n in (start, stop, step))
        return empty(
            0, dtype=dtype or (dtypes.int64 if whole else dtypes.get_default()), device=device
        )
    return wrap(creation.arange(start, stop, step, dtype=dtype, device=device))


def empty(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Uninitialised memory."""
    return wrap(creation.empty(_sizes(shape), dtype=dtype, device=device))


def empty_like(x: Any, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Uninitialised memory with another array's shape, dtype and device."""
    return wrap(op("empty_like")(unwrap(x), dtype=dtype, device=device))


def zeros(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros."""
    return wrap(creation.zeros(_sizes(shape), dtype=dtype, device=device))


def zeros_like(x: Any, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros with another array's shape, dtype and device."""
    return wrap(creation.zeros_like(unwrap(x), dtype=dtype, device=device))


def ones(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones."""
    return wrap(creation.ones(_sizes(shape), dtype=dtype, device=device))


def ones_like(x: Any, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones with another array's shape, dtype and device."""
    return wrap(creation.ones_like(unwrap(x), dtype=dtype, device=device))


def full(shape: Shape, fill_value: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """One value everywhere; its dtype, where none is given, is the default of its kind."""
    return wrap(creation.full(_sizes(shape), fill_value, dtype=dtype, device=device))


def full_like(
    x: Any, /, fill_value: Any, *, dtype: DType | None = None, device: Any = None
) -> Array:
    """One value everywhere, with another array's shape, dtype and device."""
    return wrap(op("full_like")(unwrap(x), fill_value, dtype=dtype, device=device))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    rows = creation.arange(n_rows, device=device)
    across = creation.arange(columns, device=device)
    hit = op("eq")(op("sub")(across, op("unsqueeze")(rows, 1)), k)
    return wrap(hit.to(dtype or dtypes.get_default()))


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers from start to stop in even steps.

    Without the endpoint, stop comes after the last.
    """
    if dtype is None and (isinstance(start, complex) or isinstance(stop, complex)):
        dtype = dtypes.complex_type(dtypes.get_default())
    dtype = dtype or dtypes.get_default()
    if dtype.kind == "c":
        parts = [
            unwrap(
                linspace(a, b, num, dtype=dtypes.real_type(dtype), device=device, endpoint=endpoint)
            )
            for a, b in zip(_real_and_imaginary(start), _real_and_imaginary(stop), strict=True)
        ]
        return wrap(op("complex")(*parts))
    line = op("linspace")(start, stop, num if endpoint else num + 1, dtype=dtype, device=device)
    return wrap(line if endpoint else line[:-1])


def _real_and_imaginary(number: complex) -> tuple[float, float]:
    return (number.real, number.imag) if isinstance(number, complex) else (number, 0.0)


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Array, ...]:
    """Coordinate arrays of a grid."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    tensors = [unwrap(a) for a in arrays]
    if len({t.dtype for t in tensors}) > 1:
        raise ValueError("meshgrid: all arrays must have one type")
    if not tensors:
        return ()
    return tuple(wrap(t) for t in op("meshgrid")(*tensors, indexing=indexing))


def tril(x: Any, /, *, k: int = 0) -> Array:
    """The lower triangle."""
    return wrap(op("tril")(unwrap(x), k))


def triu(x: Any, /, *, k: int = 0) -> Array:
    """The upper triangle."""
    return wrap(op("triu")(unwrap(x), k))


# ---- dtypes ----


def astype(x: Any, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Array:
    """The elements in another dtype; a copy, unless copy=False and nothing changes."""
    tensor = unwrap(x)
    if tensor.dtype.kind == "c" and dtype.kind not in "cb":
        raise TypeError(
            f"astype: {tensor.dtype.name} is not cast to {dtype.name}; take real or imag first"
        )
    return wrap(tensor.to(device, dtype, copy=copy))


def can_cast(from_: Any, to: DType, /) -> bool:
    """Whether a dtype, or an array's, can be cast to another by promotion."""
    source = from_ if isinstance(from_, DType) else unwrap(from_).dtype
    try:
        return promoted(source, to) is to
    except TypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The common dtype of arrays, dtypes and numbers."""
    types = [
        a if isinstance(a, DType) else unwrap(a).dtype
        for a in arrays_and_dtypes
        if not _is_number(a)
    ]
    numbers = [a for a in arrays_and_dtypes if _is_number(a)]
    if not types:
        raise TypeError("result_type: at least one array or type is needed")
    common = promoted(*types)
    order = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    for number in numbers:
        kind = "b" if isinstance(number, bool) else "i" if isinstance(number, int) else "f"
        kind = "c" if isinstance(number, complex) else kind
        if kind == "c" and common.kind == "f":
            common = dtypes.complex_type(common)
        elif order[kind] > order[common.kind] or (kind == "b") != (common.kind == "b"):
            raise TypeError(
                f"result_type: a {type(number).__name__} does not mix with {common.name}"
            )
    return common


def _is_number(given: Any) -> bool:
    return isinstance(given, (bool, int, float, complex))


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name of the standard, or a tuple of such."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, part) for part in kind)
    words = {
        "bool": "b",
        "signed integer": "i",
        "unsigned integer": "u",
        "integral": "iu",
        "real floating": "f",
        "complex floating": "c",
        "numeric": "iufc",
    }
    if isinstance(kind, str):
        if kind not in words:
            raise ValueError(f"isdtype: kind is one of {', '.join(words)}, got {kind!r}")
        return dtype.kind in words[kind]
    return dtype is kind


class finfo:
    """The limits of a floating-point dtype, or of a complex dtype's real and imaginary parts."""

    def __init__(self, type: Any, /) -> None:
        dtype = dtypes.real_type(type if isinstance(type, DType) else unwrap(type).dtype)
        found = dtype_limits.finfo(dtype)
        self.bits, self.eps, self.max, self.min = found.bits, found.eps, found.max, found.min
        self.smallest_normal, self.dtype = found.smallest_normal, dtype


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type: Any, /) -> None:
        dtype = type if isinstance(type, DType) else unwrap(type).dtype
        found = dtype_limits.iinfo(dtype)
        self.bits, self.max, self.min, self.dtype = found.bits, found.max, found.min, dtype


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Arrays broadcast against each other."""
    if not arrays:
        return ()
    return tuple(wrap(t) for t in op("broadcast_tensors")(*[unwrap(a) for a in arrays]))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which shapes are broadcast."""
    return _broadcast_shapes([tuple(shape) for shape in shapes], "broadcast_shapes", ())


def broadcast_to(x: Any, /, shape: Sequence[int]) -> Array:
    """An array broadcast to a shape."""
    return wrap(op("broadcast_to")(unwrap(x), tuple(shape)))


def devices() -> list[Device]:
    return [Device("cpu")]
