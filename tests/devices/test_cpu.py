"""The CPU device against NumPy and the reference device: loop shapes, dtypes, threads, cache,
errors.
"""

import ctypes  # noqa: I001
import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import (
    ALL,
    bfloat16,
    bool_,
    compute_type,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
)
from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.shared import cache
from rushlight.devices.cpu import native, open_device, stub, threads
from rushlight.devices.reference import open_device as open_reference
from rushlight.kernel.shapes import Contract, Gather, Map, Reduce, Rowwise, Scatter
from tests.time_limit import WAIT

X, Y = s.arg(0, float32), s.arg(1, float32)
NUMPY = {
    bfloat16: np.dtype(ml_dtypes.bfloat16),
    **{d: np.dtype(d.name) for d in ALL if d is not bfloat16},
}
LENGTHS = (0, 1, 7, 16, 63, 64, 65, 200, 4096, 4097, 10_001)


@pytest.fixture(scope="module")
def cpu():
    return open_device()


@pytest.fixture(scope="module")
def reference():
    return open_reference()


@pytest.fixture
def two_threads(cpu):
    before = threads.count()
    cpu.set_num_threads(2)
    yield
    cpu.set_num_threads(before)


def at(array):
    return array.ctypes.data


def steps_of(array):
    return [stride // array.itemsize for stride in array.strides]


def random(shape, dtype=float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    return (values > 0) if dtype is bool_ else values.astype(NUMPY[dtype])


def same(a, b):
    np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


# ---- maps ----


@pytest.mark.parametrize("n", LENGTHS)
def test_flat_map_of_every_length_leaves_the_rest_alone(cpu, n):
    launch = cpu.build(
        Map(
            (float32,),
            (float32, float32),
            (float32,),
            (X * Y + s.param(0, float32),),
            0,
            ("1", "1", "0"),
        )
    )
    a, b, out = random(n), random(1, seed=1), np.full(n + 3, 7, np.float32)
    launch(at(out), at(a), at(b), n, 0.25)
    np.testing.assert_array_equal(out[:n], a * b + np.float32(0.25))
    assert (out[n:] == 7).all()


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_flat_map_of_every_dtype_in_place(cpu, dtype):
    x, y = (s.arg(i, compute_type(dtype)) for i in range(2))
    body = x ^ y if dtype is bool_ else x + y
    launch = cpu.build(Map((dtype,), (dtype, dtype), (), (body,), 0, ("1", "1", "1")))
    a, b = random(1001, dtype), random(1001, dtype, seed=1)
    wanted = a ^ b if dtype is bool_ else (a + b)
    launch(at(a), at(a), at(b), 1001)
    same(a, wanted)


def test_unaligned_operands(cpu):
    launch = cpu.build(Map((float32,), (float32,), (), (-X,), 0, ("1", "1")))
    a, out = random(1000), np.zeros(1000, np.float32)
    launch(at(out) + 4, at(a) + 12, 900)
    np.testing.assert_array_equal(out[1:901], -a[3:903])


@pytest.mark.parametrize("dtype", (float16, bfloat16), ids=str)
def test_halves_round_to_nearest_even_and_keep_nan(cpu, dtype):
    launch = cpu.build(Map((dtype,), (float32,), (), (X,), 0, ("1", "1")))
    bits = np.random.default_rng(0).integers(0, 1 << 32, 200_000, np.uint32)
    edges = np.array(
        [
            0x3F808000,
            0x3F818000,
            0x3F808001,
            0x7F7FFFFF,
            0x7F800000,
            0xFF800000,
            0x33000000,
            0x33000001,
        ]
    )
    a = np.concatenate([bits, edges.astype(np.uint32)]).view(np.float32)
    out = np.empty(a.size, NUMPY[dtype])
    launch(at(out), at(a), a.size)
    with np.errstate(all="ignore"):
        wanted = a.astype(NUMPY[dtype])
    number = ~np.isnan(a)
    same(out[number], wanted[number])
    assert np.isnan(out[~number].astype(np.float32)).all()


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "stepped": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
    "row": lambda a: np.broadcast_to(a[..., :1, :], a.shape),
    "column": lambda a: np.broadcast_to(a[..., :1], a.shape),
}
STEPS = {
    "contiguous": "1",
    "transposed": "n",
    "stepped": "n",
    "reversed": "n",
    "row": "1",
    "column": "0",
}


@pytest.mark.parametrize(
    "shape", [(3, 5), (2, 3, 70), (70, 33), (2, 1, 3, 4), (1, 4100), (9, 0), (0, 9)], ids=str
)
@pytest.mark.parametrize(
    "layouts", [*itertools.product(LAYOUTS, ("contiguous", "column"))], ids="-".join
)
def test_strided_map(cpu, shape, layouts):
    steps = ("1", *(STEPS[k] for k in layouts))
    launch = cpu.build(Map((float32,), (float32, float32), (), (X - Y * 2,), len(shape), steps))
    a, b = (LAYOUTS[k](random(shape, seed=i)) for i, k in enumerate(layouts))
    out = np.zeros(shape, np.float32)
    launch(at(out), at(a), at(b), *shape, *steps_of(out), *steps_of(a), *steps_of(b))
    np.testing.assert_array_equal(out, a - b * 2)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(40, 50), (3, 17, 65), (5, 64, 64), (300, 200)], ids=str)
