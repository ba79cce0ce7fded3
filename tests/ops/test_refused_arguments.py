"""Calls that must be refused at once: sizes, counts and orders out of range, arguments of the wrong kind.

Each row once looped without end, tripped over itself, or read what it had not checked.
"""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

import rushlight
from rushlight.core.errors import KindError, LinAlgError, RushlightError
from rushlight.nn import functional as F
from rushlight.ops import views
from rushlight.tape import call

x = rushlight.tensor([1.0, 2.0, 3.0])
matrix = rushlight.tensor([[2.0, 1.0], [1.0, 3.0]])
unbounded = rushlight.tensor([[-math.inf, 0.0, 0.0], [1.0, -1.0, 1e30], [-1e30, 1e-40, 2.5]])
factors, pivots = rushlight.linalg.ldl_factor(matrix)


def pivoted(*numbers):
    return rushlight.linalg.ldl_solve(factors, rushlight.tensor(numbers, dtype=pivots.dtype), rushlight.ones(2, 1))


REFUSED = {
    # counts and orders
    "histc bins": (lambda: x.histc(2**31), RushlightError),
    "histogram bins": (lambda: x.histogram(2**40), RushlightError),
    "histogramdd bins": (lambda: rushlight.histogramdd(rushlight.ones(3, 4), [1000, 1000, 1000, 1000]), RushlightError),
    "polygamma order": (lambda: rushlight.polygamma(10**6, x), RushlightError),
    "polygamma negative": (lambda: rushlight.polygamma(-1, x), RushlightError),
    "mvlgamma dimension": (lambda: rushlight.mvlgamma(x, 2**32), RushlightError),
    "laguerre degree": (lambda: rushlight.special.laguerre_polynomial_l(x, 1e9), RushlightError),
    "legendre degree NaN": (lambda: rushlight.special.legendre_polynomial_p(x, math.nan), RushlightError),
    "svd_lowrank iterations": (lambda: rushlight.svd_lowrank(rushlight.ones(4, 4), 2, 2**31), RushlightError),
    "lobpcg iterations": (lambda: rushlight.lobpcg(rushlight.eye(9), 1, niter=2**31, tol=-1.0), RushlightError),
    "adaptive pooling size": (lambda: F.adaptive_avg_pool1d(rushlight.ones(1, 1, 5), 2**40), MemoryError),
    # what LAPACK does not end on, or uses as an address
    "svd of infinities": (lambda: rushlight.svd(unbounded), LinAlgError),
    "svdvals of infinities": (lambda: rushlight.linalg.svdvals(unbounded), LinAlgError),
    "pinv of infinities": (lambda: rushlight.linalg.pinv(unbounded), LinAlgError),
    "eig of infinities": (lambda: rushlight.linalg.eig(unbounded), LinAlgError),
    "lstsq of infinities": (lambda: rushlight.linalg.lstsq(unbounded, unbounded), LinAlgError),
    "ldl_solve pivots": (lambda: pivoted(100_000, -5), RushlightError),
    "ldl_solve half a block": (lambda: pivoted(1, -2), RushlightError),
    # wrong kinds
    "polygamma kind": (lambda: rushlight.polygamma("x", x), TypeError),
    "mul_ by a list": (lambda: x.clone().mul_([3, 2, 1]), TypeError),
    "mul_ of complex numbers by a list": (
        lambda: rushlight.ones(3, dtype=rushlight.complex64).mul_([3, 2, 1]),
        TypeError,
    ),
    "a sparse product with a number": (
        lambda: rushlight.addmm(rushlight.eye(2), rushlight.eye(2).to_sparse(), 0.0),
        TypeError,
    ),
    "frexp of a number": (lambda: rushlight.frexp(1.0), TypeError),
    "sum dtype": (lambda: x.sum(dtype=1), TypeError),
    "nansum dtype": (lambda: x.nansum(dtype=0), TypeError),
    "norm dtype": (lambda: rushlight.norm(x, dtype=1), TypeError),
    "generator": (lambda: rushlight.rand(3, generator=3), TypeError),
    "truncated normal without a width": (lambda: rushlight.nn.init.trunc_normal_(x.clone(), std=0), ValueError),
    "dirac_ groups": (lambda: rushlight.nn.init.dirac_(rushlight.ones(2, 2, 3), 0), ValueError),
    "masked sum of a number": (lambda: rushlight.masked.sum(5), TypeError),
    "init of a number": (lambda: rushlight.nn.init.ones_(7), TypeError),
    "in-place of a number": (lambda: rushlight.abs_(-2), TypeError),
    "recurrence without a state": (lambda: rushlight.gru(x, None, 0.0, True, 1, 1, [], x, False), TypeError),
    "sparse product of a tuple": (lambda: rushlight.sparse.mm((2, 3), matrix), TypeError),
    "layers without weights": (lambda: rushlight.gru(x, x, [x], False, 2**40, 0, True, False, True), RushlightError),
    "random bounds": (lambda: x.clone().random_(math.nan, 1.0), TypeError),
    "memory of a number": (lambda: x.clone().set_(1.0, size=(2,)), TypeError),
    "softmax of a bool": (lambda: rushlight.special.softmax(False, 1), TypeError),
    "two outs for one result": (lambda: rushlight.clamp(x, 1.0, 2.0, out=(x.clone(), x.clone())), TypeError),
    "out and inplace": (lambda: rushlight.threshold(x.clone(), 9.0, 0.0, True, out=x.clone()), TypeError),
    "type of a number": (lambda: x.type_as(0), TypeError),
    "offset of a sparse tensor": (lambda: x.to_sparse().storage_offset(), NotImplementedError),
    "pooling by the norm of order 0": (lambda: F.lp_pool1d(rushlight.ones(1, 1, 5), 0.0, 2), RushlightError),
    "strides over a block's rest": (lambda: rushlight.ones(1).expand(12).as_strided((3, 4), (2, 1)), RushlightError),
    "sizes of a number": (lambda: x.is_same_size(3), TypeError),
    "loss by text": (lambda: F.mse_loss(x, x, "sum"), KindError),
}


