"""nn.functional: warnings, refusals, single values and gradients as PyTorch has them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F


def test_weights_of_the_huber_loss_do_not_divide_it():
    x, y, w = rl.tensor([0.0, 3.0]), rl.tensor([0.5, 0.0]), rl.tensor([2.0, 4.0])
    each = np.array([0.125, 2.5]) * [2, 4]
    assert F.huber_loss(x, y, weight=w).item() == pytest.approx(each.mean())
    assert F.huber_loss(x, y, weight=w, reduction="sum").item() == pytest.approx(each.sum())
    assert F.mse_loss(x, y, weight=w).item() == pytest.approx((0.25 * 2 + 9 * 4) / 6)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (RuntimeError, lambda: F.one_hot(rl.tensor([0, 2]), 2)),
        (RuntimeError, lambda: F.one_hot(rl.tensor([-1]), 2)),
        (
            RuntimeError,
            lambda: F.cross_entropy(rl.ones(2, 3), rl.tensor([0, 1]), label_smoothing=1.5),
        ),
        (ValueError, lambda: F.gaussian_nll_loss(rl.ones(2), rl.ones(2), rl.tensor([1.0, -1.0]))),
        (ValueError, lambda: F.group_norm(rl.ones(1, 4), 4)),
        (ValueError, lambda: rl.distributions.Bernoulli()),
        (ValueError, lambda: rl.distributions.Geometric()),
        (NotImplementedError, lambda: rl.zeros(3, dtype=rl.int64).uniform_()),
        (NotImplementedError, lambda: rl.bernoulli(rl.tensor([1, 0]))),
        (RuntimeError, lambda: rl.randperm(300, dtype=rl.uint8)),
    ],
)
def test_what_is_refused(error, wrong):
    with pytest.raises(error):
        wrong()


def test_linear_with_a_vector_for_weight():
    x = rl.arange(6.0).reshape(2, 3)
    assert F.linear(x, rl.ones(3)).tolist() == [3, 12]


def test_interpolate_takes_a_tensor_for_size():
    assert F.interpolate(rl.ones(1, 1, 4), size=rl.tensor(6)).shape == (1, 1, 6)


def test_functional_softmax_chooses_a_dimension_with_a_warning():
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((1, 2, 3, 4), 1), ((), 0)):
        x = rl.arange(24.0)[: int(rl.zeros(shape).numel())].reshape(shape)
        for op in (F.softmax, F.log_softmax, F.softmin):
            with pytest.warns(UserWarning, match="dim"):
                got = op(x)
            assert got.tolist() == op(x, dim).tolist()
    with pytest.raises(TypeError):
        rl.softmax(rl.ones(2))


def test_one_hot_counts_the_classes():
    assert F.one_hot(rl.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


def ramp(*shape: int, dtype: Any = rl.float64) -> Any:
    count = 1
    for n in shape:
        count *= n
    return rl.arange(count, dtype=dtype).reshape(shape) / 7 - 1


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "softsign", "cross_entropy"])
def test_functions_are_pickled_by_name(name: str) -> None:
    assert pickle.loads(pickle.dumps(getattr(F, name))) is getattr(F, name)
    assert pickle.loads(pickle.dumps(rl.sin)) is rl.sin


IN_PLACE = [
    *(
        F.elu,
        F.celu,
        F.selu,
        F.hardtanh,
        F.relu6,
        F.silu,
        F.mish,
        F.hardswish,
        F.hardsigmoid,
        F.leaky_relu,
        F.relu,
    ),
    lambda x, inplace=False: F.threshold(x, 0.1, 0.3, inplace),
]


@pytest.mark.parametrize("function", IN_PLACE)
def test_activations_in_place_have_the_gradient_of_the_others(function: Any) -> None:
    x = rl.tensor([-1.5, -0.2, 0.4, 7.0], dtype=rl.float64, requires_grad=True)
    (pure,) = rl.autograd.grad((function(x * 1.1) ** 2).sum(), x)
    held = x * 1.1
    assert function(held, inplace=True) is held
    (placed,) = rl.autograd.grad((held**2).sum(), x)
    assert rl.equal(pure, placed)


def test_cosine_similarity_promotes_before_it_multiplies() -> None:
    assert F.cosine_similarity(
        rl.tensor([100], dtype=rl.int8), rl.tensor([3.0]), 0
    ).item() == pytest.approx(1)
    with pytest.raises(RuntimeError):
        F.cosine_similarity(rl.ones(3, dtype=rl.int64), rl.ones(3, dtype=rl.int64), 0)


@pytest.mark.parametrize(
    "shapes", [((5, 3), (5, 3), (5, 1)), ((3,), (3,), (3,)), ((2, 3), (2, 3), ())]
)
def test_cosine_embedding_loss_refuses_other_shapes(shapes: Any) -> None:
    with pytest.raises(RuntimeError, match="cosine_embedding_loss"):
        F.cosine_embedding_loss(*(rl.ones(shape) for shape in shapes))


def test_labels_may_be_bytes() -> None:
    scores = F.log_softmax(ramp(4, 3), 1)
    labels = rl.tensor([0, 2, 1, 1])
    assert F.nll_loss(scores, labels.to(rl.uint8)).item() == F.nll_loss(scores, labels).item()


def test_what_is_dropped_stays_nan() -> None:
    assert F.dropout(rl.full((64,), float("nan")), 0.5).isnan().all()


def test_one_hot_of_a_missing_class_is_an_error_on_every_device(device):
    index = rl.tensor([0, 5], device=device)
    with pytest.raises((RuntimeError, IndexError), match="one_hot"):
        F.one_hot(index, 3).tolist()
    assert F.one_hot(rl.tensor([[2], [0]], device=device), 3).tolist() == [[[0, 0, 1]], [[1, 0, 0]]]


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16, rl.float32], ids=str)
@pytest.mark.parametrize("weight", [None, rl.float16, rl.bfloat16, rl.float32], ids=str)
def test_rms_norm_computes_in_float32(dtype, weight, device):
    """Its default eps is that of float32, and the result has the input's type."""
    x = rl.tensor([0.01, 0.02, 0.003, 0.04], device=device).to(dtype).requires_grad_()
    scale = None if weight is None else rl.ones(4, dtype=weight, device=device)
    made = F.rms_norm(x, (4,), scale)
    wide = x.detach().cpu().double()
    wanted = wide / (wide.square().mean() + 2.0**-23).sqrt()
    assert made.dtype is dtype
    close = rl.finfo(dtype).eps
    assert rl.allclose(made.detach().cpu().double(), wanted, rtol=close, atol=close / 8)
    made.sum().backward()
    assert x.grad.dtype is dtype and x.grad.isfinite().all()