def test_transposing_copies(cpu, dtype, shape):
    body = (s.arg(0, compute_type(dtype)),)
    a = random(shape, dtype)
    out = np.zeros(shape, NUMPY[dtype])
    turned = LAYOUTS["transposed"](a)
    for target, source, steps in (
        (out, turned, ("1", "n")),
        (np.zeros_like(turned), a, ("n", "1")),
    ):
        launch = cpu.build(Map((dtype,), (dtype,), (), body, len(shape), steps))
        launch(at(target), at(source), *shape, *steps_of(target), *steps_of(source))
        np.testing.assert_array_equal(target, a)


def test_strided_output_and_several_outputs(cpu):
    body = (X + Y, X * Y)
    launch = cpu.build(
        Map(
            (float32, float64),
            (float32, float32),
            (),
            (body[0], s.cast(body[1], float64)),
            1,
            ("n", "1", "1", "n"),
        )
    )
    a, b = random(50), random(100, seed=1)[::2]
    first, second = np.zeros(150, np.float32)[::3], np.zeros(50)
    launch(at(first), at(second), at(a), at(b), 50, 3, 1, 1, 2)
    np.testing.assert_array_equal(first, a + b)
    np.testing.assert_array_equal(second, (a * b).astype(np.float64))


def test_index_is_the_linear_position(cpu):
    launch = cpu.build(Map((int64,), (), (), (s.index(),), 2, ("1",)))
    out = np.zeros((30, 5000), np.int64)
    launch(at(out), 30, 5000, 5000, 1)
    np.testing.assert_array_equal(out.ravel(), np.arange(150_000))


def test_integer_division_by_zero_and_overflow(cpu):
    x, y = s.arg(0, int32), s.arg(1, int32)
    launch = cpu.build(
        Map((int32, int32), (int32, int32), (), (x / y, s.remainder_c(x, y)), 0, ("1",) * 4)
    )
    a = np.array([7, -7, 7, -7, 5, -(1 << 31), 0], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1, 3], np.int32)
    quotient, rest = np.zeros_like(a), np.zeros_like(a)
    launch(at(quotient), at(rest), at(a), at(b), a.size)
    assert quotient.tolist() == [3, -3, -3, 3, 0, -(1 << 31), 0]
    assert rest.tolist() == [1, -1, 1, -1, 0, 0, 0]


