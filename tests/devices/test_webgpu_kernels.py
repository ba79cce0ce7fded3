"""Every kernel kind and element type on the WebGPU device, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from rushlight.core import dtypes as t
from rushlight.core.dtypes import DType, compute_type
from rushlight.kernel.shapes import Contract, Gather, Map, Reduce, Rowwise, Scatter
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, const, extent, index, param, row
from tests.devices import webgpu_arrays
from tests.devices.webgpu_arrays import NUMPY, TINY, Array, Bench, need, sample, strides_of

bench = webgpu_arrays.bench  # a fixture is found by its name here

# ---- maps ----


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("n", [1, 5, 1027])
def test_flat_copy_keeps_bits_and_neighbours(
    bench: Bench, dtype: DType, shift: int, n: int
) -> None:
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
    if dtype.kind in "iu":
        assert np.array_equal(got, x * y - x)
    else:
        wide_x, wide_y = x.astype("f8"), y.astype("f8")
        size = np.abs(wide_x * wide_y) + np.abs(wide_x)
        assert (
            np.abs(got.astype("f8") - (wide_x * wide_y - wide_x)) <= 2 * TINY[dtype.name] * size
        ).all()


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("to", t.ALL, ids=lambda d: d.name)
def test_casts(bench: Bench, dtype: DType, to: DType) -> None:
    need(bench, dtype)
    need(bench, to)
    x = sample(dtype, 77)
    if dtype.kind == "f" and to.kind == "u":
        x = np.abs(x)  # the conversion of a negative one is unspecified
    got = bench.flat(s.cast(arg(0, compute_type(dtype)), compute_type(to)), to, x)
    assert np.array_equal(got, x.astype(NUMPY[to.name]))


def test_strided_broadcast_and_index(bench: Bench) -> None:
    x, y = sample(t.float32, (6, 5, 4)).transpose(2, 0, 1), sample(t.float32, (6, 1), 3)
    seen = np.broadcast_to(y, (4, 6, 5))
    a, b = arg(0, t.float32), arg(1, t.float32)
    body = a + b * s.cast(index(), t.float32)
    launch = bench.device.build(
        Map((t.float32,), (t.float32, t.float32), (), (body,), 3, ("1", "n", "0"))
    )
    out = bench.put(np.zeros((4, 6, 5), "f4"))
    base = sample(t.float32, (6, 5, 4))
    launch(out, bench.put(base), bench.put(y), 4, 6, 5, 30, 5, 1, *strides_of(x), *strides_of(seen))
    want = x + seen * np.arange(120, dtype="f4").reshape(4, 6, 5)
    np.testing.assert_allclose(bench.get(out, (4, 6, 5), t.float32), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [t.bool_, t.float16, t.float32, t.int64], ids=lambda d: d.name)
def test_strided_output_of_small_types(bench: Bench, dtype: DType) -> None:
    x = sample(dtype, (7, 9))
    launch = bench.device.build(
        Map((dtype,), (dtype,), (), (arg(0, compute_type(dtype)),), 2, ("n", "1"))
    )
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
    launch = bench.device.build(
        Map((t.float32,), (t.float32, t.float32), (), (a - b,), 0, ("1", "1", "1"))
    )
    launch(address + 32 * 4, address, address + 16 * 4, 16)
    x[32:48] = x[:16] - x[16:32]
    assert np.array_equal(bench.get(address, (64,), t.float32), x)


def test_params_scalars_and_zero_sizes(bench: Bench) -> None:
    x, one = sample(t.float32, 40), np.array([3.0], "f4")
    body = (
        arg(0, t.float32) * param(0, t.float32)
        + arg(1, t.float32)
        + s.cast(param(1, t.int64) >> 40, t.float32)
    )
    np.testing.assert_allclose(
        bench.flat(body, t.float32, x, one, params=(0.5, 5 << 40)), x * 0.5 + 8, rtol=1e-6
    )
    assert np.isinf(
        bench.flat(arg(0, t.float32) * param(0, t.float32), t.float32, one, params=(1e300,))
    )[0]
    launch = bench.device.build(Map((t.float32,), (), (), (const(7, t.float32),), 0, ("1",)))
    out = bench.put(x)
    launch(out, 0)
    assert np.array_equal(bench.get(out, (40,), t.float32), x)


def test_two_outputs_of_different_width(bench: Bench) -> None:
    x = sample(t.float32, 1003)
    a = arg(0, t.float32)
    launch = bench.device.build(
        Map(
            (t.float16, t.bool_, t.int64),
            (t.float32,),
            (),
            (a, a < 0, s.cast(a * 9, t.int64)),
            0,
            ("1",) * 4,
        )
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


# ---- rows ----


def reduce_rows(
    bench: Bench, x: Array, kind: str, vector: str, dtype: DType, compute: DType
) -> Array:
    """Reduce the middle axis. Bools are folded as int32, as kernels may do, and stored as bool."""
    body = s.cast(arg(0, compute_type(dtype)), compute)
    steps = ("n", "n") if vector == "any" else ("1", "1")
    result = t.bool_ if dtype is t.bool_ else compute
    store = s.cast(row(0, compute), result)
    kernel = Rowwise(
        (result,), ("row",), (dtype,), (), (Reduce(kind, body),), (store,), vector, steps
    )
    outer, axis, inner = x.shape
    out = bench.put(np.zeros((outer, inner), result.name))
    bench.device.build(kernel)(
        out, bench.put(x), outer, axis, inner, inner, 0, 1, axis * inner, inner, 1
    )
    return bench.get(out, (outer, inner), result)


@pytest.mark.parametrize(
    "shape",
    [
        (3, 7, 1),
        (5, 300, 1),
        (2, 2000, 3),
        (2, 30, 40),
        (1, 1500, 33),
        (2, 0, 3),
        (2, 20000, 1),
        (1, 17000, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
def test_reductions(bench: Bench, shape: tuple[int, int, int], dtype: DType) -> None:
    need(bench, dtype)
    vector = "axis" if shape[2] == 1 else "inner"
    x = sample(dtype, shape)
    compute = t.int32 if dtype is t.bool_ else compute_type(dtype)
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
    assert np.array_equal(
        reduce_rows(bench, x, "prod", "axis", t.float32, t.float32), np.ones((2, 1))
    )
    assert np.array_equal(
        reduce_rows(bench, x, "max", "axis", t.float32, t.float32), np.full((2, 1), -np.inf)
    )
    whole = np.zeros((2, 0, 1), "i8")
    assert np.array_equal(
        reduce_rows(bench, whole, "max", "axis", t.int64, t.int64), np.full((2, 1), -(2**63))
    )


def test_reduction_propagates_nan(bench: Bench) -> None:
    x = sample(t.float32, (2, 400, 1))
    x[1, 333] = np.nan
    got = reduce_rows(bench, x, "max", "axis", t.float32, t.float32)
    assert got[0, 0] == x[0].max() and np.isnan(got[1, 0])


@pytest.mark.parametrize("dtype", [t.float32, t.float16, t.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(4, 50, 1), (3, 1000, 1), (2, 20, 30), (2, 20001, 1)], ids=str)
def test_softmax_in_place_with_a_row_output(
    bench: Bench, shape: tuple[int, int, int], dtype: DType
) -> None:
    x = sample(dtype, shape)
    a = arg(0, t.float32)
    shifted = s.exp(a - row(0, t.float32))
    passes = (Reduce("max", a), Reduce("sum", shifted))
    stores = (shifted / row(1, t.float32), s.log(row(1, t.float32)) + row(0, t.float32))
    vector = "axis" if shape[2] == 1 else "inner"
    kernel = Rowwise(
        (dtype, t.float32),
        ("element", "row"),
        (dtype,),
        (),
        passes,
        stores,
        vector,
        ("1", "1", "1"),
    )
    outer, axis, inner = shape
    address, rows = bench.put(x), bench.put(np.zeros((outer, inner), "f4"))
    full = (axis * inner, inner, 1)
    bench.device.build(kernel)(address, rows, address, *shape, *full, inner, 0, 1, *full)
    wide = x.astype("f8")
    want = np.exp(wide - wide.max(1, keepdims=True))
    total = want.sum(1, keepdims=True)
    np.testing.assert_allclose(
        bench.get(address, shape, dtype).astype("f8"),
        want / total,
        rtol=4 * TINY[dtype.name] + 1e-5,
        atol=2.0**-24,
    )
    logs = (np.log(total) + wide.max(1, keepdims=True))[:, 0]
    np.testing.assert_allclose(
        bench.get(rows, (outer, inner), t.float32), logs, rtol=1e-5, atol=1e-5
    )


def test_argmax_with_index_and_extent(bench: Bench) -> None:
    x = sample(t.float32, (6, 500, 1))
    a = arg(0, t.float32)
    first = s.where(a.eq(row(0, t.float32)), index(), extent())
    passes = (Reduce("max", a), Reduce("min", first))
    kernel = Rowwise(
        (t.int64,), ("row",), (t.float32,), (), passes, (row(1, t.int64),), "axis", ("1", "1")
    )
    out = bench.put(np.zeros(6, "i8"))
    bench.device.build(kernel)(out, bench.put(x), 6, 500, 1, 1, 0, 0, 500, 1, 0)
    assert np.array_equal(bench.get(out, (6,), t.int64), x[:, :, 0].argmax(1))


def softmax_kernel(vector: str) -> Rowwise:
    a = arg(0, t.float32)
    shifted = s.exp(a - row(0, t.float32))
    passes = (Reduce("max", a), Reduce("sum", shifted))
    stores = (shifted / row(1, t.float32), row(1, t.float32))
    outputs = (t.float32, t.float32)
    return Rowwise(
        outputs, ("element", "row"), (t.float32,), (), passes, stores, vector, ("1", "1", "1")
    )


def softmax(bench: Bench, x: Array, vector: str, shift: int) -> tuple[bytes, bytes]:
    """The bits of a softmax of x's axis 1, operands `shift` elements into their blocks."""
    outer, axis, inner = x.shape
    places = [bench.put(np.zeros(n, "f4"), shift) for n in (x.size, outer * inner)]
    full = (axis * inner, inner, 1)
    launch = bench.device.build(softmax_kernel(vector))
    launch(*places, bench.put(x, shift), *x.shape, *full, inner, 0, 1, *full)
    made = bench.get(places[0], x.shape, t.float32), bench.get(places[1], (outer, inner), t.float32)
    return made[0].tobytes(), made[1].tobytes()


