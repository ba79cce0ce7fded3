"""Note [Folding]: both ways give the same bits and the same gradients."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops import folding

CASES = [((5,), 0, 9), ((3, 4), 1, 7), ((4, 3), 0, 300), ((2, 3, 4), 1, 5)]


def reduced(x, dim, index, src, weights, kind, include_self, device):
    leaf, given = (rl.tensor(a, device=device, requires_grad=True) for a in (x, src))
    out = leaf.scatter_reduce(dim, rl.tensor(index, device=device), given, kind, include_self=include_self)
    (out * rl.tensor(weights, device=device)).sum().backward()
    return [v.detach().cpu().numpy() for v in (out, leaf.grad, given.grad)]


@pytest.mark.parametrize("kind", ["amax", "amin", "prod"])
@pytest.mark.parametrize("include_self", [True, False])
def test_both_ways_agree(kind, include_self, device, monkeypatch):
    draw = np.random.default_rng(5)
    for shape, dim, count in CASES:
        wide = [count if i == dim else n for i, n in enumerate(shape)]
        # Small whole numbers: many ties; the long row has only 1 and -1, so that its product stays small.
        x = draw.integers(-3, 4, shape).astype(np.float32)
        src = (draw.integers(-3, 4, wide) if count < 300 else draw.choice([1, -1], wide)).astype(np.float32)
        index = draw.integers(0, shape[dim], wide)
        weights = draw.standard_normal(shape).astype(np.float32)
        found = []
        for few in (1 << 30, 0):
            monkeypatch.setattr(folding, "FEW", few)
            found.append(reduced(x, dim, index, src, weights, kind, include_self, device))
        assert np.array_equal(found[0][0], found[1][0])
        for dense, ordered in zip(found[0][1:], found[1][1:], strict=True):
            np.testing.assert_allclose(dense, ordered, rtol=1e-5, atol=1e-5)
