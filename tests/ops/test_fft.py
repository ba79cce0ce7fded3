"""Fourier transforms beyond the catalog's rows: dtypes, refused sizes, `out=`, transfers."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight
from rushlight import fft, memory
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from tests.catalog.run import to_array

X = rushlight.arange(12.0).reshape(3, 4)
C = rushlight.complex(X, X)


def test_precision_is_kept_and_whole_numbers_take_the_default(device):
    x = rushlight.ones(4, dtype=rushlight.float32, device=device)
    assert fft.fft(x).dtype is rushlight.complex64
    assert fft.irfft(fft.rfft(x)).dtype is rushlight.float32
    for dtype in (rushlight.int64, rushlight.int32, rushlight.bool, rushlight.uint8):
        whole = x.to(dtype)
        assert fft.fft(whole).dtype is rushlight.complex64
        assert fft.rfft(whole).dtype is rushlight.complex64
        assert fft.hfft(whole).dtype is rushlight.float32
        assert to_array(fft.ihfft(whole).real).tolist() == [1, 0, 0]
    double = rushlight.ones(4, dtype=rushlight.float64)
    assert fft.fft(double).dtype is rushlight.complex128
    assert fft.hfft(fft.ihfft(double)).dtype is rushlight.float64


def test_halves_are_refused_but_under_autocast():
    for dtype in (rushlight.float16, rushlight.bfloat16):
        with pytest.raises(DTypeError, match=r"fft\.rfft: Unsupported dtype"):
            fft.rfft(X.to(dtype))
        with rushlight.autocast("cpu"):
            assert fft.rfft(X.to(dtype)).dtype is rushlight.complex64


@pytest.mark.parametrize("name", ["rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn"])
def test_transforms_of_real_numbers_refuse_complex_ones(name):
    with pytest.raises(DTypeError, match=rf"fft\.{name}: expects a real input"):
        getattr(fft, name)(C)


def test_sizes_that_are_refused():
    for call in (
        lambda: fft.fft(X, n=0),
        lambda: fft.fft(X, n=-1),
        lambda: fft.fft(rushlight.empty(3, 0)),
        lambda: fft.irfft(rushlight.ones(3, 1)),
        lambda: fft.hfft(rushlight.ones(3, 1)),
        lambda: fft.fftn(X, s=(-1, 0)),
        lambda: fft.irfftn(C, s=(0,)),
        lambda: fft.fftn(rushlight.empty(0, 3)),
    ):
        with pytest.raises(ShapeError, match="Invalid number of data points"):
            call()
    with pytest.raises(ShapeError, match="Got shape with 3 values"):
        fft.fftn(X, s=(2, 2, 2))
    with pytest.raises(ShapeError, match="same length"):
        fft.fft2(X, s=(2,))


def test_dimensions_that_are_refused():
    with pytest.raises(IndexError, match="no dimensions"):
        fft.fft(rushlight.tensor(1.0))
    with pytest.raises(IndexError, match="out of range"):
        fft.fft(X, dim=2)
    with pytest.raises(IndexError, match="out of range"):
        fft.fft2(rushlight.ones(3))
    for dims in ((0, 0), (0, -2)):
        with pytest.raises(RushlightError, match="FFT dims must be unique"):
            fft.fftn(X, dim=dims)
    for name in ("rfftn", "irfftn", "hfftn", "ihfftn"):
        with pytest.raises(RushlightError, match=rf"{name}: must transform at least one axis"):
            getattr(fft, name)(X, dim=())
    with pytest.raises(ShapeError, match="at least one dimension"):
        fft.fftshift(rushlight.tensor(1.0))
    for bad in ({"dim": (0,)}, {"n": 3.0}, {"n": (3,)}):
        with pytest.raises(TypeError, match=r"fft\.fft"):
            fft.fft(X, **bad)


def test_no_dimensions_give_the_numbers_themselves():
    for x in (X, C, rushlight.tensor(3)):
        out = fft.fftn(x, dim=())
        assert out.dtype is rushlight.complex64
        assert out.shape == x.shape
        assert np.array_equal(to_array(out), to_array(x).astype(np.complex64))
        assert out is not x


def test_norms():
    assert np.array_equal(to_array(fft.fft(X, norm=None)), to_array(fft.fft(X, norm="backward")))
    for norm in ("bad", ""):
        with pytest.raises(RushlightError, match="Invalid normalization mode"):
            fft.fft(X, norm=norm)


def test_frequencies():
    assert fft.fftfreq(4, 0.5).tolist() == [0.0, 0.5, -1.0, -0.5]
    assert fft.rfftfreq(4, dtype=rushlight.float64).dtype is rushlight.float64
    assert fft.fftfreq(0).shape == (0,)
    assert fft.fftfreq(3, requires_grad=True).requires_grad
    with pytest.raises(DTypeError, match="floating point"):
        fft.fftfreq(4, dtype=rushlight.int64)
    with pytest.raises(ShapeError, match="negative"):
        fft.rfftfreq(-1)


def test_out():
    out = rushlight.empty(0, dtype=rushlight.complex128)
    assert fft.rfft(X, out=out) is out
    assert np.array_equal(to_array(out), to_array(fft.rfft(X)))
    with pytest.raises(RushlightError, match="can't be cast"):
        fft.fft(X, out=rushlight.empty(0))


def test_a_gpu_goes_through_the_host_and_counts(require_device):
    x = rushlight.ones(2, 8, device=require_device("webgpu"))
    before = memory.transfers()
    out = fft.rfft(x)
    moved = {key: n - before[key] for key, n in memory.transfers().items()}
    assert moved == {"to_host": 1, "bytes_to_host": 64, "to_device": 1, "bytes_to_device": 80}
    assert to_array(out.real).tolist() == [[8, 0, 0, 0, 0]] * 2


def test_long_lines_keep_their_accuracy():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4096).astype(np.float32)
    got = to_array(fft.fft(rushlight.tensor(x)))
    want = np.fft.fft(x.astype(np.float64))
    assert np.abs(got - want).max() < 2e-6 * np.abs(want).max()
    back = to_array(fft.irfft(fft.rfft(rushlight.tensor(x))))
    assert np.abs(back - x).max() < 4e-6