@pytest.mark.parametrize("axis", [48, 1024, 6000, 20000])
def test_a_row_has_the_same_bits_whatever_its_address(bench: Bench, axis: int) -> None:
    x = sample(t.float32, (2, axis, 1), 5)
    assert softmax(bench, x, "axis", 0) == softmax(bench, x, "axis", 1)


def test_a_long_row_has_the_same_bits_among_few_and_many(bench: Bench) -> None:
    x = sample(t.float32, (1, 17000, 1), 6)
    few, _ = softmax(bench, x, "axis", 0)
    many, _ = softmax(bench, np.repeat(x, 512, 0), "axis", 0)
    assert many == few * 512


@pytest.mark.parametrize("axis", [40, 100, 1500])
def test_columns_have_the_same_bits_whatever_their_address(bench: Bench, axis: int) -> None:
    x = sample(t.float32, (2, axis, 64), 7)
    assert softmax(bench, x, "inner", 0) == softmax(bench, x, "inner", 1)


@pytest.mark.parametrize("dtype", [t.float32, t.bfloat16], ids=lambda d: d.name)
def test_turned_and_broadcast_maps(bench: Bench, dtype: DType) -> None:
    need(bench, dtype)
    a, b = sample(dtype, (300, 256), 1), sample(dtype, (256,), 2)
    x, y = arg(0, t.float32), arg(1, t.float32)
    turned = Map((dtype,), (dtype, dtype), (), (x + y,), 2, ("1", "n", "0"))
    out = bench.put(np.zeros((256, 300), NUMPY[dtype.name]))
    bench.device.build(turned)(
        *(out, bench.put(a), bench.put(b), 256, 300),
        *(300, 1, 1, 256, 1, 0),
    )
    want = a.astype("f4").T + b.astype("f4")[:, None]
    assert np.array_equal(bench.get(out, (256, 300), dtype), want.astype(NUMPY[dtype.name]))
    biased = Map((dtype,), (dtype, dtype), (), (x + y,), 2, ("1", "1", "1"))
    for shift in (0, 1):
        out = bench.put(np.zeros((300, 256), NUMPY[dtype.name]), shift)
        places = (out, bench.put(a, shift), bench.put(b, shift))
        bench.device.build(biased)(*places, 300, 256, 256, 1, 256, 1, 0, 1)
        want = a.astype("f4") + b.astype("f4")
        assert np.array_equal(bench.get(out, (300, 256), dtype), want.astype(NUMPY[dtype.name]))


