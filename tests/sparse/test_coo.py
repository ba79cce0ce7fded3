"""Sparse tensors against the dense ones they stand for, on every device; gradients.

PyTorch's text and errors.
"""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import rushlight as rl
import rushlight as torch
from rushlight import nn, sparse
from rushlight.core.errors import LayoutError

AT = [[0, 1, 1, 0, 2], [2, 0, 2, 2, 3]]  # (0, 2) is there twice
OF = [3.0, -4.0, 5.0, 6.0, 0.5]
DENSE = np.zeros((3, 4), np.float32)
np.add.at(DENSE, tuple(AT), np.array(OF, np.float32))
RIGHT = np.random.default_rng(3).standard_normal((4, 2)).astype(np.float32)
OTHER = np.where(np.random.default_rng(4).random((3, 4)) < 0.5, np.float32(1.5), 0).astype(
    np.float32
)


def example(device="cpu", **named):
    return torch.sparse_coo_tensor(AT, OF, (3, 4), device=device, **named)


def on(device, array):
    return torch.tensor(array, device=device)


def same(got, want, **named):
    got = got.to_dense() if got.is_sparse else got
    np.testing.assert_allclose(got.detach().cpu().numpy(), want, rtol=1e-5, atol=1e-6, **named)


# ---- what it is ----


def test_parts(device):
    x = example(device)
    assert (x.shape, x.size(), x.size(-1), x.dim(), x.ndim, x.numel(), len(x)) == (
        (3, 4),
        (3, 4),
        4,
        2,
        2,
        12,
        3,
    )
    assert (x.sparse_dim(), x.dense_dim(), x._nnz(), x.dtype) == (2, 0, 5, torch.float32)
    assert (
        x.is_sparse and x.layout is torch.sparse_coo and not x.is_coalesced() and x.device == device
    )
    assert x._indices().tolist() == AT and x._values().tolist() == OF
    same(x, DENSE)
    whole = x.coalesce()
    assert whole.is_coalesced() and whole.coalesce() is whole
    assert whole.indices().tolist() == [[0, 1, 1, 2], [2, 0, 2, 3]] and whole.values().tolist() == [
        9,
        -4,
        5,
        0.5,
    ]
    assert whole.indices().dtype is torch.int64


def test_it_is_a_tensor_and_dense_tensors_are_not_sparse():
    x, dense = example(), torch.ones(2)
    assert isinstance(x, torch.Tensor) and torch.is_tensor(x)
    assert not dense.is_sparse and dense.layout is torch.strided and dense.to_dense() is dense
    assert torch.numel(x) == 12 and torch.is_floating_point(x) and not torch.is_complex(x)
    assert dense.to_sparse_coo().is_sparse and x.to_sparse_coo() is x
    with pytest.raises(RuntimeError, match="sparse tensor is needed"):
        dense.coalesce()


def test_from_dense(device):
    x = on(device, OTHER).to_sparse()
    assert x.is_coalesced() and x._nnz() == np.count_nonzero(OTHER)
    assert x.indices().tolist() == [list(part) for part in np.nonzero(OTHER)]
    same(x, OTHER)
    rows = on(device, np.array([[0, 0], [1, 0], [2, 3]], np.float32)).to_sparse(1)
    assert (rows.sparse_dim(), rows.dense_dim(), rows._nnz()) == (1, 1, 2)
    same(rows, [[0, 0], [1, 0], [2, 3]])
    assert on(device, np.zeros((2, 3), np.float32)).to_sparse()._nnz() == 0


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int32, torch.int64, torch.bool, torch.complex64]
)
def test_types(dtype):
    x = example().to(dtype)
    assert x.dtype is dtype and x._indices().dtype is torch.int64
    want = torch.tensor(OF).to(dtype)
    assert x._values().tolist() == want.tolist()
    dense = x.to_dense()
    assert dense.dtype is dtype and dense[1, 0] == want[1] and not dense[0, 0]
    assert x.coalesce().to_dense().tolist() == dense.tolist()


