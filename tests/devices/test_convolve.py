"""Convolve kernels against the reference: CUDA C in the emulation, WGSL on the adapter."""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rushlight.core import dtypes as t
from rushlight.core.config import required_devices
from rushlight.core.dtypes import DType
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.cuda import convolve as cuda_convolve
from rushlight.devices.cuda.convolve import in_parts, sum_kernel
from rushlight.devices.cuda.cudnn import FOURIER
from rushlight.devices.cuda.turned import is_few, turned
from rushlight.devices.reference import ReferenceDevice, narrow, widen
from rushlight.devices.shared.allocator import Pool
from rushlight.emit.wgsl import convolve as wgsl_convolve
from rushlight.kernel.extents import extents
from rushlight.kernel.shapes import Convolve
from tests.devices.webgpu_arrays import Bench
from tests.emit.cuda_emulation import Emulator

# images, groups, channels out and in of a group, window, image, stride, dilation, padding before
# and after, parts
CASES: dict[str, tuple[Any, ...]] = {
    "plain rows": (2, 2, 3, 4, (3, 3), (6, 7), (1, 1), (1, 1), (1, 1), (1, 1), 3),
    "tiles": (3, 1, 70, 9, (3, 2), (9, 8), (1, 1), (1, 1), (1, 0), (1, 1), 2),
    "tiles of groups": (2, 3, 10, 12, (3, 3), (9, 9), (2, 2), (1, 1), (1, 1), (1, 1), 1),
    "strides and dilations": (1, 1, 12, 11, (3, 4), (15, 16), (4, 3), (2, 6), (3, 2), (0, 1), 2),
    "larger strides than windows": (
        2,
        1,
        12,
        10,
        (2, 1),
        (9, 11),
        (3, 4),
        (1, 1),
        (0, 0),
        (1, 0),
        1,
    ),
    "one channel each": (2, 5, 1, 1, (3, 3), (8, 9), (1, 2), (1, 1), (1, 1), (1, 1), 4),
    "lines": (2, 1, 9, 10, (5,), (31,), (2,), (3,), (4,), (2,), 3),
    "volumes": (2, 1, 9, 10, (2, 3, 2), (4, 5, 6), (1, 2, 1), (1, 1, 2), (1, 0, 1), (0, 1, 1), 2),
}
KINDS = ("image", "back", "weights")


def launch_sizes(case: tuple[Any, ...]) -> tuple[int, ...]:
    n, g, m, c, window, image, stride, dilation, before, after, parts = case
    pixels = [
        (size + a + b - d * (k - 1) - 1) // s + 1
        for size, k, s, d, a, b in zip(image, window, stride, dilation, before, after, strict=True)
    ]
    return (n, g, m, c, *pixels, *window, *image, *stride, *dilation, *before, parts)


def operands(kernel: Convolve, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """The operands' elements in storage types; the output is filled with ones."""
    reached = extents(kernel, (0, 0, 0, *sizes), False)
    counts = [(end - first) // kernel.dtype.itemsize for _, first, end in reached]
    random = np.random.default_rng(7)
    values = [np.ones(counts[0]), *(random.standard_normal(count) for count in counts[1:])]
    return [stored(v, kernel.dtype) for v in values]


def stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    return narrow(values) if dtype is t.bfloat16 else values.astype(dtype.name)


def loaded(words: np.ndarray, dtype: DType) -> np.ndarray:
    return (widen(words) if dtype is t.bfloat16 else words).astype(np.float64)


def expected(kernel: Convolve, sizes: tuple[int, ...]) -> np.ndarray:
    buffers = operands(kernel, sizes)
    ReferenceDevice().build(kernel)(*(b.ctypes.data for b in buffers), *sizes)
    return loaded(buffers[0], kernel.dtype)


def check(kernel: Convolve, got: np.ndarray, want: np.ndarray) -> None:
    tiny = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-20, "float64": 2.0**-48}
    scale = float(np.abs(want).max())
    limit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(kernel.dtype.name, 0.0)
    np.testing.assert_allclose(
        got, want, rtol=limit, atol=tiny[kernel.dtype.name] * scale, err_msg=kernel.of
    )


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Convolve], Any]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    emulator = Emulator(tmp_path_factory.mktemp("emulation"))
    pool = Pool(ReferenceDevice())

    def build(kernel: Convolve) -> Any:
        own = emulator.build(kernel)
        if kernel.of != "weights":
            return own
        return in_parts(kernel, own, emulator.build(sum_kernel(kernel.dtype)), lambda: pool)

    return build


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cuda_text_agrees_with_the_reference(
    emulated: Callable[[Convolve], Any], rank: int, of: str
) -> None:
    dtypes = (t.float32, t.float64, t.bfloat16) if rank == 2 else (t.float32,)
    for dtype in dtypes:
        kernel = Convolve(dtype, of, rank=rank)
        launch = emulated(kernel)
        for case in CASES.values():
            if len(case[4]) == rank:
                sizes = launch_sizes(case)
                buffers = operands(kernel, sizes)
                launch(*(b.ctypes.data for b in buffers), *sizes)
                check(kernel, loaded(buffers[0], dtype), expected(kernel, sizes))


