"""Convolution, pooling and channel layers against PyTorch's numbers.

LAYERS was made by PyTorch 2.13.0 on the CPU:
`PYTHONPATH=. python tests/nn/test_convolution_and_pooling.py` prints it where torch is installed,
by the function that the tests use. Each entry: the result's shape, a fixed projection of the
result, and the same projection's gradient with respect to the input, projected again.
"""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import rushlight
import rushlight.nn.functional as F
from rushlight import nn


def waves(torch, *shape, device=None):
    """Fixed numbers without a pattern that a layer could share."""
    count = math.prod(shape)
    return torch.tensor([math.sin(1.7 * i + count) for i in range(count)], device=device).reshape(
        *shape
    )


CASES = {
    "conv_1d": (lambda nn: nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 2, 7)),
    "conv_1d_reflected": (
        lambda nn: nn.Conv1d(2, 4, 3, padding=2, padding_mode="reflect", groups=2),
        (2, 2, 5),
    ),
    "conv_2d_same_even": (lambda nn: nn.Conv2d(1, 2, (2, 4), padding="same"), (1, 1, 4, 5)),
    "conv_2d_circular": (
        lambda nn: nn.Conv2d(1, 2, 3, padding=(1, 2), padding_mode="circular"),
        (1, 1, 4, 5),
    ),
    "conv_2d_replicate_same": (
        lambda nn: nn.Conv2d(1, 2, 2, padding="same", padding_mode="replicate"),
        (1, 1, 3, 3),
    ),
    "conv_3d": (
        lambda nn: nn.Conv3d(2, 2, 2, stride=(1, 2, 1), dilation=(1, 1, 2)),
        (1, 2, 3, 4, 5),
    ),
    "conv_transpose_1d": (lambda nn: nn.ConvTranspose1d(2, 3, 3, 2, 1, 1), (2, 2, 4)),
    "conv_transpose_2d": (lambda nn: nn.ConvTranspose2d(4, 2, 3, 2, 1, (0, 1), 2), (1, 4, 3, 2)),
    "conv_transpose_3d": (
        lambda nn: nn.ConvTranspose3d(1, 2, 2, bias=False, dilation=2),
        (1, 1, 2, 3, 2),
    ),
    "max_pool_1d": (lambda nn: nn.MaxPool1d(3, 2, 1, ceil_mode=True), (2, 2, 8)),
    "max_pool_2d_ceil": (lambda nn: nn.MaxPool2d(2, ceil_mode=True), (1, 1, 5, 5)),
    "max_pool_3d": (lambda nn: nn.MaxPool3d(2, 1, dilation=(1, 2, 1)), (1, 1, 3, 4, 3)),
    "avg_pool_1d": (lambda nn: nn.AvgPool1d(3, 2, 1, True, False), (1, 2, 8)),
    "avg_pool_2d_ceil": (lambda nn: nn.AvgPool2d(3, 2, 1, True), (1, 1, 6, 5)),
    "avg_pool_2d_divided": (lambda nn: nn.AvgPool2d(2, divisor_override=3), (1, 1, 4, 4)),
    "avg_pool_3d": (lambda nn: nn.AvgPool3d(2, 1, 1, count_include_pad=False), (1, 1, 2, 3, 2)),
    "lp_pool_2d": (lambda nn: nn.LPPool2d(2, 2), (1, 1, 4, 5)),
    "adaptive_avg_pool_1d": (lambda nn: nn.AdaptiveAvgPool1d(3), (2, 1, 7)),
    "adaptive_avg_pool_2d": (lambda nn: nn.AdaptiveAvgPool2d((None, 2)), (1, 2, 3, 5)),
    "adaptive_max_pool_2d": (lambda nn: nn.AdaptiveMaxPool2d((2, 3)), (1, 2, 5, 4)),
    "adaptive_avg_pool_3d": (lambda nn: nn.AdaptiveAvgPool3d(2), (1, 1, 3, 4, 2)),
    "group_norm": (lambda nn: nn.GroupNorm(2, 4), (2, 4, 3)),
    "rms_norm": (lambda nn: nn.RMSNorm((2, 3), eps=1e-3), (4, 2, 3)),
    "instance_norm_1d": (lambda nn: nn.InstanceNorm1d(2, affine=True), (3, 2, 4)),
    "instance_norm_2d": (lambda nn: nn.InstanceNorm2d(2, track_running_stats=True), (2, 2, 3, 2)),
    "instance_norm_2d_in_eval": (
        lambda nn: nn.InstanceNorm2d(2, track_running_stats=True).eval(),
        (2, 2, 3, 2),
    ),
    "batch_norm_3d": (lambda nn: nn.BatchNorm3d(2), (2, 2, 2, 2, 2)),
    "local_response_norm": (lambda nn: nn.LocalResponseNorm(2, 0.5), (1, 4, 3)),
    "zero_pad_2d": (lambda nn: nn.ZeroPad2d((1, -1, 2, 0)), (1, 1, 3, 3)),
    "constant_pad_1d": (lambda nn: nn.ConstantPad1d(2, 3.5), (1, 3)),
    "reflection_pad_2d": (lambda nn: nn.ReflectionPad2d(2), (1, 1, 3, 4)),
    "replication_pad_3d": (lambda nn: nn.ReplicationPad3d(1), (1, 1, 2, 2, 2)),
    "circular_pad_1d": (lambda nn: nn.CircularPad1d((2, 1)), (1, 2, 4)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=2.5, mode="bilinear"), (1, 1, 3, 4)),
    "upsample_cubic": (
        lambda nn: nn.Upsample((5, 3), mode="bicubic", align_corners=True),
        (1, 1, 3, 4),
    ),
    "upsampling_nearest_2d": (lambda nn: nn.UpsamplingNearest2d(scale_factor=2), (1, 1, 3, 4)),
    "pixel_shuffle": (lambda nn: nn.PixelShuffle(2), (1, 4, 2, 3)),
    "pixel_unshuffle": (lambda nn: nn.PixelUnshuffle(2), (1, 1, 4, 6)),
    "channel_shuffle": (lambda nn: nn.ChannelShuffle(2), (1, 4, 2, 1)),
    "unfold": (lambda nn: nn.Unfold(2, 1, 1, 2), (1, 2, 3, 4)),
    "fold": (lambda nn: nn.Fold((4, 3), 2), (1, 4, 6)),
}