def test_min_and_max_give_nan(cpu):
    launch = cpu.build(
        Map(
            (float32, float32),
            (float32, float32),
            (),
            (s.minimum(X, Y), s.maximum(X, Y)),
            0,
            ("1",) * 4,
        )
    )
    values = np.array([1, -1, np.nan, np.inf, -np.inf, 0], np.float32)
    a, b = (v.ravel().copy() for v in np.meshgrid(values, values))
    low, high = np.empty_like(a), np.empty_like(a)
    launch(at(low), at(high), at(a), at(b), a.size)
    np.testing.assert_array_equal(low, np.minimum(a, b))
    np.testing.assert_array_equal(high, np.maximum(a, b))


INSTRUCTIONS = {
    "float32": (
        float32,
        [
            s.fma(X, Y, X),
            abs_ := s.abs(X),
            s.floor(X),
            s.ceil(X),
            s.round_even(X),
            s.trunc(X),
            s.sqrt(abs_),
        ],
    ),
    "int32": (
        int32,
        [
            s.arg(0, int32) << 3,
            s.arg(0, int32) >> 2,
            ~s.arg(0, int32),
            s.abs(s.arg(0, int32)),
            -s.arg(0, int32),
        ],
    ),
    "int64": (
        int64,
        [s.arg(0, int64) * s.arg(1, int64), s.arg(0, int64) & s.arg(1, int64), s.arg(0, int64) | 5],
    ),
    "compare": (
        float32,
        [
            s.where(X < Y, X, Y),
            s.where(X.eq(Y), X, -X),
            s.where(s.isnan(X), Y, X),
            s.where(X <= Y, Y, X),
        ],
    ),
    "casts": (
        float32,
        [
            s.cast(s.cast(X, int32), float32),
            s.cast(s.cast(X, bool_), float32),
            s.cast(s.cast(X, float64), float32),
        ],
    ),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_agree_with_the_reference(cpu, reference, name):
    dtype, bodies = INSTRUCTIONS[name]
    bodies = tuple(bodies)
    kernel = Map((dtype,) * len(bodies), (dtype, dtype), (), bodies, 0, ("1",) * (len(bodies) + 2))
    a, b = random(100, dtype), random(100, dtype, seed=1)
    results = []
    for device in (cpu, reference):
        outs = [np.zeros(100, NUMPY[dtype]) for _ in bodies]
        device.build(kernel)(*map(at, outs), at(a), at(b), 100)
        results.append(outs)
    for mine, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, wanted)


# ---- rowwise ----


def row(k, dtype=float32):
    return s.row(k, dtype)


SOFTMAX = Rowwise(
    (float32,), ("element",), (float32,), (), (Reduce("max", X), Reduce("sum", s.exp(X - row(0)))),
    (s.exp(X - row(0)) / row(1),), "axis", ("1", "1"),
)  # fmt: skip


def reduction(kind, dtype, vector, step="1"):
    compute = compute_type(dtype)
    body = s.arg(0, compute)
    return Rowwise(
        (dtype,),
        ("row",),
        (dtype,),
        (),
        (Reduce(kind, body),),
        (s.row(0, compute),),
        vector,
        ("1", step),
    )


@pytest.mark.parametrize("axis_length", [0, 1, 15, 16, 63, 64, 100, 8192, 8193, 20_000])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_reductions_along_the_axis(cpu, kind, axis_length):
    launch = cpu.build(reduction(kind, float32, "axis"))
    a = random((3, axis_length)) if kind != "prod" else 1 + random((3, axis_length)) / 10_000
    a = a.astype(np.float32)
    out = np.zeros(3, np.float32)
    launch(at(out), at(a), 3, axis_length, 1, 1, 0, 1, axis_length, 1, 1)
    exact = a.astype(np.float64)
    if kind in ("max", "min"):
        bound = -np.inf if kind == "max" else np.inf
        np.testing.assert_array_equal(out, getattr(exact, kind)(1, initial=bound))
    else:
        np.testing.assert_allclose(
            out, getattr(exact, kind)(1), rtol=2e-6, atol=4e-6 * np.sqrt(max(axis_length, 1))
        )