@pytest.fixture(scope="module")
def bench() -> Bench:
    try:
        return Bench(())
    except DeviceUnavailable as error:
        if "webgpu" in required_devices():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_wgsl_agrees_with_the_reference(bench: Bench, name: str, of: str) -> None:
    sizes = launch_sizes(CASES[name])
    rank = len(CASES[name][4])
    for dtype in (t.float32, t.float16, t.float64) if rank == 2 else (t.float32,):
        if not bench.allows(dtype):
            continue
        kernel = Convolve(dtype, of, rank=rank)
        buffers = operands(kernel, sizes)
        places = [bench.put(b, shift=2) for b in buffers]
        bench.device.build(kernel)(*places, *sizes)
        got = bench.get(places[0], buffers[0].shape, dtype)
        check(kernel, got.astype(np.float64), expected(kernel, sizes))


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("name", ["tiles", "strides and dilations", "lines", "volumes"])
def test_every_form_in_wgsl_adds_in_one_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, of: str
) -> None:
    kernel = Convolve(t.float32, of, rank=len(CASES[name][4]))
    sizes = launch_sizes(CASES[name])
    forms = set()

    def bits(tile: wgsl_convolve.Tile | None) -> bytes:
        if tile is None:
            monkeypatch.setattr(wgsl_convolve, "_FEW_COLUMNS", 1 << 20)
        else:
            monkeypatch.setattr(wgsl_convolve, "_FEW_COLUMNS", 0)
            monkeypatch.setattr(wgsl_convolve, "_FEW_ROWS", 0)
            monkeypatch.setattr(wgsl_convolve, "tile_for", lambda *_: tile)
        forms.add(wgsl_convolve.forms(kernel, sizes)[0][0])
        buffers = operands(kernel, sizes)
        places = [bench.put(b) for b in buffers]
        bench.device.build(kernel)(*places, *sizes)
        return bench.get(places[0], buffers[0].shape, t.float32).tobytes()

    plain = bits(None)
    assert all(bits(tile) == plain for tile in wgsl_convolve.TILES)
    assert len(forms) == 1 + len(wgsl_convolve.TILES)


def test_tiles_in_wgsl_hold_the_matrix() -> None:
    def sides(rows: int, columns: int) -> tuple[int, ...]:
        return tuple(wgsl_convolve.tile_for(rows, columns))

    assert sides(16, 4096) == (16, 64) and sides(17, 27) == (32, 64)
    assert sides(64, 27) == sides(100, 64) == (64, 64)
    assert sides(64, 65) == sides(100, 4096) == (64, 128)


def test_padding_after_is_as_before_where_the_sizes_allow_it() -> None:
    case = CASES["tiles of groups"]
    found = cuda_convolve.Sizes(2, launch_sizes(case))
    assert found.after() == [1, 1]
    assert cuda_convolve.Sizes(2, launch_sizes(CASES["tiles"])).after() == [1, 1]
    x = (case[0], case[1] * case[3], *case[5])
    assert found.shapes("back")[0] == x and math.prod(x) == 2 * 36 * 81


@pytest.mark.parametrize("name", CASES)
def test_a_data_gradient_is_convolutions_of_the_turned_weights(name: str) -> None:
    sizes, rank = launch_sizes(CASES[name]), len(CASES[name][4])
    device, seen = ReferenceDevice(), []

    class Plan:
        workspace = 96

        def __init__(self, numbers: tuple[int, ...]) -> None:
            seen.append(numbers)
            self.numbers = numbers

        def run(self, addresses: tuple[int, ...], workspace: int) -> None:
            ctypes.memset(workspace, 0x77, self.workspace)
            device.build(Convolve(t.float32, "image", 0, rank))(*addresses, *self.numbers)

    library: Any = SimpleNamespace(build=device.build)
    plan = turned(library, t.float32, sizes, rank, None, lambda numbers: Plan(numbers))  # type: ignore
    stride, dilation = CASES[name][6:8]
    if any(s > 1 and d > 1 for s, d in zip(stride, dilation, strict=True)):
        assert plan is None
        return
    assert plan is not None and len(seen) == math.prod(map(min, stride, CASES[name][4]))
    kernel = Convolve(t.float32, "back", 0, rank)
    buffers, work = operands(kernel, sizes), np.empty(plan.workspace + 16, np.uint8)
    plan.run([b.ctypes.data for b in buffers], -(-work.ctypes.data // 16) * 16)
    check(kernel, loaded(buffers[0], t.float32), expected(kernel, sizes))


def test_a_data_gradient_is_the_librarys_where_it_has_no_such_convolution() -> None:
    sizes = launch_sizes(CASES["tiles"])
    assert turned(SimpleNamespace(), t.float32, sizes, 2, None, lambda numbers: None) is None  # type: ignore


def test_a_data_gradient_by_fourier_transforms_is_left_where_they_save_products() -> None:
    assert (
        is_few((3, 3), (56, 56)) and not is_few((3, 3), (32, 32)) and not is_few((1, 1), (56, 56))
    )
    own: Any = SimpleNamespace(notes={FOURIER})
    sizes = (2, 1, 3, 4, 56, 56, 3, 3, 56, 56, 1, 1, 1, 1, 1, 1, 1)
    assert turned(SimpleNamespace(), t.float32, sizes, 2, own, lambda numbers: 1 / 0) is None  # type: ignore
