"""A composed op is one record, wherever and whenever it is called. See Note [Memo] 4."""

import gc

import pytest

import rushlight as rl
from rushlight.devices.shared.registry import pool_of
from rushlight.nn import functional as F
from rushlight.tape.program.known import SMALL
from rushlight.tape.program.memo import memo
from rushlight.utils.checkpoint import checkpoint

CALLS = {
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "normalize": lambda x: F.normalize(x, dim=1),
    "mse_loss": lambda x: F.mse_loss(x, x * x),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x * 2 + 1),
    "cross_entropy": lambda x: F.cross_entropy(
        x, rl.tensor([1, 0, 3], device=x.device), label_smoothing=0.1
    ),
    "einsum": lambda x: rl.einsum("ij,kj->ik", x, x + 1),
    "group_norm": lambda x: F.group_norm(x, 2, x[0] * 2, x[1] + 1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0], x[1], training=True),
    "interpolate": lambda x: F.interpolate(x.unsqueeze(0), scale_factor=1.5, mode="linear"),
    "stack": lambda x: rl.stack([x, x * x, x + 1], 1),
}


def made(device):
    return ((rl.arange(12.0).reshape(3, 4) * 7 % 5) / 3 - 0.7).to(device).requires_grad_(True)


def bits(values):
    return [v.detach().cpu().numpy().tobytes() for v in values]


def several_times(act, x):
    """x is used in more places than two, so that the order in which gradients are summed tells."""
    y = act(x)
    return (y * y).sum() + (act(x) * x.sum() * 0.3).sum() + (x * x * 1.7).sum()


@pytest.mark.parametrize("name", CALLS)
def test_the_same_bits_in_the_first_call_and_later_and_in_regions(name, device):
    act = CALLS[name]
    found = []
    for turn in range(6):
        x = made(device)
        if turn == 1:
            loss = checkpoint(lambda v: several_times(act, v), x, use_reentrant=False)
            found.append(bits([loss, *rl.autograd.grad(loss, x)]))
        elif turn == 4:
            with rl.memory.budget("64MiB"):
                loss = several_times(act, x)
                found.append(bits([loss, *rl.autograd.grad(loss, x)]))
        else:
            loss = several_times(act, x)
            found.append(bits([loss, *rl.autograd.grad(loss, x)]))
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives(name):
    act = CALLS[name]
    for _ in range(2):
        x = made("cpu").detach().double().requires_grad_(True)
        assert rl.autograd.gradcheck(act, (x,)) and rl.autograd.gradgradcheck(act, (x,))


def test_one_record_that_leads_to_the_leaves():
    for _ in range(2):
        x, y = made("cpu"), made("cpu")
        record = F.mse_loss(x, y).grad_fn
        assert record.name() == "MseLossBackward0"
        assert [node.op_name for node, _ in record.next_functions] == ["AccumulateGrad"] * 2


def test_what_is_large_is_recorded_step_by_step():
    side = int((SMALL / 4) ** 0.5) + 1
    x = rl.rand(side, side, requires_grad=True)
    for _ in range(2):
        names = {node.op_name for node, _ in x.var(1).grad_fn.next_functions if node is not None}
        assert names != {"AccumulateGrad"}


def test_a_tensor_given_twice_before_and_after_two():
    x, y = rl.rand(5, 11).requires_grad_(True), rl.rand(5, 11)

    def gradient():
        loss = F.cosine_similarity(x, x).sum() + (x * x).sum() + (x * 0.3).sum()
        return bits(rl.autograd.grad(loss, x))

    first = gradient()
    F.cosine_similarity(x, y)
    assert gradient() == first


def test_intermediate_results_are_given_back():
    x = made("cpu")
    for _ in range(3):
        x.var(1)
    before = rl.memory.allocated()
    y = x.var(1)
    with rl.no_grad():
        z = x.var(1)
    del y, z
    assert rl.memory.allocated() == before


def test_a_saved_operand_that_was_written_to_is_refused():
    for _ in range(3):
        x = made("cpu")
        v = x * 1
        loss = (
            rl.einsum("ij,kj->ik", v, made("cpu").detach()).square().sum()
            + F.cosine_similarity(v, x).sum()
        )
        v.add_(1)
        with pytest.raises(rl.InplaceError):
            loss.backward()