# ---- contractions ----


@pytest.mark.parametrize("dtype", [t.float32, t.float16], ids=lambda d: d.name)
def test_products_have_the_same_bits_in_every_form(bench: Bench, dtype: DType) -> None:
    """Few and many tiles, vectors and elements, and one element per invocation."""
    a, b = sample(dtype, (1300, 40), 1), sample(dtype, (40, 1408), 2)
    launch = bench.device.build(Contract(dtype, t.float32))

    def product(rows: int, columns: int, shift: int) -> Array:
        out = bench.put(np.zeros((rows, columns), NUMPY[dtype.name]), shift)
        places = (out, bench.put(a, shift), bench.put(b, shift))
        strides = (0, 0, columns, 1, 0, 0, 40, 1, 0, 0, 1408, 1)
        launch(*places, 1, 1, rows, columns, 40, *strides)
        return bench.get(out, (rows, columns), dtype)

    whole = product(1300, 1408, 0)
    assert np.array_equal(product(1300, 1408, 1), whole)
    assert np.array_equal(product(100, 120, 0), whole[:100, :120])
    assert np.array_equal(product(7, 30, 0), whole[:7, :30])


@pytest.mark.parametrize("dtype", t.NUMBER, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 3, 2, 5), (2, 3, 20, 17, 9), (1, 2, 65, 70, 33), (1, 1, 4, 4, 0), (1, 1, 100, 1, 40)],
    ids=str,
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
    if dtype.kind in "iu":
        assert np.array_equal(got, a @ b)
    else:
        wide = a.astype("f8") @ b.astype("f8")
        room = (
            (np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))) * 2.0**-20
            if dtype is not t.float64
            else 1e-12
        )
        assert (np.abs(got.astype("f8") - wide) <= room + 2 * TINY[dtype.name] * np.abs(wide)).all()


