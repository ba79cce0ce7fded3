"""Embeddings, bags, CTC loss and fractional pooling, beyond the catalog's rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight
import rushlight.nn.functional as F


def table():
    return rushlight.arange(12, dtype=rushlight.float32).reshape(4, 3)


def test_gradient_by_frequency():
    weight = table().requires_grad_()
    F.embedding(
        rushlight.tensor([1, 1, 3, 1, 0]), weight, padding_idx=0, scale_grad_by_freq=True
    ).sum().backward()
    assert weight.grad.tolist() == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]


def test_bag_gradient_by_frequency():
    weight = table().requires_grad_()
    index = rushlight.tensor([[1, 1], [3, 1]])
    F.embedding_bag(index, weight, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert weight.grad.tolist() == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]


@pytest.mark.parametrize("bag", [False, True])
def test_max_norm_shortens_the_rows_that_are_read(bag):
    weight = table().requires_grad_()
    before = weight.detach().numpy().copy()
    index = rushlight.tensor([[2, 2], [0, 3]])
    out = (
        F.embedding_bag(index, weight, max_norm=1.0, mode="max")
        if bag
        else F.embedding(index, weight, max_norm=1.0)
    )
    out.sum().backward()
    after = weight.detach().numpy()
    assert np.allclose(np.linalg.norm(after[2:], axis=1), 1, atol=1e-6)
    assert np.array_equal(after[1], before[1])  # not read
    lengths = np.linalg.norm(before, axis=1, keepdims=True)
    assert np.allclose(after[[0, 2, 3]], (before / np.maximum(lengths, 1))[[0, 2, 3]], atol=1e-6)


@pytest.mark.parametrize(
    ("named", "kind", "match"),
    [
        ({}, ValueError, "needs offsets"),
        ({"offsets": [1, 2]}, RuntimeError, "begin with 0"),
        ({"offsets": [0, 9]}, RuntimeError, "not go beyond"),
        ({"offsets": [0], "mode": "most"}, ValueError, "'most'"),
        ({"offsets": [0], "mode": "max", "scale_grad_by_freq": True}, ValueError, "max"),
        ({"offsets": [0], "per_sample_weights": [1.0]}, ValueError, "per_sample_weights"),
        (
            {"offsets": [0], "per_sample_weights": [1.0, 1.0], "mode": "mean"},
            NotImplementedError,
            "'mean'",
        ),
        ({"offsets": [0], "padding_idx": 4}, AssertionError, "padding_idx 4"),
    ],
)
def test_bad_bags(named, kind, match):
    named = {k: rushlight.tensor(v) if isinstance(v, list) else v for k, v in named.items()}
    with pytest.raises(kind, match=match):
        F.embedding_bag(rushlight.tensor([1, 2]), table(), **named)


def test_bags_of_nothing():
    weight = table().requires_grad_()
    none = rushlight.tensor([], dtype=rushlight.int64)
    out = F.embedding_bag(none, weight, rushlight.tensor([0, 0]), mode="max")
    assert out.tolist() == [[0, 0, 0]] * 2
    out.sum().backward()
    assert not weight.grad.any().item()


# ---- CTC ----


def ctc(log_probs, targets, inputs, labels, **named):
    return F.ctc_loss(
        log_probs, rushlight.tensor(targets), inputs, labels, reduction="none", **named
    )


def test_impossible_labels():
    log_probs = rushlight.zeros(2, 2, 3).log_softmax(2).requires_grad_()
    # 1, blank, 1 needs three rows.
    assert ctc(log_probs, [[1, 1], [1, 2]], (2, 2), (2, 2)).tolist()[0] == math.inf
    loss = ctc(log_probs, [[1, 1], [1, 2]], (2, 2), (2, 2), zero_infinity=True)
    assert loss.tolist()[0] == 0
    loss.sum().backward()
    assert not log_probs.grad[:, 0].any().item()
    assert rushlight.isfinite(log_probs.grad).all().item()


def test_no_rows_and_no_labels():
    log_probs = rushlight.zeros(2, 3, 3).log_softmax(2)
    loss = ctc(log_probs, [[1], [1], [1]], (0, 0, 2), (0, 1, 0))
    assert loss.tolist()[:2] == [0, math.inf]
    assert loss[2].item() == pytest.approx(2 * math.log(3), rel=1e-6)


def test_gradient_has_the_normaliser():
    """exp(log_probs) minus the paths' share, as in PyTorch: rows sum to 0.

    Rows past the end are 0.
    """
    log_probs = (
        rushlight.randn(4, 1, 3, dtype=rushlight.float64).log_softmax(2).detach().requires_grad_()
    )
    ctc(log_probs, [[1, 2]], (3,), (2,)).sum().backward()
    assert rushlight.allclose(
        log_probs.grad.sum(2), rushlight.zeros(4, 1, dtype=rushlight.float64), atol=1e-12
    )
    assert not log_probs.grad[3].any().item()
    assert log_probs.grad[:3].any().item()


@pytest.mark.parametrize(
    ("lengths", "labels", "named", "match"),
    [
        ((3, 2), (1, 1), {}, "input_lengths must lie"),
        ((2, 2), (1, 3), {}, "target_lengths must lie"),
        ((2,), (1, 1), {}, "each of the 2 samples"),
        ((2, 2), (1, 1), {"blank": 3}, "blank 3"),
    ],
)
def test_bad_labels(lengths, labels, named, match):
    with pytest.raises(RuntimeError, match=match):
        ctc(rushlight.zeros(2, 2, 3), [[1, 1], [1, 2]], lengths, labels, **named)


# ---- the rest ----


def test_fractional_indices():
    image = rushlight.randn(2, 3, 9, 7)
    values, places = F.fractional_max_pool2d(image, 3, output_ratio=(0.5, 0.6), return_indices=True)
    assert values.shape == places.shape == (2, 3, 4, 4)
    assert rushlight.equal(
        image.flatten(2).gather(2, places.flatten(2)).reshape(values.shape), values
    )
    alone = F.fractional_max_pool3d(rushlight.randn(2, 5, 5, 5), 2, output_size=3)
    assert alone.shape == (2, 3, 3, 3)
    with pytest.raises(RuntimeError, match="do not fit"):
        F.fractional_max_pool2d(image, 5, output_size=9)
    with pytest.raises(ValueError, match="either output_size or output_ratio"):
        F.fractional_max_pool2d(image, 5)


def test_statistics_of_batch_norm():
    x = rushlight.randn(6, 2, 3)
    running = rushlight.zeros(2), rushlight.ones(2)
    _, mean, rstd = rushlight.native_batch_norm(x, None, None, *running, True, 0.5, 1e-3)
    assert rushlight.allclose(mean, x.mean((0, 2)), atol=1e-6)
    assert rushlight.allclose(rstd, 1 / (x.var((0, 2), correction=0) + 1e-3).sqrt(), atol=1e-5)
    assert rushlight.allclose(running[0], mean / 2, atol=1e-6)
    assert rushlight.native_batch_norm(x, None, None, *running, False, 0.5, 1e-3)[1].shape == (0,)


def test_hard_gumbel():
    logits = rushlight.randn(50, 4).requires_grad_()
    chosen = F.gumbel_softmax(logits, hard=True)
    assert rushlight.equal(chosen.sum(1), rushlight.ones(50)) and set(
        chosen.flatten().tolist()
    ) == {0.0, 1.0}
    (chosen * rushlight.arange(4)).sum().backward()
    assert logits.grad.any().item()


def test_smoothed_images():
    image = rushlight.arange(64, dtype=rushlight.float64).reshape(1, 1, 8, 8)
    half = F.interpolate(image, scale_factor=0.5, mode="bilinear", antialias=True)
    # inside; the first and last lose the part outside.
    want = np.array([[1, 3, 3, 1, 0, 0, 0, 0]]) / 8
    inner = np.roll(want, 1) @ image.numpy()[0, 0] @ np.roll(want, 1).T
    assert half[0, 0, 1, 1].item() == pytest.approx(inner.item())
    with pytest.raises(ValueError, match="antialias"):
        F.interpolate(image, scale_factor=0.5, antialias=True)
