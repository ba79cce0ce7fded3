"""Sparse matrices by rows (CSR): parts, making, products, gradients.

Expected values are PyTorch 2.13's.
"""

import copy
import pickle

import pytest

import rushlight as rl

DENSE = [[0.0, 1, 0], [2, 0, 3], [0, 0, 0]]


@pytest.fixture(params=["cpu", "webgpu"])
def dense(request):
    try:
        return rl.tensor(DENSE, device=request.param)
    except rl.DeviceUnavailable as error:
        pytest.skip(str(error))


def parts(c):
    return c.crow_indices().tolist(), c.col_indices().tolist(), c.values().tolist()


def test_parts_and_metadata(dense):
    c = dense.to_sparse_csr()
    assert parts(c) == ([0, 1, 3, 3], [1, 0, 2], [1, 2, 3])
    assert (
        c.layout is rl.sparse_csr
        and c.is_sparse_csr
        and not c.is_sparse
        and not dense.is_sparse_csr
    )
    assert (
        c.shape == (3, 3) and c._nnz() == 3 and c.dtype is rl.float32 and c.device == dense.device
    )
    assert rl.equal(c.to_dense(), dense) and rl.equal(c.to_sparse().to_dense(), dense)
    assert c.to_sparse_coo().layout is rl.sparse_coo and parts(
        c.to_sparse().to_sparse_csr()
    ) == parts(c)
    assert parts(dense.to_sparse(layout=rl.sparse_csr)) == parts(c) and c.to_sparse_csr() is c
    assert parts(rl.zeros(2, 2).to_sparse_csr()) == ([0, 0, 0], [], [])


def test_text():
    assert repr(rl.tensor(DENSE).to_sparse_csr()) == (
        "tensor(crow_indices=tensor([0, 1, 3, 3]),\n       col_indices=tensor([1, 0, 2]),\n"
        "       values=tensor([1., 2., 3.]),\n       size=(3, 3), nnz=3, "
        "layout=rushlight.sparse_csr)"
    )


def test_made_of_parts():
    c = rl.sparse_csr_tensor([0, 1, 3, 3], [1, 0, 2], [1.0, 2, 3], (3, 3))
    assert c.to_dense().tolist() == DENSE
    assert rl.sparse_csr_tensor([0, 1, 3, 3], [1, 0, 2], [1.0, 2, 3]).shape == (3, 3)
    small = rl.sparse_csr_tensor(
        rl.tensor([0, 1], dtype=rl.int32), rl.tensor([0], dtype=rl.int32), rl.tensor([1.0])
    )
    assert (
        small.crow_indices().dtype is small.col_indices().dtype is rl.int32
        and (small * 2).crow_indices().dtype is rl.int32
    )
    made = rl.sparse_compressed_tensor([0, 1], [0], [1.0], (1, 1), layout=rl.sparse_csr)
    assert made.layout is rl.sparse_csr and made.to_dense().tolist() == [[1]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (([0, 2], [0], [1.0], (1, 3)), r"crow_indices\[..., -1\] == nnz"),
        (([1, 1], [0], [1.0], (1, 3)), r"crow_indices\[..., 0\] == 0"),
        (([0, 1], [5], [1.0], (1, 3)), "col_indices < ncols"),
        (([0, 2], [1, 0], [1.0, 2], (1, 3)), "sorted and distinct"),
        (([0, 2], [1, 1], [1.0, 2], (1, 3)), "sorted and distinct"),
        (([0, 2, 1], [0, 1], [1.0, 2], (2, 3)), "crow_indices"),
        (([0, 1], [0, 1], [1.0], (1, 3)), "column for each value"),
        (([0, 1], [0], [1.0], (2, 3)), "does not fit"),
    ],
)
def test_bad_parts(given, says):
    with pytest.raises(RuntimeError, match=says):
        rl.sparse_csr_tensor(*given)


def test_products(dense):
    c, b = dense.to_sparse_csr(), rl.arange(6.0, device=dense.device).reshape(3, 2)
    for got in (
        c @ b,
        c.matmul(b),
        c.mm(b),
        rl.mm(c, b),
        rl.matmul(c, b),
        rl.sparse.mm(c, b),
        rl.spmm(c, b),
    ):
        assert got.tolist() == (dense @ b).tolist() and got.layout is rl.strided
    assert (c @ b[:, 1]).tolist() == (dense @ b[:, 1]).tolist() and (b.T @ c).tolist() == (
        b.T @ dense
    ).tolist()
    for both in (c @ c, rl.sparse.mm(c, c)):
        assert both.layout is rl.sparse_csr and parts(both) == ([0, 2, 3, 3], [0, 2, 1], [2, 3, 2])
    assert rl.addmm(b, c, b, beta=2).tolist() == rl.addmm(b, dense, b, beta=2).tolist()
    assert rl.sparse.addmm(b, c, b).tolist() == rl.addmm(b, dense, b).tolist()


