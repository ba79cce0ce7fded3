"""pca_lowrank and svd_lowrank of sparse matrices."""

from __future__ import annotations

import pytest

import rushlight as rl


@pytest.mark.parametrize("dtype", [rl.float64, rl.complex128], ids=["float64", "complex128"])
def test_low_ranks_of_sparse_matrices(dtype):
    rl.manual_seed(4)
    for shape in ((9, 5), (5, 9)):
        dense = rl.randn(*shape, dtype=dtype) * (rl.rand(*shape) < 0.4)
        for centre in (False, True):
            u, s, v = rl.pca_lowrank(dense.to_sparse(), q=5, center=centre, niter=4)
            want = dense - dense.mean(0, keepdim=True) if centre else dense
            assert rl.allclose((u * s) @ v.mH, want), (shape, centre)
        u, s, v = rl.svd_lowrank(dense.to_sparse(), q=5, M=rl.ones_like(dense))
        assert rl.allclose((u * s) @ v.mH, dense - 1)
    with pytest.raises(RuntimeError, match="q is at most"):
        rl.svd_lowrank(dense.to_sparse(), q=6)
