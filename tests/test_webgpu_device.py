"""The WebGPU device against NumPy: every kernel kind and element type, with int64 native and emulated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rushlight.core import dtypes as t
from rushlight.core.config import required_devices
from rushlight.core.dtypes import DType, compute_type
from rushlight.core.errors import DeviceError, DeviceUnavailable, OutOfMemoryError
from rushlight.devices.webgpu import adapter, open_device
from rushlight.devices.webgpu.stream import split
from rushlight.kernel.shapes import Contract, Gather, Kernel, Map, Reduce, Rowwise, ScatterAdd
from rushlight.scalar import build as s
from rushlight.scalar.elementary import BOUNDS
from rushlight.scalar.ir import Expr, arg, const, extent, index, param, row

Array = np.ndarray[Any, Any]
NUMPY = {d.name: np.dtype(d.name) for d in t.ALL if d.name != "bfloat16"} | {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
TINY = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}


class Bench:
    """A device with arrays instead of addresses."""

    def __init__(self, without: tuple[str, ...]) -> None:
        self.device = open_device(without)

    def put(self, array: Array, shift: int = 0) -> int:
        """The array's address, `shift` elements into a block of its own that is full of ones."""
        room = (array.size + shift) * array.itemsize + 16
        address = self.device.alloc(room)
        self.device.copy_in(address, memoryview(b"\xff" * room))
        place = address + shift * array.itemsize
        if array.nbytes:
            self.device.copy_in(place, memoryview(np.ascontiguousarray(array).view(np.uint8).reshape(-1)))
        return place

    def get(self, address: int, shape: tuple[int, ...], dtype: DType) -> Array:
        out = np.zeros(shape, NUMPY[dtype.name])
        self.device.copy_out(address, memoryview(out.view(np.uint8).reshape(-1)))
        return out

    def allows(self, dtype: DType) -> bool:
        return dtype in self.device.limits.dtypes

    def flat(self, body: Expr, out: DType, *inputs: Array, shift: int = 0, params: tuple[float, ...] = ()) -> Array:
        """A flat map over inputs of one length (or of length 1, which stay)."""
        n = max((a.size for a in inputs), default=1)
        types = tuple(by_numpy(a) for a in inputs)
        steps = ("1", *("1" if a.size == n else "0" for a in inputs))
        kinds = tuple(t.int64 if isinstance(p, int) else t.float32 for p in params)
        launch = self.device.build(Map((out,), types, kinds, (body,), 0, steps))
        address = self.put(np.zeros(n, NUMPY[out.name]), shift)
        launch(address, *(self.put(a, shift) for a in inputs), n, *params)
        return self.get(address, (n,), out)


def by_numpy(array: Array) -> DType:
    return t.by_name(array.dtype.name)


