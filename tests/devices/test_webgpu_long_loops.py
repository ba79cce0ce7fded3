"""Loops of more iterations than Mesa's llvmpipe runs in one dispatch (65535): several
dispatches.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl

LONG = 70_001


@pytest.fixture(autouse=True)
def _webgpu(require_device):
    require_device("webgpu")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape)


@pytest.mark.parametrize("dtype", [rl.float32, rl.int32, rl.int64, rl.float16], ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (20, 12)], ids=["plain", "tiled"])
def test_matrix_products(m, n, dtype):
    a, b = numbers(m, LONG), numbers(LONG, n, seed=1)
    made = rl.tensor(a, dtype=dtype, device="webgpu") @ rl.tensor(b, dtype=dtype, device="webgpu")
    # Halves: the sums are below 2048 times a few units, and are rounded between dispatches.
    np.testing.assert_allclose(
        made.cpu().double().numpy(), a @ b, atol=4 if dtype is rl.float16 else 0
    )


@pytest.mark.parametrize("dtype", [rl.float32, rl.int64], ids=str)
def test_scans(dtype):
    x = numbers(2, LONG, 2)
    made = rl.tensor(x, dtype=dtype, device="webgpu").cumsum(1)
    np.testing.assert_array_equal(made.cpu().numpy(), x.cumsum(1))
    rising = rl.arange(LONG, device="webgpu").to(dtype)
    values, places = rl.cummax(rising, 0)
    assert bool((values == rising).all())
    assert bool((places == rl.arange(LONG, device="webgpu")).all())


def test_the_gradient_of_a_scan_goes_the_other_way():
    x = rl.ones(LONG, device="webgpu", requires_grad=True)
    x.cumsum(0).sum().backward()
    assert x.grad.cpu().tolist() == list(range(LONG, 0, -1))
