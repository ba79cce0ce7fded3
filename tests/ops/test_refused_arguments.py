"""Calls that must be refused: sizes, counts and orders out of range, arguments of the wrong kind.

Each ends within its call: no endless loop, no read of what was not checked.
"""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.core.errors import KindError, LinAlgError, RushlightError
from rushlight.nn import functional as F
from rushlight.ops.view import views
from rushlight.tape.record import call

x = rl.tensor([1.0, 2.0, 3.0])
matrix = rl.tensor([[2.0, 1.0], [1.0, 3.0]])
unbounded = rl.tensor([[-math.inf, 0.0, 0.0], [1.0, -1.0, 1e30], [-1e30, 1e-40, 2.5]])
factors, pivots = rl.linalg.ldl_factor(matrix)


def pivoted(*numbers):
    return rl.linalg.ldl_solve(factors, rl.tensor(numbers, dtype=pivots.dtype), rl.ones(2, 1))


REFUSED = {
    # counts and orders
    "histc bins": (lambda: x.histc(2**31), RushlightError),
    "histogram bins": (lambda: x.histogram(2**40), RushlightError),
    "histogramdd bins": (
        lambda: rl.histogramdd(rl.ones(3, 4), [1000, 1000, 1000, 1000]),
        RushlightError,
    ),
    "polygamma order": (lambda: rl.polygamma(10**6, x), RushlightError),
    "polygamma negative": (lambda: rl.polygamma(-1, x), RushlightError),
    "mvlgamma dimension": (lambda: rl.mvlgamma(x, 2**32), RushlightError),
    "laguerre degree": (lambda: rl.special.laguerre_polynomial_l(x, 1e9), RushlightError),
    "svd_lowrank iterations": (lambda: rl.svd_lowrank(rl.ones(4, 4), 2, 2**31), RushlightError),
    "lobpcg iterations": (lambda: rl.lobpcg(rl.eye(9), 1, niter=2**31, tol=-1.0), RushlightError),
    "adaptive pooling size": (lambda: F.adaptive_avg_pool1d(rl.ones(1, 1, 5), 2**40), MemoryError),
    # inputs on which LAPACK does not end, or that it uses as an address
    "svd of infinities": (lambda: rl.svd(unbounded), LinAlgError),
    "svdvals of infinities": (lambda: rl.linalg.svdvals(unbounded), LinAlgError),
    "pinv of infinities": (lambda: rl.linalg.pinv(unbounded), LinAlgError),
    "eig of infinities": (lambda: rl.linalg.eig(unbounded), LinAlgError),
    "lstsq of infinities": (lambda: rl.linalg.lstsq(unbounded, unbounded), LinAlgError),
    "ldl_solve pivots": (lambda: pivoted(100_000, -5), RushlightError),
    "ldl_solve half a block": (lambda: pivoted(1, -2), RushlightError),
    # wrong kinds
    "polygamma kind": (lambda: rl.polygamma("x", x), TypeError),
    "mul_ by a list": (lambda: x.clone().mul_([3, 2, 1]), TypeError),
    "mul_ of complex numbers by a list": (
        lambda: rl.ones(3, dtype=rl.complex64).mul_([3, 2, 1]),
        TypeError,
    ),
    "a sparse product with a number": (
        lambda: rl.addmm(rl.eye(2), rl.eye(2).to_sparse(), 0.0),
        TypeError,
    ),
    "frexp of a number": (lambda: rl.frexp(1.0), TypeError),
    "sum dtype": (lambda: x.sum(dtype=1), TypeError),
    "nansum dtype": (lambda: x.nansum(dtype=0), TypeError),
    "norm dtype": (lambda: rl.norm(x, dtype=1), TypeError),
    "generator": (lambda: rl.rand(3, generator=3), TypeError),
    "truncated normal without a width": (
        lambda: rl.nn.init.trunc_normal_(x.clone(), std=0),
        ValueError,
    ),
    "dirac_ groups": (lambda: rl.nn.init.dirac_(rl.ones(2, 2, 3), 0), ValueError),
    "masked sum of a number": (lambda: rl.masked.sum(5), TypeError),
    "init of a number": (lambda: rl.nn.init.ones_(7), TypeError),
    "in-place of a number": (lambda: rl.abs_(-2), TypeError),
    "recurrence without a state": (
        lambda: rl.gru(x, None, 0.0, True, 1, 1, [], x, False),
        TypeError,
    ),
    "sparse product of a tuple": (lambda: rl.sparse.mm((2, 3), matrix), TypeError),
    "layers without weights": (
        lambda: rl.gru(x, x, [x], False, 2**40, 0, True, False, True),
        RushlightError,
    ),
    "random bounds": (lambda: x.clone().random_(math.nan, 1.0), TypeError),
    "memory of a number": (lambda: x.clone().set_(1.0, size=(2,)), TypeError),
    "softmax of a bool": (lambda: rl.special.softmax(False, 1), TypeError),
    "two outs for one result": (
        lambda: rl.clamp(x, 1.0, 2.0, out=(x.clone(), x.clone())),
        TypeError,
    ),
    "out and inplace": (lambda: rl.threshold(x.clone(), 9.0, 0.0, True, out=x.clone()), TypeError),
    "type of a number": (lambda: x.type_as(0), TypeError),
    "offset of a sparse tensor": (lambda: x.to_sparse().storage_offset(), NotImplementedError),
    "pooling by the norm of order 0": (
        lambda: F.lp_pool1d(rl.ones(1, 1, 5), 0.0, 2),
        RushlightError,
    ),
    "strides over a block's rest": (
        lambda: rl.ones(1).expand(12).as_strided((3, 4), (2, 1)),
        RushlightError,
    ),
    "sizes of a number": (lambda: x.is_same_size(3), TypeError),
    "loss by text": (lambda: F.mse_loss(x, x, "sum"), KindError),
}


