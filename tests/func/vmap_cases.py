"""Shared by the tests of `vmap`: numbers, a loop over the examples, a comparison."""

from __future__ import annotations

import numpy as np

import rushlight as rl


def draw(*shape, device="cpu", seed=0, dtype="float32"):
    return rl.tensor(
        np.random.default_rng(seed).standard_normal(shape).astype(dtype), device=device
    )


def looped(function, *args, dims=None):
    """The stack of the function's results, example by example."""
    dims = dims or (0,) * len(args)
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    rows = [
        function(*[a if d is None else a.select(d, i) for a, d in zip(args, dims, strict=True)])
        for i in range(size)
    ]
    return rl.stack(rows)


def same(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    assert got.dtype is want.dtype
    assert (got - want).detach().abs().max().item() <= tolerance if got.numel() else True