def test_sizes_are_found_and_zeros_need_none():
    assert torch.sparse_coo_tensor(AT, OF).shape == (3, 4)
    assert torch.sparse_coo_tensor([[0, 4]], [[1.0, 2.0], [3.0, 4.0]]).shape == (5, 2)
    for none in (
        torch.sparse_coo_tensor((2, 3)),
        torch.sparse_coo_tensor(size=(2, 3), dtype=torch.float32),
    ):
        assert (
            none._nnz() == 0 and none.is_coalesced() and none.to_dense().tolist() == [[0] * 3] * 2
        )
    assert (
        torch.sparse_coo_tensor(torch.zeros(2, 0), torch.zeros(0), (2, 3)).coalesce().sum().item()
        == 0
    )
    assert torch.sparse_coo_tensor(AT, OF, (3, 4), dtype=torch.float64).dtype is torch.float64


@pytest.mark.parametrize(
    "at, of, size, words",
    [
        ([[0, 3], [0, 0]], [1.0, 2.0], (3, 4), "for dim 0, size is 3 but found index 3"),
        ([[0, 1], [0, -1]], [1.0, 2.0], (3, 4), "negative index -1 for dim 1"),
        ([[0, 1], [0, 1]], [1.0, 2.0], (3,), "dimensions"),
        ([[0, 1], [0, 1]], [1.0, 2.0, 3.0], (3, 4), "same nnz"),
        ([0, 1], [1.0, 2.0], (3,), "sparse_dim x nnz"),
        ([[0, 1]], [[1.0], [2.0]], (3, 4), "does not fit"),
    ],
)
def test_bad_parts(at, of, size, words):
    with pytest.raises(RuntimeError, match=words):
        torch.sparse_coo_tensor(at, of, size)


def test_values_share_memory():
    values = torch.tensor(OF)
    x = torch.sparse_coo_tensor(AT, values, (3, 4))
    values.mul_(2)
    same(x, 2 * DENSE)
    x.mul_(0.5)
    assert values.tolist() == OF


def test_uncoalesced_has_no_indices():
    for name in ("indices", "values"):
        with pytest.raises(RuntimeError, match="not coalesced"):
            getattr(example(), name)()


# ---- products ----


def test_products(device):
    x, right = example(device), on(device, RIGHT)
    want = DENSE @ RIGHT
    for got in (
        torch.sparse.mm(x, right),
        torch.spmm(x, right),
        torch.mm(x, right),
        torch.matmul(x, right),
        x @ right,
    ):
        assert not got.is_sparse
        same(got, want)
    same(x.mm(right), want)
    same(x.coalesce().matmul(right), want)
    same(x @ right[:, 0], DENSE @ RIGHT[:, 0])
    same(torch.mv(x, right[:, 0]), DENSE @ RIGHT[:, 0])
    same(right.t() @ x.t(), want.T)
    same(torch.mm(right.t(), x.t()), want.T)
    base = on(device, np.ones((3, 2), np.float32))
    same(torch.sparse.addmm(base, x, right, beta=2, alpha=3), 2 + 3 * want)
    same(torch.addmm(base, x, right), 1 + want)
    same(
        nn.functional.linear(x, right.t(), on(device, np.float32([1, 2]))),
        want + np.float32([1, 2]),
    )


def test_sparse_times_sparse(device):
    x, y = example(device), on(device, OTHER).to_sparse()
    got = torch.sparse.mm(x, y.t())
    assert got.is_sparse and got.is_coalesced()
    same(got, DENSE @ OTHER.T)
    same(x @ torch.sparse_coo_tensor((4, 2), device=device), np.zeros((3, 2)))


def test_products_that_do_not_fit():
    x = example()
    with pytest.raises(RuntimeError, match="do not fit"):
        x @ torch.ones(3, 2)
    with pytest.raises(RuntimeError, match="one type"):
        x @ torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="dense dimensions"):
        torch.sparse_coo_tensor([[0]], [[1.0, 2.0]]) @ torch.ones(2, 2)


# ---- elements ----


