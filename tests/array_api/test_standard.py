"""rushlight.array_api against the standard: names, signatures, and values against NumPy."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import rushlight as rl
import rushlight.array_api as xp
from tests.array_api import standard as standard


def plain(function) -> str:
    """A signature without annotations."""
    found = inspect.signature(function)
    named = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    named = [p for p in named if p.name != "self"]
    return str(inspect.Signature(named))


def to_numpy(array) -> np.ndarray:
    return array._tensor.detach().numpy(force=True)


@pytest.mark.parametrize(
    ("module", "wanted"),
    [(xp, standard.MAIN), (xp.linalg, standard.LINALG), (xp.fft, standard.FFT)],
    ids=["main", "linalg", "fft"],
)
def test_every_function_has_the_signature_of_the_standard(module, wanted):
    wrong = {
        n: plain(getattr(module, n)) for n, s in wanted.items() if plain(getattr(module, n)) != s
    }
    assert not wrong


def test_the_array_the_constants_and_the_types():
    array = xp.zeros((2, 2))
    assert not [n for n in (*standard.METHODS, *standard.ATTRIBUTES) if not hasattr(array, n)]
    public = {n for n in dir(type(array)) if not n.startswith("_")}
    assert public == {*standard.ATTRIBUTES, "to_device"}
    for name in standard.CONSTANTS:
        assert getattr(xp, name) is getattr(math, name, None) or getattr(xp, name) == getattr(
            np, name
        )
    assert set(xp.__array_namespace_info__().dtypes()) == set(standard.DTYPES)
    for name in standard.DTYPES:
        assert xp.zeros(1, dtype=getattr(xp, name)).dtype is getattr(xp, name)
    for name, signature in standard.INFO.items():
        assert plain(getattr(xp.__array_namespace_info__(), name)) == signature
    assert xp.__array_api_version__ == "2025.12"


def test_namespaces():
    assert xp.zeros(2).__array_namespace__() is xp
    assert rl.zeros(2).__array_namespace__(api_version="2025.12") is xp
    with pytest.raises(ValueError, match="2030"):
        rl.zeros(2).__array_namespace__(api_version="2030.12")
    found = xp.__array_namespace_info__()
    assert found.capabilities()["boolean indexing"]
    assert found.default_dtypes()["integral"] is xp.int64
    assert str(found.default_device()) in map(str, found.devices())
    assert set(found.dtypes(kind="complex floating")) == {"complex64", "complex128"}


# ---- elementwise: values and types are NumPy's ----

SAMPLES = {
    "bool": np.array([True, False, True]),
    "uint8": np.array([0, 3, 200], np.uint8),
    "int16": np.array([-3, 2, 7], np.int16),
    "int64": np.array([-3, 2, 7]),
    "float32": np.array([-0.75, 0.5, 0.25], np.float32),
    "float64": np.array([-2.5, 0.0, 3.5]),
    "complex64": np.array([0.5 - 1j, 2j, -0.25 + 0.5j], np.complex64),
}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5])


def agree(name: str, *arrays: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*arrays)
    got = getattr(xp, name)(*[xp.asarray(a) for a in arrays])
    assert got.dtype.name == want.dtype.name, f"{name} of {[a.dtype.name for a in arrays]}"
    tolerance = (
        1e-5
        if want.dtype.itemsize <= 8 and want.dtype.kind in "fc" and want.dtype.name != "float64"
        else 1e-12
    )
    np.testing.assert_allclose(to_numpy(got), want, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", standard.UNARY.split())
def test_functions_of_one(name):
    table = xp.elementwise.UNARY | {"round": ("round", "numeric")}
    kinds = xp.array.KINDS[table[name][1]]
    inside = {
        "acosh": lambda a: a * a + 1,
        "atanh": lambda a: a / 8,
        "acos": lambda a: a / 8,
        "asin": lambda a: a / 8,
    }
    for array in SAMPLES.values():
        if array.dtype.kind in kinds:
            moved = inside.get(name, lambda a: a)(array)
            agree(name, moved if moved.dtype == array.dtype else array)
        else:
            with pytest.raises(TypeError, match=name):
                getattr(xp, name)(xp.asarray(array))
    if "f" in kinds:
        agree(name, SPECIAL)


@pytest.mark.parametrize("name", standard.BINARY.split())
def test_functions_of_two(name):
    kinds = xp.array.KINDS[xp.elementwise.BINARY[name][1]]
    for array in SAMPLES.values():
        other = array[::-1].copy()
        if array.dtype.kind in "iu" and name in (
            "pow",
            "bitwise_left_shift",
            "bitwise_right_shift",
        ):
            array, other = np.abs(array) % 8, np.abs(other) % 3
        if name in ("remainder", "floor_divide"):
            other = (
                np.where(other == 0, 1, other).astype(other.dtype)
                if other.dtype.kind != "b"
                else other
            )
        if array.dtype.kind in kinds:
            agree(name, array, other)
            agree(name, array, other[:1].reshape(()))
            agree(name, array[:, None], other)
        else:
            with pytest.raises(TypeError, match=name):
                getattr(xp, name)(xp.asarray(array), xp.asarray(other))
    if "f" in kinds and name not in ("floor_divide", "remainder"):
        agree(name, SPECIAL[:, None], SPECIAL)


def test_types_meet_as_the_standard_says():
    small, whole = xp.ones(3, dtype=xp.float32), xp.asarray(2.0, dtype=xp.float64)
    assert (small + whole).dtype is xp.float64  # 0-dim, and yet it counts for promotion
    assert (small + 1).dtype is (2.5 * small).dtype is xp.float32
    assert (xp.ones(2, dtype=xp.uint8) + xp.ones(2, dtype=xp.int8)).dtype is xp.int16
    assert (small + xp.ones(3, dtype=xp.complex64)).dtype is xp.complex64
    assert (small + 1j).dtype is (1j * small).dtype is xp.complex64
    assert complex((1j * small)[1]) == 1j
    for bad in (
        lambda: small + xp.ones(3, dtype=xp.int32),
        lambda: xp.ones(3, dtype=xp.int32) + 1.5,
        lambda: xp.ones(3, dtype=xp.int32) + True,
        lambda: xp.ones(3, dtype=xp.bool) + xp.ones(3, dtype=xp.bool),
        lambda: xp.ones(3, dtype=xp.int32) + 1j,
        lambda: small < 1j,
        lambda: xp.add(1, 2),
    ):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(OverflowError):
        xp.ones(2, dtype=xp.int8) + 1000
    assert xp.result_type(xp.int8, xp.uint8, 3) is xp.int16
    assert xp.result_type(small, 1j) is xp.complex64
    assert xp.can_cast(xp.int8, xp.int16)
    assert not xp.can_cast(xp.int16, xp.int8)
    assert not xp.can_cast(xp.int16, xp.float64)
    assert xp.isdtype(xp.uint8, ("signed integer", "unsigned integer"))
    assert not xp.isdtype(xp.bool, "numeric")
    with pytest.raises(ValueError, match="kind"):
        xp.isdtype(xp.bool, "text")
    assert xp.finfo(xp.complex64).dtype is xp.float32
    assert xp.finfo(xp.float64).eps == np.finfo(np.float64).eps
    assert xp.iinfo(xp.uint8).max == 255


def test_operators():
    a = xp.asarray([1.0, 2.0, 4.0])
    b = a
    b += 1
    b *= xp.asarray([2.0, 2.0, 2.0])
    assert b is a
    assert to_numpy(a).tolist() == [4, 6, 10]
    assert to_numpy(10 - a).tolist() == [6, 4, 0]
    assert to_numpy(~xp.asarray([True, False])).tolist() == [False, True]
    assert bool(xp.all((a > 5) == xp.asarray([False, True, True])))
    with pytest.raises(TypeError):
        a += xp.ones(3, dtype=xp.complex64)
    with pytest.raises(TypeError):
        a + "text"
    m = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    m @= m
    assert to_numpy(m).tolist() == [[7, 10], [15, 22]]
    assert float(xp.asarray(2.5)) == 2.5
    assert [10, 20, 30][xp.asarray(1)] == 20
    for bad in (lambda: float(a), lambda: int(xp.asarray(1j)), lambda: [1][xp.asarray(0.0)]):
        with pytest.raises(TypeError):
            bad()


KEYS = [
    np.s_[::-1],
    np.s_[1, ::-2],
    np.s_[..., ::-1],
    np.s_[:, None, 3:0:-1],
    np.s_[None, 1:, 2],
    np.s_[0:0:-1],
    np.s_[::-1, ::-1],
    np.s_[-1],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_keys_with_slices_backwards(key):
    want = np.arange(12.0).reshape(3, 4)
    got = xp.asarray(want.copy())
    np.testing.assert_array_equal(to_numpy(got[key]), want[key])
    new = np.arange(want[key].size, dtype=float).reshape(want[key].shape) + 50
    got[key] = xp.asarray(new)
    want[key] = new
    np.testing.assert_array_equal(to_numpy(got), want)
    got[key] = 7.0
    want[key] = 7.0
    np.testing.assert_array_equal(to_numpy(got), want)


def test_keys_with_arrays():
    want = np.arange(12).reshape(3, 4)
    got = xp.asarray(want.copy())
    np.testing.assert_array_equal(to_numpy(got[got > 5]), want[want > 5])
    at = np.array([2, 0, 2])
    np.testing.assert_array_equal(to_numpy(got[xp.asarray(at), xp.asarray(at)]), want[at, at])
    got[got > 8] = 0
    assert int(xp.max(got)) == 8
    with pytest.raises(TypeError, match="mix"):
        got[0, 0] = xp.asarray(1.5)
    with pytest.raises(TypeError, match="stored"):
        xp.zeros(2, dtype=xp.int8)[0] = xp.asarray(3)
    with pytest.raises(IndexError, match="slice"):
        got[::-1, xp.asarray(at)]