def test_elements():
    x = rl.tensor(DENSE)
    c = x.to_sparse_csr()
    for got, want in [
        (c * 2, x * 2),
        (2 * c, x * 2),
        (c / 2, x / 2),
        (c + c, x + x),
        (c - 3 * c, x - 3 * x),
        (-c, -x),
        (c * c, x * x),
        (c * (x + 1), x * (x + 1)),
        (c.sin(), x.sin()),
        (c.relu(), x.relu()),
        (rl.abs(c), x.abs()),
        (c.t(), x.t()),
        (c.T, x.T),
        (c.double(), x.double()),
        (c.clone(), x),
        (c.detach(), x),
        (c.to_sparse() + c, x + x),
    ]:
        assert got.layout is rl.sparse_csr and got.to_dense().tolist() == want.tolist()
    assert (x + c).tolist() == (x + x).tolist() and c.sum().item() == 6 and c[1, 2].item() == 3
    assert c[1].to_dense().tolist() == x[1].tolist()
    c *= 2
    assert c.to_dense().tolist() == (x * 2).tolist()
    assert rl.sparse.softmax(c, 1).layout is rl.sparse_csr


def test_gradients():
    values = rl.tensor([1.0, 2, 3], requires_grad=True)
    b = rl.ones(3, 2, requires_grad=True)
    c = rl.sparse_csr_tensor(rl.tensor([0, 1, 3, 3]), rl.tensor([1, 0, 2]), values, (3, 3))
    (c @ (b * rl.arange(3.0).unsqueeze(1))).sum().backward()
    assert values.grad.tolist() == [2, 0, 4] and b.grad.tolist() == [[0, 0], [1, 1], [6, 6]]
    leaf = rl.tensor(DENSE).to_sparse_csr().requires_grad_()
    (leaf @ rl.arange(3.0)).sum().backward()
    assert leaf.is_leaf and parts(leaf.grad) == ([0, 1, 3, 3], [1, 0, 2], [1, 0, 2])
    x = rl.tensor(DENSE, requires_grad=True)
    (x.to_sparse_csr() @ rl.ones(3)).sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


def test_samples_of_a_product():
    c = rl.tensor(DENSE).to_sparse_csr()
    a = rl.ones(3, 2, requires_grad=True)
    got = rl.sparse.sampled_addmm(c, a, rl.ones(2, 3))
    assert parts(got) == ([0, 1, 3, 3], [1, 0, 2], [3, 4, 5])
    got.values().sum().backward()
    assert a.grad.tolist() == [[1, 1], [2, 2], [0, 0]]
    assert rl.sparse.sampled_addmm(c, a, rl.ones(2, 3), beta=2, alpha=0.5).values().tolist() == [
        3,
        5,
        7,
    ]
    with pytest.raises(RuntimeError, match="do not make"):
        rl.sparse.sampled_addmm(c, a, rl.ones(3, 3))


def test_copies():
    c = rl.tensor(DENSE).to_sparse_csr().requires_grad_()
    for again in (copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert parts(again) == parts(c) and again.requires_grad and again.layout is rl.sparse_csr


def test_what_is_refused():
    c = rl.tensor(DENSE).to_sparse_csr()
    for refused in (
        c.indices,
        c.coalesce,
        lambda: rl.ones(2, 2, 2).to_sparse_csr(),
        lambda: rl.ones(2).crow_indices(),
    ):
        with pytest.raises(RuntimeError):
            refused()
    with pytest.raises(RuntimeError, match="sparse"):
        rl.cumsum(c, 0)
    with pytest.raises(RuntimeError, match="keeps its places"):
        c.add_(c)
    with pytest.raises(TypeError, match="to_dense"):
        c.numpy()


def test_comparison():
    c = rl.tensor(DENSE).to_sparse_csr()
    rl.testing.assert_close(c, c.clone())
    with pytest.raises(AssertionError, match="Sparse CSR values are not close"):
        rl.testing.assert_close(c, c * 2)
    with pytest.raises(AssertionError, match="Sparse CSR crow_indices are not equal"):
        rl.testing.assert_close(c, c.t())
