"""WGSL text: one golden file per kernel kind and form. RUSHLIGHT_WRITE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rushlight.core import dtypes as t
from rushlight.core.errors import DeviceError
from rushlight.emit.wgsl.kernels import emit, schedule
from rushlight.emit.wgsl.layout import alias_pattern, layout_of
from rushlight.emit.wgsl.library import library_text
from rushlight.emit.wgsl.types import FUSED, LANES, literal
from rushlight.kernel.shapes import (
    Contract,
    Convolve,
    Gather,
    Kernel,
    Map,
    Reduce,
    Rowwise,
    Scatter,
)
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, index, make, param, row
from tests.devices.cuda_launches import scan_kernel

GOLDEN = Path(__file__).parents[1] / "golden"
NATIVE = frozenset({"shader-int64", "shader-f64", FUSED})
PLAIN = frozenset({FUSED})

X, Y = arg(0, t.float32), arg(1, t.float32)
SCALED = Map(
    (t.float32,),
    (t.float32, t.float32),
    (t.float32,),
    (X * param(0, t.float32) + Y,),
    0,
    ("1", "1", "0"),
)
STRIDED = Map((t.int64,), (t.int64,), (), (arg(0, t.int64) + index(),), 2, ("1", "n"))
BELOW = Map((t.bool_,), (t.float16,), (), (X < 0.5,), 0, ("1", "1"))
HALVED = Map((t.float16,), (t.float16,), (), (X * 0.5,), 0, ("1", "1"))
CENTRED = Rowwise(
    (t.float32, t.float32),
    ("element", "row"),
    (t.float32,),
    (),
    (Reduce("max", X),),
    (X - row(0, t.float32), row(0, t.float32)),
    "axis",
    ("1", "1", "1"),
)

TURNED = Map((t.float32,), (t.float32,), (), (X * 2,), 2, ("1", "n"))

CASES: dict[str, tuple[Kernel, frozenset[str], tuple[int, ...] | None, str]] = {
    "map_flat": (SCALED, PLAIN, None, ""),
    "map_in_place": (SCALED, PLAIN, (0, 0, 1), ""),
    "map_strided_int64": (STRIDED, NATIVE, None, ""),
    "map_strided_int64_emulated": (STRIDED, PLAIN, None, ""),
    "map_packed": (BELOW, PLAIN, None, "packed"),
    "map_wide": (
        Map((t.bfloat16,), (t.float32, t.bfloat16), (), (X + Y,), 0, ("1", "1", "0")),
        *(PLAIN, None, "wide"),
    ),
    "map_anomaly": (replace(SCALED, anomaly=(0, 1)), PLAIN, None, ""),
    "map_packed_anomaly": (replace(HALVED, anomaly=(0,)), PLAIN, None, "packed"),
    "map_turned": (TURNED, PLAIN, None, "turned0"),
    "rowwise_anomaly": (replace(CENTRED, anomaly=()), PLAIN, None, "32.1h"),
    "rowwise": (CENTRED, PLAIN, None, "64.1hv"),
    "rowwise_shuffled": (CENTRED, PLAIN | {LANES}, None, "64.1hv"),
    "rowwise_columns": (
        replace(CENTRED, vector="inner", steps=("1", "1", "1")),
        *(PLAIN, None, "8x4/partial/0"),
    ),
    "rowwise_partial": (CENTRED, PLAIN, None, "256.1sv/partial/0"),
    "contract_tiled": (Contract(t.float32, t.float32), PLAIN, None, "tiled:kgv:64"),
    "convolve_tiled": (Convolve(t.float32, "image"), PLAIN, None, "tiled64x128"),
    "convolve_back": (Convolve(t.float16, "back", rank=1), PLAIN, None, ""),
    "convolve_sum": (Convolve(t.float32, "weights", rank=3), PLAIN, None, "sum/parts"),
    "contract_plain": (Contract(t.bfloat16, t.float32), PLAIN, None, ""),
    "scan": (scan_kernel("sum", t.int32, t.int64), PLAIN, None, ""),
    "scan_more": (scan_kernel("sum", t.int32, t.int64), PLAIN, None, "+"),
    "contract_tiled_more": (Contract(t.float32, t.float32), PLAIN, None, "tiled:sss:64+"),
    "contract_plain_more": (Contract(t.bfloat16, t.float32), PLAIN, None, "+"),
    "contract_tiled_scaled": (Contract(t.bfloat16, t.float32, True), PLAIN, None, "tiled:kgv:64"),
    "contract_plain_scaled": (Contract(t.float16, t.float32, True), PLAIN, None, ""),
    "contract_tiled_added": (
        Contract(t.bfloat16, t.float32, added=True),
        *(PLAIN, None, "tiled:kgv:64"),
    ),
    "contract_plain_added": (Contract(t.float32, t.float32, added=True), PLAIN, None, ""),
    "gather": (Gather(t.float32, t.int64), PLAIN, None, ""),
    "scatter_add": (Scatter(t.float16, t.int32), PLAIN, None, ""),
    "scatter_max": (Scatter(t.float16, t.int32, "max"), PLAIN, None, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text = emit(*CASES[name])
    path = GOLDEN / f"{name}.wgsl"
    if os.environ.get("RUSHLIGHT_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_elementary_functions_are_lowered() -> None:
    kernel = Map((t.float32,), (t.float32,), (), (s.exp(X) + s.erf(X),), 0, ("1", "1"))
    text = emit(kernel, PLAIN)
    assert "exp(" not in text and "erf(" not in text


def test_an_unknown_instruction_is_named() -> None:
    kernel = Map((t.float32,), (t.float32,), (), (make("swirl", (X,), t.float32),), 0, ("1", "1"))
    with pytest.raises(DeviceError, match="swirl"):
        emit(kernel, PLAIN)


def test_literals() -> None:
    assert literal(0.1, t.float32, PLAIN)[0] == "0.100000001f"
    assert literal(2.0, t.float32, PLAIN)[0] == "2.0f"
    assert literal(float("inf"), t.float32, PLAIN) == ("f32_of_bits(0x7f800000u)", ("f32_of_bits",))
    assert literal(1e300, t.float32, PLAIN)[0] == "f32_of_bits(0x7f800000u)"
    assert literal(-1, t.int64, PLAIN)[0] == "vec2<u32>(4294967295u, 4294967295u)"
    assert literal(-(2**31), t.int32, PLAIN)[0] == "i32(-2147483648)"


def test_library_puts_callees_first() -> None:
    text = library_text(["i64_div"])
    assert text.index("fn i64_sub") < text.index("fn i64_neg") < text.index("fn i64_div(")


def test_aliases_and_layout() -> None:
    assert alias_pattern((7, 9, 7)) == (0, 1, 0)
    layout = layout_of(STRIDED)
    assert layout.fields() == [
        *("base", "hidden", "offset0", "offset1", "size0", "size1"),
        *("stride0_0", "stride0_1", "stride1_0", "stride1_1"),
    ]
    assert layout.pack_format() == "<6I4i"


def test_packed_form_only_where_words_are_whole() -> None:
    choose = schedule(BELOW)
    assert choose((1000,), (0, 0), ()) == (("packed", 1, 1024),)
    assert choose((1000,), (4, 3), ())[0].form == "packed"
    assert choose((1000,), (1, 0), ())[0].form == ""


def test_wide_form_only_where_vectors_are_whole() -> None:
    choose, n = schedule(SCALED), 1 << 16
    assert choose((n,), (0, 4, 1), ()) == (("wide", 64, 1024),)  # the last operand does not move
    given = [((n,), (0, 2, 0)), ((n + 2,), (0, 0, 0)), ((n // 2,), (0, 0, 0))]
    assert [choose(*each, ())[0].form for each in given] == [""] * 3
    assert schedule(replace(SCALED, anomaly=()))((n,), (0, 0, 0), ())[0].form == ""


def test_a_strided_map_is_wide_where_its_rows_are_vectors() -> None:
    choose, sizes = schedule(replace(SCALED, rank=2, steps=("1", "1", "1"))), (256, 512)
    assert choose(sizes, (0, 0, 0), (512, 1, 512, 1, 0, 1))[0].form == "wide"
    assert choose(sizes, (0, 0, 4), (512, 1, 516, 1, 0, 1))[0].form == "wide"
    assert choose(sizes, (0, 0, 0), (512, 1, 513, 1, 0, 1))[0].form == ""
    assert choose((256, 510), (0, 0, 0), (510, 1, 510, 1, 0, 1))[0].form == ""


def test_a_transposed_input_goes_through_tiles() -> None:
    choose = schedule(TURNED)
    assert choose((300, 500), (0, 0), (500, 1, 1, 300)) == (("turned0", 10 * 16, 1024),)
    assert choose((300, 500), (0, 0), (500, 1, 2, 600))[0].form == ""
    assert choose((12, 50000), (0, 0), (50000, 1, 1, 12))[0].form == ""
    assert schedule(replace(TURNED, anomaly=()))((300, 500), (0, 0), (500, 1, 1, 300))[0].form == ""


def test_walkers_depend_on_the_axis_alone() -> None:
    choose, rows = schedule(CENTRED), (1, 7, 5000)
    chosen = {32768: "256.8s", 8192: "256.8h", 4096: "128.8h", 1000: "32.8h", 32: "8.1h", 3: "1.1h"}
    for axis, form in chosen.items():
        strides = (axis, 1, 0, 1, 0, 0, axis, 1, 0)
        found = {choose((n, axis, 1), (0, 0, 0), strides)[0].form.split("/")[0] for n in rows}
        assert found == {form if axis % 4 else form + "v"}
        assert choose((3, axis, 1), (1, 0, 0), strides)[0].form.split("/")[0] == form
    strides = (20000, 1, 0, 1, 0, 0, 20000, 1, 0)
    assert [step.form for step in choose((3, 20000, 1), (0, 0, 0), strides)] == [
        *("256.8sv/partial/0", "256.8sv/combine/0", "256.8sv/elements", "256.8sv/rows")
    ]
    assert len(choose((600, 20000, 1), (0, 0, 0), strides)) == 1


def test_columns_are_read_as_vectors_where_they_can() -> None:
    kernel = replace(CENTRED, vector="inner")
    choose, strides = schedule(kernel), (0, 64, 1, 0, 0, 1, 0, 64, 1)
    assert choose((1, 100, 64), (0, 0, 0), strides)[0].form == "8x4"
    assert choose((1, 50, 64), (0, 0, 0), strides)[0].form == "1x4"
    assert choose((1, 100, 64), (0, 0, 2), strides)[0].form == "8x1"
    folded = replace(kernel, outputs=(t.float32,), kinds=("row",), stores=(row(0, t.float32),))
    forms = schedule(replace(folded, steps=("1", "1")))((1, 5000, 64), (0, 0), (0, 0, 1, 0, 64, 1))
    assert [step.form for step in forms] == ["8x4/partial/0", "8x4/finish/0"]


def test_products_choose_tiles_by_sizes_and_ways_by_layouts() -> None:
    choose = schedule(Contract(t.float32, t.float32))

    def form(m: int, n: int, k: int, offset: int = 0, turned: bool = False) -> str:
        b = (1, k) if turned else (n, 1)
        strides = (0, 0, n, 1, 0, 0, k, 1, 0, 0, *b)
        return choose((1, 1, m, n, k), (0, offset, 0), strides)[0].form

    assert form(4096, 4096, 64) == "tiled:kgv:128"
    assert form(4096, 4096, 64, turned=True) == "tiled:kkv:128"
    assert form(64, 4096, 64) == "tiled:kgv:64"
    assert form(100, 100, 64, offset=1) == "tiled:sgv:64"
    assert form(100, 101, 63) == "tiled:sss:64"
    assert form(8, 100, 64) == ""
