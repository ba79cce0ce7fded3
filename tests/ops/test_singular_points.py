"""Poles, singular matrices, means of nothing, probabilities outside [0, 1]: as in PyTorch 2.13."""

import math

import ml_dtypes
import numpy as np
import pytest

import rushlight as rl
from rushlight.nn import functional as F

INF, NAN = math.inf, math.nan


def derivatives(function, x, orders):
    x = rl.tensor([x], dtype=rl.float64, requires_grad=True)
    y, found = function(x), []
    for _ in range(orders):
        (y,) = rl.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.item())
    return found


@pytest.mark.parametrize("pole", [0.0, -1.0, -2.0])
def test_derivatives_of_gamma_functions_have_poles_where_they_do(pole):
    first, *rest = derivatives(rl.lgamma, pole, 4)
    assert first == -INF if pole == 0 else math.isnan(first)
    assert rest == [INF, -INF, INF]
    assert derivatives(rl.digamma, pole, 4) == [INF, -INF, INF, -INF]


def test_derivatives_of_gamma_functions_elsewhere():
    # mpmath's polygamma(n, x)
    assert derivatives(rl.lgamma, 0.5, 4) == pytest.approx(
        [-1.9635100260214235, 4.934802200544679, -16.828796644234320, 97.40909103400244], rel=1e-14
    )
    assert derivatives(rl.digamma, -0.5, 4) == pytest.approx(
        [8.934802200544679, -0.8287966442343199, 193.40909103400244, -3.4742498266672268], rel=1e-12
    )


# ---- singular matrices ----


@pytest.mark.parametrize("function", [rl.logdet, lambda a: rl.linalg.slogdet(a)[1]])
@pytest.mark.parametrize("matrix", [[[1.0, 2], [2, 4]], [[0.0, 0], [0, 0]]])
def test_logdet_has_no_gradient_at_singular_matrices(function, matrix):
    a = rl.tensor(matrix, dtype=rl.float64, requires_grad=True)
    y = function(a)
    assert y.item() == -INF
    with pytest.raises(rl.linalg.LinAlgError, match="singular"):
        y.backward()


def test_logdet_names_the_singular_matrix_of_a_batch():
    a = rl.stack([rl.eye(2), rl.zeros(2, 2)]).requires_grad_()
    with pytest.raises(rl.linalg.LinAlgError, match="Batch element 1"):
        rl.logdet(a).sum().backward()
    b = rl.eye(2, dtype=rl.float64).mul(2).requires_grad_()
    rl.logdet(b).backward()
    assert b.grad.tolist() == [[0.5, 0], [0, 0.5]]


# ---- means over nothing ----