def strides_of(array: Array) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def sample(dtype: DType, shape: tuple[int, ...] | int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind == "i":
        return random.integers(-40, 40, shape).astype(dtype.name)
    return random.standard_normal(shape).astype(NUMPY[dtype.name])


@pytest.fixture(scope="module", params=[(), ("shader-int64",)], ids=["native", "emulated"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    try:
        yield Bench(request.param)
    except DeviceUnavailable as error:
        if "webgpu" in required_devices():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


# ---- maps ----


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("n", [1, 5, 1027])
def test_flat_copy_keeps_bits_and_neighbours(bench: Bench, dtype: DType, shift: int, n: int) -> None:
    need(bench, dtype)
    x = sample(dtype, n)
    body = arg(0, compute_type(dtype))
    launch = bench.device.build(Map((dtype,), (dtype,), (), (body,), 0, ("1", "1")))
    out = bench.put(np.zeros(n + 8, x.dtype), shift)
    launch(out, bench.put(x, shift), n)
    got = bench.get(out, (n + 8,), dtype)
    assert np.array_equal(got[:n], x)
    assert not got[n:].any()


@pytest.mark.parametrize("dtype", t.NUMBER, ids=lambda d: d.name)
def test_arithmetic(bench: Bench, dtype: DType) -> None:
    need(bench, dtype)
    x, y = sample(dtype, 300, 1), sample(dtype, 300, 2)
    a, b = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
    got = bench.flat(a * b - a, dtype, x, y)
    if dtype.kind == "i":
        assert np.array_equal(got, x * y - x)
    else:
        wide_x, wide_y = x.astype("f8"), y.astype("f8")
        size = np.abs(wide_x * wide_y) + np.abs(wide_x)
        assert (np.abs(got.astype("f8") - (wide_x * wide_y - wide_x)) <= 2 * TINY[dtype.name] * size).all()


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("to", t.ALL, ids=lambda d: d.name)
def test_casts(bench: Bench, dtype: DType, to: DType) -> None:
    need(bench, dtype)
    need(bench, to)
    x = sample(dtype, 77)
    got = bench.flat(s.cast(arg(0, compute_type(dtype)), compute_type(to)), to, x)
    assert np.array_equal(got, x.astype(NUMPY[to.name]))


def test_strided_broadcast_and_index(bench: Bench) -> None:
    x, y = sample(t.float32, (6, 5, 4)).transpose(2, 0, 1), sample(t.float32, (6, 1), 3)
    seen = np.broadcast_to(y, (4, 6, 5))
    a, b = arg(0, t.float32), arg(1, t.float32)
    body = a + b * s.cast(index(), t.float32)
    launch = bench.device.build(Map((t.float32,), (t.float32, t.float32), (), (body,), 3, ("1", "n", "0")))
    out = bench.put(np.zeros((4, 6, 5), "f4"))
    base = sample(t.float32, (6, 5, 4))
    launch(out, bench.put(base), bench.put(y), 4, 6, 5, 30, 5, 1, *strides_of(x), *strides_of(seen))
    want = x + seen * np.arange(120, dtype="f4").reshape(4, 6, 5)
    np.testing.assert_allclose(bench.get(out, (4, 6, 5), t.float32), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [t.bool_, t.float16, t.float32, t.int64], ids=lambda d: d.name)
def test_strided_output_of_small_types(bench: Bench, dtype: DType) -> None:
    x = sample(dtype, (7, 9))
    launch = bench.device.build(Map((dtype,), (dtype,), (), (arg(0, compute_type(dtype)),), 2, ("n", "1")))
    out = bench.put(np.zeros((9, 7), x.dtype), 1)
    launch(out, bench.put(x, 1), 7, 9, 1, 7, 9, 1)
    assert np.array_equal(bench.get(out, (9, 7), dtype), x.T)


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shift", [0, 1])
def test_in_place(bench: Bench, dtype: DType, shift: int) -> None:
    need(bench, dtype)
    x = sample(dtype, 517)
    a = arg(0, compute_type(dtype))
    body = ~a if dtype.kind == "b" else a + a
    launch = bench.device.build(Map((dtype,), (dtype,), (), (body,), 0, ("1", "1")))
    address = bench.put(x, shift)
    launch(address, address, 517)
    assert np.array_equal(bench.get(address, (517,), dtype), ~x if dtype.kind == "b" else x + x)


def test_two_views_of_one_block(bench: Bench) -> None:
    x = sample(t.float32, 64)
    address = bench.put(x)
    a, b = arg(0, t.float32), arg(1, t.float32)
    launch = bench.device.build(Map((t.float32,), (t.float32, t.float32), (), (a - b,), 0, ("1", "1", "1")))
    launch(address + 32 * 4, address, address + 16 * 4, 16)
    x[32:48] = x[:16] - x[16:32]
    assert np.array_equal(bench.get(address, (64,), t.float32), x)


def test_params_scalars_and_zero_sizes(bench: Bench) -> None:
    x, one = sample(t.float32, 40), np.array([3.0], "f4")
    body = arg(0, t.float32) * param(0, t.float32) + arg(1, t.float32) + s.cast(param(1, t.int64) >> 40, t.float32)
    np.testing.assert_allclose(bench.flat(body, t.float32, x, one, params=(0.5, 5 << 40)), x * 0.5 + 8, rtol=1e-6)
    assert np.isinf(bench.flat(arg(0, t.float32) * param(0, t.float32), t.float32, one, params=(1e300,)))[0]
    launch = bench.device.build(Map((t.float32,), (), (), (const(7, t.float32),), 0, ("1",)))
    out = bench.put(x)
    launch(out, 0)
    assert np.array_equal(bench.get(out, (40,), t.float32), x)


def test_two_outputs_of_different_width(bench: Bench) -> None:
    x = sample(t.float32, 1003)
    a = arg(0, t.float32)
    launch = bench.device.build(
        Map((t.float16, t.bool_, t.int64), (t.float32,), (), (a, a < 0, s.cast(a * 9, t.int64)), 0, ("1",) * 4)
    )
    outs = [bench.put(np.zeros(1003, kind)) for kind in ("f2", "?", "i8")]
    launch(*outs, bench.put(x), 1003)
    assert np.array_equal(bench.get(outs[0], (1003,), t.float16), x.astype("f2"))
    assert np.array_equal(bench.get(outs[1], (1003,), t.bool_), x < 0)
    assert np.array_equal(bench.get(outs[2], (1003,), t.int64), (x * 9).astype("i8"))


def test_many_elements_use_a_grid_of_two_dimensions(bench: Bench) -> None:
    n = 65535 * 256 + 77
    launch = bench.device.build(Map((t.int32,), (), (), (s.cast(index(), t.int32),), 0, ("1",)))
    out = bench.device.alloc(4 * n)
    launch(out, n)
    assert np.array_equal(bench.get(out + 4 * (n - 100), (100,), t.int32), np.arange(n - 100, n))
    bench.device.free(out, 4 * n)


# ---- numbers ----

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3.4e38, 1e-40], "f4")


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
    assert np.array_equal(bench.flat(s.maximum(a, b), dtype, x, y), np.maximum(x, y), equal_nan=True)
    assert np.array_equal(bench.flat(s.minimum(a, b), dtype, x, y), np.minimum(x, y), equal_nan=True)
    chosen = bench.flat(s.where(a < b, a, const(float("nan"), dtype)), dtype, x, y)
    assert np.array_equal(chosen, np.where(x < y, x, np.nan), equal_nan=True)


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
        assert np.array_equal(bench.flat(s.remainder_c(a, b), dtype, x, y), np.fmod(x, y), equal_nan=True)


@pytest.mark.parametrize("dtype", [t.float16, t.bfloat16], ids=lambda d: d.name)
def test_halves_round_to_even_exactly(bench: Bench, dtype: DType) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(NUMPY[dtype.name])
    wide = every.astype("f4")
    assert np.array_equal(bench.flat(arg(0, t.float32), t.float32, every), wide, equal_nan=True)
    kept = bench.flat(arg(0, t.float32), dtype, wide)
    assert np.array_equal(kept.astype("f4"), wide, equal_nan=True)
    bits = wide.view(np.uint32)
    between = np.concatenate([(bits + d).astype(np.uint32) for d in (0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)])
    x = between.view("f4")
    with np.errstate(all="ignore"):
        want = x.astype(NUMPY[dtype.name]).astype("f4")
    assert np.array_equal(bench.flat(arg(0, t.float32), dtype, x).astype("f4"), want, equal_nan=True)


BIG = np.array(
    [0, 1, -1, 7, -13, 2**31, -(2**31), 2**32 + 5, -(2**32) - 5, 2**53 + 1, 2**63 - 1, -(2**63), 123456789012345], "i8"
)


def test_int64_arithmetic(bench: Bench) -> None:
    x, y = (g.ravel() for g in np.meshgrid(BIG, BIG))
    a, b = arg(0, t.int64), arg(1, t.int64)
    counts = np.abs(y % 64)
    with np.errstate(all="ignore"):
        quotient = np.where(
            y == 0, 0, np.sign(x) * np.sign(y) * (np.abs(x.astype(object)) // np.maximum(np.abs(y.astype(object)), 1))
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
        [2**24 + 1, 2**24 + 3, 2**40 + 2**16, 2**40 + 2**16 + 1, 2**40 + 3 * 2**16, -(2**55) - 2**31], "i8"
    )
    x = np.concatenate([BIG, edges, -edges])
    assert np.array_equal(bench.flat(s.cast(a, t.float32), t.float32, x), x.astype("f4"))
    assert np.array_equal(bench.flat(s.cast(a, t.int32), t.int32, x), x.astype("i4"))
    assert np.array_equal(bench.flat(s.cast(a, t.bool_), t.bool_, x), x != 0)
    low = s.bits_to(s.cast(a, t.uint32), t.int32)
    assert np.array_equal(bench.flat(low, t.int32, x), x.astype("i4"))
    f = np.array([0.5, -0.5, 1.0, -1.99, 2.0**31, -(2.0**40) * 1.5, 2.0**62, -(2.0**63), 8388608.5, 1e-30], "f4")
    assert np.array_equal(bench.flat(s.cast(arg(0, t.float32), t.int64), t.int64, f), f.astype("i8"))
    unsigned = s.cast(s.bits_to(arg(0, t.int32), t.uint32), t.int64)
    i = np.array([-1, 5, -(2**31)], "i4")
    assert np.array_equal(bench.flat(unsigned, t.int64, i), i.view("u4").astype("i8"))


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
        assert np.array_equal(bench.flat(s.remainder_c(a, b), t.int32, x, y), np.where(y == 0, 0, x - quotient * y))
        assert np.array_equal(bench.flat(a >> b, t.int32, x, y), x >> (y & 31))
    u, v = s.bits_to(a, t.uint32), s.bits_to(b, t.uint32)
    high = (x.view("u4").astype("u8") * y.view("u4").astype("u8") >> np.uint64(32)).astype("u4").view("i4")
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
    ulps = np.abs(got.astype("f8") - want) / np.spacing(np.maximum(np.abs(want), 1e-38).astype("f4"))
    assert ulps.max() <= BOUNDS.get(name, (2.5,))[0], ulps.max()
    edge = np.array([np.nan, np.inf, -np.inf, 0.0], "f4")
    with np.errstate(all="ignore"):
        assert np.array_equal(
            bench.flat(scalar(arg(0, t.float32)), t.float32, edge), numpy_function(edge), equal_nan=True
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


# ---- rows ----


def reduce_rows(bench: Bench, x: Array, kind: str, vector: str, dtype: DType, compute: DType) -> Array:
    """Reduce the middle axis."""
    body = s.cast(arg(0, compute_type(dtype)), compute)
    steps = ("n", "n") if vector == "any" else ("1", "1")
    kernel = Rowwise((compute,), ("row",), (dtype,), (), (Reduce(kind, body),), (row(0, compute),), vector, steps)
    outer, axis, inner = x.shape
    out = bench.put(np.zeros((outer, inner), compute.name))
    bench.device.build(kernel)(out, bench.put(x), outer, axis, inner, inner, 0, 1, axis * inner, inner, 1)
    return bench.get(out, (outer, inner), compute)


@pytest.mark.parametrize(
    "shape",
    [(3, 7, 1), (5, 300, 1), (2, 2000, 3), (2, 30, 40), (1, 1500, 33), (2, 0, 3), (2, 20000, 1), (1, 17000, 5)],
    ids=str,
)
@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
def test_reductions(bench: Bench, shape: tuple[int, int, int], dtype: DType) -> None:
    need(bench, dtype)
    vector = "axis" if shape[2] == 1 else "inner"
    x = sample(dtype, shape)
    compute = compute_type(dtype)
    if dtype.kind != "b":
        wide = x.astype("f8" if dtype.kind == "f" else "i8")
        got = reduce_rows(bench, x, "sum", vector, dtype, compute)
        np.testing.assert_allclose(got, wide.sum(1), rtol=1e-5, atol=1e-5 * max(1, shape[1]) ** 0.5)
    if shape[1]:
        wide = x.astype(compute.name)
        assert np.array_equal(reduce_rows(bench, x, "max", vector, dtype, compute), wide.max(1))
        assert np.array_equal(reduce_rows(bench, x, "min", "any", dtype, compute), wide.min(1))


def test_reduction_over_nothing_gives_the_identity(bench: Bench) -> None:
    x = np.zeros((2, 0, 1), "f4")
    assert np.array_equal(reduce_rows(bench, x, "prod", "axis", t.float32, t.float32), np.ones((2, 1)))
    assert np.array_equal(reduce_rows(bench, x, "max", "axis", t.float32, t.float32), np.full((2, 1), -np.inf))
    whole = np.zeros((2, 0, 1), "i8")
    assert np.array_equal(reduce_rows(bench, whole, "max", "axis", t.int64, t.int64), np.full((2, 1), -(2**63)))


def test_reduction_propagates_nan(bench: Bench) -> None:
    x = sample(t.float32, (2, 400, 1))
    x[1, 333] = np.nan
    got = reduce_rows(bench, x, "max", "axis", t.float32, t.float32)
    assert got[0, 0] == x[0].max() and np.isnan(got[1, 0])


@pytest.mark.parametrize("dtype", [t.float32, t.float16, t.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(4, 50, 1), (3, 1000, 1), (2, 20, 30), (2, 20001, 1)], ids=str)
def test_softmax_in_place_with_a_row_output(bench: Bench, shape: tuple[int, int, int], dtype: DType) -> None:
    x = sample(dtype, shape)
    a = arg(0, t.float32)
    shifted = s.exp(a - row(0, t.float32))
    passes = (Reduce("max", a), Reduce("sum", shifted))
    stores = (shifted / row(1, t.float32), s.log(row(1, t.float32)) + row(0, t.float32))
    vector = "axis" if shape[2] == 1 else "inner"
    kernel = Rowwise((dtype, t.float32), ("element", "row"), (dtype,), (), passes, stores, vector, ("1", "1", "1"))
    outer, axis, inner = shape
    address, rows = bench.put(x), bench.put(np.zeros((outer, inner), "f4"))
    full = (axis * inner, inner, 1)
    bench.device.build(kernel)(address, rows, address, *shape, *full, inner, 0, 1, *full)
    wide = x.astype("f8")
    want = np.exp(wide - wide.max(1, keepdims=True))
    total = want.sum(1, keepdims=True)
    np.testing.assert_allclose(
        bench.get(address, shape, dtype).astype("f8"), want / total, rtol=4 * TINY[dtype.name] + 1e-5, atol=2.0**-24
    )
    logs = (np.log(total) + wide.max(1, keepdims=True))[:, 0]
    np.testing.assert_allclose(bench.get(rows, (outer, inner), t.float32), logs, rtol=1e-5, atol=1e-5)


def test_argmax_with_index_and_extent(bench: Bench) -> None:
    x = sample(t.float32, (6, 500, 1))
    a = arg(0, t.float32)
    first = s.where(a.eq(row(0, t.float32)), index(), extent())
    passes = (Reduce("max", a), Reduce("min", first))
    kernel = Rowwise((t.int64,), ("row",), (t.float32,), (), passes, (row(1, t.int64),), "axis", ("1", "1"))
    out = bench.put(np.zeros(6, "i8"))
    bench.device.build(kernel)(out, bench.put(x), 6, 500, 1, 1, 0, 0, 500, 1, 0)
    assert np.array_equal(bench.get(out, (6,), t.int64), x[:, :, 0].argmax(1))


# ---- contractions ----


@pytest.mark.parametrize("dtype", t.NUMBER, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 3, 2, 5), (2, 3, 20, 17, 9), (1, 2, 65, 70, 33), (1, 1, 4, 4, 0), (1, 1, 100, 1, 40)], ids=str
)
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "transposed"])
def test_contract(bench: Bench, dtype: DType, sizes: tuple[int, ...], turned: bool) -> None:
    need(bench, dtype)
    x, y, m, n, k = sizes
    a, b = sample(dtype, (x, y, m, k), 1), sample(dtype, (x, y, k, n), 2)
    if turned:
        a, b = (np.ascontiguousarray(z.swapaxes(2, 3)).swapaxes(2, 3) for z in (a, b))
    out = np.zeros((x, y, m, n), NUMPY[dtype.name])
    addresses = [bench.put(out)] + [bench.put(z.swapaxes(2, 3) if turned else z) for z in (a, b)]
    launch = bench.device.build(Contract(dtype, compute_type(dtype)))
    launch(*addresses, *sizes, *(v for z in (out, a, b) for v in strides_of(z)))
    got = bench.get(addresses[0], out.shape, dtype)
    if dtype.kind == "i":
        assert np.array_equal(got, a @ b)
    else:
        wide = a.astype("f8") @ b.astype("f8")
        room = (np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))) * 2.0**-20 if dtype is not t.float64 else 1e-12
        assert (np.abs(got.astype("f8") - wide) <= room + 2 * TINY[dtype.name] * np.abs(wide)).all()