@pytest.mark.parametrize(
    "shape", [(2, 5, 3), (2, 300, 70), (1, 1000, 1), (3, 0, 5), (1, 129, 200)], ids=str
)
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int32, int64], ids=str)
@pytest.mark.parametrize("vector", ["inner", "any"])
def test_reductions_across_columns(cpu, vector, dtype, shape):
    launch = cpu.build(reduction("sum", dtype, vector, "1" if vector == "inner" else "n"))
    a = random(shape, dtype) if dtype.kind == "f" else random(shape).astype(NUMPY[dtype])
    out = np.full((shape[0], shape[2]), 9, NUMPY[dtype])
    launch(at(out), at(a), *shape, shape[2], 0, 1, *steps_of(a))
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-13}[dtype.itemsize]
    np.testing.assert_allclose(
        out.astype(np.float64), a.astype(np.float64).sum(1), rtol=tolerance, atol=tolerance * 10
    )


@pytest.mark.parametrize("vector", ["axis", "inner", "any"])
def test_softmax_in_place_and_out_of_place(cpu, vector):
    steps = ("n", "n") if vector == "any" else ("1", "1")
    kernel = Rowwise(*(getattr(SOFTMAX, f) for f in SOFTMAX.__slots__[:6]), vector, steps)
    launch = cpu.build(kernel)
    a = random((50, 70)) if vector == "axis" else random((70, 50))
    sizes, strides = ((50, 70, 1), (70, 1, 1)) if vector == "axis" else ((1, 70, 50), (0, 50, 1))
    axis = 1 if vector == "axis" else 0
    wanted = np.exp(a - a.max(axis, keepdims=True))
    wanted /= wanted.sum(axis, keepdims=True)
    out = np.zeros_like(a)
    launch(at(out), at(a), *sizes, *strides, *strides)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    launch(at(a), at(a), *sizes, *strides, *strides)
    same(a, out)