def test_views_at_the_end_are_views():
    for _ in range(3):
        x = made("cpu")
        a, b = rl.var_mean(x, 1)
        assert a._base is None and b._base is None
        (a.sum() + b.sum()).backward()
        whole = rl.cat([x, x * 2]).unsqueeze(0)
        assert whole.shape == (1, 6, 4)


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (2, 5, 3, 4), (6, 5, 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_moves_its_statistics_once_a_call(shape, affine, device):
    rl.manual_seed(3)
    norm = rl.nn.BatchNorm1d(5, affine=affine).to(device)
    norm.dimensions = (len(shape),)
    x = rl.rand(shape).to(device)
    dims = tuple(i for i in range(len(shape)) if i != 1)
    mean, var = rl.zeros(5), rl.ones(5)
    for _ in range(4):
        v = x.clone().requires_grad_(True)
        (norm(v) * x).sum().backward()
        mean = mean * 0.9 + x.cpu().mean(dims) * 0.1
        var = var * 0.9 + x.cpu().var(dims) * 0.1
        assert rl.allclose(norm.running_mean.cpu(), mean, rtol=1e-5)
        assert rl.allclose(norm.running_var.cpu(), var, rtol=1e-5)
    kept = norm.running_mean.clone()
    checkpoint(norm, x.clone().requires_grad_(True), use_reentrant=False).sum().backward()
    assert rl.allclose(norm.running_mean, kept * 0.9 + x.mean(dims) * 0.1, rtol=1e-5)
    kept = norm.running_mean.clone()
    norm.eval()
    column = (5,) + (1,) * (len(shape) - 2)
    scale = (norm.running_var + norm.eps).rsqrt().view(column)
    for _ in range(3):
        assert rl.allclose(norm(x), (x - kept.view(column)) * scale, rtol=1e-5, atol=1e-5)
    assert rl.equal(norm.running_mean, kept)


def test_nothing_outlives_a_call():
    pool = pool_of("cpu")

    def masked(v):
        return (
            rl.tril(v, 1)
            * rl.nn.functional.interpolate(v[None], scale_factor=2, mode="linear")[0, :, ::2]
        )

    gc.collect()
    before = pool.live
    for _ in range(3):
        x = rl.rand(7, 7, requires_grad=True)
        masked(x).sum().backward()
    del x
    gc.collect()
    assert pool.live == before  # a budget counts every byte


def test_what_is_seen_through_integers_has_no_record_at_any_call():
    @memo
    def rounded(x, y):
        return (x * 2).int().float() + y * 3

    for _ in range(4):
        x, y = rl.rand(4, requires_grad=True), rl.rand(4)
        assert not rounded(x, y).requires_grad
        assert rounded(y, x).requires_grad


def test_records_are_of_classes_with_pytorch_s_names():
    class Pair(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = 3
            return x * 2, x + 1

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h

    x = rl.ones(2, requires_grad=True)
    a, b = Pair.apply(x)
    y = (a * b).exp()
    names, at = [], y.grad_fn
    while at is not None:
        names.append(type(at).__name__)
        assert isinstance(at, rl.autograd.graph.Node) or names[-1] == "AccumulateGrad"
        at = at.next_functions[0][0] if at.next_functions else None
    assert names == ["ExpBackward0", "MulBackward0", "PairBackward", "AccumulateGrad"]
    assert y.grad_fn is y.grad_fn and type((a * b).grad_fn) is type((b * a).grad_fn)
    assert a.grad_fn.kept == 3 and y.grad_fn._saved_result is not None
    y.sum().backward()
    expected = rl.exp(rl.tensor(4.0)) * 6
    assert rl.allclose(x.grad, expected.expand(2))


def test_a_budget_counts_records_that_were_looked_at():
    def told(looks):
        with pytest.raises(rl.BudgetError) as error, rl.memory.budget("32KiB"):
            y = rl.ones(64, 64, requires_grad=True)
            for _ in range(6):
                y = y.exp().sin()
                if looks:
                    assert y.grad_fn.next_functions
            y.sum().backward()
        return str(error.value)

    assert told(False) == told(True)