def test_contract_broadcasts_a_batch(bench: Bench) -> None:
    a, b = sample(t.float32, (4, 30, 12), 1), sample(t.float32, (12, 25), 2)
    out = bench.put(np.zeros((4, 30, 25), "f4"))
    launch = bench.device.build(Contract(t.float32, t.float32))
    launch(out, bench.put(a), bench.put(b), 1, 4, 30, 25, 12, 0, 750, 25, 1, 0, 360, 12, 1, 0, 0, 25, 1)
    np.testing.assert_allclose(bench.get(out, (4, 30, 25), t.float32), a @ b, rtol=1e-4, atol=1e-5)


# ---- indices ----


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("index_dtype", t.INTEGER, ids=lambda d: d.name)
def test_gather(bench: Bench, dtype: DType, index_dtype: DType) -> None:
    need(bench, dtype)
    source = sample(dtype, (3, 10, 5))
    places = np.random.default_rng(1).integers(-10, 10, (3, 4, 5)).astype(index_dtype.name)
    out = bench.put(np.zeros((3, 4, 5), source.dtype), 1)
    status = bench.device.status_word("take")
    launch = bench.device.build(Gather(dtype, index_dtype))
    launch(out, bench.put(source, 1), bench.put(places), status, 3, 4, 5, 10, 20, 5, 1, 50, 5, 1, 20, 5, 1)
    assert np.array_equal(bench.get(out, (3, 4, 5), dtype), np.take_along_axis(source, places % 10, 1))


