"""What convolution on the CPU is made of: turned weights, and copies without idle pixels."""

import numpy as np
import pytest

from rushlight.core.dtypes import float32
from rushlight.devices.cpu import padded, tiles, turned_weights
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Convolve
from rushlight.kernel.verify import verify

pytestmark = pytest.mark.skipif(not tiles.available(), reason="the kernels need AVX-512")


@pytest.mark.parametrize(
    "sizes",
    [  # groups, outs, channels, window, step, first, taps
        (1, 20, 37, (4, 4), (2, 2), (1, 0), (2, 2)),
        (3, 5, 17, (3, 3), (1, 1), (0, 0), (3, 3)),
        (2, 33, 4, (5, 3), (2, 3), (1, 2), (2, 1)),
    ],
    ids=str,
)
def test_turned_weights_are_reversed_taps_with_channels_swapped(sizes):
    groups, outs, channels, window, step, first, taps = sizes
    rng = np.random.default_rng(0)
    w = rng.standard_normal((groups, outs, channels, *window)).astype("f")
    kernel = Convolve(float32, "turned")
    verify(kernel)
    launch = pool_of("cpu").device.build(kernel)
    out = np.full((groups, channels, outs, *taps), np.nan, "f")
    numbers = (1, groups, outs, channels, *taps, *window, 1, 1, *step, 1, 1, *first, 1)
    launch(out.ctypes.data, w.ctypes.data, *numbers)
    rows, columns = (
        [f + s * (t - 1 - i) for i in range(t)] for f, s, t in zip(first, step, taps, strict=True)
    )
    want = w[:, :, :, rows][..., columns].transpose(0, 2, 1, 3, 4)
    assert out.tobytes() == want.tobytes()


def test_a_table_of_turned_weights_holds_large_offsets():
    table = turned_weights._offsets(2, 1 << 33, (1, 1), (1, 1), (1, 1), (0, 0))
    assert list(table) == [0, 1 << 33]


def test_small_images_have_no_idle_pixels():
    one = (1, 1)
    for pixels, window, vectors in (((8, 8), (2, 2), 4), ((4, 4), (3, 3), 1), ((32, 32), one, 64)):
        place = padded.product_layout(pixels, window, one, one)
        assert place.vectors == vectors
    strided = padded.product_layout((8, 8), (4, 4), (2, 2), one)
    assert (strided.vectors, strided.parts) == (4, (2, 4))
    spread = padded.product_layout((8, 8), (2, 2), one, (2, 2))
    assert spread.parts == one
