"""The reference device runs each loop shape as its docstring says; the null device runs nothing."""

import ml_dtypes  # noqa: I001
import numpy as np
import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import ALL, bfloat16, bool_, float16, float32, float64, int32, int64
from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.devices.null import open_device as open_null
from rushlight.devices.reference import narrow, open_device, widen
from rushlight.kernel.shapes import Contract, Gather, Map, Reduce, Rowwise, Scatter

X, Y = s.arg(0, float32), s.arg(1, float32)


@pytest.fixture
def machine():
    return open_device()


def at(array):
    return array.ctypes.data


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- maps ----


def test_flat_map_with_an_operand_that_stays(machine):
    kernel = Map(
        (float32,),
        (float32, float32),
        (float32,),
        (X * Y + s.param(0, float32),),
        0,
        ("1", "1", "0"),
    )
    a, b, out = random(1000), random(1), np.empty(1000, np.float32)
    machine.build(kernel)(at(out), at(a), at(b), 1000, 0.25)
    np.testing.assert_array_equal(out, a * b + np.float32(0.25))


def test_strided_map_reads_views_and_writes_views(machine):
    kernel = Map((float32,), (float32, float32), (), (X - Y,), 2, ("1", "n", "0"))
    a, b = random(5, 4), random(4)
    out = np.zeros((4, 10), np.float32)
    machine.build(kernel)(at(out), at(a), at(b), 4, 5, 10, 1, 1, 4, 1, 0)
    np.testing.assert_array_equal(out[:, :5], a.T - b[:, None])
    assert not out[:, 5:].any()


def test_negative_strides(machine):
    kernel = Map((float32,), (float32,), (), (X,), 1, ("1", "n"))
    a, out = random(6), np.empty(6, np.float32)
    machine.build(kernel)(at(out), at(a) + 5 * 4, 6, 1, -1)
    np.testing.assert_array_equal(out, a[::-1])


def test_index_is_the_linear_position(machine):
    kernel = Map((int64,), (), (), (s.index() * 2,), 2, ("1",))
    out = np.empty((3, 4), np.int64)
    machine.build(kernel)(at(out), 3, 4, 4, 1)
    np.testing.assert_array_equal(out, 2 * np.arange(12).reshape(3, 4))


def test_in_place_with_two_outputs(machine):
    """Both bodies read the inputs as they were."""
    kernel = Map((float32, float32), (float32, float32), (), (X + Y, X - Y), 0, ("1",) * 4)
    a, b = random(10), random(10, seed=1)
    total, difference = a + b, a - b
    machine.build(kernel)(at(a), at(b), at(a), at(b), 10)
    np.testing.assert_array_equal(a, total)
    np.testing.assert_array_equal(b, difference)


def test_nothing_is_written_when_a_size_is_zero(machine):
    kernel = Map((float32,), (float32,), (), (X,), 2, ("1", "1"))
    machine.build(kernel)(0, 0, 0, 4, 4, 1, 4, 1)


@pytest.mark.parametrize(
    ("dtype", "stored"), [(float16, np.float16), (bfloat16, ml_dtypes.bfloat16)]
)
def test_halves_compute_in_float32_and_round_to_even(machine, dtype, stored):
    kernel = Map((dtype,), (dtype, dtype), (), (X * Y + X,), 0, ("1",) * 3)
    a, b = random(1000).astype(stored), random(1000, seed=1).astype(stored)
    out = np.empty(1000, stored)
    machine.build(kernel)(at(out), at(a), at(b), 1000)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_array_equal(
        out.view(np.uint16), (wide_a * wide_b + wide_a).astype(stored).view(np.uint16)
    )


def test_bfloat16_conversion_is_that_of_ml_dtypes():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate(
        [values, np.float32([0, -0.0, np.inf, -np.inf, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8])]
    )
    with np.errstate(all="ignore"):
        want = values.astype(ml_dtypes.bfloat16)
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(narrow(values)[finite], want.view(np.uint16)[finite])
    assert np.isnan(widen(narrow(values[~finite]))).all()
    words = np.arange(2**16, dtype=np.uint16)
    np.testing.assert_array_equal(widen(words), words.view(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300])
