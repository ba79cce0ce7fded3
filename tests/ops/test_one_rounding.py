"""Halves: what is added to a product is added before the one rounding, on every device."""

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F

HALVES = pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=str)


def _operands(dtype, device):
    """Small whole numbers: their product is exact, and what is added is not a multiple of it."""
    rng = np.random.default_rng(0)
    x, w = (rl.tensor(rng.integers(-4, 5, size).astype("f")) for size in ((17, 40), (12, 40)))
    c = rl.tensor(rng.standard_normal((17, 12)).astype("f"))
    return [v.to(dtype).to(device) for v in (x, w, c)]


def _once(dtype, wide):
    return rl.tensor(wide.astype("f")).to(dtype).tolist()


def _wide(*values):
    return [np.array(v.cpu().double().tolist()) for v in values]


@HALVES
def test_linear_and_its_batches(dtype, device):
    x, w, c = _operands(dtype, device)
    wide_x, wide_w, wide_c = _wide(x, w, c)
    wanted = _once(dtype, wide_x @ wide_w.T + wide_c[0])
    assert F.linear(x, w, c[0]).tolist() == wanted
    assert F.linear(x[None], w, c[0]).tolist() == [wanted]
    assert rl.addmm(c[0], x, w.T).tolist() == wanted
    weights, biases = rl.stack([w, w + 1]), rl.stack([c[0], c[1]])
    batch = rl.vmap(F.linear, (None, 0, 0))(x, weights, biases)
    assert batch[0].tolist() == wanted
    assert batch[1].tolist() == F.linear(x, weights[1], biases[1]).tolist()


@HALVES
def test_addmm_and_baddbmm(dtype, device):
    x, w, c = _operands(dtype, device)
    wide_x, wide_w, wide_c = _wide(x, w, c)
    for beta, alpha in ((1, 1), (0.5, 2), (-3, 0.25)):
        wanted = _once(dtype, alpha * (wide_x @ wide_w.T) + beta * wide_c)
        assert rl.addmm(c, x, w.T, beta=beta, alpha=alpha).tolist() == wanted
        found = rl.baddbmm(c, x[None], w.T[None], beta=beta, alpha=alpha)
        assert found.tolist() == [wanted]
    batch = rl.vmap(rl.addmm, (0, None, None))(rl.stack([c, -c]), x, w.T)
    assert batch[1].tolist() == rl.addmm(-c, x, w.T).tolist()


@HALVES
def test_gradients(dtype, device):
    x, w, c = (v.requires_grad_() for v in _operands(dtype, device))
    rl.addmm(c, x, w.T, beta=2, alpha=3).sum().backward()
    assert c.grad.unique().tolist() == [2]
    wide_x, wide_w = _wide(x.detach(), w.detach())
    assert w.grad.tolist() == _once(dtype, np.tile(3 * wide_x.sum(0), (12, 1)))
    assert x.grad.tolist() == _once(dtype, np.tile(3 * wide_w.sum(0), (17, 1)))


@HALVES
def test_a_sum_over_nothing(dtype, device):
    c = rl.ones(2, 3, dtype=dtype, device=device)
    empty = rl.zeros(2, 0, dtype=dtype, device=device), rl.zeros(0, 3, dtype=dtype, device=device)
    assert rl.addmm(c, *empty, beta=2).tolist() == [[2.0] * 3] * 2
    assert F.linear(empty[0], empty[1].T, c[0]).tolist() == [[1.0] * 3] * 2


def test_shapes_that_do_not_fit():
    a = rl.ones(2, 3, dtype=rl.bfloat16)
    with pytest.raises(RuntimeError, match="addmm"):
        rl.addmm(a, a, a)
    with pytest.raises(RuntimeError, match="addmm"):
        rl.addmm(rl.ones(4, 2, 2, dtype=rl.bfloat16), a, a.T)
    with pytest.raises(RuntimeError, match="baddbmm"):
        rl.baddbmm(a, rl.ones(2, 3, 3, dtype=rl.bfloat16), rl.ones(3, 3, 3, dtype=rl.bfloat16))
