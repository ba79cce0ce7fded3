"""Batch norm of images where they lie: against its definition, and in little memory."""

from __future__ import annotations

import copy
import gc

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.autograd import gradcheck, gradgradcheck

SHAPES = [(3, 2, 16), (2, 3, 5, 7), (1, 2, 3, 4, 5), (4, 1, 16, 16)]


def operands(shape, affine=2, dtype=rl.float64, device="cpu"):
    rl.manual_seed(1)
    x = rl.randn(*shape, dtype=dtype).to(device)
    weights = [rl.randn(shape[1], dtype=dtype).to(device) for _ in range(affine)]
    return [v.requires_grad_() for v in (x, *weights)]


def norm(x, weight=None, bias=None):
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=0.01)


def definition(x, weight=None, bias=None):
    dims = [d for d in range(x.ndim) if d != 1]
    column = (-1, *[1] * (x.ndim - 2))
    centred = x - x.mean(dims, keepdim=True)
    y = centred / (centred.square().mean(dims, keepdim=True) + 0.01).sqrt()
    y = y if weight is None else y * weight.view(column)
    return y if bias is None else y + bias.view(column)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_is_its_definition(shape, affine):
    given = operands(shape, affine)
    seed = rl.randn(*shape, dtype=rl.float64)
    found = []
    for how in (norm, definition):
        y = how(*given)
        found.append([y, *rl.autograd.grad(y, given, seed)])
    for a, b in zip(*found, strict=True):
        rl.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_of_views_and_of_one_gradient():
    x, w, b = operands((2, 3, 5, 7))
    turned = x.transpose(2, 3)
    seed = rl.randn(2, 3, 7, 5, dtype=rl.float64).transpose(0, 1).contiguous().transpose(0, 1)
    y = norm(turned, w, b)
    whole = rl.autograd.grad(y, (x, w, b), seed, retain_graph=True)
    alone = [rl.autograd.grad(y, v, seed, retain_graph=True)[0] for v in (x, w, b)]
    want = rl.autograd.grad(definition(turned, w, b), (x, w, b), seed)
    assert y.is_contiguous()
    for a, one, b in zip(whole, alone, want, strict=True):
        assert rl.equal(a, one)
        rl.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_derivatives_of_both_orders():
    given = operands((2, 2, 4, 4))
    assert gradcheck(norm, given)
    assert gradgradcheck(norm, given)


def test_a_recorded_gradient_is_close():
    given = operands((2, 3, 5, 7))
    y = norm(*given).cos().sum()
    plain = rl.autograd.grad(y, given, retain_graph=True)
    recorded = rl.autograd.grad(y, given, create_graph=True)
    for a, b in zip(plain, recorded, strict=True):
        assert b.requires_grad
        rl.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_batches_of_gradients_and_tangents():
    given = operands((2, 3, 4, 5))
    y = norm(*given)
    seeds = rl.randn(3, *y.shape, dtype=rl.float64)
    several = rl.autograd.grad(y, given, seeds, is_grads_batched=True, retain_graph=True)
    for i, seed in enumerate(seeds):
        for many, one in zip(
            several, rl.autograd.grad(y, given, seed, retain_graph=True), strict=True
        ):
            rl.testing.assert_close(many[i], one)
    x, w, b = (v.detach() for v in given)
    way = rl.randn(*x.shape, dtype=rl.float64)
    found = [
        rl.func.jvp(lambda x, how=how: how(x, w, b), (x,), (way,)) for how in (norm, definition)
    ]
    for a, b in zip(*found, strict=True):
        rl.testing.assert_close(a, b)


def test_devices_agree(device):
    found = []
    for place in ("cpu", device):
        given = operands((4, 3, 6, 6), dtype=rl.float32, device=place)
        y = norm(*given)
        seed = rl.linspace(-1, 1, y.numel()).view(y.shape).to(place)
        found.append([v.cpu() for v in (y, *rl.autograd.grad(y, given, seed))])
    for a, b in zip(*found, strict=True):
        rl.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_halves_are_summed_in_float32():
    x = (rl.rand(64, 1, 32, 32) + 8).half()
    y = norm(x).float()
    assert abs(y.mean().item()) < 1e-2 and abs(y.var().item() - 1) < 0.2


def test_lies_over_its_image():
    """A batch norm takes no second image, where its own can be rebuilt."""
    x = rl.randn(32, 16, 32, 32)

    def run():
        return norm(x * 0.5)

    want = run()
    gc.collect()
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(1.1 * x.nbytes)):
        made = run()
    assert rl.equal(made, want)


def test_its_gradient_lies_over_its_image():
    x, shift = rl.randn(32, 16, 32, 32), rl.zeros(32, 16, 32, 32, requires_grad=True)
    seed = rl.randn(*x.shape)

    def run():
        return rl.autograd.grad(norm(x + shift), shift, seed)[0]

    want = run()
    gc.collect()
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(1.1 * x.nbytes)):
        made = run()
    assert rl.equal(made, want)


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2), (4, 3, 5, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_halves_with_weights_in_float32(dtype, shape, training):
    layer = rl.nn.BatchNorm1d(3) if len(shape) == 2 else rl.nn.BatchNorm2d(3)
    x = rl.randn(*shape).to(dtype).requires_grad_()
    layer.train(training)
    want = copy.deepcopy(layer)(x.detach().float())
    y = layer(x)
    assert y.dtype is dtype and layer.running_mean.dtype is rl.float32
    rl.testing.assert_close(y.float(), want, rtol=0.02, atol=0.02)
    y.sum().backward()
    assert x.grad.dtype is dtype and layer.weight.grad.dtype is rl.float32


@pytest.mark.parametrize("pixels", [(), (2,), (5, 4)])
def test_weights_in_float32_are_not_rounded(pixels, device):
    """A bfloat16 next to 257 is 256 or 258, and 256 + 1 / 2 is none."""
    x = rl.tensor([1.0, -1.0]).repeat_interleave(20).view(40, 1).expand(40, 3)
    x = x.reshape(40, 3, *[1] * len(pixels)).expand(40, 3, *pixels).to(device)
    x = x.to(rl.bfloat16).requires_grad_()
    w, b = (rl.full((3,), v, device=device, requires_grad=True) for v in (257.0, -256.5))
    y = F.batch_norm(x, None, None, w, b, training=True, eps=0.0)
    assert y.dtype is rl.bfloat16
    assert y[0].unique().tolist() == [0.5] and y[39].unique().tolist() == [-512.0]
    y.backward(rl.ones_like(y) * (1 + x.detach()) / 2)  # sum: 20 of each pixel
    count = 20 * x[0, 0].numel()
    assert w.grad.tolist() == b.grad.tolist() == [count] * 3


def test_layer_norm_of_halves_with_weights_in_float32(device):
    x = rl.tensor([1.0, -1.0]).repeat(257, 2).to(rl.bfloat16).to(device).requires_grad_()
    w, b = (rl.full((4,), v, device=device, requires_grad=True) for v in (257.0, -256.5))
    y = F.layer_norm(x, (4,), w, b, eps=0.0)
    assert y.dtype is rl.bfloat16
    assert y[0].tolist() == [0.5, -512.0] * 2
    y.backward(rl.ones_like(y))
    assert w.grad.tolist() == [257.0, -257.0] * 2 and b.grad.tolist() == [257.0] * 4
