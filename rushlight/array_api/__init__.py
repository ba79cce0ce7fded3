"""The Python array API standard, version 2025.12, strictly: its names, signatures and dtypes only.

Owns: Array and the standard's functions.
Takes: arrays, tensors, Python numbers. Gives: arrays.
Never: mixes kinds of dtypes, or accepts arguments that the standard does not have.
"""

from __future__ import annotations

import math as _math
import sys as _sys

from rushlight.array_api import (
    array as _array,
    documentation as _documentation,
    elementwise as _elementwise,
    fft as fft,
    linalg as linalg,
)
from rushlight.array_api.creation import (
    arange,
    asarray,
    astype,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    can_cast,
    empty,
    empty_like,
    eye,
    finfo,
    from_dlpack,
    full,
    full_like,
    iinfo,
    isdtype,
    linspace,
    meshgrid,
    ones,
    ones_like,
    result_type,
    tril,
    triu,
    zeros,
    zeros_like,
)
from rushlight.array_api.inspection import inspect_namespace as __array_namespace_info__
from rushlight.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from rushlight.array_api.manipulation import (
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unstack,
)
from rushlight.array_api.reductions import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    isin,
    max,
    mean,
    min,
    nonzero,
    prod,
    searchsorted,
    sort,
    std,
    sum,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    var,
    where,
)
from rushlight.core.dtypes import (
    bool_ as bool,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from rushlight.lazy import shown as _shown

__array_api_version__ = "2025.12"

e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi

globals().update(_elementwise.FUNCTIONS)
_elementwise.install()
linalg.install()
_array.provide_namespace(_sys.modules[__name__])
__all__ = ["fft", "linalg"]
__all__ += [  # all but the modules and names from imports
    name
    for name, member in globals().items()
    if not name.startswith("_") and name != "annotations" and type(member) is not type(_sys)
]
_documentation.describe_all({name: globals()[name] for name in __all__}, _elementwise.KINDS)


def __dir__() -> list[str]:
    return _shown(__name__)
