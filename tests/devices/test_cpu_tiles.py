"""Products in registers: every edge of a tile and of a panel, every layout, any thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight.devices.cpu import tiles
from rushlight.devices.shared.registry import pool_of

SIZES = [
    (48, 64, 1),
    (49, 60, 7),
    (64, 128, 128),
    (133, 121, 129),
    (300, 256, 40),
    (61, 1000, 16),
    (53, 64, 300),
]


def product(a: np.ndarray, b: np.ndarray, turned: tuple[bool, bool]) -> np.ndarray:
    """a @ b, each as it is or as the transpose of its own transposed copy."""
    left, right = (
        rushlight.tensor(np.ascontiguousarray(x.T)).T if turn else rushlight.tensor(x)
        for x, turn in zip((a, b), turned, strict=True)
    )
    return np.asarray((left @ right).numpy())


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_products(m: int, n: int, k: int, turned: tuple[bool, bool]) -> None:
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(product(a, b, turned) - expected) <= scale * 2.0**-24 * (k + 1)).all()


def test_spread_operands() -> None:
    """Columns that are not adjacent, and a result between other numbers."""
    random = np.random.default_rng(0)
    a, b = (
        random.standard_normal(shape).astype(np.float32) for shape in ((2, 100, 80), (2, 80, 256))
    )
    got = rushlight.tensor(a)[:, :, ::2] @ rushlight.tensor(b)[:, ::2, ::2]
    np.testing.assert_allclose(got.numpy(), a[:, :, ::2] @ b[:, ::2, ::2], rtol=1e-4, atol=1e-4)


def test_not_a_number_stays_in_its_row() -> None:
    a, b = np.ones((60, 64), np.float32), np.ones((64, 64), np.float32)
    a[7, 3] = np.nan
    got = product(a, b, (False, False))
    assert np.isnan(got[7]).all() and np.isfinite(np.delete(got, 7, 0)).all()


@pytest.mark.skipif(not tiles.available(), reason="limit: this processor has no 512-bit registers")
def test_a_row_has_the_same_bits_in_any_product() -> None:
    """Each element is one chain of fused multiply-adds: independent of other rows and of
    threads.
    """
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((700, 64), (64, 256)))
    device: Any = pool_of("cpu").device
    whole = product(a, b, (False, False))
    assert (product(a[101:300], b, (False, True)) == whole[101:300]).all()
    try:
        for count in (2, 5):
            device.set_num_threads(count)
            assert (product(a, b, (False, False)) == whole).all()
    finally:
        device.set_num_threads(1)