def test_sums_and_differences(device):
    x, y, dense = example(device), on(device, OTHER).to_sparse(), on(device, OTHER)
    for got, want in (
        (x + y, DENSE + OTHER),
        (x - y, DENSE - OTHER),
        (torch.add(x, y, alpha=2), DENSE + 2 * OTHER),
    ):
        assert got.is_sparse and got.is_coalesced()
        same(got, want)
    for got, want in (
        (dense + x, OTHER + DENSE),
        (x + dense, OTHER + DENSE),
        (dense - x, OTHER - DENSE),
    ):
        assert not got.is_sparse
        same(got, want)
    same(torch.add(dense, x), OTHER + DENSE)
    same(torch.sub(dense, x), OTHER - DENSE)
    with pytest.raises(RuntimeError, match="zeros too"):
        x + 1


def test_scaling(device):
    x, dense = example(device), on(device, OTHER)
    for got in (
        x * 2,
        2 * x,
        x.mul(2),
        torch.mul(x, 2),
        x / 0.5,
        torch.div(x, 0.5),
        x * on(device, np.float32(2)),
    ):
        assert got.is_sparse and got._nnz() == 5
        same(got, 2 * DENSE)
    same(-x, -DENSE)
    same(x * dense, DENSE * OTHER)
    same(dense * x, DENSE * OTHER)
    same(torch.mul(dense, x), DENSE * OTHER)
    same(x * dense[:, :1], DENSE * OTHER[:, :1])
    same(x * dense[0], DENSE * OTHER[0])
    both = x * dense.to_sparse()
    assert both.is_sparse and both.is_coalesced()
    same(both, DENSE * OTHER)
    with pytest.raises(RuntimeError, match="number as divisor"):
        x / dense


@pytest.mark.parametrize(
    "name", ["abs", "sin", "tanh", "relu", "sign", "expm1", "floor", "square", "asinh"]
)
def test_functions_that_keep_zeros(name):
    want = getattr(torch.tensor(DENSE), name)()
    for got in (getattr(example(), name)(), getattr(torch, name)(example())):
        assert got.is_sparse and got.is_coalesced()
        same(got, want.numpy())
    same(abs(example()) ** 2, DENSE**2)


@pytest.mark.parametrize(
    "name", ["exp", "cos", "softmax", "sort", "reshape", "gelu", "layer_norm", "eq", "cumsum"]
)
def test_dense_ops_refuse(name):
    function = getattr(torch, name, None) or getattr(nn.functional, name)
    args = {
        "reshape": (12,),
        "softmax": (1,),
        "layer_norm": ((4,),),
        "eq": (1,),
        "cumsum": (0,),
    }.get(name, ())
    with pytest.raises(NotImplementedError, match="to_dense"):
        function(example(), *args)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x.copy_(y),
        lambda x, y: torch.add(x, x, out=y),
        lambda x, y: y.add_(x),
        lambda x, y: x.mul_(y),
    ],
)
def test_writes_refuse(write):
    with pytest.raises((LayoutError, TypeError)):
        write(torch.zeros(3, 4), example())


def test_sums_in_place(device):
    x, dense = example(device), on(device, OTHER)
    kept = dense
    dense += x
    assert dense is kept
    same(dense, OTHER + DENSE)
    same(dense.sub_(x, alpha=2), OTHER - DENSE)
    whole = x
    x += on(device, OTHER).to_sparse()
    assert x is whole
    same(x, OTHER + DENSE)
    x -= x
    same(x, 0 * DENSE)
    base = torch.zeros(3, 4, device=device).requires_grad_()
    values = on(device, np.float32(OF)).requires_grad_()
    (base * 2).add_(torch.sparse_coo_tensor(AT, values, (3, 4))).square().sum().backward()
    same(base.grad, 4 * DENSE)
    same(values.grad, 2 * DENSE[tuple(AT)])


def test_mask(device):
    x, dense = example(device), on(device, OTHER + 1)
    got = dense.sparse_mask(x)
    assert got._indices().tolist() == AT and got._values().tolist() == [
        (OTHER + 1)[i, j] for i, j in zip(*AT, strict=True)
    ]
    same(dense.to_sparse().sparse_mask(x.coalesce()), (OTHER + 1) * (DENSE != 0))
    same(on(device, OTHER).to_sparse().sparse_mask(x.coalesce()), OTHER * (DENSE != 0))


# ---- dimensions ----