def test_layer_norm_has_rows_elements_and_weights(cpu):
    mean = row(0) / s.cast(s.extent(), float32)
    rstd = 1 / s.sqrt(row(1) / s.cast(s.extent(), float32) + s.param(0, float32))
    passes = (Reduce("sum", X), Reduce("sum", (X - mean) * (X - mean)))
    stores = ((X - mean) * rstd * Y, mean, rstd)
    launch = cpu.build(
        Rowwise(
            (float32,) * 3,
            ("element", "row", "row"),
            (float32,) * 2,
            (float32,),
            passes,
            stores,
            "axis",
            ("1",) * 5,
        )
    )
    a, w = random((6, 100)), random(100, seed=1)
    out, m, r = np.zeros_like(a), np.zeros(6, np.float32), np.zeros(6, np.float32)
    launch(
        at(out),
        at(m),
        at(r),
        at(a),
        at(w),
        6,
        100,
        1,
        100,
        1,
        1,
        1,
        0,
        1,
        1,
        0,
        1,
        100,
        1,
        1,
        0,
        1,
        1,
        1e-5,
    )
    exact = a.astype(np.float64)
    np.testing.assert_allclose(m, exact.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(r, 1 / np.sqrt(exact.var(1) + 1e-5), rtol=1e-5)
    wanted = (
        (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * w
    )
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vector", ["axis", "inner"])
def test_arg_max_takes_the_first(cpu, vector):
    far = s.const(1 << 62, int64)
    passes = (Reduce("max", X), Reduce("min", s.where(X.eq(row(0)), s.index(), far)))
    launch = cpu.build(
        Rowwise((int64,), ("row",), (float32,), (), passes, (row(1, int64),), vector, ("1", "1"))
    )
    a = np.random.default_rng(0).integers(0, 5, (40, 40)).astype(np.float32)
    out = np.zeros(40, np.int64)
    if vector == "axis":
        launch(at(out), at(a), 40, 40, 1, 1, 0, 1, 40, 1, 1)
        np.testing.assert_array_equal(out, a.argmax(1))
    else:
        launch(at(out), at(a), 1, 40, 40, 0, 0, 1, 0, 40, 1)
        np.testing.assert_array_equal(out, a.argmax(0))


def test_sums_keep_infinity_and_nan(cpu):
    launch = cpu.build(reduction("sum", float32, "axis"))
    a = np.ones((4, 20_000), np.float32)
    a[0, 5], a[1, 5], a[2, 3], a[2, 19_000] = np.inf, np.nan, np.inf, -np.inf
    out = np.zeros(4, np.float32)
    launch(at(out), at(a), 4, 20_000, 1, 1, 0, 1, 20_000, 1, 1)
    assert out[0] == np.inf
    assert np.isnan(out[1:3]).all()
    assert out[3] == 20_000


def test_long_sums_are_accurate(cpu):
    launch = cpu.build(reduction("sum", float32, "axis"))
    a = np.random.default_rng(0).random(1 << 22, np.float32)
    out = np.zeros(1, np.float32)
    launch(at(out), at(a), 1, a.size, 1, 1, 0, 1, a.size, 1, 1)
    np.testing.assert_allclose(out[0], a.astype(np.float64).sum(), rtol=5e-7)


# ---- contract, gather, scatter ----


def matrix(shape, layout, dtype, seed):
    values = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)
    wide = np.zeros((*shape[:-2], shape[-2] * 2, shape[-1] * 3), NUMPY[dtype])
    array = {"rows": wide[..., ::2, : shape[-1]], "every": wide[..., ::2, ::3]}.get(layout)
    if array is None:
        array = np.zeros((*shape[:-2], shape[-1], shape[-2]), NUMPY[dtype]).swapaxes(-1, -2)
    array[...] = values.astype(NUMPY[dtype])
    return array


SIZES = [
    (1, 1, 5, 4, 6),
    (2, 3, 7, 33, 20),
    (1, 1, 300, 260, 70),
    (1, 2, 1, 9, 5),
    (1, 1, 9, 1, 5),
    (1, 1, 4, 4, 0),
]


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int32, int64], ids=str)
@pytest.mark.parametrize("sizes", [*SIZES, (0, 1, 2, 3, 4), (1, 1, 1, 1, 1)], ids=str)
def test_contract_of_every_layout(cpu, dtype, sizes):
    launch = cpu.build(Contract(dtype, compute_type(dtype)))
    x, y, m, n, k = sizes
    for layouts in itertools.product(("rows", "columns", "every"), repeat=3):
        shapes = ((x, y, m, n), (x, y, m, k), (x, y, k, n))
        out, a, b = (
            matrix(sh, la, dtype, i) for i, (sh, la) in enumerate(zip(shapes, layouts, strict=True))
        )
        launch(at(out), at(a), at(b), *sizes, *steps_of(out), *steps_of(a), *steps_of(b))
        # Small integers: exact sums, so one rounding at most.
        wanted = (a.astype(np.float64) @ b.astype(np.float64)).astype(NUMPY[dtype])
        np.testing.assert_array_equal(out, wanted)


def test_contract_with_broadcast_operands(cpu):
    launch = cpu.build(Contract(float32, float32))
    a, b, out = random((4, 5)), random(6, seed=1), np.zeros((3, 4, 6), np.float32)
    launch(at(out), at(a), at(b), 1, 3, 4, 6, 5, 0, 24, 6, 1, 0, 0, 5, 1, 0, 0, 0, 1)
    np.testing.assert_allclose(out, np.broadcast_to(a @ np.tile(b, (5, 1)), out.shape), rtol=1e-5)


def test_contract_without_a_library_gives_the_same(monkeypatch, cpu):
    from rushlight.devices.cpu import blas

    monkeypatch.setattr(blas, "library", lambda: None)
    launch = cpu.build(Contract(float32, float32))
    a, b, out = random((4, 5)), random((5, 6), seed=1), np.zeros((4, 6), np.float32)
    launch(at(out), at(a), at(b), 1, 1, 4, 6, 5, 0, 0, 6, 1, 0, 0, 5, 1, 0, 0, 6, 1)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("index_dtype", (int32, int64), ids=str)
