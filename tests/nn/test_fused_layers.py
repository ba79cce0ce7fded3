"""Convolutions and linear layers fused with batch norms; skip_init."""

import math

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import utils


def values(*shape):
    made = [math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]
    return rl.tensor(made, dtype=rl.float64).reshape(*shape)


def norm_of(kind, features):
    norm = kind(features, dtype=rl.float64).eval()
    with rl.no_grad():
        norm.running_mean.copy_(values(features))
        norm.running_var.copy_(values(features).abs() + 0.5)
        norm.weight.copy_(values(features) + 2)
        norm.bias.copy_(values(features) * 3)
    return norm


@pytest.mark.parametrize("bias", [True, False])
def test_fused_layers_do_what_both_did(bias):
    cases = [
        (
            nn.Conv2d(2, 3, 2, bias=bias, dtype=rl.float64),
            nn.BatchNorm2d,
            values(1, 2, 4, 4),
            False,
        ),
        (
            nn.ConvTranspose2d(2, 3, 2, bias=bias, dtype=rl.float64),
            nn.BatchNorm2d,
            values(1, 2, 3, 3),
            True,
        ),
        (nn.Conv1d(2, 3, 2, bias=bias, dtype=rl.float64), nn.BatchNorm1d, values(1, 2, 4), False),
    ]
    for layer, kind, x, transpose in cases:
        norm = norm_of(kind, 3)
        layer.eval()
        rl.testing.assert_close(utils.fuse_conv_bn_eval(layer, norm, transpose)(x), norm(layer(x)))
    linear, norm = nn.Linear(2, 3, bias=bias, dtype=rl.float64).eval(), norm_of(nn.BatchNorm1d, 3)
    rl.testing.assert_close(
        utils.fuse_linear_bn_eval(linear, norm)(values(4, 2)), norm(linear(values(4, 2)))
    )
    with pytest.raises(AssertionError, match="eval"):
        utils.fuse_linear_bn_eval(linear.train(), norm)


def test_skip_init_and_layouts():
    made = utils.skip_init(nn.Linear, 3, 4)
    assert (
        made.weight.shape == (4, 3)
        and made.weight.device.type == "cpu"
        and made.weight.requires_grad
    )
    made.load_state_dict(nn.Linear(3, 4).state_dict())
    with pytest.raises(RuntimeError, match="device"):
        utils.skip_init(nn.ReLU)
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(2, 2))
    before = net[0].weight.detach().clone()
    utils.convert_conv2d_weight_memory_format(net, rl.channels_last)
    assert net[0].weight.is_contiguous(memory_format=rl.channels_last) and rl.equal(
        net[0].weight, before
    )
