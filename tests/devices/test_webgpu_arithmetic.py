"""Arithmetic on the WebGPU device against NumPy: special values, rounding, int64, elementary
functions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rushlight.core import dtypes as t
from rushlight.core.dtypes import DType, compute_type
from rushlight.scalar import build as s
from rushlight.scalar.elementary import BOUNDS
from rushlight.scalar.ir import arg, const
from tests.devices import webgpu_arrays
from tests.devices.webgpu_arrays import NUMPY, Bench, need, same, sample

bench = webgpu_arrays.bench  # a fixture is found by its name here

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3.4e38, 1e-30], "f4")


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_nan_and_infinity_survive(bench: Bench, wide: bool) -> None:
    dtype = t.float64 if wide else t.float32
    need(bench, dtype)
    x, y = (g.ravel().astype(dtype.name) for g in np.meshgrid(SPECIAL, SPECIAL))
    a, b = arg(0, dtype), arg(1, dtype)
    tests = {
        np.equal: a.eq(b),
        np.not_equal: a.ne(b),
        np.less: a < b,
        np.less_equal: a <= b,
        np.greater: a > b,
        np.greater_equal: a >= b,
    }
    for function, body in tests.items():
        assert np.array_equal(bench.flat(body, t.bool_, x, y), function(x, y)), function
    assert np.array_equal(bench.flat(s.isnan(a), t.bool_, x), np.isnan(x))
    assert np.array_equal(bench.flat(s.cast(a, t.bool_), t.bool_, x), x != 0)
    assert np.array_equal(
        bench.flat(s.maximum(a, b), dtype, x, y), np.maximum(x, y), equal_nan=True
    )
    assert np.array_equal(
        bench.flat(s.minimum(a, b), dtype, x, y), np.minimum(x, y), equal_nan=True
    )
    chosen = bench.flat(s.where(a < b, a, const(float("nan"), dtype)), dtype, x, y)
    assert np.array_equal(chosen, np.where(x < y, x, np.nan), equal_nan=True)


def test_subnormals_are_kept_or_zero(bench: Bench) -> None:
    x = np.array([1e-40, -1e-40, 2.0**-149, 2.0**-126, -(2.0**-126), 1.0], "f4")
    a = arg(0, t.float32)
    assert same(bench.flat(a, t.float32, x), x)
    assert same(bench.flat(a + a, t.float32, x), x + x)
    assert same(bench.flat(s.maximum(a, -a), t.float32, x), np.abs(x))
    assert not bench.flat(s.isnan(a), t.bool_, x).any()
    for got, kept in (
        (bench.flat(a > 0, t.bool_, x), x > 0),
        (bench.flat(a.eq(0), t.bool_, x), x == 0),
    ):
        assert np.array_equal(got[3:], kept[3:])


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_rounding_and_remainder(bench: Bench, wide: bool) -> None:
    dtype = t.float64 if wide else t.float32
    need(bench, dtype)
    values = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e6 + 0.5, -7.25, 3.0, 1e30], dtype.name)
    a, b = arg(0, dtype), arg(1, dtype)
    for function, body in (
        (np.floor, s.floor(a)),
        (np.ceil, s.ceil(a)),
        (np.rint, s.round_even(a)),
        (np.trunc, s.trunc(a)),
    ):
        assert np.array_equal(bench.flat(body, dtype, values), function(values)), function
    x, y = (g.ravel() for g in np.meshgrid(np.append(SPECIAL.astype(dtype.name), values), values))
    with np.errstate(all="ignore"):
        assert np.array_equal(
            bench.flat(s.remainder_c(a, b), dtype, x, y), np.fmod(x, y), equal_nan=True
        )


@pytest.mark.parametrize("dtype", [t.float16, t.bfloat16], ids=lambda d: d.name)
def test_halves_round_to_even_exactly(bench: Bench, dtype: DType) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(NUMPY[dtype.name])
    wide = every.astype("f4")
    assert same(bench.flat(arg(0, t.float32), t.float32, every), wide)
    kept = bench.flat(arg(0, t.float32), dtype, wide)
    assert same(kept, wide)
    bits = wide.view(np.uint32)
    between = np.concatenate(
        [(bits + d).astype(np.uint32) for d in (0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)]
    )
    x = between.view("f4")
    with np.errstate(all="ignore"):
        want = x.astype(NUMPY[dtype.name]).astype("f4")
    # A bfloat16 just above the subnormals may come from a subnormal that was flushed to 0.
    got = bench.flat(arg(0, t.float32), dtype, x).astype("f4")
    assert same(np.where((np.abs(x) < 2.0**-126) & (got == 0), want, got), want)


BIG = np.array(
    [
        0,
        1,
        -1,
        7,
        -13,
        2**31,
        -(2**31),
        2**32 + 5,
        -(2**32) - 5,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        123456789012345,
    ],
    "i8",
)


def test_int64_arithmetic(bench: Bench) -> None:
    x, y = (g.ravel() for g in np.meshgrid(BIG, BIG))
    a, b = arg(0, t.int64), arg(1, t.int64)
    counts = np.abs(y % 64)
    with np.errstate(all="ignore"):
        quotient = np.where(
            y == 0,
            0,
            np.sign(x)
            * np.sign(y)
            * (np.abs(x.astype(object)) // np.maximum(np.abs(y.astype(object)), 1)),
        )
        quotient = np.array([(int(q) + 2**63) % 2**64 - 2**63 for q in quotient], "i8")
        wants = [
            (a + b, x + y),
            (a - b, x - y),
            (a * b, x * y),
            (a / b, quotient),
            (s.remainder_c(a, b), np.where(y == 0, 0, x - quotient * y)),
            (s.minimum(a, b), np.minimum(x, y)),
            (s.maximum(a, b), np.maximum(x, y)),
            (-a, -x),
            (s.absolute(a), np.abs(x)),
            (a & b, x & y),
            (a | b, x | y),
            (a ^ b, x ^ y),
            (~a, ~x),
            (s.fma(a, b, a), x * y + x),
        ]
        for body, want in wants:
            assert np.array_equal(bench.flat(body, t.int64, x, y), want), body
        assert np.array_equal(bench.flat(a << b, t.int64, x, counts), x << counts)
        assert np.array_equal(bench.flat(a >> b, t.int64, x, counts), x >> counts)
    for body, truth in ((a.eq(b), x == y), (a.ne(b), x != y), (a < b, x < y), (a <= b, x <= y)):
        assert np.array_equal(bench.flat(body, t.bool_, x, y), truth), body


def test_int64_casts(bench: Bench) -> None:
    a = arg(0, t.int64)
    edges = np.array(
        [
            2**24 + 1,
            2**24 + 3,
            2**40 + 2**16,
            2**40 + 2**16 + 1,
            2**40 + 3 * 2**16,
            -(2**55) - 2**31,
        ],
        "i8",
    )
    x = np.concatenate([BIG, edges, -edges])
    assert np.array_equal(bench.flat(s.cast(a, t.float32), t.float32, x), x.astype("f4"))
    assert np.array_equal(bench.flat(s.cast(a, t.int32), t.int32, x), x.astype("i4"))
    assert np.array_equal(bench.flat(s.cast(a, t.bool_), t.bool_, x), x != 0)
    low = s.bits_to(s.cast(a, t.uint32), t.int32)
    assert np.array_equal(bench.flat(low, t.int32, x), x.astype("i4"))
    f = np.array(
        [0.5, -0.5, 1.0, -1.99, 2.0**31, -(2.0**40) * 1.5, 2.0**62, -(2.0**63), 8388608.5, 1e-30],
        "f4",
    )
    assert np.array_equal(
        bench.flat(s.cast(arg(0, t.float32), t.int64), t.int64, f), f.astype("i8")
    )
    unsigned = s.cast(s.bits_to(arg(0, t.int32), t.uint32), t.int64)
    i = np.array([-1, 5, -(2**31)], "i4")
    assert np.array_equal(bench.flat(unsigned, t.int64, i), i.view("u4").astype("i8"))


def test_uint64_arithmetic(bench: Bench) -> None:
    values = BIG.view("u8")
    x, y = (g.ravel() for g in np.meshgrid(values, values))
    a, b = arg(0, t.uint64), arg(1, t.uint64)
    counts = y % np.uint64(64)
    safe = np.maximum(y, np.uint64(1))
    wants = [
        (a + b, x + y),
        (a * b, x * y),
        (a / b, np.where(y == 0, 0, x // safe)),
        (s.remainder_c(a, b), np.where(y == 0, 0, x % safe)),
        (s.minimum(a, b), np.minimum(x, y)),
        (s.maximum(a, b), np.maximum(x, y)),
        (-a, np.uint64(0) - x),
        (~a, ~x),
    ]
    for body, want in wants:
        assert np.array_equal(bench.flat(body, t.uint64, x, y), want), body
    assert np.array_equal(bench.flat(a << b, t.uint64, x, counts), x << counts)
    assert np.array_equal(bench.flat(a >> b, t.uint64, x, counts), x >> counts)
    assert np.array_equal(bench.flat(a >> 40, t.uint64, x), x >> np.uint64(40))
    for body, truth in ((a.eq(b), x == y), (a < b, x < y), (a <= b, x <= y)):
        assert np.array_equal(bench.flat(body, t.bool_, x, y), truth), body


def test_uint64_casts(bench: Bench) -> None:
    a = arg(0, t.uint64)
    edges = [
        2**24 + 1,
        2**63,
        2**63 + 2**39,
        2**63 + 2**39 + 1,
        2**63 + 3 * 2**39,
        2**64 - 1,
        2**64 - 2**39,
        2**40 + 2**16,
    ]
    x = np.concatenate([BIG.view("u8"), np.array(edges, "u8")])
    assert np.array_equal(bench.flat(s.cast(a, t.float32), t.float32, x), x.astype("f4"))
    for to in (t.int32, t.uint32, t.int64, t.uint8):
        assert np.array_equal(bench.flat(s.cast(a, compute_type(to)), to, x), x.astype(to.name)), to
    assert np.array_equal(bench.flat(s.cast(a, t.bool_), t.bool_, x), x != 0)
    f = np.array(
        [0.5, 1.0, 1.99, 2.0**31, 2.0**62, 2.0**63, 1.75 * 2.0**63, 8388608.5, 1e-30], "f4"
    )
    assert np.array_equal(
        bench.flat(s.cast(arg(0, t.float32), t.uint64), t.uint64, f), f.astype("u8")
    )
    for source in (t.int32, t.uint32, t.int64):
        i = np.array([-1, 5, -(2**31), 2**31 - 1]).astype(source.name)
        assert np.array_equal(
            bench.flat(s.cast(arg(0, source), t.uint64), t.uint64, i), i.astype("u8")
        ), source


def test_int32_division_and_shifts(bench: Bench) -> None:
    values = np.array([0, 1, -1, 7, -13, 2**31 - 1, -(2**31)], "i4")
    x, y = (g.ravel() for g in np.meshgrid(values, values))
    a, b = arg(0, t.int32), arg(1, t.int32)
    exact = [
        0 if q == 0 else abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)
        for p, q in zip(x, y, strict=True)
    ]
    quotient = np.array([(q + 2**31) % 2**32 - 2**31 for q in exact], "i4")
    with np.errstate(all="ignore"):
        assert np.array_equal(bench.flat(a / b, t.int32, x, y), quotient)
        assert np.array_equal(
            bench.flat(s.remainder_c(a, b), t.int32, x, y), np.where(y == 0, 0, x - quotient * y)
        )
        assert np.array_equal(bench.flat(a >> b, t.int32, x, y), x >> (y & 31))
    u, v = s.bits_to(a, t.uint32), s.bits_to(b, t.uint32)
    high = (
        (x.view("u4").astype("u8") * y.view("u4").astype("u8") >> np.uint64(32))
        .astype("u4")
        .view("i4")
    )
    assert np.array_equal(bench.flat(s.bits_to(s.mulhi(u, v), t.int32), t.int32, x, y), high)


ELEMENTARY = {
    "exp": (s.exp, np.exp, (-80, 80)),
    "log": (s.log, np.log, (1e-30, 1e30)),
    "sin": (s.sin, np.sin, (-100, 100)),
    "cos": (s.cos, np.cos, (-100, 100)),
    "tanh": (s.tanh, np.tanh, (-9, 9)),
    "sqrt": (s.sqrt, np.sqrt, (0, 1e9)),
    "erf": (s.erf, np.vectorize(math.erf), (-4, 4)),
}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions(bench: Bench, name: str) -> None:
    scalar, numpy_function, (low, high) = ELEMENTARY[name]
    x = np.random.default_rng(0).uniform(low, high, 5000).astype("f4")
    got = bench.flat(scalar(arg(0, t.float32)), t.float32, x)
    want = numpy_function(x.astype("f8"))
    ulps = np.abs(got.astype("f8") - want) / np.spacing(
        np.maximum(np.abs(want), 1e-38).astype("f4")
    )
    assert ulps.max() <= BOUNDS.get(name, (2.5,))[0], ulps.max()
    edge = np.array([np.nan, np.inf, -np.inf, 0.0], "f4")
    with np.errstate(all="ignore"):
        assert np.array_equal(
            bench.flat(scalar(arg(0, t.float32)), t.float32, edge),
            numpy_function(edge),
            equal_nan=True,
        )


def test_compensated_sums_are_not_simplified(bench: Bench) -> None:
    x, y = sample(t.float32, 500, 1) * np.float32(100), sample(t.float32, 500, 2)
    a, b = arg(0, t.float32), arg(1, t.float32)
    total = a + b
    assert np.array_equal(bench.flat(b - (total - a), t.float32, x, y), y - ((x + y) - x))
    product = s.fma(a, b, -(a * b))
    wide = (x.astype("f8") * y - (x * y)).astype("f4")
    np.testing.assert_allclose(bench.flat(product, t.float32, x, y), wide, rtol=1e-5)


def test_power(bench: Bench) -> None:
    x = np.random.default_rng(0).uniform(0.1, 10, 2000).astype("f4")
    y = np.random.default_rng(1).uniform(-9, 9, 2000).astype("f4")
    got = bench.flat(s.power(arg(0, t.float32), arg(1, t.float32)), t.float32, x, y)
    np.testing.assert_allclose(got, x.astype("f8") ** y, rtol=3 * 2.0**-24)