def test_gather_rows_and_elements(cpu, dtype, index_dtype):
    launch = cpu.build(Gather(dtype, index_dtype))
    status = cpu.status_word("gather test")
    source = random((10, 6), dtype)
    index = np.array([3, 9, 0, 9, 0], NUMPY[index_dtype])
    out = np.zeros((5, 6), NUMPY[dtype])
    launch(at(out), at(source), at(index), status, 1, 5, 6, 10, 0, 6, 1, 0, 6, 1, 0, 1, 0)
    np.testing.assert_array_equal(out, source[index])
    each = np.random.default_rng(0).integers(0, 10, (5, 6)).astype(NUMPY[index_dtype])
    launch(at(out), at(source), at(each), status, 1, 5, 6, 10, 0, 6, 1, 0, 6, 1, 0, 6, 1)
    np.testing.assert_array_equal(out, np.take_along_axis(source, each, 0))
    cpu.synchronize()


def test_a_bad_index_stores_zero_and_is_told(cpu):
    launch, scatter = cpu.build(Gather(float32, int64)), cpu.build(Scatter(float32, int64))
    status = cpu.status_word("take")
    source, index, out = random((4, 3)), np.array([1, 4, -1]), np.ones((3, 3), np.float32)
    launch(at(out), at(source), at(index), status, 1, 3, 3, 4, 0, 3, 1, 0, 3, 1, 0, 1, 0)
    np.testing.assert_array_equal(out, np.stack([source[1], np.zeros(3), np.zeros(3)]))
    with pytest.raises(IndexError, match="take"):
        cpu.synchronize()
    cpu.synchronize()
    total = np.zeros((4, 3), np.float32)
    scatter(at(total), at(source), at(index), status, 1, 3, 3, 4, 0, 3, 1, 0, 3, 1, 0, 1, 0)
    np.testing.assert_array_equal(total[1], source[0])
    assert not total[[0, 2, 3]].any()
    with pytest.raises(IndexError, match="take"):
        cpu.synchronize()


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int32, int64], ids=str)
@pytest.mark.parametrize("inner", [1, 5, 600])
def test_scatter_add_sums_repeated_indices_in_order(cpu, dtype, inner):
    launch = cpu.build(Scatter(dtype, int64))
    source = random((2, 50, inner), dtype)
    index = np.random.default_rng(0).integers(0, 7, (2, 50))
    out = np.zeros((2, 7, inner), NUMPY[dtype])
    status = cpu.status_word("scatter")
    launch(
        at(out), at(source), at(index), status, 2, 50, inner, 7,
        *steps_of(out), *steps_of(source), 50, 1, 0,
    )  # fmt: skip
    wanted = np.zeros_like(out)
    for o, k in np.ndindex(2, 50):
        wanted[o, index[o, k]] += source[o, k]
    same(out, wanted)


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, uint8, int64], ids=str)
@pytest.mark.parametrize("kind", ["set", "prod", "max", "min"])
@pytest.mark.parametrize("inner", [1, 5, 600])
@pytest.mark.parametrize("rows", [False, True])
def test_scatter_kinds_are_those_of_the_reference(cpu, dtype, kind, inner, rows):
    results = []
    index = np.random.default_rng(0).integers(0, 7, (2, 50) if rows else (2, 50, inner))
    source, start = random((2, 50, inner), dtype), random((2, 7, inner), dtype)
    if dtype is float32:
        source[0, 20, 0] = start[1, 3, 0] = np.nan
    for machine in (cpu, open_reference()):
        out = start.copy()
        steps = (50, 1, 0) if rows else steps_of(index)
        launch = machine.build(Scatter(dtype, int64, kind))
        status = machine.status_word("scatter")
        launch(
            at(out),
            at(source),
            at(index),
            status,
            2,
            50,
            inner,
            7,
            *steps_of(out),
            *steps_of(source),
            *steps,
        )
        machine.synchronize()
        results.append(out)
    same(*results)


