"""Short-time Fourier transforms: round trips, dtypes, warnings, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rushlight
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.ops.fft.stft import frames, overlapped
from tests.catalog.run import to_array

X = rushlight.tensor(np.sin(np.arange(48.0)).reshape(2, 24), dtype=rushlight.float32)
W = rushlight.hann_window(8)
S = X.stft(8, window=W, return_complex=True)


def test_there_and_back(device):
    x, window = X.to(device), W.to(device)
    for named in ({}, {"normalized": True}, {"hop_length": 3}, {"onesided": False}):
        spectrum = rushlight.stft(x, 8, window=window, return_complex=True, **named)
        back = spectrum.istft(8, window=window, length=24, **named)
        assert back.dtype is rushlight.float32
        assert np.abs(to_array(back) - to_array(X)).max() < 1e-6, named


def test_complex_signals_there_and_back():
    c = rushlight.complex(X, X * X)
    spectrum = rushlight.stft(c, 8, window=W)
    assert spectrum.shape == (2, 8, 13)
    back = rushlight.istft(spectrum, 8, window=W, return_complex=True)
    assert np.abs(to_array(back) - to_array(c)).max() < 1e-6
    turned = rushlight.stft(X[0], 8, window=rushlight.complex(W, W))
    assert np.allclose(to_array(turned[:5]), to_array(S[0]) * (1 + 1j), atol=1e-5)


def test_the_wider_type_of_signal_and_window_counts():
    assert (
        rushlight.stft(X, 8, window=W.double(), return_complex=True).dtype is rushlight.complex128
    )
    assert rushlight.istft(S, 8, window=W.double()).dtype is rushlight.float64
    assert rushlight.istft(S.to(rushlight.complex128), 8, window=W).dtype is rushlight.float64


@pytest.mark.parametrize(("size", "hop"), [(5, 2), (4, 4), (3, 5), (6, 1)])
def test_overlapping_is_the_transpose_of_framing(size, hop):
    x, rng = rushlight.arange(17.0, dtype=rushlight.float64), np.random.default_rng(0)
    seen = frames(x, size, hop)
    g = rng.standard_normal(seen._spec.shape)
    added = overlapped(rushlight.tensor(g), 17, hop)
    assert added._spec.shape == (17,)
    assert np.isclose((to_array(seen) * g).sum(), (to_array(x) * to_array(added)).sum())


def test_what_stft_refuses():
    named = {"window": W, "return_complex": True}
    for call in (
        lambda: rushlight.stft(X, 0, **named),
        lambda: rushlight.stft(X, 100, **named),
        lambda: rushlight.stft(X, 32, center=False, **named),
        lambda: rushlight.stft(X, 8, 0, **named),
        lambda: rushlight.stft(X, 8, win_length=10, **named),
        lambda: rushlight.stft(X, 8, win_length=6, **named),
        lambda: rushlight.stft(X[None], 8, **named),
    ):
        with pytest.raises(ShapeError, match="stft: "):
            call()
    with pytest.raises(DTypeError, match="floating point or complex"):
        rushlight.stft(X.int(), 8, **named)
    with pytest.raises(DTypeError, match="Unsupported dtype"):
        rushlight.stft(X.half(), 8, window=W.half(), return_complex=True)
    with pytest.raises(RushlightError, match="requires the return_complex parameter"):
        rushlight.stft(X, 8, window=W)
    with pytest.raises(RushlightError, match="Cannot have onesided output"):
        rushlight.stft(rushlight.complex(X, X), 8, window=W, onesided=True)
    with pytest.raises(RushlightError, match="align_to_window"):
        rushlight.stft(X, 8, align_to_window=True, **named)
    with pytest.raises(NotImplementedError, match="mode"):
        rushlight.stft(X, 8, pad_mode="bad", **named)
    with pytest.raises(TypeError, match="argument 'n_fft' must be an int"):
        rushlight.stft(X, 8.5, **named)
    with pytest.raises(TypeError, match="argument 'window' must be a tensor"):
        rushlight.stft(X, 8, window=[1.0] * 8, return_complex=True)


def test_what_istft_refuses():
    for call in (
        lambda: S.istft(8, hop_length=9, window=W),
        lambda: S.istft(8, win_length=9, window=W),
        lambda: S.istft(8, win_length=6, window=W),
        lambda: S.istft(6, window=W),
        lambda: S.istft(8, window=W, onesided=False),
        lambda: S.istft(8, window=W, length=0),
        lambda: S[:, :, :0].istft(8, window=W),
        lambda: S[0, 0].istft(8, window=W),
    ):
        with pytest.raises(ShapeError, match="istft: "):
            call()
    with pytest.raises(DTypeError, match="requires a complex input"):
        rushlight.istft(S.real, 8, window=W)
    for bad in ({"center": False}, {"hop_length": 8}):
        with pytest.raises(RushlightError, match="window overlap add min"):
            S.istft(8, window=W, **bad)
    with pytest.raises(RushlightError, match="Complex windows"):
        S.istft(8, window=rushlight.complex(W, W))
    with pytest.raises(RushlightError, match="Cannot have onesided output"):
        S.istft(8, window=W, return_complex=True)


def test_the_null_device_judges_no_windows():
    spectrum = rushlight.ones(5, 4, dtype=rushlight.complex64, device="null")
    assert rushlight.istft(spectrum, 8, window=rushlight.ones(8, device="null")).shape == (6,)


def test_what_is_said():
    with pytest.warns(UserWarning, match="stft: A window was not provided"):
        plain = rushlight.stft(X, 8, return_complex=True)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        pairs = rushlight.stft(X, 8, window=rushlight.ones(8), return_complex=False)
    assert np.array_equal(to_array(pairs), to_array(rushlight.view_as_real(plain)))
    with pytest.warns(UserWarning, match="padded with zeros"):
        longer = S.istft(8, window=W, length=30)
    assert longer.shape == (2, 30)
    assert not to_array(longer)[:, 28:].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        S.istft(8, window=W, length=28)


def test_kaiser_is_right_where_the_bessel_function_overflows():
    got = to_array(rushlight.kaiser_window(9, False, 300.0, dtype=rushlight.float32))
    want = np.kaiser(9, 300.0)
    assert np.abs(got - want).max() < 1e-6
    with pytest.raises(RushlightError, match="negative"):
        rushlight.kaiser_window(-1)
    with pytest.raises(DTypeError, match="floating point"):
        rushlight.kaiser_window(4, dtype=rushlight.int64)