@pytest.mark.parametrize("dtype", t.NUMBER, ids=lambda d: d.name)
@pytest.mark.parametrize("index_dtype", t.INTEGER, ids=lambda d: d.name)
def test_scatter_add(bench: Bench, dtype: DType, index_dtype: DType) -> None:
    need(bench, dtype)
    target, source = sample(dtype, (2, 6, 5), 1), sample(dtype, (2, 9, 5), 2)
    places = np.random.default_rng(1).integers(-6, 6, 9).astype(index_dtype.name)
    out = bench.put(target, 1)
    launch = bench.device.build(ScatterAdd(dtype, index_dtype))
    status = bench.device.status_word("index_add")
    launch(out, bench.put(source), bench.put(places), status, 2, 9, 5, 6, 30, 5, 1, 45, 5, 1, 0, 1, 0)
    for k, place in enumerate(places):
        target[:, place] = (target[:, place].astype(NUMPY[compute_type(dtype).name]) + source[:, k]).astype(
            target.dtype
        )
    assert np.array_equal(bench.get(out, (2, 6, 5), dtype), target)


@pytest.mark.parametrize("bad", [10, -11, 2**32, -(2**32), 2**63 - 1])
def test_bad_index_raises_once_and_stores_zero(bench: Bench, bad: int) -> None:
    source, out = sample(t.float32, (10, 1)), bench.put(np.ones(2, "f4"))
    status = bench.device.status_word("embedding")
    launch = bench.device.build(Gather(t.float32, t.int64))
    launch(out, bench.put(source), bench.put(np.array([3, bad])), status, 1, 2, 1, 10, 0, 1, 1, 0, 1, 1, 0, 1, 1)
    with pytest.raises(IndexError, match="embedding"):
        bench.device.synchronize()
    bench.device.synchronize()
    assert np.array_equal(bench.get(out, (2,), t.float32), [source[3, 0], 0])