# ---- launches ----


@pytest.mark.parametrize(
    "bad", [(None, 0, 0, 1), (0, 0, 0, None), (0, 0, 0, 1.5), ("1", 0, 0, 1), (0, 0, 0), (0,) * 5]
)
def test_wrong_arguments_raise_and_run_nothing(cpu, bad):
    launch = cpu.build(Map((float32,), (float32, float32), (), (X + Y,), 0, ("1",) * 3))
    with pytest.raises(TypeError):
        launch(*bad)


def test_float_params_take_ints_and_minus_one(cpu):
    launch = cpu.build(
        Map(
            (float32,),
            (),
            (float32, int64),
            (s.param(0, float32) * s.cast(s.param(1, int64), float32),),
            0,
            ("1",),
        )
    )
    out = np.zeros(5, np.float32)
    launch(at(out), 5, -1, -1)
    assert (out == 1).all()
    with pytest.raises(TypeError):
        launch(at(out), 5, None, -1)


def large_kernels():
    a, b, out = random((700, 513)), random((513, 640), seed=1), np.zeros((700, 640), np.float32)
    add = Map((float32,), (float32,), (), (s.exp(X),), 0, ("1", "1"))
    turn = Map((float32,), (float32,), (), (X,), 2, ("1", "n"))
    n = a.size
    return {
        "map": (add, a, (n,), n),
        "transpose": (turn, a, (513, 700, 700, 1, 1, 513), n),
        "softmax": (SOFTMAX, a, (700, 513, 1, 513, 1, 1, 513, 1, 1), n),
        "sum": (reduction("sum", float32, "axis"), a, (1, n, 1, 1, 0, 1, 0, 1, 1), 1),
        "long softmax": (SOFTMAX, a, (1, n, 1, n, 1, 1, n, 1, 1), n),
        "columns": (reduction("sum", float32, "inner"), a, (1, 700, 513, 0, 0, 1, 0, 513, 1), 513),
    }, (Contract(float32, float32), a, b, out)


@pytest.mark.parametrize("name", list(large_kernels()[0]))
def test_bits_do_not_depend_on_the_number_of_threads(cpu, two_threads, name):
    kernel, a, numbers, count = large_kernels()[0][name]
    launch = cpu.build(kernel)
    results = []
    for number in (1, 2, 3):
        cpu.set_num_threads(number)
        out = np.zeros(count, np.float32)
        launch(at(out), at(a), *numbers)
        results.append(out)
    same(results[0], results[1])
    same(results[0], results[2])
    assert np.isfinite(results[0]).all()
    assert results[0].any()


def test_products_do_not_depend_on_the_number_of_threads(cpu, two_threads):
    kernel, a, b, out = large_kernels()[1]
    launch, results = cpu.build(kernel), []
    for number in (1, 2, 3):
        cpu.set_num_threads(number)
        launch(at(out), at(a), at(b), 1, 1, 700, 640, 513, 0, 0, 640, 1, 0, 0, 513, 1, 0, 0, 640, 1)
        results.append(out.copy())
    same(results[0], results[1])
    same(results[0], results[2])
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)


def test_several_python_threads_at_once(cpu, two_threads):
    launch = cpu.build(Map((float32,), (float32,), (), (X * 2 + 1,), 0, ("1", "1")))
    a = random(300_000)
    wrong = []

    def work():
        out = np.zeros_like(a)
        for _ in range(50):
            out[:] = 0
            launch(at(out), at(a), a.size)
            if not np.array_equal(out, a * 2 + 1):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT)
    assert not wrong


