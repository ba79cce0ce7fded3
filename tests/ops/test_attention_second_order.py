"""Second derivatives of attention by blocks of rows: the same numbers, without the whole score
matrix.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.ops.nn import attention


def operands(rows: int, mask: bool, dtype=rl.float64) -> list[rl.Tensor]:
    rl.manual_seed(0)
    shapes = [(2, 2, rows, 4), (2, 2, rows + 3, 4), (2, 2, rows + 3, 5)] + [
        (1, 2, rows, rows + 3)
    ] * mask
    return [rl.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]


def both_orders(inputs: list[rl.Tensor], **named) -> list[rl.Tensor]:
    out = F.scaled_dot_product_attention(*inputs, **named)
    first = rl.autograd.grad(out.square().sum(), inputs, create_graph=True)
    total = sum((g * (i + 1.0)).square().sum() for i, g in enumerate(first))
    return [*first, *rl.autograd.grad(total, inputs)]


@pytest.mark.parametrize(("mask", "causal"), [(False, False), (False, True), (True, False)])
def test_blocks_give_what_the_whole_gives(mask, causal, monkeypatch):
    inputs = operands(40, mask)
    want = both_orders(inputs, is_causal=causal)
    monkeypatch.setattr(attention, "_BLOCK", 500)
    for ours, theirs in zip(both_orders(inputs, is_causal=causal), want, strict=True):
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-10
        )


def test_third_derivatives(monkeypatch):
    def third(inputs):
        (g,) = rl.autograd.grad(
            F.scaled_dot_product_attention(*inputs).square().sum(), inputs[0], create_graph=True
        )
        (h,) = rl.autograd.grad(g.square().sum(), inputs[1], create_graph=True)
        return rl.autograd.grad(h.square().sum(), inputs)

    inputs = operands(20, False)
    want = third(inputs)
    monkeypatch.setattr(attention, "_BLOCK", 100)
    for ours, theirs in zip(third(inputs), want, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-9)


def test_the_scores_are_not_held(monkeypatch):
    monkeypatch.setattr(attention, "_BLOCK", 1 << 14)
    inputs = [rl.randn(1, 1, 1024, 4).requires_grad_() for _ in range(3)]
    start = memory.allocated()
    memory.reset_peak()
    both_orders(inputs)
    assert memory.peak() - start < 1024 * 1024 * 4  # one matrix of scores; several would be held
