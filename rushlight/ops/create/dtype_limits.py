"""The limits of dtypes: `finfo` and `iinfo`."""

from __future__ import annotations

from rushlight.core.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    get_default,
    int32,
    integer_range,
    real_type,
)

# Bits of the fraction and the smallest exponent of a normal number.
_SHAPES = {float16: (10, -14), bfloat16: (7, -126), float32: (23, -126), float64: (52, -1022)}
# Of float8 types: the exponents of eps (PyTorch's) and of the smallest normal number, the largest
# number.
_SMALL = {
    "float8_e4m3fn": (-3, -6, 448.0),
    "float8_e4m3fnuz": (-3, -7, 240.0),
    "float8_e5m2": (-2, -14, 57344.0),
    "float8_e5m2fnuz": (-3, -15, 57344.0),
    "float8_e8m0fnu": (0, -127, 2.0**127),
}
_DIGITS = {float16: 1e-3, bfloat16: 1e-2, float32: 1e-6, float64: 1e-15}


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, type: DType | None = None) -> None:
        dtype = get_default() if type is None else real_type(type)
        if dtype.name in _SMALL:
            self._set_small(dtype)
            return
        if dtype not in _SHAPES:
            raise TypeError(
                f"finfo: a floating-point type is needed, got {dtype!r}; use iinfo for integers"
            )
        bits, lowest = _SHAPES[dtype]
        self.dtype = dtype.name
        self.bits = dtype.itemsize * 8
        self.eps = 2.0**-bits
        self.max = (2.0 - self.eps) * 2.0 ** (1 - lowest)
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0**lowest
        self.resolution = _DIGITS[dtype]

    def _set_small(self, dtype: DType) -> None:
        bits, lowest, self.max = _SMALL[dtype.name]
        self.dtype, self.bits = dtype.name, 8 * dtype.itemsize
        self.tiny = self.smallest_normal = 2.0**lowest
        self.eps, self.min = 2.0**bits, -self.max if dtype.is_signed else self.tiny
        self.resolution = 1.0

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type: DType = int32) -> None:
        if type.kind not in "iu":
            raise TypeError(
                f"iinfo: an integer type is needed, got {type!r}; use finfo for floating point"
            )
        self.dtype = type.name
        self.bits = type.itemsize * 8
        self.min, self.max = integer_range(type)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
