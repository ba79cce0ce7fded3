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


# ---- operators and numbers ----


class Mine:
    """Another library's operand, which knows what to do with a tensor."""

    def __radd__(self, other):
        return "added"

    def __rmatmul__(self, other):
        return "multiplied"

    def __gt__(self, other):
        return "compared"


def test_operators_leave_the_unknown_to_the_other_operand():
    x = rl.ones(2)
    assert (x + Mine(), x @ Mine(), x < Mine()) == ("added", "multiplied", "compared")
    x += Mine()
    assert x == "added"
    x = rl.ones(2, dtype=rl.int64)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert x not in (None, "text", [1, 1])
    for call in (lambda: x + "text", lambda: "text" + x, lambda: x & None, lambda: x < "text", lambda: x @ 2):
        with pytest.raises(TypeError):
            call()
    assert x.__rdiv__(3).tolist() == [3.0, 3.0]


def test_two_numbers_make_a_tensor():
    assert rl.add(2, 3).dtype is rl.int64
    assert rl.mul(2, 1.5).tolist() == 3.0
    assert rl.div(True, False).tolist() == INF
    assert rl.sub(2j, 3).tolist() == -3 + 2j
    assert rl.floor_divide(7, 2).tolist() == 3
    with pytest.raises(TypeError, match="at least one"):
        rl.maximum(2, 3)


def test_alpha_of_bools_and_of_integers():
    yes, one = rl.tensor([True, False]), rl.tensor([1], dtype=rl.int8)
    assert rl.add(yes, yes, alpha=2).tolist() == [True, False]
    assert rl.add(~yes, yes, alpha=0).tolist() == [False, True]
    assert yes.clone().add_(~yes, alpha=3).tolist() == [True, True]
    for call in (lambda: rl.add(one, one, alpha=1.0), lambda: one.sub_(one, alpha=1.0)):
        with pytest.raises(RuntimeError, match="no integer"):
            call()
    with pytest.raises(TypeError, match="requires a gradient"):
        rl.addcmul(rl.ones(2), rl.ones(2), rl.ones(2), value=rl.tensor(2.0, requires_grad=True))


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16], ids=["float16", "bfloat16"])
def test_a_number_counts_as_what_a_half_type_holds_of_it(device, dtype):
    for value in (0.1, 0.3, 1e-7, -2051.0, 3.3e4, 7e-6):
        x = rl.tensor([value], dtype=dtype, device=device)
        assert (x == value).item() and (x >= value).item() and not (x > value).item(), value
        assert (x - value).item() == 0
        assert (x % value).item() == 0
    assert (rl.tensor([INF], dtype=rl.float16, device=device) == 1e6).item()
    x = rl.tensor([3.0], dtype=dtype, device=device)
    assert (x * 0.1).item() == rl.tensor(3.0 * np.float32(0.1), dtype=dtype).item()


def test_signed_zeros_and_infinities():
    x, y = rl.tensor([-0.0, 0.0, 1.0]), rl.tensor([1.0, -1.0, -INF])
    assert [math.copysign(1, v) for v in rl.floor_divide(x, y).tolist()[:2]] == [-1, -1]
    both = rl.tensor([complex(INF, 0), complex(-INF, 1)])
    assert rl.logaddexp(both, both).tolist() == both.tolist()
    zeros = rl.tensor([complex(-INF, 0), complex(-INF, 1), 1 + 1j])
    assert rl.logcumsumexp(zeros, 0).tolist()[2] == 1 + 1j
    assert rl.logcumsumexp(zeros, 0).real.tolist()[:2] == [-INF, -INF]


def test_results_that_have_one_type():
    x = rl.tensor([1.5, -2.0])
    with pytest.raises(RuntimeError, match="float64"):
        x.float_power_(2)
    with pytest.raises(RuntimeError, match="float64"):
        rl.float_power(x, 2, out=rl.empty(2))
    assert rl.clamp_max(x.int(), rl.tensor([1, 1]), out=rl.empty(2, dtype=rl.int64)).tolist() == [1, -2]
    for name, args in (("sum", (x, 0)), ("cumsum", (x, 0)), ("mean", (x, 0))):
        with pytest.raises(RuntimeError, match="does not match"):
            getattr(rl, name)(*args, dtype=rl.float64, out=rl.empty(0))