def test_constants_that_are_no_integers(machine, value):
    a, out = random(4), np.empty(4, np.float32)
    with np.errstate(over="ignore"):
        wide = np.float32(value)
    machine.build(Map((float32,), (float32,), (), (s.minimum(X, value),), 0, ("1", "1")))(
        at(out), at(a), 4
    )
    np.testing.assert_array_equal(out, np.minimum(a, wide))
    passes, stores = (Reduce("max", s.minimum(X, value)),), (s.maximum(s.row(0, float32), value),)
    kernel = Rowwise((float32,), ("row",), (float32,), (), passes, stores, "axis", ("0", "1"))
    machine.build(kernel)(at(out), at(a), 1, 4, 1, 0, 0, 0, 4, 1, 0)
    np.testing.assert_array_equal(out[0], np.maximum(np.minimum(a, wide).max(), wide))


def test_bool_memory_is_bytes(machine):
    kernel = Map(
        (bool_,), (bool_, float32), (), (s.arg(0, bool_) | (s.arg(1, float32) > 0),), 0, ("1",) * 3
    )
    a, b = random(50) > 0.5, random(50, seed=1)
    out = np.empty(50, bool)
    machine.build(kernel)(at(out), at(a), at(b), 50)
    np.testing.assert_array_equal(out, a | (b > 0))


# ---- rows ----


