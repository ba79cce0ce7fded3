"""Layers call the functions that users call, whose known calls are programs (Note [Memo])."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.ops.registry import REGISTRY
from rushlight.tape.program.memo import kinds_of

IMAGE, ROWS, LINE = (2, 4, 6, 10), (3, 24), (2, 4, 12)
CALLS = {
    "conv1d": (nn.Conv1d(4, 2, 3, padding=1), LINE),
    "conv2d": (nn.Conv2d(4, 2, 3, padding=1), IMAGE),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 2, 3), IMAGE),
    "layer_norm": (nn.LayerNorm(24), ROWS),
    "rms_norm": (nn.RMSNorm(24), ROWS),
    "group_norm": (nn.GroupNorm(2, 4), IMAGE),
    "local_response_norm": (nn.LocalResponseNorm(2), IMAGE),
    "max_pool2d": (nn.MaxPool2d(2), IMAGE),
    "avg_pool1d": (nn.AvgPool1d(2), LINE),
    "avg_pool2d": (nn.AvgPool2d(2), IMAGE),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(2), IMAGE),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d(2), IMAGE),
    "interpolate": (nn.Upsample(scale_factor=2), IMAGE),
    "pixel_shuffle": (nn.PixelShuffle(2), IMAGE),
    "pixel_unshuffle": (nn.PixelUnshuffle(2), IMAGE),
    "channel_shuffle": (nn.ChannelShuffle(2), IMAGE),
    "im2col": (nn.Unfold(2), IMAGE),
    "fold": (nn.Fold((4, 5), 2), (1, 8, 12)),
    "pad": (nn.ReflectionPad2d(1), IMAGE),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_layer_leaves_a_program_of_its_function(name):
    layer, shape = CALLS[name]
    known = kinds_of(REGISTRY[name].function).tables[True]
    known.clear()
    first = layer(torch.ones(shape, requires_grad=True))
    assert [found is not None for found in known.values()] == [True]
    again = layer(torch.ones(shape, requires_grad=True))
    assert len(known) == 1
    assert first.tolist() == again.tolist()