def measured(torch, nn, name, device=None):
    """The result's shape, its projection, and the gradient's."""
    make, shape = CASES[name]
    layer = make(nn).to(device or "cpu")
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(waves(torch, *p.shape, device=device) * 0.5 + 0.1)
    x = waves(torch, *shape, device=device).requires_grad_()
    y = layer(x)
    projected = (y * waves(torch, *y.shape, device=device)).sum()
    projected.backward()
    slope = (x.grad * waves(torch, *shape, device=device)).sum()
    state = sum(float((b * 1.0).sum()) for b in layer.buffers())
    return list(y.shape), round(projected.item(), 5), round(slope.item(), 5), round(state, 5)


LAYERS = {
    "conv_1d": ([2, 3, 4], -0.87784, -0.89839, 0),
    "conv_1d_reflected": ([2, 4, 7], -4.08624, -3.94458, 0),
    "conv_2d_same_even": ([1, 2, 4, 5], -4.09643, -4.54437, 0),
    "conv_2d_circular": ([1, 2, 4, 7], 3.2725, 2.82112, 0),
    "conv_2d_replicate_same": ([1, 2, 3, 3], -0.61784, -0.23664, 0),
    "conv_3d": ([1, 2, 2, 2, 3], -1.08288, -0.54825, 0),
    "conv_transpose_1d": ([2, 3, 8], -0.09707, -0.09688, 0),
    "conv_transpose_2d": ([1, 2, 5, 4], -0.62964, -1.07759, 0),
    "conv_transpose_3d": ([1, 2, 4, 5, 4], -1.87203, -1.87202, 0),
    "max_pool_1d": ([2, 2, 5], -0.98108, -0.98108, 0),
    "max_pool_2d_ceil": ([1, 1, 3, 3], 0.72085, 0.72085, 0),
    "max_pool_3d": ([1, 1, 2, 2, 2], 0.70605, 0.70605, 0),
    "avg_pool_1d": ([1, 2, 5], -0.015, -0.015, 0),
    "avg_pool_2d_ceil": ([1, 1, 4, 3], -0.32349, -0.32349, 0),
    "avg_pool_2d_divided": ([1, 1, 2, 2], -0.21123, -0.21123, 0),
    "avg_pool_3d": ([1, 1, 3, 4, 3], 1.56427, 1.56427, 0),
    "lp_pool_2d": ([1, 1, 2, 2], -0.0004, -0.0004, 0),
    "adaptive_avg_pool_1d": ([2, 1, 3], -0.08345, -0.08345, 0),
    "adaptive_avg_pool_2d": ([1, 2, 3, 2], 0.4351, 0.4351, 0),
    "adaptive_max_pool_2d": ([1, 2, 2, 3], 0.81019, 0.81019, 0),
    "adaptive_avg_pool_3d": ([1, 1, 2, 2, 2], 0.02259, 0.02259, 0),
    "group_norm": ([2, 4, 3], 0.44522, 3e-05, 0),
    "rms_norm": ([4, 2, 3], 2.9965, 0.00606, 0),
    "instance_norm_1d": ([3, 2, 4], 3.06886, 7e-05, 0),
    "instance_norm_2d": ([2, 2, 3, 2], 16.56629, 0.00035, 1.91011),
    "instance_norm_2d_in_eval": ([2, 2, 3, 2], 11.98662, 11.98662, 2.0),
    "batch_norm_3d": ([2, 2, 2, 2, 2], 4.54341, 9e-05, 2.91099),
    "local_response_norm": ([1, 4, 3], 5.01119, 3.61985, 0),
    "zero_pad_2d": ([1, 1, 5, 3], 1.7892, 1.7892, 0),
    "constant_pad_1d": ([1, 7], 2.29611, 0.44278, 0),
    "reflection_pad_2d": ([1, 1, 7, 8], 0.02717, 0.02717, 0),
    "replication_pad_3d": ([1, 1, 4, 4, 4], 3.83904, 3.83904, 0),
    "circular_pad_1d": ([1, 2, 7], -5.34898, -5.34898, 0),
    "upsample": ([1, 1, 7, 10], -0.64503, -0.64503, 0),
    "upsample_cubic": ([1, 1, 5, 3], -0.62142, -0.62142, 0),
    "upsampling_nearest_2d": ([1, 1, 6, 8], 1.12483, 1.12483, 0),
    "pixel_shuffle": ([1, 1, 4, 6], 3.78603, 3.78603, 0),
    "pixel_unshuffle": ([1, 4, 2, 3], 3.78603, 3.78603, 0),
    "channel_shuffle": ([1, 4, 2, 1], -0.00213, -0.00213, 0),
    "unfold": ([1, 8, 6], -4.27296, -4.27296, 0),
    "fold": ([1, 1, 4, 3], 0.30909, 0.30909, 0),
}


