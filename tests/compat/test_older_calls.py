"""Calls as programs from before PyTorch 1.5 write them, and functions that PyTorch removed."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl


def test_factors_stand_among_the_tensors():
    x, m, v = rl.ones(2, 2), rl.full((2, 2), 3.0), rl.ones(2)
    want = 2 * x + 3 * (m @ m)
    assert rl.addmm(2, x, 3, m, m).equal(want)
    assert x.addmm(2, 3, m, m).equal(want)
    assert x.clone().addmm_(2, 3, m, m).equal(want)
    assert x.addmm(2, m, m).equal(2 * x + m @ m)
    assert rl.addmv(2, v, m, v).tolist() == [8.0, 8.0]
    assert x.addr(2, 3, v, v).tolist() == [[5.0, 5.0]] * 2
    batch = rl.ones(2, 2, 2)
    assert x.addbmm(2, batch, batch).tolist() == [[6.0, 6.0]] * 2
    assert batch.clone().baddbmm_(2, 3, batch, batch).equal(8 * batch)


def test_adam_as_it_was_once_written():
    p, avg, square, grad = rl.ones(3), rl.zeros(3), rl.zeros(3), rl.tensor([1.0, 2.0, -1.0])
    avg.mul_(0.5).add_(0.5, grad)
    square.mul_(0.5).addcmul_(0.5, grad, grad)
    p.addcdiv_(-1, avg, square.sqrt().add_(0.25))
    root = np.sqrt(0.5 * grad.numpy() ** 2) + 0.25
    assert np.allclose(p.numpy(), 1 - 0.5 * grad.numpy() / root)
    assert rl.add(p, 2, grad).equal(p + 2 * grad)
    assert rl.sub(p, 2, grad).equal(p - 2 * grad)
    with pytest.raises(TypeError, match="alpha="):
        rl.add(p, grad, grad)


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_functions_that_pytorch_removed_say_what_to_use(name):
    with pytest.raises(RuntimeError, match="use linalg"):
        getattr(rl, name)(rl.eye(2), rl.eye(2))


def test_older_constructors():
    assert rl.FloatTensor(rl.Size([2, 3])).shape == (2, 3) and rl.LongTensor(
        [1, 2], device="cpu"
    ).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="cpu"):
        rl.FloatTensor(2, device="cuda")
    assert rl.ones(2).new((3, 4)).tolist() == [3, 4] and rl.ones(2).new(rl.Size((3, 4))).shape == (
        3,
        4,
    )
