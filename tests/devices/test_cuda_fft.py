"""Transforms on CUDA: the plans and operands that cuFFT gets, on host memory by NumPy."""

from __future__ import annotations

import ctypes
import math
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rushlight.core import dtypes
from rushlight.devices.cuda import fft
from rushlight.kernel.shapes import Library
from tests.devices.host_solvers import HostSolvers

DTYPES = [np.float32, np.float64]


def memory(address: int, shape: tuple[int, ...], kind: Any) -> Any:
    count = math.prod(shape) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), kind).reshape(shape)


class Transform:
    """One of `fft.Transform` on host memory."""

    made: ClassVar[list[Any]] = []
    seen: ClassVar[list[int]] = []  # where operands begin

    def __init__(
        self, on: Any, kind: int, sizes: tuple[int, ...], batch: int, is_across: bool = False
    ) -> None:
        self.kind, self.sizes, self.batch, self.is_across = kind, sizes, batch, is_across
        self.single = kind in (0x29, 0x2A, 0x2C)
        Transform.made.append(self)

    def run(self, source: int, target: int, direction: int) -> None:
        real, pair = (np.float32, np.complex64) if self.single else (np.float64, np.complex128)
        halved = (*self.sizes[:-1], self.sizes[-1] // 2 + 1)
        shapes = {0x2A: (self.sizes, halved), 0x6A: (self.sizes, halved)}
        shapes |= {0x2C: (halved, self.sizes), 0x6C: (halved, self.sizes)}
        into, out = shapes.get(self.kind, (self.sizes, self.sizes))
        kinds = (real, pair) if self.kind in fft._HALF else (pair, real)
        kinds = (pair, pair) if self.kind in fft._COMPLEX else kinds
        Transform.seen.append(source % np.dtype(pair).itemsize)
        axes = tuple(range(len(into))) if self.is_across else tuple(range(1, len(into) + 1))
        placed = [
            memory(a, (*s, self.batch) if self.is_across else (self.batch, *s), k)
            for a, s, k in zip((source, target), (into, out), kinds, strict=True)
        ]
        x = placed[0].copy()
        if self.kind in fft._HALF:
            found = np.fft.rfftn(x, axes=axes)
        elif self.kind in fft._FROM_HALF:
            placed[0][...] = np.nan  # the library may write there
            found = np.fft.irfftn(x, s=self.sizes, axes=axes) * math.prod(self.sizes)
        elif direction < 0:
            found = np.fft.fftn(x, axes=axes)
        else:
            found = np.fft.ifftn(x, axes=axes) * math.prod(self.sizes)
        placed[1][...] = found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft, "Transform", Transform)
    monkeypatch.setattr(Transform, "made", [])
    monkeypatch.setattr(Transform, "seen", [])


def launched(folder: Path, function: str, out: Any, x: Any, *options: Any) -> None:
    of = [(getattr(dtypes, a.dtype.name),) for a in (out, x)]
    kernel = Library("fft", function, *of, (out.ndim, x.ndim), options)
    single = out.dtype in (np.float32, np.complex64)
    on = HostSolvers(dtypes.complex64 if single else dtypes.complex128, folder)
    launch = fft.BUILDERS[function](on, kernel)
    for _ in range(2):  # also by kept steps
        out.view(np.uint8)[...] = 0x77
        launch(out.ctypes.data, x.ctypes.data, *out.shape, *x.shape)


def numbers(shape: tuple[int, ...], kind: Any) -> Any:
    found = np.random.default_rng(0).standard_normal((2, *shape))
    return (found[0] + 1j * found[1] if np.dtype(kind).kind == "c" else found[0]).astype(kind)


def close(found: Any, want: Any) -> None:
    far = 1e-4 if found.dtype in (np.float32, np.complex64) else 1e-10
    np.testing.assert_allclose(found, want, far, far * np.abs(want).max())


SHAPE = (3, 4, 2, 6)
DIMS = [*permutations(range(4), 1), *permutations(range(4), 2), (0, 1, 2), (3, 1, 0), (0, 1, 2, 3)]


@pytest.mark.parametrize("kind", [*DTYPES, np.complex64, np.complex128])
@pytest.mark.parametrize("dims", DIMS)
def test_full(folder: Path, dims: tuple[int, ...], kind: Any) -> None:
    x = numbers(SHAPE, kind)
    out = np.empty(SHAPE, np.result_type(kind, np.complex64))
    before = x.copy()
    for norm in ("backward", "forward", "ortho"):
        launched(folder, "full", out, x, dims, norm, True)
        close(out, np.fft.fftn(x, axes=dims, norm=norm))
        launched(folder, "full", out, x, dims, norm, False)
        close(out, np.fft.ifftn(x, axes=dims, norm=norm))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("dims", DIMS)
def test_half_and_back(folder: Path, dims: tuple[int, ...], kind: Any) -> None:
    x = numbers(SHAPE, kind)
    for norm in ("backward", "ortho"):
        want = np.fft.rfftn(x, axes=dims, norm=norm)
        out, back = np.empty(want.shape, np.result_type(kind, np.complex64)), np.empty_like(x)
        launched(folder, "half", out, x, dims, norm)
        close(out, want)
        half, size = want.astype(out.dtype), SHAPE[dims[-1]]
        launched(folder, "from_half", back, half, dims, norm, size)
        close(back, x)
        np.testing.assert_array_equal(half, want.astype(out.dtype))


def test_columns_are_transformed_where_they_are(folder: Path) -> None:
    x, out = numbers((8, 5), np.complex64), np.empty((8, 5), np.complex64)
    launched(folder, "full", out, x, (0,), "backward", True)
    assert len(Transform.made) == 1 and Transform.made[0].is_across


def test_of_nothing(folder: Path) -> None:
    out = np.empty((0, 5), np.complex64)
    launched(folder, "full", out, np.empty((0, 5), np.complex64), (1,), "backward", True)
    assert not Transform.made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("skipped", [0, 1])
def test_a_real_operand_has_the_alignment_of_complex_numbers(
    folder: Path, dtype: type, skipped: int
):
    whole = np.arange(32, dtype=dtype)
    first = whole.ctypes.data // whole.itemsize % 2  # of the elements, an aligned one
    x = whole[first + skipped :][:12]
    out = np.empty(7, np.result_type(dtype, np.complex64))
    launched(folder, "half", out, x, (0,), "backward")
    assert set(Transform.seen) == {0}
    np.testing.assert_allclose(out, np.fft.rfft(x), rtol=1e-5, atol=1e-5)