def test_norms_refuse_what_has_none():
    x = rl.ones(2, 2, 2)
    for call in (
        lambda: rl.linalg.vector_norm(x, 2j),
        lambda: rl.linalg.norm(x, 1, (0, 1, 2)),
        lambda: rl.linalg.vector_norm(rl.ones(0), -1),
        lambda: rl.histogram(rl.ones(2), rl.ones(1)),
        lambda: rl.histogramdd(rl.ones(3, 0), []),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: x.argmax(dim=[0]), lambda: x.argmin((0, 1))):
        with pytest.raises(TypeError, match="dim"):
            call()
    assert rl.sum(a=x).item() == rl.sum(x=x).item() == 8
    assert rl.tensor(True).to_sparse().to_dense().item() is True


# ---- types and names ----


def test_functions_that_take_or_give_one_type():
    x = rl.tensor([1.5, INF])
    for call in (
        lambda: rl.frexp(x.int()),
        lambda: rl.isposinf(x, out=rl.empty(2, dtype=rl.uint8)),
        lambda: rl.nonzero_static(x, size=1, out=rl.empty(1, 1)),
        lambda: rl.einsum(". ..", x),
        lambda: rl._int_mm(x, x),
    ):
        with pytest.raises(RuntimeError):
            call()
    a = rl.full((2, 3), 100, dtype=rl.int8)
    assert rl._int_mm(a, a.T).tolist() == [[30000, 30000]] * 2


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_functions_that_pytorch_removed_say_what_to_use(name):
    with pytest.raises(RuntimeError, match="use linalg"):
        getattr(rl, name)(rl.eye(2), rl.eye(2))


def test_a_segment_of_no_data_keeps_its_record():
    x = rl.ones(0, requires_grad=True)
    rl.segment_reduce(x, "max", lengths=rl.tensor([0, 0]), initial=1.0).sum().backward()
    assert x.grad.shape == (0,)


def test_hardshrink_compares_in_the_type_of_its_elements():
    x = rl.tensor([0.3, 0.7], dtype=rl.bfloat16)
    assert rl.nn.functional.hardshrink(x, 0.3).tolist()[0] == 0


def test_a_loss_that_depends_on_free_angles_is_refused():
    rl.manual_seed(3)
    a = rl.randn(3, 3, dtype=rl.complex128)

    def of_svd(x):
        u, _, vh = rl.linalg.svd(x)
        return u + vh

    for vectors in (of_svd, lambda x: rl.linalg.eig(x)[1], lambda x: rl.linalg.eigh(x + x.mH)[1]):
        x = a.clone().requires_grad_()
        with pytest.raises(RuntimeError, match="ill-defined"):
            vectors(x).sum().abs().backward()
    x = a.clone().requires_grad_()
    rl.linalg.eigh(x + x.mH)[1].abs().square()[0, 0].backward()  # a size does not change with the angle
    assert x.grad.abs().max().item() > 0
    for call in (lambda: rl.add(rl.ones(2), rl.ones(2), alpha=1j), lambda: rl.trapezoid(rl.ones(2, 2), dx=1j)):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.parametrize("dtype", [rl.float64, rl.complex128], ids=["float64", "complex128"])
def test_low_ranks_of_sparse_matrices(dtype):
    rl.manual_seed(4)
    for shape in ((9, 5), (5, 9)):
        dense = rl.randn(*shape, dtype=dtype) * (rl.rand(*shape) < 0.4)
        for centre in (False, True):
            u, s, v = rl.pca_lowrank(dense.to_sparse(), q=5, center=centre, niter=4)
            want = dense - dense.mean(0, keepdim=True) if centre else dense
            assert rl.allclose((u * s) @ v.mH, want), (shape, centre)
        u, s, v = rl.svd_lowrank(dense.to_sparse(), q=5, M=rl.ones_like(dense))
        assert rl.allclose((u * s) @ v.mH, dense - 1)
    with pytest.raises(RuntimeError, match="q is at most"):
        rl.svd_lowrank(dense.to_sparse(), q=6)


def test_calls_that_say_two_things_are_refused():
    y = rl.ones(3)
    for name in ("trapezoid", "cumulative_trapezoid"):
        with pytest.raises(TypeError, match="got both"):
            getattr(rl, name)(y, y, dx=2.0)
    assert rl.trapezoid(y, dx=2.0).item() == 4
    with pytest.raises(RuntimeError, match="subscripts"):
        rl.einsum("a", y, y)
