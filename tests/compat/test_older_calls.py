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


def test_classes_of_a_card(require_device):
    require_device("webgpu")
    with rl.patch("webgpu") as torch:
        kind = torch.cuda.FloatTensor
        x = kind([1.0, 2.0])
        assert x.is_cuda and kind(2, 3).shape == (2, 3) and isinstance(x, kind)
        assert not isinstance(x, torch.FloatTensor) and not isinstance(x.cpu(), kind)
        assert torch.arange(2).type(kind)._spec is x._spec
        assert torch.arange(2).type("torch.cuda.FloatTensor")._spec is x._spec
        assert torch.arange(2).type(torch.cuda.LongTensor).dtype is torch.int64
        found = [x.type(torch.DoubleTensor), x.type("torch.LongTensor"), x.type(torch.float16)]
        assert [made.is_cuda for made in found] == [False, False, True]
        with pytest.raises(RuntimeError, match="makes tensors on the cuda"):
            kind(2, device="cpu")
        try:
            torch.set_default_tensor_type("torch.cuda.FloatTensor")
            assert torch.ones(1).is_cuda and not torch.FloatTensor(1).is_cuda
        finally:
            torch.set_default_tensor_type(torch.FloatTensor)
        assert not torch.ones(1).is_cuda


def test_classes_tell_devices_apart(monkeypatch):
    x = rl.ones(1)
    assert isinstance(x, rl.FloatTensor) and not isinstance(x, rl.cuda.FloatTensor)
    assert not isinstance(x, rl.DoubleTensor) and not isinstance(1.0, rl.FloatTensor)
    with pytest.raises(TypeError):
        x.type(3.5)
