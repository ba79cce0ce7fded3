"""Subscript keys as in PyTorch: NumPy arrays, ranges, lists as tuples, 0-dim indices, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl


def _x(device="cpu", *shape):
    shape = shape or (3, 4)
    return rl.arange(int(np.prod(shape)), device=device).reshape(shape), np.arange(
        np.prod(shape)
    ).reshape(shape)


@pytest.mark.parametrize(
    "key",
    [
        (np.array([0, 2]),),
        (slice(None), np.array([[0], [1]])),
        (np.array([True, False, True]),),
        (np.array(1),),
        (range(2),),
        (slice(None), range(1, 3)),
        ([0, 1], np.array([1, 2])),
    ],
)
def test_arrays_and_ranges_are_indices(key):
    x, a = _x()
    same = tuple(list(k) if isinstance(k, range) else k for k in key)
    np.testing.assert_array_equal(x[key].numpy(), a[same])
    x[key] = 7
    a[same] = 7
    np.testing.assert_array_equal(x.numpy(), a)


def test_a_list_with_sequences_in_it_is_a_tuple():
    x, a = _x()
    np.testing.assert_array_equal(x[[[0, 1], [1, 0]]].numpy(), a[[0, 1], [1, 0]])
    np.testing.assert_array_equal(x[[slice(None), 0]].numpy(), a[:, 0])
    np.testing.assert_array_equal(x[[rl.tensor([0])]].numpy(), a[[0]])
    np.testing.assert_array_equal(x[1, [rl.tensor([0])]].numpy(), a[1, [0]])
    with pytest.raises(TypeError):
        x[0, [rl.tensor([0, 1])]]


def test_ends_of_slices_may_be_tensors():
    x, a = _x()
    key = slice(rl.tensor(0), rl.tensor(2))
    np.testing.assert_array_equal(x[key].numpy(), a[:2])
    x[key] = 5
    assert x[:2].unique().tolist() == [5]


def test_a_zero_dim_index_gives_a_view(device, require_device):
    require_device(device)
    x, _ = _x(device)
    row = x[rl.tensor(1, device=device)]
    row += 100
    assert x[1].tolist() == [104, 105, 106, 107]
    row = x[..., rl.tensor(-1, dtype=rl.int32, device=device)]
    row.zero_()
    assert x[:, 3].tolist() == [0, 0, 0]
    with pytest.raises(IndexError):
        x[rl.tensor(3, device=device)]


def test_what_is_selected_in_the_middle_can_be_viewed(device, require_device):
    require_device(device)
    x, a = _x(device, 2, 3, 4)
    index = rl.tensor([2, 0, 2], device=device)
    for got, want in (
        (x[:, index], a[:, [2, 0, 2]]),
        (x.index_select(1, index), a[:, [2, 0, 2]]),
        (x.index_select(2, index), a[:, :, [2, 0, 2]]),
        (x[:, index, index], a[:, [2, 0, 2], [2, 0, 2]]),
        (x[:, index.reshape(3, 1), 1:], a[:, np.array([[2], [0], [2]]), 1:]),
    ):
        assert got.is_contiguous()
        np.testing.assert_array_equal(got.view(-1).cpu().numpy(), want.reshape(-1))


def test_gradients_of_columns_selected_twice(device, require_device):
    require_device(device)
    x = rl.ones(2, 3, device=device, requires_grad=True)
    (
        x.index_select(1, rl.tensor([0, 0, 2], device=device))
        * rl.tensor([1.0, 2.0, 4.0], device=device)
    ).sum().backward()
    assert x.grad.tolist() == [[3, 0, 4], [3, 0, 4]]


def test_numbers_are_converted_when_they_are_put():
    x = rl.zeros(3, dtype=rl.int64)
    x[1:] = 2.7
    x[rl.tensor([0])] = -1.5
    assert x.tolist() == [-1, 2, 2]
    for wrong in (float("nan"), float("inf"), 1j, 2.0**70):
        with pytest.raises(RuntimeError):
            x[0] = wrong
    x[False] = 5
    assert x.tolist() == [-1, 2, 2]
    x[True] = rl.tensor([3.5, 4, 5])
    assert x.tolist() == [3, 4, 5]


def test_index_tensors_put_no_other_type_and_no_other_shape():
    x = rl.zeros(3, 2)
    with pytest.raises(RuntimeError, match="float64"):
        x[rl.tensor([0, 1])] = rl.ones(2, 2, dtype=rl.float64)
    # One value for a mask is converted.
    x[rl.tensor([True, False, True])] = rl.tensor(2, dtype=rl.int64)
    assert x.tolist() == [[2, 2], [0, 0], [2, 2]]
    with pytest.raises(RuntimeError, match="broadcast"):
        x[rl.zeros(3, dtype=rl.bool)] = rl.ones(3)
