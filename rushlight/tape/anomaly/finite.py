"""The badness of numbers: 0 for finite ones, INFINITE, or NOT_A_NUMBER.

In host memory and among plain numbers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any

from rushlight.core.dtypes import FLOAT8
from rushlight.core.shapes import Spec
from rushlight.kernel.shapes import LOADED

INFINITE, NOT_A_NUMBER = 1, 2
NAMES = {INFINITE: "inf", NOT_A_NUMBER: "nan"}


def worst_number(numbers: Iterable[Any]) -> int:
    """Of numbers, also inside tuples; anything else counts as finite."""
    worst = 0
    for number in numbers:
        found = 0
        if isinstance(number, tuple):
            found = worst_number(number)
        elif isinstance(number, complex):
            found = worst_number((number.real, number.imag))
        elif isinstance(number, float) and not math.isfinite(number):
            found = NOT_A_NUMBER if math.isnan(number) else INFINITE
        worst = max(worst, found)
    return worst


def worst_stored(met: int) -> int:
    """Of the flags of a kernel with checks; see Note [Anomaly kernels]."""
    return NOT_A_NUMBER if met & 1 else INFINITE if met & 2 else 0


def worst_loaded(met: int) -> int:
    return worst_stored(met // LOADED)


def is_inexact(spec: Spec) -> bool:
    """Whether an element could be other than finite.

    The codes of float8 types are not tested: they are made by casts only, and some have no NaN.
    """
    return spec.dtype.kind in "fc" and spec.numel > 0 and spec.dtype not in FLOAT8


def elements(address: int, spec: Spec) -> Any:
    """A host tensor's floats as an array, copied only for bfloat16."""
    import numpy as np

    shape, strides = spec.shape, spec.strides
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
    size = spec.dtype.itemsize
    block: Any = (ctypes.c_char * (reach * size)).from_address(address)
    half = spec.dtype.name == "bfloat16"
    flat = np.frombuffer(block, np.dtype("uint16" if half else spec.dtype.name), reach)
    seen = np.lib.stride_tricks.as_strided(
        flat, shape, [step * size for step in strides], writeable=False
    )
    return (seen.astype(np.uint32) << 16).view(np.float32) if half else seen


def worst_in(array: Any) -> int:
    import numpy as np

    if np.isfinite(array).all():
        return 0
    return NOT_A_NUMBER if np.isnan(array).any() else INFINITE


def count_in(array: Any, kind: int) -> str:
    """The count of elements of a kind, and the first of them, in words."""
    import numpy as np

    hits = np.isnan(array) if kind == NOT_A_NUMBER else np.isinf(array)
    if array.ndim == 0:
        return ""
    first = [int(i) for i in np.argwhere(hits)[0]]
    return f" ({int(hits.sum())} of {array.size} elements, the first at {first})"
