"""Warnings about a call: PyTorch's, at the user's line, in each call."""

import warnings

import pytest

import rushlight as rl
from rushlight.nn import functional as F

BROADCAST = [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss]


@pytest.mark.parametrize("loss", BROADCAST, ids=lambda loss: loss.__name__)
def test_a_loss_warns_of_shapes_that_broadcast_in_each_call(loss):
    column, row = rl.ones(3, 1, requires_grad=True), rl.zeros(3)
    for _ in range(2):
        with pytest.warns(UserWarning, match="Using a target size .*3.* different .*3, 1") as said:
            result = loss(column, row)
        assert said[0].filename == __file__
        assert result.item() == pytest.approx(loss(rl.ones(3), rl.zeros(3)).item())


@pytest.mark.parametrize("loss", BROADCAST, ids=lambda loss: loss.__name__)
def test_a_loss_of_equal_shapes_does_not_warn(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(rl.ones(3), rl.zeros(3))


def test_losses_of_shapes_that_do_not_broadcast_name_them():
    with pytest.raises(rl.ShapeError, match=r"huber_loss: shapes float32\[3\], float32\[2\]"):
        F.huber_loss(rl.ones(3), rl.ones(2))


def test_kl_div_warns_of_its_default_reduction_alone():
    for _ in range(2):
        with pytest.warns(UserWarning, match="reduction: 'mean' divides the total loss"):
            F.kl_div(rl.zeros(3), rl.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.kl_div(rl.zeros(3), rl.ones(3), reduction="batchmean")
        rl.nn.KLDivLoss(reduction="sum")(rl.zeros(3), rl.ones(3))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_a_variance_of_one_element_warns(name):
    for _ in range(2):
        with pytest.warns(UserWarning, match="degrees of freedom is <= 0") as said:
            getattr(rl, name)(rl.ones(1))
        assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(rl, name)(rl.ones(1), correction=0)


def test_range_says_that_it_has_its_end():
    with pytest.warns(UserWarning, match="range is deprecated"):
        assert rl.range(0, 2).tolist() == [0.0, 1.0, 2.0]
