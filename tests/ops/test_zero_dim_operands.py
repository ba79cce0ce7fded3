"""Extremes, reductions and indexing of operands without dimensions and of truth values."""

import pytest

import rushlight


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("dim", [0, -1])
def test_extremes_of_one_number(name, dim, device):
    x = rushlight.tensor(2.5, device=device)
    y = getattr(x, name)(dim)
    assert y.shape == () and float(y) == (0 if name.startswith("arg") else 2.5)
    with pytest.raises(IndexError):
        getattr(x, name)(1)


def test_extremes_of_truth_values(device):
    x = rushlight.tensor([[True, False], [False, False]], device=device)
    assert x.amax(1).tolist() == [True, False]
    assert x.amin().tolist() is False
    assert x.amax().dtype is rushlight.bool
    assert x.sign().tolist() == x.tolist()
    assert x.square().dtype is rushlight.int64


def test_indexing_operands_without_dimensions(device):
    x = rushlight.tensor(3.0, device=device).requires_grad_()
    zero = rushlight.tensor(0, device=device)
    zeros = rushlight.tensor([0, 0], device=device)
    assert x.gather(0, zero).shape == ()
    assert x.gather(0, zeros).tolist() == [3, 3]
    assert x.index_select(0, zero).shape == ()
    assert x.scatter_add(0, zeros, rushlight.tensor([1.0, 2.0], device=device)).tolist() == 6
    x.gather(0, zeros).sum().backward()
    assert x.grad.tolist() == 2
    assert rushlight.ones(3, 4, device=device).gather(
        0, rushlight.zeros(0, 7, dtype=rushlight.int64, device=device)
    ).shape == (0, 7)
