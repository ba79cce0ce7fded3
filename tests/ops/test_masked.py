"""Masked reductions against NumPy's masked arrays, and windows against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight
from rushlight import masked
from rushlight.signal import windows

VALUES = np.random.default_rng(5).standard_normal((3, 4, 5))
MASK = np.random.default_rng(6).random((4, 5)) < 0.6


def tensors():
    return rushlight.tensor(VALUES), rushlight.tensor(MASK)


def kept():
    return np.ma.array(VALUES, mask=~np.broadcast_to(MASK, VALUES.shape))


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std"])
def test_reductions(name, dim, keepdim):
    x, mask = tensors()
    named = {"correction": 0} if name in ("var", "std") else {}
    got = getattr(masked, name)(x, dim, keepdim=keepdim, mask=mask, **named).numpy()
    reduce = getattr(kept(), {"amax": "max", "amin": "min"}.get(name, name))
    want = np.ma.array(reduce(axis=dim, keepdims=keepdim))
    chosen = ~np.ma.getmaskarray(want)
    assert got.shape == want.shape
    assert np.allclose(got[chosen], want[chosen])


def test_rows_of_nothing():
    x = rushlight.tensor([[1.0, 2.0], [3.0, 4.0]])
    none = rushlight.tensor([[True, False], [False, False]])
    named = {"mask": none}
    assert masked.sum(x, 1, **named).tolist() == [1, 0]
    assert masked.prod(x, 1, **named).tolist() == [1, 1]
    assert masked.amax(x, 1, **named).tolist() == [1, -math.inf]
    assert masked.amin(x.to(rushlight.int32), 1, **named).tolist() == [1, 2**31 - 1]
    assert masked.logsumexp(x, 1, **named).tolist() == [1, -math.inf]
    assert math.isnan(masked.mean(x, 1, **named).tolist()[1])
    assert masked.norm(x, -math.inf, 1, **named).tolist() == [1, math.inf]


def test_running_and_normal():
    x, mask = tensors()
    filled = np.where(MASK, VALUES, 0)
    assert np.allclose(masked.cumsum(x, 1, mask=mask).numpy(), filled.cumsum(1))
    assert np.allclose(
        masked.cumprod(x, 1, mask=mask).numpy(), np.where(MASK, VALUES, 1).cumprod(1)
    )
    weights = np.where(MASK, np.exp(VALUES), 0)
    weights /= weights.sum(2, keepdims=True)
    assert np.allclose(masked.softmax(x, 2, mask=mask).numpy(), weights)
    assert np.allclose(masked.softmin(-x, 2, mask=mask).numpy(), weights)
    with np.errstate(divide="ignore"):
        assert np.allclose(masked.log_softmax(x, 2, mask=mask).numpy(), np.log(weights))
    unit = filled / np.linalg.norm(filled, axis=1, keepdims=True)
    assert np.allclose(masked.normalize(x, 2.0, 1, mask=mask).numpy(), unit)
    both = masked.logaddexp(x, x, input_mask=mask)
    assert np.allclose(both.numpy(), np.where(MASK, VALUES + math.log(2), VALUES))


def test_medians():
    x, mask = tensors()
    got = masked.median(x, 1, mask=mask).numpy()
    for n, row in np.ndindex(3, 5):
        chosen = np.sort(VALUES[n, MASK[:, row], row])
        assert (
            got[n, row] == chosen[(len(chosen) - 1) // 2]
            if len(chosen)
            else math.isnan(got[n, row])
        )
    assert masked.median(rushlight.tensor([3, 1, 2]), 0).item() == 2
    with pytest.raises(ValueError, match="no chosen element"):
        masked.median(rushlight.tensor([3, 1, 2]), 0, mask=rushlight.tensor(False))


def test_places():
    x, mask = tensors()
    assert (
        masked.argmax(x, 1, mask=mask, dtype=rushlight.int64).tolist() == kept().argmax(1).tolist()
    )
    assert (
        masked.argmin(x, 1, mask=mask, dtype=rushlight.int64).tolist() == kept().argmin(1).tolist()
    )
    assert masked.argmin(x, 1).dtype is rushlight.float64  # as in PyTorch


def test_gradients_reach_what_is_chosen():
    x, mask = tensors()
    x.requires_grad_()
    masked.sum(x * x, mask=mask).backward()
    assert np.allclose(x.grad.numpy(), np.where(MASK, 2 * VALUES, 0))


def test_bad_masks():
    x, mask = tensors()
    with pytest.raises(IndexError, match="more dimensions"):
        masked.sum(x[0, 0], mask=mask)
    with pytest.raises(RuntimeError, match="twice"):
        masked.sum(x, (0, 0))
    with pytest.raises(ValueError, match="floating point"):
        masked.mean(rushlight.tensor([1, 2]))
    with pytest.raises(AssertionError, match="not both"):
        masked.var(x, unbiased=True, correction=1)


# ---- windows ----

CASES = {
    "bartlett": lambda n, m: 1 - abs(2 * n / (m - 1) - 1),
    "hann": lambda n, m: 0.5 - 0.5 * math.cos(2 * math.pi * n / (m - 1)),
    "hamming": lambda n, m: 0.54 - 0.46 * math.cos(2 * math.pi * n / (m - 1)),
    "blackman": lambda n, m: (
        0.42
        - 0.5 * math.cos(2 * math.pi * n / (m - 1))
        + 0.08 * math.cos(4 * math.pi * n / (m - 1))
    ),
    "cosine": lambda n, m: math.sin(math.pi * (n + 0.5) / m),
    "gaussian": lambda n, m: math.exp(-((n - (m - 1) / 2) ** 2) / 2),
    "exponential": lambda n, m: math.exp(-abs(n - (m - 1) / 2)),
    "nuttall": lambda n, m: sum(
        a * math.cos(2 * math.pi * k * n / (m - 1))
        for k, a in enumerate((0.3635819, -0.4891775, 0.1365995, -0.0106411))
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [rushlight.float32, rushlight.float64])
def test_windows(name, dtype, device):
    if dtype is rushlight.float64 and device == "webgpu":
        pytest.skip("limit: webgpu has float64 only where the driver has it")
    window = getattr(windows, name)
    close = 1e-6 if dtype is rushlight.float32 else 1e-14
    for m in (2, 7, 8):
        want = [CASES[name](n, m) for n in range(m)]
        assert np.allclose(
            window(m, dtype=dtype, device=device).numpy(), want, rtol=close, atol=close
        )
        # One period of a periodic window is the symmetric one of one point more, without the last.
        periodic = window(m, sym=False, dtype=dtype, device=device).numpy()
        assert np.allclose(
            periodic, window(m + 1, dtype=dtype, device=device).numpy()[:m], rtol=close, atol=close
        )
    assert window(0).shape == (0,)
    assert window(1).tolist() == pytest.approx([1])


def test_kaiser(device):
    for m, sym in ((2, True), (9, True), (8, False)):
        want = np.kaiser(m if sym else m + 1, 12.0)[:m]
        assert np.allclose(
            windows.kaiser(m, sym=sym, device=device).numpy(), want, rtol=1e-5, atol=1e-6
        )
    assert windows.kaiser(5, beta=0.0).tolist() == [1] * 5
    with pytest.raises(ValueError, match="beta"):
        windows.kaiser(5, beta=-1.0)


def test_bad_windows():
    for bad, match in (
        ({"M": -1}, "negative"),
        ({"M": 3, "dtype": rushlight.int32}, "float32 or float64"),
    ):
        with pytest.raises(ValueError, match=match):
            windows.hann(**bad)
    with pytest.raises(ValueError, match="sym=False"):
        windows.exponential(4, center=1.0)
    with pytest.raises(ValueError, match="empty"):
        windows.general_cosine(4, a=[])
    assert windows.gaussian(4, requires_grad=True).requires_grad
