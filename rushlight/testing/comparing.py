"""`assert_close`: whether two values agree within tolerances, and if not, where they differ most.

Values are split into pairs first (an item of a sequence, a value of a mapping); structure is
compared before any element. A pair is of Nones, of booleans, of numbers, or of tensors and
arguments of `as_tensor`.
"""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor, as_tensor

Message = str | Callable[[str], str] | None
Tolerances = tuple[float, float]  # relative, absolute

# The tolerance of each dtype, as in PyTorch; every other dtype is compared exactly.
DEFAULT: dict[DType, Tolerances] = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
OLDER: dict[DType, Tolerances] = {
    dtypes.float16: (1e-3, 1e-3),
    dtypes.float32: (1e-4, 1e-5),
    dtypes.float64: (1e-5, 1e-8),
}


class Rules(NamedTuple):
    """Two values and the tolerances."""

    tolerances: Tolerances | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool
    allow_subclasses: bool

    def of(self, *kinds: DType) -> Tolerances:
        """The given tolerances, or the larger of the dtypes' own."""
        if self.tolerances is not None:
            return self.tolerances
        own = [DEFAULT.get(kind, (0.0, 0.0)) for kind in kinds]
        return max(r for r, _ in own), max(a for _, a in own)


class Mismatch(Exception):
    """Two values differ; the message says how."""


class Pair(NamedTuple):
    """Two values to compare, and their path in the structure."""

    place: str
    comparison: Callable[[], None]

    def compare(self) -> None:
        try:
            self.comparison()
        except Mismatch as error:
            raise _at(self.place, str(error)) from None