# ---- memory and errors ----


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_copies_of_odd_sizes_touch_nothing_else(bench: Bench, offset: int, size: int) -> None:
    address = bench.put(np.zeros(32, "?"))
    content = bytes(range(1, size + 1))
    bench.device.copy_in(address + offset, memoryview(content))
    got = bytearray(32)
    bench.device.copy_out(address, memoryview(got))
    assert bytes(got) == bytes(offset) + content + bytes(32 - offset - size)
    part = bytearray(size)
    bench.device.copy_out(address + offset, memoryview(part))
    assert bytes(part) == content


def test_copy_in_waits_for_queued_work(bench: Bench) -> None:
    launch = bench.device.build(Map((t.float32,), (t.float32,), (), (arg(0, t.float32) + 1,), 0, ("1", "1")))
    source, out = bench.put(np.zeros(8, "f4")), bench.put(np.zeros(8, "f4"))
    launch(out, source, 8)
    bench.device.copy_in(source, memoryview(np.full(8, 5, "f4")).cast("B"))
    assert np.array_equal(bench.get(out, (8,), t.float32), np.ones(8))


def test_free_lets_queued_work_finish(bench: Bench) -> None:
    launch = bench.device.build(Map((t.float32,), (t.float32,), (), (arg(0, t.float32) + 1,), 0, ("1", "1")))
    source, out = bench.device.alloc(64), bench.put(np.zeros(8, "f4"))
    bench.device.copy_in(source, memoryview(np.full(8, 2, "f4")).cast("B"))
    launch(out, source, 8)
    bench.device.free(source, 64)
    assert np.array_equal(bench.get(out, (8,), t.float32), np.full(8, 3))
    with pytest.raises(DeviceError, match="freed"):
        launch(out, source, 8)


