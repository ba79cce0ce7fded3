"""The arguments of launches over lists, as the driver would read them: Note [Lists on CUDA]."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pytest

import rushlight as rl
from rushlight.core.dtypes import DType, float32, float64
from rushlight.devices.cuda.lists import LARGE_TABLE, TABLES, CudaList
from rushlight.emit.cuda.lists import emit_list, span_of, stride_of
from rushlight.kernel.shapes import Map, Reduce, Rowwise
from rushlight.ops.optim.lists import scale_by
from rushlight.scalar.ir import arg, param, row

SIZES = (*TABLES, LARGE_TABLE)


def scaled(*params: DType) -> Map:
    """y = x + the params."""
    body = arg(0, float32)
    for i, dtype in enumerate(params):
        body = body + param(i, dtype) if dtype is float32 else body
    return Map((float32,), (float32,), params, (body,), 0, ("1", "1"))


SUM = Rowwise(
    (float32,),
    ("row",),
    (float32,),
    (),
    (Reduce("sum", arg(0, float32)),),
    (row(0, float32),),
    "axis",
    ("0", "1"),
)


def read(kernel: Map | Rowwise, act: tuple[Any, ...], size: int) -> dict[str, Any]:
    """The arguments of a launch, from kernelParams."""
    _, blocks, _, packed, _ = act
    extra = 2 if isinstance(kernel, Rowwise) else 0
    count = 2 + len(kernel.params) + extra
    places = (ctypes.c_void_p * count).from_address(packed)
    table = (ctypes.c_uint64 * size).from_address(places[0])
    items = ctypes.c_int64.from_address(places[1]).value
    kinds = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32}
    numbers = [
        kinds[dtype.name].from_address(place).value
        for dtype, place in zip(kernel.params, places[2:], strict=False)
    ]
    stride = stride_of(kernel)
    rows = [tuple(table[i * stride : (i + 1) * stride]) for i in range(items)]
    scratch = [ctypes.c_uint64.from_address(place).value for place in places[count - extra :]]
    return {"blocks": blocks, "rows": rows, "numbers": numbers, "scratch": scratch}


def made(kernel: Map | Rowwise, tables: tuple[int, ...] = SIZES) -> tuple[CudaList, list[int]]:
    built: list[int] = []

    def build(words: int) -> Any:
        assert f"words[{words}]" in emit_list(kernel, words)
        built.append(words)
        return lambda *_: words

    return CudaList(kernel, build, tables, (7 << 20, 9 << 20)), built


@pytest.mark.parametrize("count, size", [(1, 64), (16, 64), (17, 448), (112, 448), (113, 3968)])
def test_a_short_list_has_a_short_table(count: int, size: int) -> None:
    kernel = scaled(float32)
    lists, built = made(kernel)
    span = span_of(kernel)
    items = [(100 + k, 200 + k, span * (k % 3) + 1) for k in range(count)]
    (act,) = lists(items, (0.1,))
    assert built == [size] and act[0]() == size
    found = read(kernel, act, size)
    firsts = [sum(k % 3 + 1 for k in range(before)) for before in range(count)]
    assert found["rows"] == [
        (first, item[2], *item[:2]) for first, item in zip(firsts, items, strict=True)
    ]
    assert found["blocks"] == sum(k % 3 + 1 for k in range(count))
    assert found["numbers"] == [ctypes.c_float(0.1).value]
    lists(items, (0.2,))
    assert built == [size]  # built once


def test_what_does_not_fit_is_another_launch() -> None:
    kernel = scaled()
    lists, built = made(kernel, TABLES)
    items = [(k + 1, k + 2, 5) for k in range(150)]
    first, second = lists(items, ())
    assert built == [448]
    assert len(read(kernel, first, 448)["rows"]) == 112
    assert read(kernel, second, 448)["rows"][0] == (0, 5, 113, 114)


def test_a_fold_takes_its_scratch_and_counts_a_block_for_nothing() -> None:
    lists, _ = made(SUM)
    (act,) = lists([(64, 128, 0), (68, 256, 10)], ())
    found = read(SUM, act, 64)
    assert found["scratch"] == [7 << 20, 9 << 20]
    assert found["rows"] == [(0, 0, 64, 128), (1, 10, 68, 256)] and found["blocks"] == 2


def test_numbers_are_cut_to_their_types() -> None:
    kernel = scaled(float32, float64, rl.int32)
    lists, _ = made(kernel)
    (act,) = lists([(64, 128, 5)], (1e300, 1e300, (1 << 32) + 3))
    assert read(kernel, act, 64)["numbers"] == [math.inf, 1e300, 3]
    (act,) = lists([(64, 128, 5)], (-math.inf, math.pi, -1))
    assert read(kernel, act, 64)["numbers"] == [-math.inf, math.pi, -1]


def test_a_list_of_nothing_is_no_launch() -> None:
    lists, built = made(scaled())
    assert lists([(64, 128, 0)], ()) == [] and not built


def test_an_update_by_a_number_on_the_device_reads_it_once() -> None:
    """The factor of `scale_by` is read before the loop, whatever the number of elements."""
    spec, one = rl.ones(8)._spec, rl.ones(())._spec
    kernel = scale_by.prepared([rl.ones(8), rl.ones(())], ()).plan.kernel
    assert kernel.steps == ("1", "1", "0") and spec.numel == 8 * one.numel
    assert emit_list(kernel, 64).count("p2[0]") == 1
