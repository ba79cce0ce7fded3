"""Transforms on CUDA, with NumPy's arrays in place of CuPy's: the operands that cuFFT gets."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rushlight.devices.cuda import fft


class Array(np.ndarray):
    """An array with the address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("skipped", [0, 1])
def test_a_real_operand_has_the_alignment_of_complex_numbers(
    monkeypatch: pytest.MonkeyPatch, dtype: type, skipped: int
):
    seen = []

    def run(kinds: Any, out: Array, x: Array, sizes: tuple[int, ...], direction: int) -> None:
        seen.append(x.data.ptr % (2 * x.itemsize))
        out[...] = np.fft.rfft(x)

    cupy = SimpleNamespace(ascontiguousarray=lambda a: np.ascontiguousarray(a).view(Array))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(fft, "_run", run)
    whole = np.arange(32, dtype=dtype)
    first = whole.ctypes.data // whole.itemsize % 2  # of the elements, an aligned one
    x = whole[first + skipped :][:12].view(Array)
    out = np.empty(7, np.result_type(dtype, np.complex64)).view(Array)
    fft.half([out], [x], (0,), "backward")
    assert seen == [0]
    np.testing.assert_allclose(out, np.fft.rfft(np.asarray(x)), rtol=1e-5, atol=1e-5)