@pytest.fixture(autouse=True)
def collected():
    """A caught error holds its operands in a cycle; other tests count bytes."""
    yield
    gc.collect()


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name):
    call, error = REFUSED[name]
    with pytest.raises(error):
        call()


def test_histc_of_one_number_has_a_range():
    assert rl.tensor([2.0]).histc(4).tolist() == [0, 0, 1, 0]
    assert rl.tensor([1e30]).histc(4).tolist() == [0, 0, 1, 0]


def test_mvlgamma_of_many_dimensions_is_the_same_sum():
    from math import lgamma, log, pi

    p, value = 20, 15.5
    wanted = p * (p - 1) / 4 * log(pi) + sum(lgamma(value - k / 2) for k in range(p))
    got = rl.mvlgamma(rl.tensor([value], dtype=rl.float64, requires_grad=True), p)
    assert got.item() == pytest.approx(wanted, rel=1e-13)


def test_windows_of_adaptive_pooling_are_those_of_their_definition():
    for n, m in ((5, 7), (7, 5), (6, 4), (9, 3), (1, 8), (12, 8)):
        row = np.arange(n, dtype=np.float64) ** 2
        wanted = [row[i * n // m : -(-(i + 1) * n // m)].mean() for i in range(m)]
        got = F.adaptive_avg_pool1d(rl.tensor(row)[None], m)[0].tolist()
        assert got == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64, rl.float16, rl.int64])
def test_quotients_of_expanded_tensors(dtype):
    seven = rl.tensor(7, dtype=dtype).expand(40)
    assert (seven // 3).tolist() == [2] * 40 and (seven % 3).tolist() == [1] * 40
    assert rl.fmod(seven, 4).tolist() == [3] * 40
    rows = rl.tensor([[7], [9]], dtype=dtype).expand(2, 3)
    assert (rows % 4).tolist() == [[3] * 3, [1] * 3]


@pytest.mark.parametrize(
    "older, reduction",
    [
        ((0,), "sum"),
        ((1,), "mean"),
        ((False,), "sum"),
        ((None, 0), "none"),
        ((1, 0), "none"),
        ((0, 1), "sum"),
    ],
)
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")  # of kl_div's mean
@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.kl_div, F.soft_margin_loss]
)
def test_older_flags_of_losses_count_by_their_truth(loss, older, reduction):
    target = rl.tensor([1.0, 0.5, 2.0])
    assert rl.equal(loss(x, target, *older), loss(x, target, reduction=reduction))