@pytest.fixture(autouse=True)
def collected():
    """An error that was caught holds its operands in a cycle; other tests count bytes."""
    yield
    gc.collect()


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name):
    call, error = REFUSED[name]
    with pytest.raises(error):
        call()


def test_histc_of_one_number_has_a_range():
    assert rushlight.tensor([2.0]).histc(4).tolist() == [0, 0, 1, 0]
    assert rushlight.tensor([1e30]).histc(4).tolist() == [0, 0, 1, 0]


def test_mvlgamma_of_many_dimensions_is_the_same_sum():
    from math import lgamma, log, pi

    p, value = 20, 15.5
    wanted = p * (p - 1) / 4 * log(pi) + sum(lgamma(value - k / 2) for k in range(p))
    got = rushlight.mvlgamma(rushlight.tensor([value], dtype=rushlight.float64, requires_grad=True), p)
    assert got.item() == pytest.approx(wanted, rel=1e-13)


def test_windows_of_adaptive_pooling_are_those_of_their_definition():
    for n, m in ((5, 7), (7, 5), (6, 4), (9, 3), (1, 8), (12, 8)):
        row = np.arange(n, dtype=np.float64) ** 2
        wanted = [row[i * n // m : -(-(i + 1) * n // m)].mean() for i in range(m)]
        got = F.adaptive_avg_pool1d(rushlight.tensor(row)[None], m)[0].tolist()
        assert got == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dtype", [rushlight.float32, rushlight.float64, rushlight.float16, rushlight.int64])
def test_quotients_of_expanded_tensors(dtype):
    seven = rushlight.tensor(7, dtype=dtype).expand(40)
    assert (seven // 3).tolist() == [2] * 40 and (seven % 3).tolist() == [1] * 40
    assert rushlight.fmod(seven, 4).tolist() == [3] * 40
    rows = rushlight.tensor([[7], [9]], dtype=dtype).expand(2, 3)
    assert (rows % 4).tolist() == [[3] * 3, [1] * 3]


@pytest.mark.parametrize(
    "older, reduction",
    [((0,), "sum"), ((1,), "mean"), ((False,), "sum"), ((None, 0), "none"), ((1, 0), "none"), ((0, 1), "sum")],
)
@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.kl_div, F.soft_margin_loss])
def test_older_flags_of_losses_count_by_their_truth(loss, older, reduction):
    target = rushlight.tensor([1.0, 0.5, 2.0])
    assert rushlight.equal(loss(x, target, *older), loss(x, target, reduction=reduction))


def test_spacing_of_zero_gives_infinities():
    (got,) = rushlight.gradient(rushlight.tensor([1.0, 2.0, 2.0]), spacing=0.0)
    assert got[0].item() == math.inf and got[1].item() == math.inf and math.isnan(got[2].item())


def test_initial_values_of_no_elements():
    for name in ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"):
        for shape in ((2, 0, 3), (3, 0), (0, 0)):
            assert getattr(rushlight.nn.init, name)(rushlight.empty(*shape)).shape == shape


def test_a_flag_of_another_kind_is_not_kept():
    values = rushlight.ones(3, 4)
    before = rushlight.memory.allocated()
    rushlight.std(values, 1, True, (rushlight.ones(3), 1))
    assert rushlight.memory.allocated() == before


def test_a_refused_diagonal_is_not_filled():
    row = rushlight.ones(1, 4)
    with pytest.raises(RuntimeError):
        row.fill_diagonal_(100.0, rushlight.ones(2, 2))
    assert row.tolist() == [[1.0] * 4]


def test_zeta_of_large_orders_is_its_first_term():
    orders = rushlight.tensor([2147483647.0, 100.0])
    assert rushlight.special.zeta(orders, rushlight.tensor([7.0, 1.0])).tolist() == [0.0, 1.0]


def test_of_several_outs_none_is_written_where_one_is_refused():
    values, vectors = rushlight.zeros(2), rushlight.zeros(2, 2, dtype=rushlight.int64)
    with pytest.raises(RuntimeError):
        rushlight.linalg.eigh(matrix, out=(values, vectors))
    assert values.tolist() == [0.0, 0.0]


def test_a_tensor_among_the_static_arguments_of_a_plan_is_not_kept():
    y = rushlight.rand(2, 3, 3)
    for _ in range(3):
        gc.collect()
        before = rushlight.memory.allocated()
        assert rushlight.nuclear_norm(y, (rushlight.tensor(0), 2), True).shape == (1, 3, 1)
        call.plan_for(views._slice, (y,), (0, 0, rushlight.tensor(1), 1))
        gc.collect()
        assert rushlight.memory.allocated() == before