def test_contract_broadcasts_a_batch(bench: Bench) -> None:
    a, b = sample(t.float32, (4, 30, 12), 1), sample(t.float32, (12, 25), 2)
    out = bench.put(np.zeros((4, 30, 25), "f4"))
    launch = bench.device.build(Contract(t.float32, t.float32))
    launch(
        out, bench.put(a), bench.put(b), 1, 4, 30, 25, 12, 0, 750, 25, 1, 0, 360, 12, 1, 0, 0, 25, 1
    )
    np.testing.assert_allclose(bench.get(out, (4, 30, 25), t.float32), a @ b, rtol=1e-4, atol=1e-5)


# ---- indices ----


@pytest.mark.parametrize("dtype", t.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("index_dtype", t.INDEX, ids=lambda d: d.name)
def test_gather(bench: Bench, dtype: DType, index_dtype: DType) -> None:
    need(bench, dtype)
    source = sample(dtype, (3, 10, 5))
    places = np.random.default_rng(1).integers(0, 10, (3, 4, 5)).astype(index_dtype.name)
    out = bench.put(np.zeros((3, 4, 5), source.dtype), 1)
    status = bench.device.status_word("take")
    launch = bench.device.build(Gather(dtype, index_dtype))
    launch(
        out,
        bench.put(source, 1),
        bench.put(places),
        status,
        3,
        4,
        5,
        10,
        20,
        5,
        1,
        50,
        5,
        1,
        20,
        5,
        1,
    )
    assert np.array_equal(bench.get(out, (3, 4, 5), dtype), np.take_along_axis(source, places, 1))


@pytest.mark.parametrize("dtype", t.NUMBER, ids=lambda d: d.name)
@pytest.mark.parametrize("index_dtype", t.INDEX, ids=lambda d: d.name)
def test_scatter_add(bench: Bench, dtype: DType, index_dtype: DType) -> None:
    need(bench, dtype)
    target, source = sample(dtype, (2, 6, 5), 1), sample(dtype, (2, 9, 5), 2)
    places = np.random.default_rng(1).integers(0, 6, 9).astype(index_dtype.name)
    out = bench.put(target, 1)
    launch = bench.device.build(Scatter(dtype, index_dtype))
    status = bench.device.status_word("index_add")
    launch(
        out, bench.put(source), bench.put(places), status, 2, 9, 5, 6, 30, 5, 1, 45, 5, 1, 0, 1, 0
    )
    for k, place in enumerate(places):
        target[:, place] = (
            target[:, place].astype(NUMPY[compute_type(dtype).name]) + source[:, k]
        ).astype(target.dtype)
    assert np.array_equal(bench.get(out, (2, 6, 5), dtype), target)


def folded(kind: str, dtype: DType, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    if kind == "set":
        return new
    fold = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
    own = NUMPY[compute_type(dtype).name]
    return fold(old.astype(own), new.astype(own)).astype(old.dtype)


@pytest.mark.parametrize(
    "dtype", (t.bool_, t.int8, t.int64, t.float16, t.float32), ids=lambda d: d.name
)
@pytest.mark.parametrize("kind", ("set", "prod", "max", "min"))
def test_scatter_kinds(bench: Bench, dtype: DType, kind: str) -> None:
    need(bench, dtype)
    if dtype is t.bool_ and kind != "set":
        return
    target, source = sample(dtype, (2, 6, 5), 1), sample(dtype, (2, 9, 5), 2)
    if dtype.kind == "f":
        source[0, 3, 1] = target[1, 2, 2] = np.nan
    places = np.random.default_rng(1).integers(0, 6, (2, 9, 5))
    out = bench.put(target, 1)
    launch = bench.device.build(Scatter(dtype, t.int64, kind))
    status = bench.device.status_word("scatter")
    launch(
        out, bench.put(source), bench.put(places), status, 2, 9, 5, 6, 30, 5, 1, 45, 5, 1, 45, 5, 1
    )
    for o, k, i in np.ndindex(2, 9, 5):
        spot = (o, places[o, k, i], i)
        target[spot] = folded(kind, dtype, target[spot], source[o, k, i])
    np.testing.assert_array_equal(bench.get(out, (2, 6, 5), dtype), target)


@pytest.mark.parametrize(
    "bad", [10, -1, -11, 2**32, -(2**32), 2**63 - 1, np.int32(-1), np.int32(10)]
)
def test_bad_index_raises_once_and_stores_zero(bench: Bench, bad: int) -> None:
    source, out = sample(t.float32, (10, 1)), bench.put(np.ones(2, "f4"))
    status = bench.device.status_word("embedding")
    kind = t.int32 if isinstance(bad, np.int32) else t.int64
    launch, places = (
        bench.device.build(Gather(t.float32, kind)),
        bench.put(np.array([3, bad], kind.name)),
    )
    launch(out, bench.put(source), places, status, 1, 2, 1, 10, 0, 1, 1, 0, 1, 1, 0, 1, 1)
    with pytest.raises(IndexError, match="embedding"):
        bench.device.synchronize()
    bench.device.synchronize()
    assert np.array_equal(bench.get(out, (2,), t.float32), [source[3, 0], 0])


def test_scatter_add_skips_bad_indices(bench: Bench) -> None:
    out = bench.put(np.zeros(3, "f4"))
    status = bench.device.status_word("index_add")
    launch = bench.device.build(Scatter(t.float32, t.int64))
    places = bench.put(np.array([1, -1, 3, 1]))
    launch(out, bench.put(np.ones(4, "f4")), places, status, 1, 4, 1, 3, 0, 1, 0, 0, 1, 0, 0, 1, 0)
    with pytest.raises(IndexError, match="index_add"):
        bench.device.synchronize()
    assert np.array_equal(bench.get(out, (3,), t.float32), [0, 2, 0])
