"""The standard's array: a tensor behind the standard's interface.

# Note [Strict arrays]
1. An `Array` holds a tensor and has the standard's attributes and methods, no others. Its record of
   gradients is the tensor's, so results here can be differentiated.
2. Dtypes are promoted by the standard's rules, not PyTorch's: an array of no dimensions counts like
   any other, a Python number takes the dtype of the array operand, and categories (bool, integer,
   floating) do not mix.
3. A tensor is accepted for an array in every call: it is wrapped first.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor, device as Device

Scalar = bool | int | float | complex
# The kinds of dtypes that a function takes, by the standard's names.
KINDS = {
    "all": "biufc",
    "bool": "b",
    "integer": "iu",
    "integer or bool": "biu",
    "real numeric": "iuf",
    "numeric": "iufc",
    "real floating": "f",
    "complex floating": "c",
    "floating": "fc",
}


def op(name: str) -> Callable[..., Any]:
    return REGISTRY[name].function


class Array:
    """An array of the standard.

    Made by the functions of the namespace, not by calling the class.
    """

    __slots__ = ("_tensor",)

    _tensor: Tensor

    def __new__(cls, *args: Any, **named: Any) -> Array:
        raise TypeError("Array is not called; make arrays with asarray, zeros, ...")

    # ---- attributes ----

    @property
    def dtype(self) -> DType:
        return self._tensor.dtype

    @property
    def device(self) -> Device:
        return self._tensor.device

    @property
    def ndim(self) -> int:
        return self._tensor.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def size(self) -> int:
        return self._tensor._spec.numel

    @property
    def T(self) -> Array:
        if self.ndim != 2:
            raise ValueError(
                f"T is for matrices, got {self.ndim} dimensions; use permute_dims or mT"
            )
        return wrap(op("transpose")(self._tensor, 0, 1))

    @property
    def mT(self) -> Array:
        if self.ndim < 2:
            raise ValueError(f"mT is for stacks of matrices, got {self.ndim} dimensions")
        return wrap(op("transpose")(self._tensor, -1, -2))

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The same elements on another device."""
        if stream is not None:
            raise ValueError("to_device: streams are not given here; leave stream at None")
        return wrap(self._tensor.to(device))

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        return namespace(api_version)

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        return self._tensor.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self, /) -> tuple[Any, Any]:
        return self._tensor.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """A NumPy array, over the same memory where that is possible; NumPy calls it."""
        return self._tensor.__array__(dtype, copy)

    def __reduce__(self) -> Any:
        return wrap, (self._tensor,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return wrap(copy.deepcopy(self._tensor, memo))

    def __repr__(self) -> str:
        return repr(self._tensor).replace("tensor(", "Array(", 1)

    # ---- one element ----

    def _one(self, kinds: str, what: str) -> Any:
        if self.shape or self.dtype.kind not in kinds:
            raise TypeError(
                f"{what} takes an array of no dimensions of a fitting type, got "
                f"{self._tensor._spec!r}"
            )
        return self._tensor.item()

    def __bool__(self) -> bool:
        return bool(self._one("biufc", "bool()"))

    def __int__(self) -> int:
        return int(self._one("biuf", "int()"))

    def __float__(self) -> float:
        return float(self._one("biuf", "float()"))

    def __complex__(self) -> complex:
        return complex(self._one("biufc", "complex()"))

    def __index__(self) -> int:
        return operator.index(self._one("iu", "an index"))

    # ---- elements ----

    def __getitem__(self, key: Any, /) -> Array:
        plain, flipped = _plain_key(key, self.shape)
        seen = self._tensor[plain]
        return wrap(op("flip")(seen, flipped) if flipped else seen)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        plain, flipped = _plain_key(key, self.shape)
        if isinstance(value, (Array, Tensor)):
            value = unwrap(value)
            if promoted(self.dtype, value.dtype) is not self.dtype:
                raise TypeError(
                    f"an array of {value.dtype.name} is not stored in one of {self.dtype.name}"
                )
            if flipped:
                value = op("flip")(op("broadcast_to")(value, self._tensor[plain].shape), flipped)
        else:
            value = scalar_for(self._tensor, value)
        self._tensor[plain] = value

    __hash__ = None  # type: ignore[assignment]


def wrap(tensor: Any) -> Array:
    made = object.__new__(Array)
    made._tensor = tensor
    return made


def unwrap(given: Any) -> Tensor:
    if isinstance(given, Array):
        return given._tensor
    if isinstance(given, Tensor):
        return given
    raise TypeError(f"an array is needed, got {type(given).__name__}; make one with asarray")


def is_array(given: Any) -> bool:
    return isinstance(given, (Array, Tensor))


_NAMESPACE: list[Any] = []  # set once, when the package is imported


def provide_namespace(module: Any) -> None:
    """Set the module that arrays, and tensors, return from `__array_namespace__`."""
    _NAMESPACE[:] = [module]


def namespace(api_version: str | None = None) -> Any:
    """The namespace of a version of the standard."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        raise ValueError(f"the array API standard up to 2025.12 is here, not {api_version!r}")
    return _NAMESPACE[0]


# ---- dtypes ----


def promoted(*types: DType) -> DType:
    """The common dtype of arrays; an error where the standard has none."""
    result = types[0]
    for other in types[1:]:
        kinds = {"u": "i", "c": "f"}
        if kinds.get(result.kind, result.kind) != kinds.get(other.kind, other.kind):
            raise TypeError(
                f"arrays of {result.name} and {other.name} do not mix; cast one with astype"
            )
        result = dtypes.promote(result, other)
    return result


def check_kind(name: str, dtype: DType, kinds: str) -> None:
    if dtype.kind not in KINDS[kinds]:
        raise TypeError(f"{name}: takes arrays of type {kinds}, got {dtype.name}; cast with astype")


def scalar_for(tensor: Tensor, value: Any) -> Tensor:
    """A Python number as an array of no dimensions, in the dtype of the array operand."""
    fits = {
        "b": (bool,),
        "i": (bool, int),
        "u": (bool, int),
        "f": (bool, int, float),
        "c": (bool, int, float, complex),
    }[tensor.dtype.kind]
    if not isinstance(value, fits) or (isinstance(value, bool) and tensor.dtype.kind != "b"):
        raise TypeError(
            f"a {type(value).__name__} does not mix with an array of {tensor.dtype.name}"
        )
    if tensor.dtype.kind in "iu" and isinstance(value, int):
        bits = 8 * tensor.dtype.itemsize - (tensor.dtype.kind == "i")
        if not (-(1 << bits) if tensor.dtype.kind == "i" else 0) <= value < 1 << bits:
            raise OverflowError(f"{value} is out of the range of {tensor.dtype.name}")
    return creation.full((), value, dtype=tensor.dtype, device=tensor.device)


def operands(name: str, kinds: str, *given: Any) -> list[Tensor]:
    """Arrays and numbers, all in their common dtype."""
    tensors = [unwrap(v) for v in given if is_array(v)]
    if not tensors:
        raise TypeError(
            f"{name}: at least one operand must be an array, got "
            f"{', '.join(type(v).__name__ for v in given)}"
        )
    common = promoted(*[t.dtype for t in tensors])
    if common.kind == "f" and any(isinstance(v, complex) for v in given):
        common = dtypes.complex_type(common)
    check_kind(name, common, kinds)
    for v in given:
        if not is_array(v) and not isinstance(v, (bool, int, float, complex)):
            raise TypeError(f"{name}: operands are arrays and numbers, got {type(v).__name__}")
    cast = [t.to(common) for t in tensors]
    numbers = iter(cast)
    like = cast[0]
    return [next(numbers) if is_array(v) else scalar_for(like, v) for v in given]


# ---- keys ----


def _plain_key(key: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """A key without backward slices, and the dimensions of its result to reverse."""
    parts = key if isinstance(key, tuple) else (key,)
    parts = tuple(p._tensor if isinstance(p, Array) else p for p in parts)
    if not any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in parts):
        return parts, ()
    used = sum(1 for p in parts if p is not None and p is not Ellipsis)
    plain: list[Any] = []
    flipped: list[int] = []
    source = seen = 0
    for part in parts:
        if part is None:
            seen += 1
        elif part is Ellipsis:
            source += len(shape) - used
            seen += len(shape) - used
        elif isinstance(part, slice):
            if part.step is not None and part.step < 0:
                part = _forward(part, shape[source])
                flipped.append(seen)
            source += 1
            seen += 1
        elif isinstance(part, Tensor):
            raise IndexError("backward slices do not go with index arrays; take the slice first")
        else:
            source += 1
        plain.append(part)
    return tuple(plain), tuple(flipped)


def _forward(part: slice, size: int) -> slice:
    start, stop, step = part.indices(size)
    count = max(0, -(-(stop - start) // step)) if stop < start else 0
    if not count:
        return slice(0, 0, 1)
    return slice(start + (count - 1) * step, start + 1, -step)
