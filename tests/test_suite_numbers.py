"""What runs of PyTorch's own suite found in products, reductions, indices and elementwise functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as rl

NAN, INF = math.nan, math.inf


# ---- calls as programs from before PyTorch 1.5 write them ----


def test_factors_stand_among_the_tensors():
    x, m, v = rl.ones(2, 2), rl.full((2, 2), 3.0), rl.ones(2)
    want = 2 * x + 3 * (m @ m)
    assert rl.addmm(2, x, 3, m, m).equal(want)
    assert x.addmm(2, 3, m, m).equal(want)
    assert x.clone().addmm_(2, 3, m, m).equal(want)
    assert x.addmm(2, m, m).equal(2 * x + m @ m)
    assert rl.addmv(2, v, m, v).tolist() == [8.0, 8.0]
    assert x.addr(2, 3, v, v).tolist() == [[5.0, 5.0]] * 2
    batch = rl.ones(2, 2, 2)
    assert x.addbmm(2, batch, batch).tolist() == [[6.0, 6.0]] * 2
    assert batch.clone().baddbmm_(2, 3, batch, batch).equal(8 * batch)


def test_adam_as_it_was_once_written():
    p, avg, square, grad = rl.ones(3), rl.zeros(3), rl.zeros(3), rl.tensor([1.0, 2.0, -1.0])
    avg.mul_(0.5).add_(0.5, grad)
    square.mul_(0.5).addcmul_(0.5, grad, grad)
    p.addcdiv_(-1, avg, square.sqrt().add_(0.25))
    root = np.sqrt(0.5 * grad.numpy() ** 2) + 0.25
    assert np.allclose(p.numpy(), 1 - 0.5 * grad.numpy() / root)
    assert rl.add(p, 2, grad).equal(p + 2 * grad)
    assert rl.sub(p, 2, grad).equal(p - 2 * grad)
    with pytest.raises(TypeError, match="alpha="):
        rl.add(p, grad, grad)


# ---- products ----


def test_addr_promotes_and_knows_bools():
    v = rl.ones(2)
    assert rl.addr(rl.ones(2, 2, dtype=rl.float16), v, v).dtype is rl.float32
    assert rl.addr(rl.ones(2, 2, dtype=rl.int32), v, v, beta=0.5).tolist() == [[1.5, 1.5]] * 2
    yes = rl.ones(2, 2, dtype=rl.bool)
    assert rl.addr(yes, v.bool(), v.bool(), beta=True, alpha=False).tolist() == [[True, True]] * 2
    assert rl.addr(yes, v.bool(), v.bool(), beta=0, alpha=False).tolist() == [[False, False]] * 2
    for beta, like in ((True, v), (1j, v), (0.5, v.int())):
        with pytest.raises(RuntimeError, match="beta"):
            rl.addr(rl.ones(2, 2).to(like.dtype), like, like, beta=beta)
    with pytest.raises(RuntimeError, match="at least one"):
        rl.chain_matmul()


def test_factorisations_refuse_what_does_not_fit():
    with pytest.raises(rl.linalg.LinAlgError, match="diagonal element 2"):
        rl.cholesky_inverse(rl.tensor([[1.0, 0], [2.0, 0]]))
    with pytest.raises(RuntimeError, match="batches"):
        rl.ormqr(rl.ones(1, 2, 2), rl.ones(1, 2), rl.ones(2, 2, 2))
    for named in ({"rcond": rl.tensor(1j)}, {"atol": 1j}):
        with pytest.raises(RuntimeError, match="real"):
            rl.linalg.pinv(rl.eye(2), **named)
    lu, pivots = rl.linalg.lu_factor(rl.eye(2))
    for wrong in (0, 3):
        with pytest.raises(RuntimeError, match="between 1 and 2"):
            rl.linalg.lu_solve(lu, pivots * 0 + wrong, rl.eye(2))


def test_an_out_without_elements_may_be_an_expanded_view():
    out = rl.empty(1, 5, 0).expand(2, 5, 0)
    assert rl.linalg.solve_triangular(rl.eye(5), rl.empty(2, 5, 0), upper=True, out=out).shape == (2, 5, 0)


# ---- dimensions, segments, scattering ----


def test_a_flag_is_no_dimension():
    x = rl.ones(3, 4)
    for call in (lambda: x.topk(2, True), lambda: x.sum(True), lambda: x.softmax(False)):
        with pytest.raises(TypeError, match="dimension"):
            call()


def test_segments_of_nothing_and_of_what_is_no_number():
    x, lengths = rl.tensor([1.0, 2, 3, NAN]), rl.tensor([2, 0, 1, 1])
    want = {
        "sum": [3.0, 0.0, 3.0],
        "mean": [1.5, NAN, 3.0],
        "max": [2.0, -INF, 3.0],
        "min": [1.0, INF, 3.0],
        "prod": [2.0, 1.0, 3.0],
    }
    for reduce, expected in want.items():
        found = rl.segment_reduce(x, reduce, lengths=lengths).numpy()
        assert np.array_equal(found, np.array([*expected, NAN], np.float32), equal_nan=True), reduce
    x.requires_grad_()
    rl.segment_reduce(x, "max", lengths=lengths).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match="add up to 4"):
        rl.segment_reduce(x, "sum", lengths=rl.tensor([1, 1]))
    assert rl.segment_reduce(x, "sum", lengths=rl.tensor([1, 1]), unsafe=True).tolist() == [1.0, 2.0]
    with pytest.raises(NotImplementedError, match="floating"):
        rl.segment_reduce(x.detach().int(), "sum", lengths=lengths)


def test_complex_numbers_are_multiplied_where_an_index_says():
    x = rl.tensor([[1 + 1j, 2j], [3, 4]]).requires_grad_()
    src = rl.tensor([[2, 1j], [1j, 1 + 1j], [5, 1]]).requires_grad_()
    out = x.scatter_reduce(0, rl.tensor([[0, 0], [0, 1]]), src, "prod")
    assert out.tolist() == [[(1 + 1j) * 2j, -2 + 0j], [3 + 0j, 4 + 4j]]
    assert rl.autograd.gradcheck(
        lambda a, b: a.scatter_reduce(0, rl.tensor([[0, 0], [0, 1]]), b, "prod"),
        (x.detach().to(rl.complex128).requires_grad_(), src.detach().to(rl.complex128).requires_grad_()),
    )