@pytest.mark.usefixtures("float32_convolutions")
@pytest.mark.parametrize("name", CASES)
def test_layer_gives_pytorchs_numbers(name, device):
    shape, *numbers = measured(rushlight, nn, name, device)
    assert shape == LAYERS[name][0]
    assert numbers == pytest.approx(LAYERS[name][1:], rel=1e-4, abs=1e-4)


def test_max_pool_gives_the_places_of_its_results():
    x = waves(rushlight, 2, 3, 5, 6)
    y, places = nn.MaxPool2d(3, 2, 1, return_indices=True)(x)
    assert places.dtype is rushlight.int64
    assert (
        x.reshape(2, 3, 30).gather(2, places.reshape(2, 3, -1)).tolist()
        == y.reshape(2, 3, -1).tolist()
    )


def test_max_pool_of_nothing_but_minus_infinity_stays_inside():
    x = rushlight.full((1, 1, 3, 3), -math.inf).requires_grad_()
    y, places = F.max_pool2d(x, 2, 2, 1, return_indices=True)
    assert places.tolist() == [[[[0, 1], [3, 4]]]]
    F.max_pool2d(x, 2, 2, 1).sum().backward()
    assert x.grad.tolist() == [[[[1, 1, 0], [1, 1, 0], [0, 0, 0]]]]
    assert y.tolist() == [[[[-math.inf] * 2] * 2]]


def test_conv_transpose_reaches_the_wanted_size():
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
    x = waves(rushlight, 1, 1, 4, 4)
    assert list(layer(x).shape) == [1, 1, 7, 7]
    assert list(layer(x, output_size=(8, 7)).shape) == [1, 1, 8, 7]
    with pytest.raises(ValueError, match="output_size 9"):
        layer(x, output_size=(9, 7))