def test_reductions(device):
    x = example(device)
    for got in (torch.sparse.sum(x), x.sum(), torch.sum(x), torch.sparse.sum(x, (0, 1))):
        assert not got.is_sparse
        same(got, DENSE.sum())
    for dim in (0, 1, -1):
        got = torch.sparse.sum(x, dim)
        assert got.is_sparse and got.is_coalesced()
        same(got, DENSE.sum(dim))
        same(x.sum(dim, keepdim=True), DENSE.sum(dim, keepdims=True))
    same(torch.norm(x), np.linalg.norm(DENSE))
    assert torch.sparse.sum(x, dtype=torch.int32).dtype is torch.int32
    assert x.to(torch.int32).sum().dtype is torch.int64


def test_hybrid(device):
    table = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    x = torch.sparse_coo_tensor([[3, 1, 3]], on(device, table[:3]), (5, 3, 2))
    want = np.zeros((5, 3, 2), np.float32)
    np.add.at(want, [3, 1, 3], table[:3])
    same(x, want)
    same(x.coalesce(), want)
    same(torch.sparse.sum(x, 0), want.sum(0))
    same(torch.sparse.sum(x, (1, 2)), want.sum((1, 2)))
    same(x.transpose(1, 2), want.transpose(0, 2, 1))
    same(x + x, 2 * want)
    same(x * on(device, np.float32([2, 3])), want * [2, 3])
    with pytest.raises(RuntimeError, match="mixes"):
        x.transpose(0, 1)


def test_rearranged(device):
    x = example(device)
    same(x.t(), DENSE.T)
    same(x.T, DENSE.T)
    same(torch.transpose(x, 0, 1), DENSE.T)
    same(x.permute(1, 0).unsqueeze(1), DENSE.T[:, None])
    same(x[0], DENSE[0])
    same(x[-1], DENSE[-1])
    same(x[:, 2], DENSE[:, 2])
    assert x[0, 2].item() == 9 and x[0, 0].item() == 0
    index = on(device, np.array([2, 0, 0]))
    same(x.index_select(0, index), DENSE[[2, 0, 0]])
    same(torch.index_select(x, 1, index), DENSE[:, [2, 0, 0]])
    same(torch.cat([x, x * 2], 1), np.concatenate([DENSE, 2 * DENSE], 1))
    same(torch.stack([x, x * 2], -1), np.stack([DENSE, 2 * DENSE], -1))
    assert torch.zeros_like(x)._nnz() == 0
    with pytest.raises(IndexError):
        x[3]
    with pytest.raises(IndexError):
        x.index_select(0, index + 1)


def test_softmax(device):
    x = example(device)
    there = np.where(DENSE != 0, np.exp(DENSE), 0)
    for dim in (0, 1):
        total = there.sum(dim, keepdims=True)
        want = np.divide(there, total, out=np.zeros_like(there), where=total > 0)
        same(torch.sparse.softmax(x, dim), want)
        logs = torch.sparse.log_softmax(x, dim)
        np.testing.assert_allclose(np.exp(logs._values().cpu().numpy()), want[want > 0], rtol=1e-5)


# ---- gradients ----


def test_gradients_of_a_leaf_and_a_dense_operand(device):
    x, right = example(device, requires_grad=True), on(device, RIGHT).requires_grad_()
    assert x.requires_grad and x.is_leaf
    weight = on(device, np.float32([[1, 2], [3, 4], [5, 6]]))
    (torch.sparse.mm(x, right) * weight).sum().backward()
    same(right.grad, DENSE.T @ weight.cpu().numpy())
    assert x.grad.is_sparse and x.grad._nnz() == 4
    same(x.grad, (weight.cpu().numpy() @ RIGHT.T) * (DENSE != 0))
    x.grad = None
    assert x.grad is None


def test_gradient_to_the_values(device):
    values = on(device, np.float32(OF)).requires_grad_()
    x = torch.sparse_coo_tensor(AT, values, (3, 4))
    assert x.requires_grad and not x.is_leaf and not x._values().requires_grad
    (x @ on(device, RIGHT)).sum().backward()
    np.testing.assert_allclose(values.grad.cpu().numpy(), RIGHT.sum(1)[AT[1]], rtol=1e-5)
    values.grad = None
    (x.coalesce().values() ** 2).sum().backward()
    np.testing.assert_allclose(values.grad.cpu().numpy(), 2 * DENSE[tuple(AT)], rtol=1e-5)