def softmax(dtype=float32):
    top, total = s.row(0, float32), s.row(1, float32)
    return Rowwise(
        outputs=(dtype, float32),
        kinds=("element", "row"),
        inputs=(dtype,),
        params=(),
        passes=(Reduce("max", X), Reduce("sum", s.exp(X - top))),
        stores=(s.exp(X - top) / total, top + s.log(total)),
        vector="any",
        steps=("n", "n", "n"),
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_along_each_axis(machine, axis):
    a = random(3, 4, 5)
    outer, length, inner = (
        int(np.prod(a.shape[:axis])),
        a.shape[axis],
        int(np.prod(a.shape[axis + 1 :])),
    )
    block = (length * inner, inner, 1)
    out, row = np.empty_like(a), np.empty((outer, inner), np.float32)
    machine.build(softmax())(
        at(out), at(row), at(a), outer, length, inner, *block, inner, 99, 1, *block
    )
    wide = a.astype(np.float64)
    grown = np.exp(wide - wide.max(axis, keepdims=True))
    np.testing.assert_allclose(out, grown / grown.sum(axis, keepdims=True), rtol=3e-7)
    want = np.log(np.exp(wide).sum(axis)).reshape(outer, inner)
    np.testing.assert_allclose(row, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", [int32, int64, float32, float64])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_reducing_nothing_gives_the_identity(machine, kind, dtype):
    kernel = Rowwise(
        (dtype,),
        ("row",),
        (dtype,),
        (),
        (Reduce(kind, s.arg(0, dtype)),),
        (s.row(0, dtype),),
        "axis",
        ("0", "1"),
    )
    out = np.full(2, 7, dtype.name)
    machine.build(kernel)(at(out), 0, 2, 0, 1, 1, 0, 0, 0, 1, 0)
    limits = (
        (-np.inf, np.inf)
        if dtype.kind == "f"
        else (np.iinfo(dtype.name).min, np.iinfo(dtype.name).max)
    )
    want = {"sum": 0, "prod": 1, "max": limits[0], "min": limits[1]}[kind]
    np.testing.assert_array_equal(out, [want, want])


def test_integer_sums_wrap_and_float_sums_are_rounded_once(machine):
    def total(dtype, values):
        kernel = Rowwise(
            (dtype,),
            ("row",),
            (dtype,),
            (),
            (Reduce("sum", s.arg(0, dtype)),),
            (s.row(0, dtype),),
            "axis",
            ("0", "1"),
        )
        out = np.empty(1, dtype.name)
        machine.build(kernel)(at(out), at(values), 1, len(values), 1, 0, 0, 0, len(values), 1, 0)
        return out[0]

    assert total(int32, np.full(3, 2**30, np.int32)) == 3 * 2**30 - 2**32
    assert total(float32, np.array([2.0**24, *[1.0] * 10], np.float32)) == 2**24 + 10


def test_maximum_over_a_row_passes_nan_on(machine):
    kernel = Rowwise(
        (float32,),
        ("row",),
        (float32,),
        (),
        (Reduce("max", X),),
        (s.row(0, float32),),
        "axis",
        ("0", "1"),
    )
    a, out = np.float32([1, np.nan, 3]), np.empty(1, np.float32)
    machine.build(kernel)(at(out), at(a), 1, 3, 1, 0, 0, 0, 3, 1, 0)
    assert np.isnan(out[0])


def test_argmax_by_index_and_extent(machine):
    top = s.row(0, float32)
    place = s.where(X.eq(top), s.index(), s.extent())
    kernel = Rowwise(
        (int64,),
        ("row",),
        (float32,),
        (),
        (Reduce("max", X), Reduce("min", place)),
        (s.row(1, int64),),
        "axis",
        ("0", "1"),
    )
    a, out = random(6, 9), np.empty(6, np.int64)
    machine.build(kernel)(at(out), at(a), 6, 9, 1, 1, 0, 0, 9, 1, 0)
    np.testing.assert_array_equal(out, a.argmax(1))


def test_row_store_may_use_an_operand_that_stays_and_no_other(machine):
    kernel = Rowwise(
        (float32,),
        ("row",),
        (float32, float32),
        (),
        (Reduce("sum", X),),
        (s.row(0, float32) * Y,),
        "any",
        ("n",) * 3,
    )
    a, scale, out = random(3, 4), random(3), np.empty(3, np.float32)
    launch = machine.build(kernel)
    launch(at(out), at(a), at(scale), 3, 4, 1, 1, 0, 0, 4, 1, 0, 1, 0, 0)
    np.testing.assert_allclose(out, a.sum(1) * scale, rtol=1e-5)
    with pytest.raises(ValueError, match="arg1, which moves"):
        launch(at(out), at(a), at(a), 3, 4, 1, 1, 0, 0, 4, 1, 0, 4, 1, 0)


# ---- contractions ----


@pytest.mark.parametrize("dtype", [int32, int64, float16, bfloat16, float32, float64])
def test_contract_with_a_transposed_operand(machine, dtype):
    stored = ml_dtypes.bfloat16 if dtype is bfloat16 else np.dtype(dtype.name)
    a = (random(2, 3, 4) * 4).astype(stored)
    b = (random(2, 5, 4, seed=1) * 4).astype(stored)  # used as (4, 5)
    out = np.empty((2, 3, 5), stored)
    compute = float32 if dtype.itemsize == 2 else dtype
    launch = machine.build(Contract(dtype, compute))
    launch(at(out), at(a), at(b), 1, 2, 3, 5, 4, 0, 15, 5, 1, 0, 12, 4, 1, 0, 20, 1, 4)
    want = a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1)
    np.testing.assert_allclose(
        out.astype(np.float64), want, rtol=2e-2 if dtype.itemsize == 2 else 1e-5, atol=1e-2
    )


def test_contract_over_nothing_gives_zeros(machine):
    out = np.ones((2, 2), np.float32)
    machine.build(Contract(float32, float32))(
        at(out), 0, 0, 1, 1, 2, 2, 0, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 2, 1
    )
    assert not out.any()


# ---- indices ----


@pytest.mark.parametrize("index_dtype", [int32, int64])
def test_gather(machine, index_dtype):
    source = random(2, 5, 3)
    index = np.random.default_rng(1).integers(0, 5, (2, 4, 3)).astype(index_dtype.name)
    out = np.empty((2, 4, 3), np.float32)
    status = machine.status_word("gather")
    strides = (12, 3, 1, 15, 3, 1, 12, 3, 1)
    machine.build(Gather(float32, index_dtype))(
        at(out), at(source), at(index), status, 2, 4, 3, 5, *strides
    )
    np.testing.assert_array_equal(out, np.take_along_axis(source, index, 1))
    machine.synchronize()


def test_a_bad_index_stores_zero_and_is_told_once(machine):
    source, index = random(5), np.array([1, 5, -6, -1, 4])
    out = np.ones(5, np.float32)
    machine.status_word("other")
    status = machine.status_word("index_select")
    machine.build(Gather(float32, int64))(
        at(out), at(source), at(index), status, 1, 5, 1, 5, 0, 1, 0, 0, 1, 0, 0, 1, 0
    )
    np.testing.assert_array_equal(out, [source[1], 0, 0, 0, source[4]])
    with pytest.raises(IndexError, match=r"^index_select"):
        machine.synchronize()
    machine.synchronize()


def test_gather_from_an_empty_axis(machine):
    index, out = np.array([0]), np.ones(1, np.float32)
    status = machine.status_word("gather")
    machine.build(Gather(float32, int64))(
        at(out), 0, at(index), status, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0
    )
    assert out[0] == 0
    with pytest.raises(IndexError):
        machine.copy_out(at(out), memoryview(bytearray(4)))


def test_scatter_add_repeats_and_skips_bad_indices(machine):
    source, index = random(4, 3), np.array([1, 1, -1, 9])
    out = random(5, 3, seed=2)
    want = out.copy()
    for k in (0, 1):
        want[1] += source[k]
    status = machine.status_word("scatter_add")
    strides = (0, 3, 1, 0, 3, 1, 0, 1, 0)
    machine.build(Scatter(float32, int64))(
        at(out), at(source), at(index), status, 1, 4, 3, 5, *strides
    )
    np.testing.assert_array_equal(out, want)
    with pytest.raises(IndexError, match="scatter_add"):
        machine.synchronize()


def test_scatter_add_rounds_halves_at_each_addition(machine):
    source, index = np.full(4, 1.0, np.float16), np.zeros(4, np.int64)
    out = np.full(1, 2048.0, np.float16)
    status = machine.status_word("scatter_add")
    strides = (0, 1, 0, 0, 1, 0, 0, 1, 0)
    machine.build(Scatter(float16, int64))(
        at(out), at(source), at(index), status, 1, 4, 1, 1, *strides
    )
    assert out[0] == 2048  # each addition of 1 is a tie and rounds to even


# ---- memory ----


def test_memory_round_trip(machine):
    address = machine.alloc(100)
    assert address % 64 == 0
    machine.copy_in(address + 4, memoryview(b"abcdef"))
    target = bytearray(6)
    machine.copy_out(address + 4, memoryview(target))
    assert target == b"abcdef"
    machine.copy_in(address, memoryview(b""))
    machine.free(address, 100)


def test_memory_takes_arrays_of_any_rank(machine):
    a = random(3, 4)
    address, out = machine.alloc(a.nbytes), np.empty_like(a)
    machine.copy_in(address, memoryview(a))
    machine.copy_out(address, memoryview(out))
    np.testing.assert_array_equal(out, a)
    machine.free(address, a.nbytes)


def test_no_room_is_an_error_one_can_catch(machine):
    with pytest.raises(OutOfMemoryError):
        machine.alloc(1 << 60)


def test_launch_refuses_a_missing_address_before_it_writes(machine):
    out = np.ones(3, np.float32)
    launch = machine.build(Map((float32,), (float32,), (), (X * 2,), 0, ("1", "1")))
    with pytest.raises(TypeError):
        launch(at(out), None, 3)
    assert (out == 1).all()


def test_build_refuses_ill_formed_kernels(machine):
    with pytest.raises(ValueError, match="output 0"):
        machine.build(Map((int64,), (float32,), (), (X,), 0, ("1", "1")))


# ---- null ----


def test_null_device_counts_and_runs_nothing():
    device = open_null()
    pool = Pool(device)
    storages = [Storage(pool, room_for(n)) for n in (10, 1 << 20, 1 << 40)]
    assert pool.live == sum(map(room_for, (10, 1 << 20, 1 << 40)))
    addresses = [x.address for x in storages]
    assert len(set(addresses)) == 3
    launch = device.build(Map((float32,), (float32,), (), (X,), 0, ("1", "1")))
    assert launch(addresses[0], addresses[1], 1 << 30) is None
    with pytest.raises(TypeError):
        launch(addresses[0], None, 1)
    with pytest.raises(TypeError):
        launch(addresses[0], addresses[1])
    del storages
    assert pool.live == 0 and pool.peak > 1 << 40


def test_null_device_reads_as_zeros():
    device = open_null()
    target = np.ones((2, 3), np.float32)
    device.copy_in(device.alloc(24), memoryview(target))
    device.copy_out(device.alloc(24), memoryview(target))
    assert not target.any()
    assert device.status_word("a") == device.status_word("a") != device.status_word("b")
    device.synchronize()
    assert device.limits.dtypes == ALL and not device.limits.host_memory
