"""Positions of extremes, and gradients where norms and deviations have a kink."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.core.dtypes import bool_, float32, int64
from tests.catalog.run import to_array


def test_extremes_along_a_dimension_have_names_and_positions(device):
    x = rl.tensor([[1.0, 5.0, 5.0], [7.0, -1.0, 2.0]], device=device)
    largest, smallest = x.max(1), rl.min(x, dim=0, keepdim=True)
    assert largest.values.tolist() == [5, 7]
    assert largest.indices.tolist() == [1, 0]
    assert smallest.values.tolist() == [[1, -1, 2]]
    assert smallest.indices.tolist() == [[0, 1, 1]]
    assert largest.indices.dtype is int64
    values, indices = x.min(-1)
    assert (values.tolist(), indices.tolist()) == ([1, -1], [0, 1])


def test_the_gradient_goes_to_the_position(device):
    x = rl.tensor([[5.0, 5.0, 1.0]], device=device, requires_grad=True)
    x.max(1).values.sum().backward()
    assert x.grad.tolist() == [[1, 0, 0]]
    x.grad = None
    x.max().backward()  # of all: ties share
    assert x.grad.tolist() == [[0.5, 0.5, 0]]


def test_extremes_of_bools_and_nothing():
    x = rl.tensor([[True, False], [False, False]])
    assert x.max().item() is True
    assert x.max(1).values.tolist() == [True, False]
    assert x.min(1).values.dtype is bool_
    with pytest.raises(IndexError):
        rl.zeros(0, 3).max(0)
    with pytest.raises(RuntimeError):
        rl.zeros(0).max()


@pytest.mark.parametrize("p", [2, 1, 3, 1.5, 0.5, 0, float("inf")])
def test_the_gradient_of_a_norm_at_zero_is_finite(p, device):
    x = rl.zeros(3, device=device, requires_grad=True)
    x.norm(p).backward()
    assert np.isfinite(np.array(x.grad.tolist())).all()


def test_the_gradient_of_a_deviation_of_equals_is_zero(device):
    x = rl.ones(4, device=device, requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]


def test_addmm_does_not_read_its_input_where_beta_is_zero(device):
    nan = rl.full((2, 2), float("nan"), device=device)
    one = rl.ones(2, 2, device=device)
    assert rl.addmm(nan, one, one, beta=0).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(RuntimeError):
        rl.addmm(rl.ones(3, 3, device=device), one, one)


def test_einsum_takes_sublists_and_names_mistakes():
    a, b = rl.ones(2, 3), rl.ones(3, 4)
    assert rl.einsum(a, [0, 1], b, [1, 2], [0, 2]).shape == (2, 4)
    assert rl.einsum(a, [..., 1], b, [1, 2]).shape == (2, 4)
    assert rl.einsum("ij,jk", [a, b]).shape == (2, 4)
    assert rl.einsum(" i j , j k -> k i ", a, b).shape == (4, 2)
    for equation in ("ij,jk->iz", "ij,jk->ii", "i,jk", "ij,kk", "i1,jk", "ij"):
        with pytest.raises((RuntimeError, ValueError)):
            rl.einsum(equation, a, b)


def test_products_check_their_operands():
    a = rl.ones(2, 3)
    for call in (
        lambda: rl.mm(a, a),
        lambda: rl.mm(a[0], a),
        lambda: rl.bmm(a, a),
        lambda: rl.dot(a, a),
        lambda: rl.dot(a[0], a[:, 0]),
        lambda: rl.cross(a[:, :2], a[:, :2]),
        lambda: rl.matrix_power(a, 2),
        lambda: rl.tensordot(a, a, 1),
        lambda: rl.mm(a, a.T.to(int64)),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert rl.matrix_power(rl.ones(2, 2), 0).tolist() == [[1, 0], [0, 1]]


def test_inplace_products():
    a = rl.ones(2, 2)
    same = a.addmm_(a, a, beta=2)
    assert same is a
    assert a.tolist() == [[4, 4], [4, 4]]
    with pytest.raises(RuntimeError):
        rl.ones(2).addmm_(a, a)
    assert rl.count_nonzero(rl.tensor([0.0, 1.0], dtype=float32)).item() == 1


def test_norms_of_matrices():
    x = np.arange(-5.0, 7.0).reshape(3, 4)
    t = rl.tensor(x)
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        want = np.linalg.norm(x, order)
        assert abs(rl.linalg.norm(t, order).item() - want) < 1e-5
        assert rl.linalg.matrix_norm(t, order, keepdim=True).shape == (1, 1)
    assert abs(rl.linalg.norm(t).item() - np.linalg.norm(x)) < 1e-5
    assert rl.linalg.vector_norm(t, 3, 1).shape == (3,)
    with pytest.raises(RuntimeError, match="'nuc'"):
        rl.linalg.norm(t.reshape(12), "nuc")


def test_the_norm_at_zero_has_a_gradient_but_no_second_derivative(device):
    x = rl.tensor([[0.0, 0.0], [3.0, 4.0]], device=device).requires_grad_()
    (g,) = rl.autograd.grad(rl.linalg.vector_norm(x, dim=1).sum(), x, create_graph=True)
    assert np.allclose(to_array(g.detach()), [[0, 0], [0.6, 0.8]])
    (again,) = rl.autograd.grad(g[:, 0].sum(), x)
    assert np.isnan(to_array(again)[0]).all()
    assert np.allclose(to_array(again)[1], [0.128, -0.096])


@pytest.mark.filterwarnings("ignore:var or std:UserWarning")
def test_variance_with_more_correction_than_elements():
    x = rl.tensor([1.0, 2.0])
    assert rl.var(x, correction=2).item() == float("inf") and rl.std(
        x, correction=5
    ).item() == float("inf")
    assert rl.var(rl.ones(1)).isnan().item() and rl.var(rl.ones(0)).isnan().item()


def test_variance_takes_unbiased_in_every_place():
    x = rl.tensor([1.0, 2.0, 4.0, 9.0])
    assert float(x.var(False)) == pytest.approx(9.5)
    assert float(x.var(0, False)) == pytest.approx(9.5)
    assert float(x.var(correction=None)) == pytest.approx(38 / 3)
    assert float(x.var(correction=2)) == pytest.approx(19)


def test_slopes_by_complex_steps():
    (slope,) = rl.gradient(rl.arange(4.0), spacing=1 + 1j)
    assert slope.dtype is rl.complex64 and rl.allclose(slope, rl.full((4,), 0.5 - 0.5j))
