"""Views: what they take and refuse, and which results can be viewed."""

from __future__ import annotations

import pytest

import rushlight as rl
import rushlight.nn.functional as F


def test_select_takes_a_tensor():
    x = rl.arange(6).reshape(2, 3)
    for _ in range(2):
        assert x.select(0, rl.tensor(1)).tolist() == [3, 4, 5]
    x.select(1, rl.tensor(-1)).zero_()
    assert x.tolist() == [[0, 1, 0], [3, 4, 0]]
    with pytest.raises(IndexError):
        x.select(0, rl.tensor(2))


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (RuntimeError, lambda x: x.flatten(1, 0)),
        (RuntimeError, lambda x: x.squeeze((0, 0))),
        (RuntimeError, lambda x: rl.cat([rl.tensor(1.0), rl.tensor(2.0)])),
        (RuntimeError, lambda x: rl.cat([rl.tensor(1.0)], 1)),
        (IndexError, lambda x: x.index_select(0, rl.zeros(1, 1, dtype=rl.int64))),
    ],
)
def test_what_views_refuse(error, wrong):
    with pytest.raises(error):
        wrong(rl.ones(2, 3))


def test_index_put_of_a_later_dimension_can_be_viewed():
    x = rl.zeros(2, 3).index_put((slice(None), rl.tensor([0, 2])), rl.ones(2))
    assert x.view(-1).tolist() == [1, 0, 1, 1, 0, 1]


def test_results_that_users_view():
    x = rl.randn(6, 4, 3)
    for y in (
        rl.nn.BatchNorm1d(4)(x),
        rl.nn.BatchNorm1d(4)(x[:, :, 0]),
        rl.nn.BatchNorm2d(4)(x.unsqueeze(-1)),
        F.conv_transpose1d(x, rl.randn(4, 2, 3), stride=2, padding=1, dilation=2),
        rl.kthvalue(x, 2).values,
    ):
        assert y.is_contiguous() and y.view(-1).shape == (y.numel(),)


def test_ravel_lies_row_by_row():
    assert rl.zeros(5, 2)[:, 0].ravel().is_contiguous() and rl.zeros(4, 5).t().ravel().stride() == (
        1,
    )