@pytest.mark.parametrize(
    "layer, shape", [(nn.Dropout1d, (50, 40, 3)), (nn.Dropout2d, (50, 40, 2, 2))]
)
def test_dropout_of_channels_keeps_or_drops_them_whole(layer, shape):
    rushlight.manual_seed(0)
    x = rushlight.ones(shape)
    y = layer(0.25)(x).reshape(50 * 40, -1)
    assert (y == y[:, :1]).all()
    assert sorted(set(y[:, 0].tolist())) == pytest.approx([0, 4 / 3])
    assert abs(float((y[:, 0] == 0).float().mean()) - 0.25) < 0.05
    assert layer(0.25).eval()(x) is x


def test_alpha_dropout_keeps_mean_and_variance():
    rushlight.manual_seed(0)
    y = nn.AlphaDropout(0.3)(rushlight.randn(40000))
    assert abs(float(y.mean())) < 0.03
    assert abs(float(y.var()) - 1) < 0.05


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: nn.Conv1d(2, 3, 3, padding_mode="nowhere"), "nowhere"),
        (lambda: nn.ConvTranspose1d(2, 3, 3, padding_mode="reflect"), "reflect"),
        (lambda: F.pad(waves(rushlight, 2, 3), (3, 0), "reflect"), "reflected"),
        (lambda: F.pad(waves(rushlight, 2, 3), (4, 0), "circular"), "circular"),
        (lambda: F.pad(waves(rushlight, 2, 3), (1,)), "pairs"),
        (lambda: F.pad(waves(rushlight, 2, 3), (1, 1), "replicate", 2.0), "no value"),
        (lambda: F.interpolate(waves(rushlight, 1, 2, 3)), "size or scale_factor"),
        (lambda: F.interpolate(waves(rushlight, 1, 2, 3), 2, align_corners=True), "align_corners"),
        (
            lambda: F.conv_transpose1d(
                waves(rushlight, 1, 2, 3), waves(rushlight, 2, 1, 2), output_padding=1
            ),
            "smaller",
        ),
        (lambda: F.max_pool1d(waves(rushlight, 1, 3), 2, padding=2), "half"),
        (lambda: F.group_norm(waves(rushlight, 2, 3), 2), "2 groups"),
    ],
)
def test_bad_input_says_what_was_wrong(call, text):
    with pytest.raises((ValueError, RuntimeError), match=text):
        call()


def test_pixels_and_columns_come_back():
    x = waves(rushlight, 2, 8, 4, 6)
    assert F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2).tolist() == x.tolist()
    columns = F.unfold(x, 2, stride=2)
    assert F.fold(columns, (4, 6), 2, stride=2).tolist() == x.tolist()


def _print_layers() -> None:
    import torch

    found = SimpleNamespace(**{name: measured(torch, torch.nn, name) for name in CASES})
    for name, value in vars(found).items():
        print(f'    "{name}": {value},')


if __name__ == "__main__":
    _print_layers()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_conv_transpose_of_small_images(size, groups, stride, device):
    """Images of few pixels go by one product: the transpose is the image's gradient, as always."""
    x = waves(rushlight, 3, 4, size, size, device=device).requires_grad_()
    w = waves(rushlight, 4, 6 // groups, 3, 4, device=device).requires_grad_()
    wanted = {"stride": stride, "padding": (1, 0), "dilation": 1, "groups": groups}
    if size == stride == 1:
        wanted["padding"] = 0
    y = F.conv_transpose2d(x, w, **wanted)
    g = waves(rushlight, *y.shape, device=device)
    expected = np.zeros(
        (3, 6, *[s + 2 * p for s, p in zip(y.shape[2:], _pair(wanted), strict=True)])
    )
    each, out = 4 // groups, 6 // groups
    for c, m, i, j in itertools.product(range(4), range(out), range(size), range(size)):
        into = expected[
            :, c // each * out + m, i * stride : i * stride + 3, j * stride : j * stride + 4
        ]
        into += (
            x.detach().numpy(force=True)[:, c, i, j, None, None]
            * w.detach().numpy(force=True)[c, m]
        )
    p, q = _pair(wanted)
    expected = expected[:, :, p : expected.shape[2] - p, q : expected.shape[3] - q]
    np.testing.assert_allclose(y.detach().numpy(force=True), expected, rtol=2e-5, atol=2e-5)
    y.backward(g)
    image = F.conv2d(g, w.detach(), **wanted)
    np.testing.assert_allclose(
        x.grad.numpy(force=True), image.numpy(force=True), rtol=2e-5, atol=5e-5
    )


def _pair(wanted):
    given = wanted["padding"]
    return given if isinstance(given, tuple) else (given, given)