def test_nothing_passes_a_gradient_of_zero():
    """A graph without edges still trains: the gradient is zero, not absent."""
    values, right = torch.zeros(0).requires_grad_(), torch.tensor(RIGHT).requires_grad_()
    x = torch.sparse_coo_tensor(torch.zeros(2, 0), values, (3, 4))
    (x @ right).sum().backward()
    assert values.grad.shape == (0,) and right.grad.tolist() == [[0, 0]] * 4
    base, none = torch.tensor([-0.0, 1.0]).requires_grad_(), torch.ones(2).requires_grad_()
    out = base.scatter_add(0, torch.zeros(0, dtype=torch.int64), none)
    out.backward(torch.tensor([2.0, 3.0]))
    assert (
        str(out.tolist()) == "[-0.0, 1.0]"
        and base.grad.tolist() == [2, 3]
        and none.grad.tolist() == [0, 0]
    )


def test_every_function_passes_the_gradient():
    other = torch.tensor(OTHER + 1, dtype=torch.float64)
    chain = [
        lambda x: x * other,
        lambda x: other + x,
        lambda x: x + other.to_sparse(),
        lambda x: x * other.to_sparse(),
        lambda x: x @ x.t(),
        lambda x: torch.sparse.sum(x * x, 1),
        lambda x: torch.sparse.softmax(x, 1),
        lambda x: torch.sparse.log_softmax(x, 0),
        lambda x: x.index_select(0, torch.tensor([0, 0, 1])).tanh(),
        lambda x: torch.cat([x, x])[3],
        lambda x: x.to_dense().cumsum(0),
    ]
    near = torch.tensor([1e-6, -2e-6, 1.5e-6, 0.7e-6, 3e-6], dtype=torch.float64)
    for function in chain:

        def total(values, function=function):
            out = function(torch.sparse_coo_tensor(AT, values, (3, 4)))
            return ((out.to_dense() + 0.3) ** 3).sum()

        values = torch.tensor(OF, dtype=torch.float64).requires_grad_()
        (slope,) = torch.autograd.grad(total(values), values, create_graph=True)
        numeric = (total(values.detach() + near) - total(values.detach() - near)) / 2
        assert numeric.item() == pytest.approx((slope.detach() * near).sum().item(), rel=1e-5)
        (second,) = torch.autograd.grad((slope * near).sum(), values, allow_unused=True)
        ahead, behind = values.detach() + near, values.detach() - near
        change = []
        for moved in (ahead, behind):
            moved.requires_grad_()
            change.append((torch.autograd.grad(total(moved), moved)[0] * near).sum().item())
        assert (change[0] - change[1]) / 2 == pytest.approx(
            (second * near).sum().item(), rel=1e-4, abs=1e-18
        )


def test_grad_of_a_sparse_input():
    x = example(requires_grad=True)
    (slope,) = torch.autograd.grad((x @ torch.tensor(RIGHT)).sum(), x)
    assert slope.is_sparse and x.grad is None
    same(slope, RIGHT.sum(1) * (DENSE != 0))


def test_views_are_no_leaves():
    x = example(requires_grad=True)
    y = x.t()
    assert y.requires_grad and not y.is_leaf and not x.detach().requires_grad
    y.detach_()
    assert not y.requires_grad and x.requires_grad
    y = x.t()
    free = example()
    free.t().requires_grad_()
    assert not free.requires_grad
    torch.sparse.sum(y, 0).backward(torch.tensor(np.float32([1, 2, 3])))
    same(x.grad, np.float32([[1], [2], [3]]) * (DENSE != 0))


def test_a_function_may_save_a_sparse_tensor():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, right):
            x = torch.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(x, right)
            return torch.matmul(x, right)

        @staticmethod
        def backward(ctx, g):
            x, right = ctx.saved_tensors
            at = x._indices()
            whole = g.matmul(right.t()).reshape(-1)
            return None, whole[at[0] * x.shape[1] + at[1]], None, x.t().matmul(g)

    values, right = torch.tensor(OF).requires_grad_(), torch.tensor(RIGHT).requires_grad_()
    Product.apply(torch.tensor(AT), values, (3, 4), right).sum().backward()
    np.testing.assert_allclose(values.grad.numpy(), RIGHT.sum(1)[AT[1]], rtol=1e-5)
    same(right.grad, np.repeat(DENSE.sum(0)[:, None], 2, 1))
    with pytest.raises(RuntimeError, match="indices and values"):
        Product.apply(example(requires_grad=True), values, (3, 4), right)