FORKING = """
import os, numpy as np
from rushlight import scalar as s
from rushlight.core.dtypes import float32
from rushlight.devices.cpu import open_device
from rushlight.kernel.shapes import Map
device = open_device()
device.set_num_threads(2)
launch = device.build(Map((float32,), (float32,), (), (s.arg(0, float32) + 1,), 0, ("1", "1")))
a, out = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
launch(out.ctypes.data, a.ctypes.data, a.size)
child = os.fork()
out[:] = 0
for _ in range(20):
    launch(out.ctypes.data, a.ctypes.data, a.size)
good = bool((out == 2).all())
if child == 0:
    os._exit(0 if good else 3)
assert good and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limit: no fork on this system")
def test_the_child_of_a_fork_has_threads_of_its_own():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.stdout == "done\n", done.stderr


def test_importing_the_device_builds_nothing_and_needs_no_numpy():
    code = (
        "import sys, rushlight.devices.cpu as c; c.open_device(); print('numpy' in sys.modules, "
        "c.threads._pool)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT
    )
    assert done.stdout == "False None\n", done.stderr


# ---- memory, cache ----


def test_blocks_are_aligned_and_take_copies(cpu):
    for size in (1, 64, 5000, 1 << 22, (1 << 22) + 4096):
        address = cpu.alloc(size)
        assert address % 64 == 0
        content = os.urandom(min(size, 10_000))
        cpu.copy_in(address, memoryview(content))
        back = bytearray(len(content))
        cpu.copy_out(address, memoryview(back))
        assert back == content
        cpu.free(address, size)


def test_memory_the_system_refuses_is_an_error_that_names_it(cpu):
    with pytest.raises(OutOfMemoryError, match=str(1 << 60)):
        cpu.alloc(1 << 60)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(tmp_path / "kernels"))
    # Warnings of damaged entries are tested in test_kernel_cache.py.
    monkeypatch.setattr(cache, "_said", {"entry"})
    return tmp_path / "kernels" / "cpu"


def test_broken_cache_files_are_ignored_and_rewritten(cpu, own_cache):
    kernel = Map((float32,), (float32,), (), (X * 17.5,), 0, ("1", "1"))
    a, out = random(10), np.zeros(10, np.float32)
    # And what the process's first build needs.
    cpu.build(Map((float32,), (float32,), (), (X * 16.5,), 0, ("1", "1")))
    before = set(own_cache.glob("*.kernel"))
    cpu.build(kernel)
    (path,) = set(own_cache.glob("*.kernel")) - before
    assert own_cache.stat().st_mode & 0o777 == 0o700
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for broken in (b"", whole[:20], whole[:-1], bytes(flipped), b"x" * len(whole)):
        path.write_bytes(broken)
        cpu.build(kernel)(at(out), at(a), 10)
        np.testing.assert_array_equal(out, a * np.float32(17.5))
        assert path.read_bytes() == whole
    assert set(own_cache.iterdir()) == {path} | before


def test_the_cache_is_read(cpu, own_cache, monkeypatch):
    kernel = Map((float32,), (float32,), (), (X * 18.5,), 0, ("1", "1"))
    cpu.build(kernel)
    monkeypatch.setattr(native, "optimised", None)
    cpu.build(kernel)


def test_a_cache_that_cannot_be_written_is_no_error(cpu, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(tmp_path / "file"))
    cpu.build(Map((float32,), (float32,), (), (X * 19.5,), 0, ("1", "1")))
    assert cache.read_object("cpu", "nothing") is None


def test_status_words_start_at_zero_and_stay(cpu):
    word = cpu.status_word("a new label")
    assert ctypes.c_int32.from_address(word).value == 0
    assert cpu.status_word("a new label") == word


def test_the_definition_of_a_builtin_outlives_every_table_of_it():
    """The interpreter's last collection reads it after modules were cleared."""
    stub.builtin(stub.entry(threads.runner()), "kept", b"")
    known = weakref.ref(stub._method(stub.entry(threads.runner()), "kept"))
    stub._method.cache_clear()
    gc.collect()
    assert known() is not None
