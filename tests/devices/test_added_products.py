"""Linear and addmm where the device adds to a product before it rounds."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.devices.shared.registry import pool_of


@pytest.mark.parametrize("name", ["reference", "cuda", "webgpu"])
def test_a_bias_is_added_before_the_product_is_rounded(name: str, require_device) -> None:
    device = require_device(name)
    # 256 + 1 is no bfloat16: rounded before the bias is added, it would be 256.
    x, w = (rl.ones(1, 257).to(rl.bfloat16).to(device) for _ in range(2))
    b = rl.full((1,), -256.0).to(rl.bfloat16).to(device)
    assert rl.nn.functional.linear(x, w, b).cpu().item() == 1.0
    assert rl.addmm(b, x, w.T).cpu().item() == 1.0


@pytest.mark.parametrize("name", ["reference", "cpu", "cuda", "webgpu"])
def test_addmm_with_a_bias_is_linear(name: str, require_device) -> None:
    device = require_device(name)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype("f") for s in ((6,), (5, 7), (7, 6))]
    found = []
    for bias in (given[0], np.broadcast_to(given[0], (5, 6)).copy()):
        leaves = [rl.tensor(v, device=device).requires_grad_() for v in (bias, *given[1:])]
        out = rl.addmm(*leaves)
        (out * out).sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    found[1][1] = found[1][1].sum(0)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=2e-6, atol=2e-6)
    want = given[1] @ given[2] + given[0]
    np.testing.assert_allclose(found[0][0].cpu().numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [rl.float32, rl.float16, rl.bfloat16, rl.float64], ids=str)
@pytest.mark.parametrize("rows, columns", [(3, 5), (70, 64), (33, 131)])
def test_linear_is_one_launch(dtype: rl.dtype, rows: int, columns: int, require_device) -> None:
    """In the plain form of a product, in tiles, and where tiles are not filled."""
    device = require_device("webgpu")
    rng = np.random.default_rng(1)
    x, w, b = (rng.normal(size=s) for s in ((rows, 40), (columns, 40), (columns,)))
    given = [rl.tensor(v).to(dtype) for v in (x, w, b)]
    want = rl.nn.functional.linear(*given)
    placed = [v.to(device) for v in given]
    rl.nn.functional.linear(*placed)
    driver = pool_of(device).device
    driver.synchronize()
    out = rl.nn.functional.linear(*placed)
    assert driver.stream._count == 1
    tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-12}[dtype.itemsize]
    rl.testing.assert_close(out.cpu(), want, rtol=tolerance, atol=tolerance)


def test_a_bias_is_added_once_to_a_long_sum(require_device) -> None:
    """A product over a long k is several launches."""
    device = require_device("webgpu")
    x, w = rl.ones(2, 70001, device=device), rl.ones(3, 70001, device=device)
    b = rl.tensor([1.0, 2.0, 3.0], device=device)
    assert rl.nn.functional.linear(x, w, b).tolist() == [[70002.0, 70003.0, 70004.0]] * 2