IGNORED = rl.tensor([-100, -100])
LOSSES = {
    "cross_entropy": lambda x, **named: F.cross_entropy(x, IGNORED, **named),
    "smoothed": lambda x, **named: F.cross_entropy(x, IGNORED, label_smoothing=0.1, **named),
    "weighted": lambda x, **named: F.cross_entropy(x, IGNORED, weight=rl.ones(3), **named),
    "nll_loss": lambda x, **named: F.nll_loss(x.log_softmax(1), IGNORED, **named),
    "nll_loss weighted": lambda x, **named: F.nll_loss(
        x.log_softmax(1), IGNORED, weight=rl.ones(3), **named
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_targets_have_no_gradient_of_any_order(name, reduction):
    x = rl.randn(2, 3, requires_grad=True)
    loss = LOSSES[name](x, reduction=reduction)
    assert math.isnan(loss.item()) if reduction == "mean" else loss.sum() == 0
    (first,) = rl.autograd.grad(loss.sum(), x, create_graph=True)
    (second,) = rl.autograd.grad(first.sum(), x)
    assert first.tolist() == second.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_losses_with_some_targets_ignored_are_what_they_are_without_them():
    x = rl.randn(4, 3, dtype=rl.float64, requires_grad=True)
    target, kept = rl.tensor([0, -100, 2, -100]), rl.tensor([0, 2])
    weight = rl.tensor([0.5, 1, 2], dtype=rl.float64)
    for named in (
        {},
        {"weight": weight},
        {"label_smoothing": 0.2},
        {"weight": weight, "label_smoothing": 0.2},
    ):
        rl.testing.assert_close(
            F.cross_entropy(x, target, **named), F.cross_entropy(x[::2], kept, **named)
        )
    for named in ({}, {"weight": weight}):
        rl.testing.assert_close(F.nll_loss(x, target, **named), F.nll_loss(x[::2], kept, **named))
    rl.autograd.gradgradcheck(lambda x: F.cross_entropy(x, target, weight=weight), [x])


# ---- probabilities ----


@pytest.mark.parametrize("n", [2, 1 << 14, (1 << 14) * 3 + 5])
@pytest.mark.parametrize("bad", [1.0000001, -0.1, NAN])
@pytest.mark.parametrize("dtype", [rl.float32, rl.bfloat16])
def test_what_is_no_probability_is_refused(n, bad, dtype):
    x = rl.full((n,), 0.5, dtype=dtype)
    y = rl.ones(n, dtype=dtype)
    assert F.binary_cross_entropy(x, y).item() == pytest.approx(math.log(2), rel=1e-2)
    x[-1] = 1.01 if bad > 1 and dtype is rl.bfloat16 else bad
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(x, y)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        # A cached layout: no Python between the launches.
        rl.nn.BCELoss(reduction="none")(x, y)


@pytest.mark.parametrize("bad", [1.5, -1.0])
def test_a_target_that_is_no_probability_is_refused(bad):
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(rl.tensor([0.5, 0.5]), rl.tensor([1.0, bad]))


def test_refusing_leaks_nothing_and_the_ends_are_fine():
    x = rl.tensor([0.0, 1.0, 1.0, 0.0])
    y = rl.tensor([0.0, 1.0, 0.0, 1.0])
    assert F.binary_cross_entropy(x, y, reduction="none").tolist() == [0, 0, 100, 100]
    before = rl.memory.allocated("cpu")
    for _ in range(3):
        with pytest.raises(RuntimeError):
            F.binary_cross_entropy(x + 1, y)
    assert rl.memory.allocated("cpu") == before
    assert math.isnan(F.binary_cross_entropy(rl.ones(0), rl.ones(0)))


# ---- the next half ----

PAIRS = [
    (1.0, 2.0),
    (1.0, 0.0),
    (0.0, 1.0),
    (-0.0, -1.0),
    (INF, 0.0),
    (-INF, 0.0),
    (65504.0, INF),
    (-65504.0, -INF),
    (2.0**-14, 0.0),
    (2.0**-14, 1.0),
    (-(2.0**-14), 0.0),
    (3 * 2.0**-24, 1.0),
    (2.0**-24, -1.0),
    (1.0, NAN),
    (NAN, 1.0),
    (0.5, 0.5),
    (2.0, 1.0),
    (-2.0, INF),
    (INF, INF),
]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("dtype", "kind"), [(rl.float16, np.float16), (rl.bfloat16, ml_dtypes.bfloat16)]
)
def test_the_next_half(dtype, kind, device):
    x, y = (np.array(column, dtype=kind) for column in zip(*PAIRS, strict=True))
    got = rl.nextafter(rl.tensor(x, device=device), rl.tensor(y, device=device))
    assert got.dtype is dtype
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
    np.testing.assert_array_equal(got.cpu().float().numpy(), want.astype(np.float32))


def test_every_half_has_its_neighbours():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for goal in (INF, -INF, 0.0):
        with np.errstate(all="ignore"):
            want = np.nextafter(x, np.float16(goal)).astype(np.float32)
        got = rl.nextafter(rl.tensor(x), rl.tensor(goal, dtype=rl.float16)).float().numpy()
        np.testing.assert_array_equal(got, want)
    y = rl.ones(2, dtype=rl.float16)
    assert y.nextafter_(rl.zeros(2, dtype=rl.float16)) is y and y[0].item() == 1 - 2.0**-11


def test_hinge_embedding_loss_of_infinity():
    x = rl.tensor([math.inf, 1.0])
    assert F.hinge_embedding_loss(x, rl.tensor([1.0, -1.0])).item() == math.inf
    assert F.hinge_embedding_loss(x, rl.tensor([-1.0, -1.0])).item() == 0


def test_signed_zeros_and_infinities():
    x, y = rl.tensor([-0.0, 0.0, 1.0]), rl.tensor([1.0, -1.0, -INF])
    assert [math.copysign(1, v) for v in rl.floor_divide(x, y).tolist()[:2]] == [-1, -1]
    both = rl.tensor([complex(INF, 0), complex(-INF, 1)])
    assert rl.logaddexp(both, both).tolist() == both.tolist()
    zeros = rl.tensor([complex(-INF, 0), complex(-INF, 1), 1 + 1j])
    assert rl.logcumsumexp(zeros, 0).tolist()[2] == 1 + 1j
    assert rl.logcumsumexp(zeros, 0).real.tolist()[:2] == [-INF, -INF]
