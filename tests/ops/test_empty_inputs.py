"""Tensors without elements, reductions over no dimension: shapes, values and gradients."""

from __future__ import annotations

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import nn


def test_adaptive_pools_of_nothing_keep_the_gradient():
    for pool, shape, size in (
        (F.adaptive_avg_pool1d, (0, 8, 8), 5),
        (F.adaptive_max_pool2d, (0, 8, 8, 8), 5),
    ):
        x = rl.zeros(shape, requires_grad=True)
        out = pool(x, size)
        assert out.requires_grad
        out.sum().backward()
        assert x.grad.shape == shape


def test_diff_of_order_zero_is_the_input():
    x = rl.ones(5, 5)
    assert rl.diff(x, 0, 0, rl.ones(1, 5), rl.ones(2, 5)).shape == (5, 5)


def test_parts_of_nothing():
    assert [part.shape for part in rl.chunk(rl.ones(0, 3), 3)] == [(0, 3)] * 3
    for wrong in (lambda: rl.chunk(rl.ones(()), 2), lambda: rl.split(rl.ones(()), 2)):
        with pytest.raises(RuntimeError):
            wrong()


def test_no_sequences_and_no_images():
    x = rl.zeros(2, 0, 4, requires_grad=True)
    out, _ = rl.nn.LSTM(4, 3)(x)
    assert out.shape == (2, 0, 3)
    image = rl.zeros(0, 2, 5, 5, requires_grad=True)
    pooled = F.max_pool2d(image, 2)
    assert pooled.shape == (0, 2, 2, 2)
    pooled.sum().backward()
    assert image.grad.shape == image.shape


def test_all_and_any_over_no_dimension_reduce_nothing():
    x = rl.tensor([[1, 0], [2, 3]])
    assert rl.all(x, dim=()).tolist() == [[True, False], [True, True]]
    assert rl.any(rl.zeros(2, 0), dim=()).shape == (2, 0)
    assert rl.all(x.to(rl.uint8), dim=()).dtype is rl.uint8


def test_batch_norm_of_no_elements():
    assert F.batch_norm(rl.zeros(0, 3), None, None, training=True).shape == (0, 3)


def test_batches_without_examples_have_gradients() -> None:
    norm = nn.BatchNorm2d(3)
    norm(rl.zeros(0, 3, 2, 2)).sum().backward()
    assert norm.weight.grad.tolist() == [0.0] * 3 and norm.bias.grad.tolist() == [0.0] * 3
    grid = rl.zeros(1, 0, 2, 2, requires_grad=True)
    F.grid_sample(rl.ones(1, 1, 2, 2), grid, align_corners=False).sum().backward()
    assert grid.grad.shape == grid.shape
    for mode in ("reflect", "replicate"):
        with pytest.raises(RuntimeError, match="pad"):
            F.pad(rl.zeros(3, 0, 9), (1, 1), mode=mode)
        assert F.pad(rl.zeros(0, 3, 9), (1, 1), mode=mode).shape == (0, 3, 11)
    with pytest.raises(RuntimeError, match="unfold"):
        F.unfold(rl.zeros(3, 0, 3, 4), 2)


def test_windows_that_lie_in_the_border_alone() -> None:
    assert nn.MaxPool1d(2, None, 1, 2)(rl.ones(2, 1)).tolist() == [[-float("inf")], [-float("inf")]]
    assert nn.MaxPool1d(2, 1, 1, 2)(rl.tensor([[1.0, 2.0]])).tolist() == [[2.0, 1.0]]
    with pytest.raises(ValueError, match="same"):
        nn.Conv1d(1, 1, 3, padding="same", stride=2)


def test_pools_of_nothing() -> None:
    x = rl.zeros(0, 2, 4, requires_grad=True)
    largest, places = F.max_pool1d(x, 2, return_indices=True)
    F.max_unpool1d(largest, places, 2).sum().backward()
    assert x.grad.shape == (0, 2, 4)
    assert F.fractional_max_pool2d(rl.ones(1, 1, 8, 8), 2, output_size=(0, 1)).shape == (1, 1, 0, 1)
    with pytest.raises(RuntimeError, match="batch"):
        F.adaptive_max_pool1d(rl.zeros(1, 0, 5), 2)


def test_bags_of_nothing_have_gradients() -> None:
    bag = nn.EmbeddingBag(3, 2, mode="sum")
    shares = rl.zeros(0, requires_grad=True)
    bag(rl.zeros(0, dtype=rl.int64), rl.zeros(2, dtype=rl.int64), shares).sum().backward()
    assert shares.grad.shape == (0,) and bag.weight.grad.abs().sum().item() == 0
    for wrong in (
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lambda: F.embedding(rl.tensor([0]), rl.ones(3, 2), 5),
    ):
        with pytest.raises(AssertionError):
            wrong()
    narrow = nn.Embedding(10, 0, sparse=True)
    narrow(rl.tensor([[0, 2], [4, 3]])).sum().backward()
    assert narrow.weight.grad.is_sparse


def test_split_of_nothing():
    assert [p.shape for p in rl.split(rl.zeros(0, 1), 0)] == [(0, 1)]


@pytest.mark.parametrize("strides", [(1, 5, 25), (7, 1, 0), (25, 5, 1)])
def test_odd_strides_of_nothing(strides):
    x = rl.arange(200.0).as_strided((5, 5, 0), strides)
    assert x.is_contiguous() and x.permute(2, 0, 1).is_contiguous()
    for y, dim in ((x, 2), (x.permute(2, 0, 1), 0), (x.permute(0, 2, 1), 2)):
        for made in (y.sum(dim), y.mean(dim), y.softmax(dim), y.cumsum(dim), y.sort(dim)[0]):
            assert made.numel() in (0, 25)
        assert y.argsort(dim).shape == y.shape
    assert x.mean(-1).isnan().all() and (x.sum(-1) == 0).all()


def test_parts_without_elements_begin_where_they_were_asked_for():
    x = rl.arange(20.0)
    parts = (x[5:5], x[3:9][2:2], x[20:], x.reshape(4, 5)[:, 5:], x.reshape(4, 5)[2:2, 1:])
    assert [part.storage_offset() for part in parts] == [5, 5, 20, 5, 11]
    rl.add(rl.ones(3), 1, out=x[5:5])  # it grows in the memory of x, as in PyTorch
    assert x[:9].tolist() == [0, 1, 2, 3, 4, 2, 2, 2, 8]
