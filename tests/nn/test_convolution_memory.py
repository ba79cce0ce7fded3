"""The derivative of a convolution holds one copy of its gradient, and frees the first layout."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.devices.cpu.convolve_image import scratch_room
from rushlight.nn import functional as F
from rushlight.tape.record.needed import Needed

SHAPE = (8, 16, 32, 32)
NBYTES = 4 * 8 * 16 * 32 * 32


def bits(tensors):
    return [t.detach().numpy().tobytes() for t in tensors]


@pytest.fixture
def operands():
    rl.manual_seed(0)
    if not rl.rand(1)._spec.device.device.limits.convolves:
        pytest.skip("the device has no convolution kernels")
    return rl.randn(*SHAPE, requires_grad=True), rl.randn(16, 16, 3, 3, requires_grad=True)


def test_one_contiguous_copy_and_no_other_gradient(operands, monkeypatch):
    x, w = operands
    scale = rl.rand(16, 8, 32, 32)
    clones = []
    clone = Needed.clone
    monkeypatch.setattr(Needed, "clone", lambda v: clones.append(v._spec) or clone(v))
    for _ in range(3):
        x.grad = w.grad = None
        image = F.conv2d(x, w, padding=1)
        padded = scratch_room(image.grad_fn.plan.tail)  # of the derivative too
        y = (image.transpose(0, 1) * scale).sum()
        del image
        before = memory.allocated()
        memory.reset_peak()
        clones.clear()
        y.backward()
        # The transposed gradient and its copy, then the copy and the data's gradient.
        assert memory.peak() - before < 2.3 * NBYTES + padded
        assert [s.shape for s in clones] == [SHAPE]


@pytest.mark.parametrize("stride", [1, 2])
def test_layouts_of_the_gradient_give_the_same_bits(operands, stride):
    x, w = operands

    def gradients(g, **options):
        return bits(rl.autograd.grad(F.conv2d(x, w, None, stride, 1), [x, w], g, **options))

    n = 32 // stride
    g = rl.rand(8, 16, n, n)
    turned = g.transpose(0, 1).contiguous().transpose(0, 1)
    for layout in (g, turned, g[:, :, :1, :1].expand(g.shape)):
        want = gradients(layout.contiguous(), create_graph=True)
        for _ in range(3):
            assert gradients(layout) == gradients(layout, create_graph=True) == want


def test_the_weights_gradient_is_made_before_the_datas(operands):
    x, w = operands
    for _ in range(3):
        y = F.conv2d(x, w, padding=1)
        node = y.grad_fn
        y.backward(rl.ones_like(y))
    (found,) = node.grad.programs.values()
    names = [step.plan.op.name for step in found.program.steps]
    assert names == ["convolution_weights", "convolution_back"]