def _at(place: str, text: str) -> Mismatch:
    return Mismatch(f"{text}\n\nThe failure occurred for item {place}" if place else text)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise an AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    That holds for every element of every pair. Default tolerances are those of the dtypes. `msg`
    replaces the message, or is a function of it.

    Args:
        actual: Tensors, numbers, or containers of them.
        expected: What they should be.
        allow_subclasses (bool): Let the classes of two tensors differ.
        rtol (number): The relative tolerance; None for that of the dtypes.
        atol (number): The absolute tolerance; None for that of the dtypes.
        equal_nan (bool): Count two NaNs as equal.
        check_device (bool): The devices must be equal.
        check_dtype (bool): The dtypes must be equal.
        check_layout (bool): The layouts must be equal.
        check_stride (bool): The strides must be equal.
        msg (str or function): The message of the error.
    """
    if (rtol is None) is not (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    given = None if rtol is None or atol is None else (rtol, atol)
    rules = Rules(
        given, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses
    )
    try:
        for pair in list(_pairs(actual, expected, rules)):  # the whole structure before any element
            pair.compare()
        return
    except Mismatch as error:
        text = str(error)
    raise AssertionError(text if msg is None else msg if isinstance(msg, str) else msg(text))


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """PyTorch's older comparison: dtypes are not compared, NaNs are equal, tolerances are wider.

    Args:
        actual: Tensors, or what can become one.
        expected: What they should be.
        rtol (number): The relative tolerance; None for that of the dtype.
        atol (number): The absolute tolerance; None for that of the dtype.
        equal_nan (bool): Count two NaNs as equal.
        msg (str): The message of the error.
    """
    warnings.warn(
        "assert_allclose: PyTorch has given this function up in favour of assert_close; use that",
        FutureWarning,
        stacklevel=2,
    )
    first = actual if isinstance(actual, Tensor) else as_tensor(actual)
    second = expected if isinstance(expected, Tensor) else as_tensor(expected, dtype=first.dtype)
    if rtol is None and atol is None:
        own = [OLDER.get(kind, (0.0, 0.0)) for kind in (first.dtype, second.dtype)]
        rtol, atol = max(r for r, _ in own), max(a for _, a in own)
    assert_close(
        first, second, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None
    )


# ---- structure ----


def _pairs(actual: Any, expected: Any, rules: Rules, place: str = "") -> Iterator[Pair]:
    if (
        _are(Sequence, actual, expected)
        and not isinstance(actual, str)
        and not isinstance(expected, str)
    ):
        if len(actual) != len(expected):
            raise _at(
                place, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            )
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(a, b, rules, f"{place}[{i}]")
    elif _are(Mapping, actual, expected):
        missing, more = expected.keys() - actual.keys(), actual.keys() - expected.keys()
        if missing or more:
            text = "The keys of the mappings do not match:"
            text += (
                f"\nMissing keys in the actual mapping: {sorted(missing, key=str)}"
                if missing
                else ""
            )
            text += (
                f"\nAdditional keys in the actual mapping: {sorted(more, key=str)}" if more else ""
            )
            raise _at(place, text)
        for key in sorted(expected.keys(), key=str):
            yield from _pairs(actual[key], expected[key], rules, f"{place}[{key!r}]")
    else:
        yield Pair(place, _comparison(actual, expected, rules))


def _are(kind: type, *values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)


def _comparison(actual: Any, expected: Any, rules: Rules) -> Callable[[], None]:
    """The comparison of two values that have no items."""
    if actual is None or expected is None:
        return lambda: _same_none(actual, expected)
    booleans = [_is_boolean(value) for value in (actual, expected)]
    if all(booleans):
        return lambda: _same_boolean(bool(actual), bool(expected))
    if all(_is_number(value) or _is_boolean(value) for value in (actual, expected)):
        return lambda: _close_numbers(actual, expected, rules)
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (rules.allow_subclasses or type(actual) is type(expected)):
        try:
            tensors = [
                value if isinstance(value, Tensor) else _from_array(value)
                for value in (actual, expected)
            ]
        except TypeError:
            pass
        else:
            return lambda: _close_tensors(tensors[0], tensors[1], rules)
    raise TypeError(
        f"assert_close: values of {type(actual)} and {type(expected)} cannot be compared; it takes "
        "tensors, arrays and numbers of one kind, None, and sequences and mappings of them"
    )


def _from_array(value: Any) -> Tensor:
    if not hasattr(value, "__array_interface__"):
        raise TypeError(type(value).__name__)
    return as_tensor(value)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool) or (
        type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    )


def _is_number(value: Any) -> bool:
    of_numpy = (
        type(value).__module__ == "numpy"
        and hasattr(value, "item")
        and not hasattr(value, "__len__")
    )
    return isinstance(value, (int, float, complex)) or of_numpy


# ---- values other than tensors ----


def _same_none(actual: Any, expected: Any) -> None:
    if actual is not expected:
        raise Mismatch(f"None mismatch: {actual} is not {expected}")


def _same_boolean(actual: bool, expected: bool) -> None:
    if actual is not expected:
        raise Mismatch(f"Booleans mismatch: {actual} is not {expected}")


_KINDS: dict[type, DType] = {
    bool: dtypes.bool_,
    int: dtypes.int64,
    float: dtypes.float64,
    complex: dtypes.complex128,
}


def _close_numbers(actual: Any, expected: Any, rules: Rules) -> None:
    first, second = (
        value if type(value) in _KINDS else value.item() for value in (actual, expected)
    )
    if rules.check_dtype and type(first) is not type(second):
        raise Mismatch(f"The (d)types do not match: {type(first)} != {type(second)}.")
    _scalars(
        "Scalars",
        first,
        second,
        rules.of(_KINDS[type(first)], _KINDS[type(second)]),
        rules.equal_nan,
    )


def _scalars(
    what: str, actual: Any, expected: Any, tolerances: Tolerances, equal_nan: bool
) -> None:
    rtol, atol = tolerances
    if actual == expected or (equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return
    apart = abs(actual - expected)
    if cmath.isfinite(apart) and apart <= atol + rtol * abs(expected):
        return
    relative = apart / abs(expected) if expected != 0 else float("inf")
    exact = rtol == atol == 0
    raise Mismatch(
        f"{what} are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}."
        f"\nAbsolute difference: {apart}{_allowed(atol, exact)}\nRelative difference: "
        f"{relative}{_allowed(rtol, exact)}"
    )


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


# ---- tensors ----


def _close_tensors(actual: Any, expected: Any, rules: Rules) -> None:
    _compare_attributes(actual, expected, rules)
    tolerances = rules.of(actual.dtype, expected.dtype)
    with no_grad():
        a, b = actual.detach(), expected.detach()
        if a.device != b.device:
            a, b = a.cpu(), b.cpu()
        if a.dtype is not b.dtype:
            common = dtypes.promote(a.dtype, b.dtype)
            a, b = a.to(common), b.to(common)
        if a.layout is not b.layout:
            a, b = a.to_dense(), b.to_dense()
        if a.layout is creation.strided:
            _close_elements("Tensor-likes", a, b, tolerances, rules.equal_nan)
        elif a.layout is creation.sparse_csr:
            _close_rows(a, b, tolerances, rules.equal_nan)
        else:
            _close_sparse(a.coalesce(), b.coalesce(), tolerances, rules.equal_nan)


def _compare_attributes(actual: Any, expected: Any, rules: Rules) -> None:
    def require_same(name: str, first: Any, second: Any) -> None:
        if first != second:
            raise Mismatch(f"The values for attribute '{name}' do not match: {first} != {second}.")

    require_same("shape", actual.shape, expected.shape)
    if rules.check_layout:
        require_same("layout", actual.layout, expected.layout)
    if rules.check_stride and actual.layout is expected.layout is creation.strided:
        require_same("stride()", actual.stride(), expected.stride())
    if rules.check_device:
        require_same("device", actual.device, expected.device)
    if rules.check_dtype:
        require_same("dtype", actual.dtype, expected.dtype)


def _close_sparse(actual: Any, expected: Any, tolerances: Tolerances, equal_nan: bool) -> None:
    counts = actual._nnz(), expected._nnz()
    if counts[0] != counts[1]:
        raise Mismatch(
            f"The number of specified values in sparse COO tensors does not match: {counts[0]} != "
            f"{counts[1]}"
        )
    _close_elements("Sparse COO indices", actual.indices(), expected.indices(), (0.0, 0.0), False)
    _close_elements("Sparse COO values", actual.values(), expected.values(), tolerances, equal_nan)


def _close_rows(actual: Any, expected: Any, tolerances: Tolerances, equal_nan: bool) -> None:
    counts = actual._nnz(), expected._nnz()
    if counts[0] != counts[1]:
        raise Mismatch(
            f"The number of specified values in sparse CSR tensors does not match: {counts[0]} != "
            f"{counts[1]}"
        )
    for part in ("crow_indices", "col_indices"):
        _close_elements(
            f"Sparse CSR {part}",
            getattr(actual, part)(),
            getattr(expected, part)(),
            (0.0, 0.0),
            False,
        )
    _close_elements("Sparse CSR values", actual.values(), expected.values(), tolerances, equal_nan)


def _close_elements(
    what: str, actual: Any, expected: Any, tolerances: Tolerances, equal_nan: bool
) -> None:
    rtol, atol = tolerances
    exact = rtol == atol == 0
    inexact = actual.dtype.kind in "fc"
    if not actual.ndim and what == "Tensor-likes":
        _scalars("Scalars", actual.item(), expected.item(), tolerances, equal_nan)
        return
    if exact and not inexact:
        same = actual == expected
    else:
        same = REGISTRY["isclose"].function(
            actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan
        )
    if bool(same.all()):
        return
    if not inexact:  # differences of small dtypes would wrap around
        actual, expected = actual.to(dtypes.int64), expected.to(dtypes.int64)
    apart = (actual - expected).abs().masked_fill(same, 0)
    relative = (apart / expected.abs()).masked_fill(same, 0)
    wrong = int((~same).sum())
    raise Mismatch(
        f"{what} are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {same.numel()} ({wrong / same.numel():.1%})\nGreatest "
        f"absolute difference: {_greatest(apart)}{_allowed(atol, exact)}\nGreatest relative "
        f"difference: {_greatest(relative)}{_allowed(rtol, exact)}"
    )


def _greatest(differences: Any) -> str:
    flat = differences.reshape(-1)
    at = int(flat.argmax())
    value, place = flat[at].item(), []
    for n in reversed(differences.shape):
        at, here = divmod(at, n)
        place.append(here)
    return f"{value} at index {tuple(reversed(place))}"
