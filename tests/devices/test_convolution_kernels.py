"""Convolution kernels against windows and contractions, which the catalog checks on every
device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight.devices.cpu import convolve_weights, padded
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.nn import direct_convolution

pytestmark = pytest.mark.skipif(
    not pool_of("cpu").device.limits.convolves,
    reason="limit: this processor has no convolution kernels",
)

# x, w, and options
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 4, 9, 11), (5, 4, 3, 3), {"padding": 1}),
    ((1, 8, 20, 33), (7, 8, 3, 3), {}),
    ((3, 4, 7, 7), (8, 4, 5, 3), {"padding": (3, 0)}),
    ((2, 4, 13, 17), (6, 4, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 4, 12, 40), (6, 4, 2, 5), {"stride": (3, 2), "padding": (0, 2)}),
    ((2, 4, 12, 50), (6, 4, 1, 1), {"stride": (2, 3)}),
    ((2, 4, 12, 13), (6, 4, 3, 3), {"dilation": (2, 3), "padding": 2}),
    ((2, 4, 12, 13), (6, 4, 3, 3), {"dilation": (1, 3), "stride": (2, 1), "padding": "valid"}),
    ((2, 8, 9, 9), (8, 4, 3, 3), {"groups": 2, "padding": "same"}),
    ((9, 2, 5, 6), (130, 2, 3, 2), {"padding": 1}),
    ((1, 50, 4, 4), (3, 50, 2, 2), {}),
    ((3, 6, 9, 40), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    ((2, 6, 9, 21), (6, 1, 3, 3), {"groups": 6, "stride": 2, "padding": 1}),
    ((2, 6, 9, 50), (6, 1, 2, 4), {"groups": 6, "stride": (1, 3), "padding": (1, 3)}),
    ((2, 5, 8, 8), (5, 1, 3, 3), {"groups": 5, "dilation": 2, "padding": 4}),
    ((1, 4, 3, 3), (4, 4, 3, 3), {"padding": 5}),
    ((4, 9, 30), (5, 9, 7), {"padding": 3}),
    ((2, 6, 30), (6, 1, 4), {"groups": 6, "stride": 2}),
]


def convolve(x: Any, w: Any, options: dict[str, Any]) -> Any:
    return (rushlight.conv1d if x.ndim == 3 else rushlight.conv2d)(x, w, None, **options)


def gradients(
    values: list[np.ndarray], options: dict[str, Any], scale: float, how: Any = convolve
) -> list[np.ndarray]:
    """The result, both gradients, and both gradients of a function of those.

    All three ops and their derivatives.
    """
    x, w = (rushlight.tensor(v, requires_grad=True) for v in values)
    out = how(x, w, options)
    g = rushlight.tensor(
        np.random.default_rng(5).standard_normal(tuple(out.shape)).astype(np.float32)
    )
    g.requires_grad_()
    first = rushlight.autograd.grad(out, (x, w), g, create_graph=True)
    total = sum((part.square() * scale).sum() for part in first)
    second = rushlight.autograd.grad(total, (x, w, g))
    return [t.detach().numpy() for t in (out, *first, *second)]


@pytest.mark.parametrize("shape, weights, options", CASES)
def test_as_by_windows(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(1)
    values = [random.standard_normal(s).astype(np.float32) for s in (shape, weights)]
    calls = []
    plain = direct_convolution.image
    monkeypatch.setattr(direct_convolution, "image", lambda *a: calls.append(1) or plain(*a))
    got = gradients(values, options, 0.01)
    assert calls
    monkeypatch.setattr(direct_convolution, "suits", lambda *a: False)
    expected = gradients(values, options, 0.01)
    assert len(calls) == 1
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(
            a, b, rtol=1e-4, atol=2e-6 * max(1.0, np.abs(b).max()) * np.sqrt(b.size)
        )


def turned(x: Any, w: Any, options: dict[str, Any]) -> Any:
    return (rushlight.conv_transpose1d if x.ndim == 3 else rushlight.conv_transpose2d)(
        x, w, None, **options
    )


@pytest.mark.parametrize(
    "shape, weights, options",
    [
        ((2, 4, 9, 7), (4, 5, 3, 3), {}),
        ((2, 4, 9, 7), (4, 6, 4, 4), {"stride": 2, "padding": 1}),
        (
            (1, 8, 5, 6),
            (8, 4, 3, 2),
            {"stride": (3, 2), "padding": (1, 0), "output_padding": (2, 1), "groups": 2},
        ),
        ((2, 4, 5, 6), (4, 4, 3, 3), {"dilation": 2, "padding": 1, "output_padding": 1}),
        ((2, 4, 5, 6), (4, 4, 2, 2), {"stride": 4}),
        ((2, 6, 7, 18), (6, 1, 3, 3), {"groups": 6, "stride": 2, "padding": 1}),
        ((2, 4, 4, 4), (4, 4, 4, 4), {"stride": 2, "padding": 1}),
        ((3, 4, 3, 3), (4, 5, 3, 3), {"stride": 2, "output_padding": 1}),
        ((2, 4, 21), (4, 6, 5), {"stride": 2}),
    ],
)
def test_transposed(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(4)
    values = [random.standard_normal(s).astype(np.float32) for s in (shape, weights)]
    calls = []
    plain = direct_convolution.back
    monkeypatch.setattr(direct_convolution, "back", lambda *a: calls.append(1) or plain(*a))
    got = gradients(values, options, 0.01, turned)
    assert calls
    monkeypatch.setattr(direct_convolution, "suits", lambda *a: False)
    for a, b in zip(got, gradients(values, options, 0.01, turned), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(
            a, b, rtol=1e-4, atol=2e-6 * max(1.0, np.abs(b).max()) * np.sqrt(b.size)
        )


def test_views_are_taken_as_they_are_seen() -> None:
    random = np.random.default_rng(2)
    x, w = (random.standard_normal(s).astype(np.float32) for s in ((9, 4, 10, 2), (3, 4, 6, 3)))
    seen = rushlight.conv2d(
        rushlight.tensor(x).permute(3, 1, 2, 0), rushlight.tensor(w).permute(2, 1, 0, 3), padding=1
    )
    dense = [np.ascontiguousarray(v) for v in (x.transpose(3, 1, 2, 0), w.transpose(2, 1, 0, 3))]
    assert (seen == rushlight.conv2d(*map(rushlight.tensor, dense), padding=1)).all()


@pytest.mark.parametrize(
    ("shapes", "options", "how"),
    [
        (((5, 16, 24, 24), (70, 16, 3, 3)), {"padding": 1, "stride": (1, 2)}, convolve),
        (((16, 64, 4, 4), (64, 32, 4, 4)), {"padding": 1, "stride": 2}, turned),
    ],
)
def test_bits_do_not_depend_on_threads(shapes: Any, options: Any, how: Any) -> None:
    random = np.random.default_rng(3)
    values = [random.standard_normal(s).astype(np.float32) for s in shapes]
    device: Any = pool_of("cpu").device
    found = []
    try:
        for count in (1, 2, 5):
            device.set_num_threads(count)
            found.append(gradients(values, options, 0.01, how))
    finally:
        device.set_num_threads(1)
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("columns", [6, 14, 32])
def test_bits_do_not_depend_on_how_many_images_are_copied_at_once(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(6)
    values = [
        random.standard_normal(s).astype(np.float32) for s in ((11, 8, 7, columns), (9, 8, 3, 3))
    ]
    found = [gradients(values, {"padding": 1}, 0.01)]
    for module in (padded, convolve_weights):
        monkeypatch.setattr(module, "MOST", 1)
        found.append(gradients(values, {"padding": 1}, 0.01))
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))


def test_infinity_stays_where_it_is_seen() -> None:
    """Pixels outside of the image are 0, not numbers read and multiplied by 0."""
    x = np.zeros((1, 4, 6, 20), np.float32)
    x[0, 0, 0, 0] = np.inf
    got = rushlight.conv2d(rushlight.tensor(x), rushlight.ones(4, 4, 3, 3), padding=1).numpy()
    assert (
        np.isinf(got[0, :, :2, :2]).all() and not got[0, :, 2:].any() and not got[0, :, :, 2:].any()
    )
