"""Random fills and draws by their moments, PyTorch's keyword arguments of creations and casts."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight
from rushlight.core.dtypes import bfloat16, bool_, float16, float32, float64, int32, int64

COUNT = 20000


def moments(tensor):
    array = np.array(tensor.tolist(), np.float64)
    return array.mean(), array.std()


@pytest.mark.parametrize(
    ("fill", "mean", "deviation"),
    [
        (lambda x: x.normal_(2, 3), 2, 3),
        (lambda x: x.uniform_(-1, 3), 1, 4 / math.sqrt(12)),
        (lambda x: x.uniform_(to=2), 1, 2 / math.sqrt(12)),
        (lambda x: x.exponential_(2), 0.5, 0.5),
        (lambda x: x.bernoulli_(0.25), 0.25, math.sqrt(3) / 4),
        (lambda x: x.geometric_(0.5), 2, math.sqrt(2)),
        (
            lambda x: x.log_normal_(0, 0.5),
            math.exp(0.125),
            math.sqrt((math.exp(0.25) - 1) * math.exp(0.25)),
        ),
        (lambda x: x.random_(3, 7), 4.5, math.sqrt(15 / 12)),
        (lambda x: x.random_(4), 1.5, math.sqrt(15 / 12)),
    ],
)
def test_moments_of_fills(fill, mean, deviation, device):
    rushlight.manual_seed(1)
    x = rushlight.empty(COUNT, device=device)
    assert fill(x) is x
    got = moments(x)
    assert abs(got[0] - mean) < 6 * deviation / math.sqrt(COUNT)
    assert abs(got[1] - deviation) < 0.05 * deviation


def test_cauchy_by_its_quartiles(device):
    rushlight.manual_seed(2)
    x = np.array(rushlight.empty(COUNT, device=device).cauchy_(1, 2).tolist())
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
    assert abs(middle - 1) < 0.1
    assert abs(high - low - 4) < 0.3


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64])
def test_fills_keep_bounds_and_types(dtype):
    x = rushlight.empty(COUNT, dtype=dtype).uniform_()
    assert x.dtype is dtype
    assert x.min().item() >= 0
    assert x.max().item() < 1
    assert rushlight.empty(COUNT, dtype=dtype).exponential_().min().item() >= 0


def test_fills_go_into_views_and_leave_the_rest():
    x = rushlight.zeros(4, 4)
    x[1:3, ::2].normal_(100, 1)
    assert (x > 50).sum().item() == 4
    leaf = rushlight.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError):
        leaf.normal_()
    with rushlight.no_grad():
        leaf.normal_()
    y = leaf * 2
    y.uniform_()
    y.sum().backward()
    assert leaf.grad is None or leaf.grad.tolist() == [0, 0, 0]


def test_normal_takes_numbers_and_tensors(device):
    rushlight.manual_seed(3)
    means = rushlight.full((COUNT,), 5.0, device=device)
    assert abs(moments(rushlight.normal(means, 2.0))[1] - 2) < 0.1
    assert abs(moments(rushlight.normal(1.0, means))[1] - 5) < 0.3
    assert rushlight.normal(0.0, 1.0, (2, 3), device=device).shape == (2, 3)


def test_multinomial_follows_the_weights(device):
    rushlight.manual_seed(4)
    weights = rushlight.tensor([1.0, 0.0, 3.0], device=device)
    drawn = np.array(rushlight.multinomial(weights, COUNT, replacement=True).tolist())
    assert not (drawn == 1).any()
    assert abs((drawn == 2).mean() - 0.75) < 0.02
    both = rushlight.multinomial(
        rushlight.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]], device=device), 2
    )
    assert both.dtype is int64
    assert sorted(both.tolist()[1]) == [1, 2]
    firsts = rushlight.multinomial(rushlight.ones(4000, 2, device=device) * weights[::2], 1)
    assert abs(np.array(firsts.tolist()).mean() - 0.75) < 0.04
    with pytest.raises(RuntimeError):
        rushlight.multinomial(weights, 4)


def test_random_tensors_like_others():
    x = rushlight.zeros(3, 4, dtype=float64)
    assert rushlight.rand_like(x).dtype is float64
    assert rushlight.randn_like(x, dtype=float32).shape == (3, 4)
    whole = rushlight.randint_like(x, 2, 5)
    assert whole.dtype is float64
    assert 2 <= whole.min().item() <= whole.max().item() <= 4
    assert rushlight.randint(high=3, size=(2,)).dtype is int64
    assert rushlight.randint(3, size=(2,)).shape == (2,)


def test_arguments_about_layout_are_taken():
    kept = rushlight.contiguous_format
    x = rushlight.zeros(2, 3, layout=rushlight.strided, pin_memory=False)
    assert rushlight.ones_like(x, memory_format=rushlight.preserve_format).shape == (2, 3)
    assert rushlight.eye(2, requires_grad=True).requires_grad
    assert rushlight.zeros(size=(2, 3)).shape == (2, 3)
    assert rushlight.arange(end=3).tolist() == [0, 1, 2]
    assert x.to(int32, non_blocking=True, copy=True, memory_format=kept).dtype is int32
    assert x.to("cpu", float64, True, False).dtype is float64
    assert x.to(x, copy=True) is not x
    assert x.to(float32) is x
    assert x.bool(memory_format=kept).dtype is bool_
    assert x.contiguous(memory_format=kept) is x
    for call in (
        lambda: rushlight.zeros(2, colour=1),
        lambda: rushlight.full((2,), 1, colour=1),
        lambda: x.to(colour=1),
        lambda: x.to(3.5),
    ):
        with pytest.raises(TypeError):
            call()


def test_memory_with_strides():
    x = rushlight.empty_strided((2, 3), (1, 4))
    assert x.stride() == (1, 4)
    x.fill_(7)
    assert x.sum().item() == 42
    assert rushlight.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    assert x.new_full((2,), 3).tolist() == [3, 3]
    assert x.new_empty(2, 2).shape == (2, 2)
    assert x.new_tensor([1, 2]).dtype is float32


def test_a_forked_stream_goes_on_where_it_was():
    rushlight.manual_seed(5)
    with rushlight.random.fork_rng():
        first = rushlight.rand(3).tolist()
        rushlight.manual_seed(6)
    assert rushlight.rand(3).tolist() == first
    assert rushlight.initial_seed() == 5


@pytest.mark.parametrize("dtype", [float16, float32, float64])
def test_what_types_hold(dtype):
    ours, numpys = rushlight.finfo(dtype), np.finfo(dtype.name)
    assert (ours.eps, ours.max, ours.min, ours.tiny, ours.bits) == (
        numpys.eps,
        numpys.max,
        numpys.min,
        numpys.tiny,
        numpys.bits,
    )
    assert rushlight.iinfo(int64).max == (1 << 63) - 1
    assert rushlight.iinfo(int32).min == -(1 << 31)
    with pytest.raises(TypeError):
        rushlight.finfo(int32)


def test_questions_about_tensors():
    assert rushlight.is_tensor(rushlight.ones(1))
    assert not rushlight.is_tensor(1)
    assert rushlight.numel(rushlight.ones(2, 3)) == 6
    assert rushlight.is_floating_point(rushlight.ones(1))
    assert rushlight.broadcast_shapes((2, 1), 3) == (2, 3)
    assert rushlight.ones(1).type_as(rushlight.ones(1, dtype=int64)).dtype is int64


def test_as_tensor_shares_where_it_can():
    array = np.zeros((2, 2), np.float32)
    rushlight.as_tensor(array).fill_(3)
    assert array.sum() == 12
    t = rushlight.ones(2)
    assert rushlight.as_tensor(t) is t
    assert rushlight.as_tensor([1, 2]).dtype is int64
    assert rushlight.as_tensor(array, dtype=float64).dtype is float64