# ---- copies, files, text, modules ----


def test_copies():
    x = example(requires_grad=True)
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.requires_grad and made.is_leaf and made._indices().tolist() == AT
        same(made, DENSE)
    file = io.BytesIO()
    torch.save({"adj": x.coalesce().detach()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="reference")["adj"]
    assert (
        loaded.is_coalesced()
        and loaded.device == "reference"
        and loaded._indices().device == "reference"
    )
    same(loaded, DENSE)
    assert x.double().dtype is torch.float64 and x.to("cpu") is x and x.cpu() is x


def test_in_a_module():
    module = nn.Module()
    module.register_buffer("adj", example())
    module.double()
    layer = nn.Linear(4, 2)
    same(layer(example()), layer(torch.tensor(DENSE)).detach().numpy())
    assert module.adj.dtype is torch.float64
    other = nn.Module()
    other.register_buffer("adj", torch.sparse_coo_tensor((3, 4)))
    other.load_state_dict(module.state_dict())
    same(other.adj, DENSE)
    assert other.adj.dtype is torch.float32


def test_text():
    assert str(example()) == (
        "tensor(indices=tensor([[0, 1, 1, 0, 2],\n"
        "                       [2, 0, 2, 2, 3]]),\n"
        "       values=tensor([ 3.0000, -4.0000,  5.0000,  6.0000,  0.5000]),\n"
        "       size=(3, 4), nnz=5, layout=rushlight.sparse_coo)"
    )
    assert repr(torch.sparse_coo_tensor((2, 3), dtype=torch.float64, requires_grad=True)) == (
        "tensor(indices=tensor([], size=(2, 0)),\n"
        "       values=tensor([], size=(0,)),\n"
        "       size=(2, 3), nnz=0, dtype=rushlight.float64, layout=rushlight.sparse_coo,\n"
        "       requires_grad=True)"
    )
    assert f"{example()}" == str(example()) and example().type() == "torch.sparse.FloatTensor"


def test_older_names():
    x = sparse.FloatTensor(torch.tensor(AT), torch.tensor(OF), torch.Size((3, 4)))
    same(x, DENSE)
    assert isinstance(x, sparse.FloatTensor) and not isinstance(x, sparse.LongTensor)
    assert sparse.LongTensor(2, 3).shape == (2, 3) and sparse.LongTensor(2, 3).dtype is torch.int64


def test_a_graph_network_learns(device):
    """Two rounds of features passed along edges: the same loss as with the dense matrix, step by
    step.
    """
    losses = []
    features = on(device, np.eye(4, dtype=np.float32))
    for way in (lambda a, h: torch.spmm(a, h), lambda a, h: a.to_dense() @ h):
        edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], device=device)
        adjacent = torch.sparse_coo_tensor(
            edges, torch.ones(6, device=device) / 2, (4, 4)
        ).coalesce()
        first = on(device, np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)).requires_grad_()
        second = on(device, np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)).requires_grad_()
        target = torch.tensor([0, 0, 1, 1], device=device)
        losses.append([])
        for _ in range(3):
            hidden = torch.relu(way(adjacent, features @ first))
            loss = nn.functional.cross_entropy(way(adjacent, hidden @ second), target)
            loss.backward()
            losses[-1].append(loss.item())
            with torch.no_grad():
                for weight in (first, second):
                    weight -= weight.grad
                    weight.grad = None
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]


def test_a_tensor_that_says_which_slice_stays_as_it_is():
    index = torch.tensor([-3])
    assert torch.select(torch.eye(3).to_sparse(), 1, index).to_dense().tolist() == [1.0, 0.0, 0.0]
    assert index.tolist() == [-3]


def test_dense_tensors_have_no_sparse_dimensions():
    assert (rl.ones(2, 3).sparse_dim(), rl.ones(2, 3).dense_dim()) == (0, 2)