def test_spacing_of_zero_gives_infinities():
    (got,) = rl.gradient(rl.tensor([1.0, 2.0, 2.0]), spacing=0.0)
    assert got[0].item() == math.inf and got[1].item() == math.inf and math.isnan(got[2].item())


def test_initial_values_of_no_elements():
    for name in ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"):
        for shape in ((2, 0, 3), (3, 0), (0, 0)):
            assert getattr(rl.nn.init, name)(rl.empty(*shape)).shape == shape


def test_a_flag_of_another_kind_is_not_kept():
    values = rl.ones(3, 4)
    before = rl.memory.allocated()
    with pytest.raises(TypeError, match=r"std\(\): argument 'keepdim' must be a bool"):
        rl.std(values, 1, True, (rl.ones(3), 1))
    assert rl.memory.allocated() == before


def test_a_refused_diagonal_is_not_filled():
    row = rl.ones(1, 4)
    with pytest.raises(RuntimeError):
        row.fill_diagonal_(100.0, rl.ones(2, 2))
    assert row.tolist() == [[1.0] * 4]


def test_zeta_of_large_orders_is_its_first_term():
    orders = rl.tensor([2147483647.0, 100.0])
    assert rl.special.zeta(orders, rl.tensor([7.0, 1.0])).tolist() == [0.0, 1.0]


def test_of_several_outs_none_is_written_where_one_is_refused():
    values, vectors = rl.zeros(2), rl.zeros(2, 2, dtype=rl.int64)
    with pytest.raises(RuntimeError):
        rl.linalg.eigh(matrix, out=(values, vectors))
    assert values.tolist() == [0.0, 0.0]


def test_a_tensor_among_the_static_arguments_of_a_plan_is_not_kept():
    y = rl.rand(2, 3, 3)
    for _ in range(3):
        gc.collect()
        before = rl.memory.allocated()
        assert rl.nuclear_norm(y, (rl.tensor(0), 2), True).shape == (1, 3, 1)
        call.plan_for(views._slice, (y,), (0, rl.tensor(1), 1))
        gc.collect()
        assert rl.memory.allocated() == before


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rl.sum([1.0, 2.0]),
        lambda: rl.softmax([1.0, 2.0], 0),
        lambda: rl.clamp_min(2, rl.tensor([1, 2])),
        lambda: rl.max(2, 3),
        lambda: rl.isclose(rl.tensor([1, 2]), 2),
        lambda: rl.polar(2, rl.tensor([1.0])),
        lambda: F.linear([1.0], rl.ones(1, 1)),
        lambda: F.mse_loss([1.0], rl.ones(1)),
    ],
)
def test_what_is_no_tensor_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="tensor"):
        wrong()


@pytest.mark.parametrize("kind", [RuntimeError, IndexError])
def test_an_index_out_of_range_is_both_of_pytorchs_errors(kind):
    x = rl.ones(2, 2)
    for wrong in (
        lambda: rl.gather(x, 1, rl.tensor([[0, 23]])),
        lambda: x.scatter(0, rl.tensor([[34, 1]]), x),
        lambda: x[rl.tensor([5])],
        lambda: rl.amax(rl.ones(5, 0, 5)),
    ):
        with pytest.raises(kind):
            wrong()


