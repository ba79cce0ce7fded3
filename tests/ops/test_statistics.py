"""Positions that come with extremes, gradients where norms and deviations have a kink."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight
from rushlight.core.dtypes import bool_, float32, int64
from tests.catalog.run import to_array


def test_extremes_along_a_dimension_have_names_and_positions(device):
    x = rushlight.tensor([[1.0, 5.0, 5.0], [7.0, -1.0, 2.0]], device=device)
    largest, smallest = x.max(1), rushlight.min(x, dim=0, keepdim=True)
    assert largest.values.tolist() == [5, 7]
    assert largest.indices.tolist() == [1, 0]
    assert smallest.values.tolist() == [[1, -1, 2]]
    assert smallest.indices.tolist() == [[0, 1, 1]]
    assert largest.indices.dtype is int64
    values, indices = x.min(-1)
    assert (values.tolist(), indices.tolist()) == ([1, -1], [0, 1])


def test_the_gradient_goes_to_the_position(device):
    x = rushlight.tensor([[5.0, 5.0, 1.0]], device=device, requires_grad=True)
    x.max(1).values.sum().backward()
    assert x.grad.tolist() == [[1, 0, 0]]
    x.grad = None
    x.max().backward()  # of all: ties share
    assert x.grad.tolist() == [[0.5, 0.5, 0]]


def test_extremes_of_bools_and_nothing():
    x = rushlight.tensor([[True, False], [False, False]])
    assert x.max().item() is True
    assert x.max(1).values.tolist() == [True, False]
    assert x.min(1).values.dtype is bool_
    with pytest.raises(IndexError):
        rushlight.zeros(0, 3).max(0)
    with pytest.raises(RuntimeError):
        rushlight.zeros(0).max()


@pytest.mark.parametrize("p", [2, 1, 3, 1.5, 0.5, 0, float("inf")])
def test_the_gradient_of_a_norm_at_zero_is_finite(p, device):
    x = rushlight.zeros(3, device=device, requires_grad=True)
    x.norm(p).backward()
    assert np.isfinite(np.array(x.grad.tolist())).all()


def test_the_gradient_of_a_deviation_of_equals_is_zero(device):
    x = rushlight.ones(4, device=device, requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]


def test_addmm_does_not_read_its_input_where_beta_is_zero(device):
    nan = rushlight.full((2, 2), float("nan"), device=device)
    one = rushlight.ones(2, 2, device=device)
    assert rushlight.addmm(nan, one, one, beta=0).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(RuntimeError):
        rushlight.addmm(rushlight.ones(3, 3, device=device), one, one)


def test_einsum_takes_sublists_and_names_mistakes():
    a, b = rushlight.ones(2, 3), rushlight.ones(3, 4)
    assert rushlight.einsum(a, [0, 1], b, [1, 2], [0, 2]).shape == (2, 4)
    assert rushlight.einsum(a, [..., 1], b, [1, 2]).shape == (2, 4)
    assert rushlight.einsum("ij,jk", [a, b]).shape == (2, 4)
    assert rushlight.einsum(" i j , j k -> k i ", a, b).shape == (4, 2)
    for equation in ("ij,jk->iz", "ij,jk->ii", "i,jk", "ij,kk", "i1,jk", "ij"):
        with pytest.raises((RuntimeError, ValueError)):
            rushlight.einsum(equation, a, b)


def test_products_check_their_operands():
    a = rushlight.ones(2, 3)
    for call in (
        lambda: rushlight.mm(a, a),
        lambda: rushlight.mm(a[0], a),
        lambda: rushlight.bmm(a, a),
        lambda: rushlight.dot(a, a),
        lambda: rushlight.dot(a[0], a[:, 0]),
        lambda: rushlight.cross(a[:, :2], a[:, :2]),
        lambda: rushlight.matrix_power(a, 2),
        lambda: rushlight.tensordot(a, a, 1),
        lambda: rushlight.mm(a, a.T.to(int64)),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert rushlight.matrix_power(rushlight.ones(2, 2), 0).tolist() == [[1, 0], [0, 1]]


def test_inplace_products():
    a = rushlight.ones(2, 2)
    same = a.addmm_(a, a, beta=2)
    assert same is a
    assert a.tolist() == [[4, 4], [4, 4]]
    with pytest.raises(RuntimeError):
        rushlight.ones(2).addmm_(a, a)
    assert rushlight.count_nonzero(rushlight.tensor([0.0, 1.0], dtype=float32)).item() == 1


def test_norms_of_matrices():
    x = np.arange(-5.0, 7.0).reshape(3, 4)
    t = rushlight.tensor(x)
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        want = np.linalg.norm(x, order)
        assert abs(rushlight.linalg.norm(t, order).item() - want) < 1e-5
        assert rushlight.linalg.matrix_norm(t, order, keepdim=True).shape == (1, 1)
    assert abs(rushlight.linalg.norm(t).item() - np.linalg.norm(x)) < 1e-5
    assert rushlight.linalg.vector_norm(t, 3, 1).shape == (3,)
    with pytest.raises(RuntimeError, match="'nuc'"):
        rushlight.linalg.norm(t.reshape(12), "nuc")


def test_the_norm_at_zero_has_a_gradient_but_no_second_derivative(device):
    x = rushlight.tensor([[0.0, 0.0], [3.0, 4.0]], device=device).requires_grad_()
    (g,) = rushlight.autograd.grad(rushlight.linalg.vector_norm(x, dim=1).sum(), x, create_graph=True)
    assert np.allclose(to_array(g.detach()), [[0, 0], [0.6, 0.8]])
    (again,) = rushlight.autograd.grad(g[:, 0].sum(), x)
    assert np.isnan(to_array(again)[0]).all()
    assert np.allclose(to_array(again)[1], [0.128, -0.096])
