"""Views: what they take and refuse, and which results can be viewed."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.ops.family.build import noted_builds
from rushlight.ops.view.windows import windows


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


APART = [
    # Sizes, window, stride, dilation; windows touch, leave gaps, or are dilated and apart.
    ((8, 6), (2, 2), (2, 2), (1, 1)),
    ((7, 9), (2, 3), (2, 3), (1, 1)),
    ((11, 12), (2, 2), (3, 4), (1, 1)),
    ((9, 9), (1, 5), (1, 5), (1, 1)),
    ((12, 14), (2, 3), (4, 6), (2, 2)),
    ((5, 5), (4, 4), (2, 2), (1, 1)),
    ((40,), (2,), (2,), (1,)),
    ((4, 6, 34), (2, 2, 2), (2, 2, 2), (1, 1, 1)),
    # Windows that share elements.
    ((6, 6), (3, 2), (2, 2), (1, 1)),
    ((9, 9), (2, 2), (2, 1), (2, 1)),
]


@pytest.mark.parametrize(("sizes", "kernel", "stride", "dilation"), APART)
def test_windows_are_added_back(sizes, kernel, stride, dilation, device):
    x = rl.zeros(2, *sizes).to(device).requires_grad_()
    seen = windows(x, kernel, stride, dilation)
    g = rl.arange(seen.numel()).reshape(seen.shape).float() % 61 + 1
    want = np.zeros((2, *sizes), np.float32)
    rank = len(sizes)
    counts = seen.shape[1 : 1 + rank]
    for at in np.ndindex(*counts, *kernel):
        places = tuple(at[i] * stride[i] + at[rank + i] * dilation[i] for i in range(rank))
        want[(slice(None), *places)] += g.numpy()[(slice(None), *at)]
    seen.backward(g.to(device))
    np.testing.assert_array_equal(x.grad.cpu().numpy(), want)


def test_windows_apart_are_one_copy():
    """Elements of two columns are stored side by side."""
    x = rl.zeros(3, 10, 14).requires_grad_()
    seen = windows(x, (2, 2), (2, 2), (1, 1))
    g = rl.ones_like(seen)
    with noted_builds() as built:
        seen.backward(g)
    (copy,) = built
    assert copy.steps[:2] == ("e", "o")