def test_narrow_and_roll_and_item_and_arange_refuse_as_pytorch():
    x = rl.ones(4, 5)
    for wrong in (
        lambda: rl.ones(()).narrow(0, 0, 1),
        lambda: x.narrow(1, 0, 6),
        lambda: x.narrow(0, rl.tensor([1, 2]), 1),
        lambda: x.narrow(0, rl.tensor(True), 1),
        x.item,
        lambda: rl.arange(0, math.inf, 2),
        lambda: F.gelu(x, approximate="no"),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    for wrong in (lambda: x.narrow(0, 7, 1), lambda: rl.ones(()).roll(0, 0)):
        with pytest.raises(IndexError):
            wrong()
    assert x.narrow(0, rl.tensor(-1), 1).shape == (1, 5)


def test_refused_as_in_pytorch():
    x = rl.ones(3, 3)
    for wrong in (
        lambda: rl.gradient(x, dim=(1, 1)),
        lambda: rl.linalg.cross(rl.ones(5, 3), rl.ones(5, 1)),
        lambda: x.masked_fill(x > 0, 1j),
        lambda: x.masked_fill(x > 0, rl.tensor(1j)),
        lambda: rl.cov(x, fweights=rl.tensor([1, -1, 1])),
        lambda: rl.cov(x, aweights=rl.tensor([1.0, -1.0, 1.0])),
        lambda: F.conv1d(rl.ones(1, 1, 4), rl.ones(1, 1, 2), rl.ones(1, dtype=rl.float64)),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "prod",
        "logsumexp",
        "nansum",
        "any",
        "all",
        "softmax",
        "log_softmax",
        "count_nonzero",
        "unique",
    ],
)
def test_a_tensor_without_dimensions_has_none_out_of_range(name):
    with pytest.raises(IndexError):
        getattr(rl, name)(rl.ones(()), dim=1)


def test_a_flag_is_no_dimension():
    x = rl.ones(3, 4)
    for wrong in (lambda: x.topk(2, True), lambda: x.sum(True), lambda: x.softmax(False)):
        with pytest.raises(TypeError, match="dimension"):
            wrong()


def test_calls_that_say_two_things_are_refused():
    y = rl.ones(3)
    for name in ("trapezoid", "cumulative_trapezoid"):
        with pytest.raises(TypeError, match="got both"):
            getattr(rl, name)(y, y, dx=2.0)
    assert rl.trapezoid(y, dx=2.0).item() == 4
    with pytest.raises(RuntimeError, match="subscripts"):
        rl.einsum("a", y, y)


def test_sizes_beyond_any_memory_are_refused() -> None:
    # Its bytes exceed an int64.
    for count, error in (
        (2**60, rl.OutOfMemoryError),
        (2**62, RuntimeError),
    ):
        for make in (rl.empty, lambda n: rl.arange(n, dtype=rl.float32)):
            with pytest.raises(error):
                make(count)
    with pytest.raises(RuntimeError):
        nn.AdaptiveMaxPool1d(2**62)(rl.ones(2, 2, 2))


@pytest.mark.parametrize(
    "error, call",
    [
        (TypeError, lambda: rl.ones((rl.tensor(3.0), 4))),
        (TypeError, lambda: rl.ones(2).flip()),
        (TypeError, lambda: rl.unravel_index(rl.tensor(0.5), (2, 2))),
        (RuntimeError, lambda: rl.meshgrid(rl.ones(2), rl.ones(2, dtype=rl.int32))),
        (RuntimeError, lambda: rl.randperm(4096, dtype=rl.float16)),
        (RuntimeError, lambda: rl.ones(2).uniform_(0, float("inf"))),
        (RuntimeError, lambda: rl.ones(2, dtype=rl.float16).uniform_(0, 1e5)),
        (RuntimeError, lambda: rl.zeros(2, dtype=rl.bool).index_fill(0, rl.tensor([0]), 1j)),
        (ValueError, lambda: rl.broadcast_shapes((2, -3), (2, 3))),
        (ValueError, lambda: rl.frombuffer([1, 2], dtype=rl.int8)),
        (TypeError, lambda: rl.cat([rl.ones(2)], out=rl.empty(2, dtype=rl.int32))),
        (RuntimeError, lambda: rl.split(rl.zeros(3), 0)),
        (TypeError, lambda: rl.ones(2).__delitem__(0)),
        (TypeError, lambda: rl.unravel_index(rl.tensor([0]), (2, 2.5))),
        (RuntimeError, lambda: rl.repeat_interleave(rl.tensor([1, 2, -1, 3, 4]))),
        (RuntimeError, lambda: rl.linspace(1j, 2, 3, dtype=rl.float32)),
        (RuntimeError, lambda: rl.broadcast_shapes(1.5)),
    ],
)
def test_refused(error, call):
    with pytest.raises(error):
        call()
