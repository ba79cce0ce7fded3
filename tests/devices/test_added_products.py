"""Linear and addmm where the device adds to a product before it rounds."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl


@pytest.mark.parametrize("name", ["reference", "cuda"])
def test_a_bias_is_added_before_the_product_is_rounded(name: str, require_device) -> None:
    device = require_device(name)
    # 256 + 1 is no bfloat16: rounded before the bias is added, it would be 256.
    x, w = (rl.ones(1, 257).to(rl.bfloat16).to(device) for _ in range(2))
    b = rl.full((1,), -256.0).to(rl.bfloat16).to(device)
    assert rl.nn.functional.linear(x, w, b).cpu().item() == 1.0
    assert rl.addmm(b, x, w.T).cpu().item() == 1.0


@pytest.mark.parametrize("name", ["reference", "cpu", "cuda"])
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
