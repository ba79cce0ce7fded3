"""Kernels with anomaly checks report the NaN and infinities they store and load, and nothing else.

On every device. Note [Anomaly kernels] defines the numbers: 1 a NaN stored, 2 an infinity stored, 4
and 8 loaded.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from rushlight.core.dtypes import FLOAT, DType, bfloat16, compute_type, float16, float32, float64
from rushlight.devices.reference import narrow, widen
from rushlight.devices.shared.registry import pool_of
from rushlight.emit.llvm.kernels import lowered
from rushlight.emit.llvm.rowwise import plan
from rushlight.kernel.shapes import Kernel, Map, Reduce, Rowwise
from rushlight.kernel.verify import verify
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, row
from tests.emit.cuda_emulation import Emulator

NAN, INF = math.nan, math.inf
Array = np.ndarray


def stored(dtype: DType, values: Array) -> Array:
    return narrow(values.astype(np.float32)) if dtype is bfloat16 else values.astype(dtype.name)


def loaded(dtype: DType, words: Array) -> Array:
    return widen(words) if dtype is bfloat16 else words


def run(
    device: str, kernel: Kernel, out: Array, ins: list[Array], numbers: tuple[int, ...]
) -> tuple[Array, int]:
    """The output after a launch, and its flags.

    An input that is `out` itself is launched in place.
    """
    pool = pool_of(device)
    if any(d not in pool.device.limits.dtypes for d in (*kernel.outputs, *kernel.inputs)):
        pytest.skip("limit: no float64")
    arrays = [out, *ins]
    places: dict[int, int] = {}
    for a in arrays:
        if id(a) not in places:
            places[id(a)] = pool.device.alloc(max(64, a.nbytes))
            pool.device.copy_in(places[id(a)], memoryview(np.ascontiguousarray(a)).cast("B"))
    addresses = [places[id(a)] for a in arrays]
    met = []
    if pool.device.limits.asynchronous:
        flag = pool.device.alloc(64)
        pool.device.copy_in(flag, memoryview(bytes(64)))
        pool.device.build(kernel)(*addresses, flag, *numbers)
        word = np.zeros(1, np.int32)
        pool.device.copy_out(flag, memoryview(word).cast("B"))
        met.append(int(word[0]))
    else:
        pool.device.build(kernel, lambda what, *given: met.append(what))(*addresses, *numbers)
    result = np.zeros_like(out)
    pool.device.copy_out(addresses[0], memoryview(result).cast("B"))
    for a in {id(a): a for a in arrays}.values():
        pool.device.free(places[id(a)], max(64, a.nbytes))
    what = (met or [0])[0]
    return result, what & ~(2 * (what & 5))  # a NaN may hide an infinity, or not


def binary(
    dtype: DType, body: Callable, anomaly: tuple[int, ...], rank: int = 0, steps=("1", "1", "1")
) -> Map:
    x, y = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
    return Map((dtype,), (dtype, dtype), (), (body(x, y),), rank, steps, anomaly)


def ones(dtype: DType, n: int, *bad: tuple[int, float]) -> Array:
    values = np.ones(n)
    for place, value in bad:
        values[place] = value
    return stored(dtype, values)


# ---- maps ----


@pytest.mark.parametrize("dtype", FLOAT, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [1, 17, 100, 5000])
def test_a_flat_map_tells_what_it_stores_and_loads(device: str, dtype: DType, n: int):
    big = {"float16": 6e4, "float64": 1.7e308}.get(dtype.name, 3e38)
    last = n - 1
    for a, b, want in (
        (1.0, 1.0, 0),
        (big, -big, 0),
        (big, big, 2),
        (NAN, 1.0, 1 | 4),
        (1.0, -INF, 2 | 8),
        (INF, -INF, 1 | 8),
    ):
        x, y = ones(dtype, n, (last, a)), ones(dtype, n, (last, b))
        kernel = binary(dtype, lambda x, y: x + y, (0, 1))
        got, met = run(device, kernel, np.zeros_like(x), [x, y], (n,))
        assert met == want, (a, b)
        with np.errstate(all="ignore"):
            assert np.array_equal(
                loaded(dtype, got), loaded(dtype, x) + loaded(dtype, y), equal_nan=True
            )


def test_loads_are_told_of_for_the_inputs_asked_for_alone(device: str):
    x, y = ones(float32, 40, (3, INF)), ones(float32, 40, (5, NAN))
    for anomaly, want in (((), 1), ((0,), 1 | 8), ((1,), 1 | 4)):
        assert (
            run(
                device,
                binary(float32, lambda x, y: x + y, anomaly),
                np.zeros_like(x),
                [x, y],
                (40,),
            )[1]
            == want
        )
    kernel = binary(float32, lambda x, y: s.where(y.eq(y), x, 0.0), (0, 1))
    # An infinity stored, NaN dropped.
    assert run(device, kernel, np.zeros_like(x), [x, y], (40,))[1] & 3 == 2


def test_elements_that_are_not_there_are_not_told_of(device: str):
    """Lanes past the last element are 0, whose quotient is infinite."""
    for n in (1, 3, 15, 17, 33, 250):
        x, y = ones(float32, n), ones(float32, n)
        assert (
            run(
                device, binary(float32, lambda x, y: x / y, (0, 1)), np.zeros_like(x), [x, y], (n,)
            )[1]
            == 0
        )


def test_in_place_the_old_values_are_seen(device: str):
    for value, want in ((INF, 2 | 8), (3e38, 2), (1.0, 0)):
        x, y = ones(float32, 70, (69, value)), ones(float32, 70, (69, 3e38))
        got, met = run(device, binary(float32, lambda x, y: x + y, (0, 1)), x, [x, y], (70,))
        assert met == want
        assert got[0] == 2.0


@pytest.mark.parametrize("rows, columns", [(3, 5), (20, 37), (64, 64)])
def test_strided_and_transposed_maps(device: str, rows: int, columns: int):
    for value, want in ((1.0, 0), (0.0, 2), (NAN, 1 | 4)):
        x, y = np.ones((rows, columns), np.float32), np.ones((columns, rows), np.float32)
        y[columns - 1, rows - 1] = value
        kernel = binary(float32, lambda x, y: x / y, (0, 1), 2, ("1", "1", "n"))
        numbers = (rows, columns, columns, 1, columns, 1, 1, rows)
        assert run(device, kernel, np.zeros_like(x), [x, y], numbers)[1] == want


def test_several_outputs_of_several_types(device: str):
    x = arg(0, float32)
    kernel = Map((float32, float16), (float32,), (), (x, x * 2.0), 0, ("1", "1", "1"), ())
    pool = pool_of(device)
    for value, want in ((1.0, 0), (4e4, 2), (NAN, 1)):
        given = ones(float32, 33, (32, value))
        places = [pool.device.alloc(256) for _ in range(4)]
        pool.device.copy_in(places[2], memoryview(given).cast("B"))
        pool.device.copy_in(places[3], memoryview(bytes(64)))
        met = [0]
        if pool.device.limits.asynchronous:
            pool.device.build(kernel)(*places, 33)
            word = bytearray(4)
            pool.device.copy_out(places[3], memoryview(word))
            met = [int.from_bytes(word, "little")]
        else:
            pool.device.build(kernel, lambda what, *_, met=met: met.__setitem__(0, what))(
                *places[:3], 33
            )
        assert met == [want]
        for place in places:
            pool.device.free(place, 256)


def test_what_is_told_can_stop_the_launch():
    device = pool_of("cpu").device
    x, out = ones(float32, 4, (2, NAN)), ones(float32, 4)

    def refuse(met: int, *numbers: int) -> None:
        raise KeyError(met, *numbers)

    launch = device.build(binary(float32, lambda x, y: x + y, ()), refuse)
    given = (out.ctypes.data, x.ctypes.data, x.ctypes.data, 4)
    with pytest.raises(KeyError) as error:
        launch(*given)
    assert error.value.args == (1, *given)
    with pytest.raises(TypeError):
        launch(1, 2)


# ---- rows ----

X = arg(0, float32)
TOP, TOTAL = row(0, float32), row(1, float32)


def softmax(vector: str) -> Rowwise:
    passes = (Reduce("max", X), Reduce("sum", s.exp(X - TOP)))
    steps = ("n", "n") if vector == "any" else ("1", "1")
    return Rowwise(
        (float32,),
        ("element",),
        (float32,),
        (),
        passes,
        (s.exp(X - TOP) / TOTAL,),
        vector,
        steps,
        (0,),
    )


def total(vector: str, dtype: DType = float32, kind: str = "sum") -> Rowwise:
    x = arg(0, compute_type(dtype))
    steps = ("n", "n") if vector == "any" else ("0", "1") if vector == "axis" else ("1", "1")
    passes, store = (Reduce(kind, x),), row(0, compute_type(dtype))
    return Rowwise((dtype,), ("row",), (dtype,), (), passes, (store,), vector, steps, (0,))


LAYOUTS = {"axis": (3, 300, 1), "inner": (2, 40, 19), "any": (2, 9, 3)}


@pytest.mark.parametrize("vector", LAYOUTS)
def test_rows_of_elements(device: str, vector: str):
    _, axis, inner = sizes = LAYOUTS[vector]
    strides = (axis * inner, inner, 1)
    for fill, want in ((0.0, 0), (-INF, 1 | 8), (NAN, 1 | 4)):
        x = np.zeros(sizes, np.float32)
        x[-1, :, -1] = fill  # all of the last row
        out, met = run(device, softmax(vector), np.ones_like(x), [x], (*sizes, *strides, *strides))
        assert met == want
        assert np.isfinite(out[0]).all()
    x = np.zeros(sizes, np.float32)
    x[0, 1, 0] = -INF  # masked, as in attention
    assert run(device, softmax(vector), np.ones_like(x), [x], (*sizes, *strides, *strides))[1] == 8


@pytest.mark.parametrize("vector", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOAT, ids=lambda d: d.name)
def test_totals_of_rows(device: str, vector: str, dtype: DType):
    outer, axis, inner = sizes = LAYOUTS[vector]
    strides = (axis * inner, inner, 1)
    big = {"float16": 6e4, "float64": 1.7e308}.get(dtype.name, 3e38)
    for pair, want in (((1.0, 1.0), 0), ((big, big), 2), ((INF, 1.0), 2 | 8), ((INF, -INF), 1 | 8)):
        values = np.zeros(sizes)
        values[-1, -2:, -1] = pair
        x = stored(dtype, values)
        out = stored(dtype, np.zeros((outer, inner)))
        kernel = total(vector, dtype)
        assert run(device, kernel, out, [x], (*sizes, inner, 0, 1, *strides))[1] == want


def test_one_very_long_row(device: str):
    n = 70000  # more than one task, or dispatch, or segment
    for value, want in ((1.0, 0), (NAN, 1 | 4), (3e38, 2)):
        x = np.zeros((1, n, 1), np.float32)
        x[0, n - 2 :] = value
        assert (
            run(device, total("axis"), np.zeros(1, np.float32), [x], (1, n, 1, 0, 0, 0, 0, 1, 0))[1]
            == want
        )
        _, met = run(device, softmax("axis"), np.zeros_like(x), [x], (1, n, 1, 0, 1, 0, 0, 1, 0))
        assert met == (want if value != value else 0)


def test_what_is_stored_on_the_way_is_not_told_of(device: str):
    """Some kernels store a pass's terms in the output first.

    Here the terms overflow, the result does not.
    """
    term = s.exp(X * X)
    stores = (s.minimum(term, 5.0),)
    kernel = Rowwise(
        (float32,),
        ("element",),
        (float32,),
        (),
        (Reduce("max", term),),
        stores,
        "axis",
        ("1", "1"),
        (),
    )
    assert plan(lowered(kernel)).kept == 0
    for value, want in ((40.0, 0), (NAN, 1)):
        x = np.zeros((1, 50, 1), np.float32)
        x[0, 7] = value
        out, met = run(device, kernel, np.zeros_like(x), [x], (1, 50, 1, 0, 1, 0, 0, 1, 0))
        assert met == want
        assert out[0, 0] == 1.0


def test_the_checked_inputs_must_exist():
    with pytest.raises(ValueError, match="input 2 is checked for anomalies, there are 2 inputs"):
        verify(binary(float32, lambda x, y: x + y, (2,)))


# ---- CUDA, emulated ----


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return Emulator(tmp_path_factory.mktemp("anomaly"))


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=lambda d: d.name)
def test_emulated_cuda_maps(emulator: Emulator, dtype: DType):
    launch = emulator.build(binary(dtype, lambda x, y: x / y, (0, 1)))
    strided = emulator.build(binary(dtype, lambda x, y: x / y, (0, 1), 2, ("1", "n", "1")))
    for a, b, want in (
        (1.0, 1.0, 0),
        (1.0, 0.0, 2),
        (0.0, 0.0, 1),
        (NAN, 1.0, 5),
        (INF, 1.0, 10),
        (1.0, INF, 8),
    ):
        n = 37
        x, y = ones(dtype, n, (n - 1, a)), ones(dtype, n, (n - 1, b))
        out, flag = np.zeros_like(x), np.zeros(1, np.uint32)
        addresses = [v.ctypes.data for v in (out, x, y, flag)]
        launch(*addresses, n)
        assert flag[0] == want
        flag[0] = 0
        strided(*addresses, 1, n, n, 1, 1, 1, n, 1)
        assert flag[0] == want


@pytest.mark.parametrize("vector", ["axis", "inner"])
def test_emulated_cuda_rows(emulator: Emulator, vector: str):
    _, axis, inner = sizes = LAYOUTS[vector]
    strides = (axis * inner, inner, 1)
    elements, rows = emulator.build(softmax(vector)), emulator.build(total(vector))
    for fill, want in ((0.0, 0), (-INF, 1 | 8), (NAN, 1 | 4)):
        x, out, flag = (
            np.zeros(sizes, np.float32),
            np.zeros(sizes, np.float32),
            np.zeros(1, np.uint32),
        )
        x[-1, :, -1] = fill
        elements(out.ctypes.data, x.ctypes.data, flag.ctypes.data, *sizes, *strides, *strides)
        assert flag[0] == want
        flag[0] = 0
        rows(out.ctypes.data, x.ctypes.data, flag.ctypes.data, *sizes, inner, 0, 1, *strides)
        assert flag[0] == (2 | 8 if fill == -INF else want)