def test_freed_blocks_leave_no_bind_groups(bench: Bench) -> None:
    launch = bench.device.build(Map((t.float32,), (t.float32,), (), (arg(0, t.float32),), 0, ("1", "1")))
    kept = bench.put(np.zeros(8, "f4"))
    for _ in range(5):
        passing = bench.device.alloc(64)
        launch(passing, kept, 8)
        bench.device.free(passing, 64)
    assert not bench.device.users[kept >> 40]
    bench.device.synchronize()


def test_long_chains_of_launches(bench: Bench) -> None:
    launch = bench.device.build(Map((t.int32,), (t.int32,), (), (arg(0, t.int32) + 1,), 0, ("1", "1")))
    address = bench.put(np.zeros(8, "i4"))
    for _ in range(700):
        launch(address, address, 8)
    assert np.array_equal(bench.get(address, (8,), t.int32), np.full(8, 700))


def test_a_block_beyond_the_binding_limit_is_out_of_memory(bench: Bench) -> None:
    with pytest.raises(OutOfMemoryError, match="at most"):
        bench.device.alloc(bench.device.limits.largest_block + 64)


def test_too_many_buffers_names_the_count(bench: Bench) -> None:
    count = bench.device.most_bindings + 1
    body = arg(0, t.int32)
    for i in range(1, count):
        body = body + arg(i, t.int32)
    kernel: Kernel = Map((t.int32,), (t.int32,) * count, (), (body,), 0, ("1",) * (count + 1))
    addresses = [bench.put(np.zeros(4, "i4")) for _ in range(count + 1)]
    with pytest.raises(DeviceError, match=f"{count + 1} buffers"):
        bench.device.build(kernel)(*addresses, 4)


def test_a_lost_device_is_an_error_and_opens_again() -> None:
    try:
        lost = Bench(())
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    address = lost.put(np.zeros(4, "f4"))
    lost.device.gpu.destroy()
    with pytest.raises(DeviceError):
        lost.get(address, (4,), t.float32)
    again = Bench(())
    assert np.array_equal(again.get(again.put(np.ones(4, "f4")), (4,), t.float32), np.ones(4))


def test_missing_package_and_adapter_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(adapter.importlib, "import_module", missing)
    with pytest.raises(DeviceUnavailable, match="pip install wgpu"):
        open_device()


@pytest.mark.parametrize(
    ("groups", "work"), [(1, 1), (65535, 1), (65536, 1), (200000, 3), (70000, 1 << 30), (5, 1 << 40)]
)
def test_split_runs_each_workgroup_once(groups: int, work: int) -> None:
    parts = split(groups, work)
    reached = 0
    for first, (wide, tall) in parts:
        assert first == reached and 0 < wide <= 65535 and 0 < tall <= 65535
        reached += wide * tall
    assert reached >= groups
    assert parts[-1][0] < groups


def need(bench: Bench, dtype: DType) -> None:
    if not bench.allows(dtype):
        pytest.skip(f"limit: no {dtype.name}")
