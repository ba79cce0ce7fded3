"""The array API standard 2025.12 as data: its functions and their parameters, and its array's
members.
"""

from __future__ import annotations

ONE = "(x, /)"
TWO = "(x1, x2, /)"
OVER = "(x, /, *, axis=None, keepdims=False)"
NEW = "(shape, *, dtype=None, device=None)"
LIKE = "(x, /, *, dtype=None, device=None)"

UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor
imag isfinite isinf isnan log log1p log2 log10 logical_not negative positive real reciprocal round
sign signbit sin sinh square sqrt tan tanh trunc"""
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and
logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract"""

MAIN = {
    **dict.fromkeys(UNARY.split(), ONE),
    **dict.fromkeys(BINARY.split(), TWO),
    "clip": "(x, /, min=None, max=None)",
    # creation
    "arange": "(start, /, stop=None, step=1, *, dtype=None, device=None)",
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "empty": NEW,
    "empty_like": LIKE,
    "eye": "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)",
    "from_dlpack": "(x, /, *, device=None, copy=None)",
    "full": "(shape, fill_value, *, dtype=None, device=None)",
    "full_like": "(x, /, fill_value, *, dtype=None, device=None)",
    "linspace": "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)",
    "meshgrid": "(*arrays, indexing='xy')",
    "ones": NEW,
    "ones_like": LIKE,
    "tril": "(x, /, *, k=0)",
    "triu": "(x, /, *, k=0)",
    "zeros": NEW,
    "zeros_like": LIKE,
    # types
    "astype": "(x, dtype, /, *, copy=True, device=None)",
    "can_cast": "(from_, to, /)",
    "finfo": "(type, /)",
    "iinfo": "(type, /)",
    "isdtype": "(dtype, kind)",
    "result_type": "(*arrays_and_dtypes)",
    # shapes
    "broadcast_arrays": "(*arrays)",
    "broadcast_shapes": "(*shapes)",
    "isin": "(x1, x2, /, *, invert=False)",
    "broadcast_to": "(x, /, shape)",
    "concat": "(arrays, /, *, axis=0)",
    "expand_dims": "(x, /, axis=0)",
    "flip": "(x, /, *, axis=None)",
    "moveaxis": "(x, source, destination, /)",
    "permute_dims": "(x, /, axes)",
    "repeat": "(x, repeats, /, *, axis=None)",
    "reshape": "(x, /, shape, *, copy=None)",
    "roll": "(x, /, shift, *, axis=None)",
    "squeeze": "(x, /, axis)",
    "stack": "(arrays, /, *, axis=0)",
    "tile": "(x, repetitions, /)",
    "unstack": "(x, /, *, axis=0)",
    # indexing and searching
    "take": "(x, indices, /, *, axis=None)",
    "take_along_axis": "(x, indices, /, *, axis=-1)",
    "argmax": OVER,
    "argmin": OVER,
    "count_nonzero": OVER,
    "nonzero": ONE,
    "searchsorted": "(x1, x2, /, *, side='left', sorter=None)",
    "where": "(condition, x1, x2, /)",
    # sets and orders
    "unique_all": ONE,
    "unique_counts": ONE,
    "unique_inverse": ONE,
    "unique_values": ONE,
    "argsort": "(x, /, *, axis=-1, descending=False, stable=True)",
    "sort": "(x, /, *, axis=-1, descending=False, stable=True)",
    # statistics
    "cumulative_prod": "(x, /, *, axis=None, dtype=None, include_initial=False)",
    "cumulative_sum": "(x, /, *, axis=None, dtype=None, include_initial=False)",
    "max": OVER,
    "mean": OVER,
    "min": OVER,
    "prod": "(x, /, *, axis=None, dtype=None, keepdims=False)",
    "std": "(x, /, *, axis=None, correction=0.0, keepdims=False)",
    "sum": "(x, /, *, axis=None, dtype=None, keepdims=False)",
    "var": "(x, /, *, axis=None, correction=0.0, keepdims=False)",
    # utility
    "all": OVER,
    "any": OVER,
    "diff": "(x, /, *, axis=-1, n=1, prepend=None, append=None)",
    # linear algebra
    "matmul": TWO,
    "matrix_transpose": ONE,
    "tensordot": "(x1, x2, /, *, axes=2)",
    "vecdot": "(x1, x2, /, *, axis=-1)",
    "__array_namespace_info__": "()",
}

LINALG = {
    "cholesky": "(x, /, *, upper=False)",
    "cross": "(x1, x2, /, *, axis=-1)",
    "det": ONE,
    "diagonal": "(x, /, *, offset=0)",
    "eig": ONE,
    "eigh": ONE,
    "eigvals": ONE,
    "eigvalsh": ONE,
    "inv": ONE,
    "matmul": TWO,
    "matrix_norm": "(x, /, *, keepdims=False, ord='fro')",
    "matrix_power": "(x, n, /)",
    "matrix_rank": "(x, /, *, rtol=None)",
    "matrix_transpose": ONE,
    "outer": TWO,
    "pinv": "(x, /, *, rtol=None)",
    "qr": "(x, /, *, mode='reduced')",
    "slogdet": ONE,
    "solve": TWO,
    "svd": "(x, /, *, full_matrices=True)",
    "svdvals": ONE,
    "tensordot": "(x1, x2, /, *, axes=2)",
    "trace": "(x, /, *, offset=0, dtype=None)",
    "vecdot": "(x1, x2, /, *, axis=-1)",
    "vector_norm": "(x, /, *, axis=None, keepdims=False, ord=2)",
}

_LINE = "(x, /, *, n=None, axis=-1, norm='backward')"
_PLANE = "(x, /, *, s=None, axes=None, norm='backward')"
_STEPS = "(n, /, *, d=1.0, dtype=None, device=None)"
FFT = {
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"), _LINE),
    **dict.fromkeys(("fftn", "ifftn", "rfftn", "irfftn"), _PLANE),
    **dict.fromkeys(("fftfreq", "rfftfreq"), _STEPS),
    **dict.fromkeys(("fftshift", "ifftshift"), "(x, /, *, axes=None)"),
}

INFO = {
    "capabilities": "()",
    "default_device": "()",
    "default_dtypes": "(*, device=None)",
    "devices": "()",
    "dtypes": "(*, device=None, kind=None)",
}

_SYMBOLS = [
    "add",
    "and",
    "floordiv",
    "lshift",
    "matmul",
    "mod",
    "mul",
    "or",
    "pow",
    "rshift",
    "sub",
    "truediv",
    "xor",
]
METHODS = [
    *(f"__{place}{symbol}__" for symbol in _SYMBOLS for place in ("", "r", "i")),
    *(
        f"__{symbol}__"
        for symbol in ["abs", "eq", "ge", "gt", "invert", "le", "lt", "ne", "neg", "pos"]
    ),
    *("__bool__", "__complex__", "__float__", "__index__", "__int__", "__getitem__", "__setitem__"),
    *("__array_namespace__", "__dlpack__", "__dlpack_device__", "to_device"),
]
ATTRIBUTES = ["T", "device", "dtype", "mT", "ndim", "shape", "size"]
CONSTANTS = ["e", "inf", "nan", "newaxis", "pi"]
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float32", "float64", "complex64", "complex128"]
