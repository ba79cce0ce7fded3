"""Layouts of results: PyTorch's strides, and values that are dense without being contiguous.

See Note [Layouts of results].
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest

import rushlight as rl
from rushlight import Tensor, nn
from rushlight.func import jvp, vmap
from rushlight.nn import functional as F
from rushlight.utils.checkpoint import checkpoint
from tests.tensor import strides_table

LAST = rl.channels_last


def images(*sizes: int) -> Tensor:
    return rl.randn(*sizes or (2, 3, 4, 5)).to(memory_format=LAST)


@pytest.mark.parametrize("source", strides_table.read())
def test_strides_are_pytorchs(source):
    rl.manual_seed(0)
    wanted = strides_table.read()[source]
    found = {e: strides_table.evaluated(rl, source, e) for e in wanted}
    wrong = [f"{e}: {found[e]}, expected {wanted[e]}" for e in wanted if found[e] != wanted[e]]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_all_kinds():
    table = strides_table.read()
    assert len(table) > 9 and sum(map(len, table.values())) > 600


def test_unsqueeze_gives_pytorchs_stride():
    x = images()
    assert x.unsqueeze(-1).stride() == (60, 1, 15, 3, 1)
    assert x.unsqueeze(1).stride() == (60, 3, 1, 15, 3)
    assert x.as_strided((2, 1, 3), (3, 100, 1))[None].stride() == (6, 3, 100, 1)
    assert rl.stack([x, x], -1).is_contiguous()


# ---- values without a base ----


def test_a_dense_result_is_no_view(device):
    x = images().to(device)
    assert x.is_contiguous(memory_format=LAST) and not x.is_contiguous()
    for y in (x, x + 1, x.relu(), x.clone(), x.double() if device != "webgpu" else x, -x * x):
        assert y._base is None and not y._is_view() and y.stride() == (60, 1, 15, 3)
        assert y.storage_offset() == 0 and y.untyped_storage().nbytes() == y.nbytes
    assert rl.equal((x + 1).cpu(), x.cpu().contiguous() + 1)


def test_one_block_for_a_result():
    x = images(4, 8, 16, 16)
    before = rl.memory.allocated()
    y = x * x + x
    assert rl.memory.allocated() - before == y.nbytes


def test_results_of_large_composites_are_no_views():
    rl.manual_seed(0)
    x = images(8, 32, 64, 64).requires_grad_()
    norm = nn.BatchNorm2d(32)
    for _ in range(2):  # traced, and by its program
        y = norm(x * 1)
        assert y._base is None and y.is_contiguous(memory_format=LAST)
        z = y.relu_()
        assert z is y
    y.sum().backward()
    want = x.detach().contiguous().requires_grad_()
    nn.BatchNorm2d(32)(want * 1).relu().sum().backward()
    assert rl.allclose(x.grad, want.grad, atol=1e-5)


def test_parameters_stay_leaves():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    first = net[0].weight
    net.to(memory_format=LAST)
    assert net[0].weight is first and first.is_leaf and first._base is None
    assert first.stride() == (27, 1, 9, 3)
    net(images(2, 3, 8, 8)).sum().backward()
    assert first.grad.stride() == first.stride() and first.grad._base is None
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin[0].weight.stride() == first.stride() and twin[0].weight._base is None
        assert rl.equal(twin[0].weight, first)
    file = io.BytesIO()
    rl.save(net.state_dict(), file)
    file.seek(0)
    again = rl.load(file)["0.weight"]
    assert again.stride() == first.stride() and rl.equal(again, first)


def test_optimizers_keep_the_layout_of_their_state():
    p = images().requires_grad_()
    p.sum().backward()
    first, second = rl.optim.Adam([p]), rl.optim.Adam([p])
    first.step()
    second.load_state_dict(first.state_dict())
    for name in ("exp_avg", "exp_avg_sq"):
        assert first.state[p][name].stride() == second.state[p][name].stride() == p.stride()


def test_pickled_strides_are_checked():
    make, given, *_ = images().__reduce__()
    assert given[-1] == (60, 1, 15, 3)
    for strides in ((60, 1, 15, 4), (60, 1, 15), (0, 1, 15, 3), (60, 1, -15, 3)):
        with pytest.raises(rl.RushlightError, match="strides"):
            make(*given[:-1], strides)


# ---- writes ----

WRITES: dict[str, Callable[[Tensor], object]] = {
    "whole": lambda y: y.mul_(2),
    "by a tensor": lambda y: y.add_(rl.ones(y.shape)),
    "select": lambda y: y[0].mul_(2),
    "channel": lambda y: y[:, 1].exp_(),
    "slice": lambda y: y[:, :, 1:3, ::2].mul_(rl.full((2, 3), 3.0)),
    "assigned": lambda y: y.__setitem__((slice(None), 1), 3.0),
    "transposed": lambda y: y.transpose(1, 3)[:, 2].sin_(),
    "view of a view": lambda y: y.permute(0, 2, 3, 1).view(-1)[7:40].mul_(3),
    "copied": lambda y: y[1].copy_(y[0].detach()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_to_dense_results_and_their_views(write):
    """Gradients are those of the same elements in row-major order, written by positions."""
    rl.manual_seed(0)
    x = images().requires_grad_()
    y = x * 2
    other = y.permute(0, 2, 3, 1)  # recorded again after the write
    write(y)
    weights = rl.randn(2, 3, 4, 5)
    (y * weights).sum().backward(retain_graph=True)
    got = x.grad
    x.grad = None
    (other * weights.permute(0, 2, 3, 1)).sum().backward()
    assert rl.equal(x.grad, got) and got.stride() == x.stride()

    def f(base: Tensor) -> Tensor:
        """The same by a contiguous base of the same memory."""
        seen = base.permute(0, 3, 1, 2)
        write(seen)
        return seen

    twin = x.detach().permute(0, 2, 3, 1).requires_grad_()
    made = f(twin * 2)
    assert rl.equal(made, y)
    (made * weights).sum().backward()
    assert rl.equal(twin.grad.permute(0, 3, 1, 2), got)


def test_versions_and_data():
    x = images().requires_grad_()
    y = x.exp()
    y.data.mul_(2)
    assert y._version == 0
    y.mul_(2)
    assert y._version == 1
    with pytest.raises(rl.RushlightError, match="in place"):
        z = x.exp()
        z.mul_(2)
        z.exp_()
        z2 = x.exp()
        kept = z2 * z2
        z2.add_(1)
        kept.sum().backward()
    x.data = rl.zeros(2, 3, 4, 5)
    assert x.is_leaf and x.stride() == (60, 20, 5, 1)
    (x * 2).sum().backward()
    assert x.grad.stride() == (60, 20, 5, 1)
    x.data, x.grad = images(), None
    (x * 2).sum().backward()
    assert x.grad.stride() == (60, 1, 15, 3)
    z = rl.empty(0).set_(images())
    assert z._base is None and z.is_contiguous(memory_format=LAST)


# ---- bits ----


def test_random_numbers_do_not_depend_on_the_layout():
    x = rl.ones(2, 3, 4, 5)
    y = x.to(memory_format=LAST)
    for draw in (F.dropout, rl.rand_like, rl.randn_like, lambda v: rl.bernoulli(v * 0.5)):
        rl.manual_seed(3)
        first = draw(x)
        rl.manual_seed(3)
        assert rl.equal(draw(y), first)


def trained(last: bool, around: Callable[[Callable[[], Tensor]], Tensor]) -> list[Tensor]:
    rl.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),  # a bias before a norm learns rounding errors
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    x = rl.randn(4, 3, 16, 16)
    if last:
        net, x = net.to(memory_format=LAST), x.to(memory_format=LAST)
    optimiser = rl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimiser.zero_grad()
        around(lambda: F.cross_entropy(net(x), rl.arange(4))).backward()
        optimiser.step()
    return [p.detach() for p in net.parameters()]


def test_training_in_both_formats():
    for a, b in zip(trained(True, lambda f: f()), trained(False, lambda f: f()), strict=True):
        assert rl.allclose(a, b, atol=1e-4)


def test_checkpoints_and_budgets_change_no_bits():
    want = trained(True, lambda f: f())
    assert all(map(rl.equal, trained(True, lambda f: checkpoint(f, use_reentrant=False)), want))
    before = rl.memory.recomputed()["calls"]
    with rl.memory.budget(rl.memory.allocated() + 270 * 1024):
        assert all(map(rl.equal, trained(True, lambda f: f()), want))
    assert rl.memory.recomputed()["calls"] > before


# ---- transformations ----


def test_batches_of_dense_values():
    x = rl.randn(4, 3, 5).permute(2, 0, 1)

    def f(v: Tensor) -> Tensor:
        y = v * 2
        y[1].mul_(3)
        return y.t() + y.sum()

    for dim in (0, 1, 2):
        want = rl.stack([f(v) for v in x.unbind(dim)])
        assert rl.allclose(vmap(f, in_dims=dim)(x), want)


def test_tangents_of_dense_values():
    x, t = images(), rl.randn(2, 3, 4, 5)

    def f(v: Tensor) -> Tensor:
        y = v * v
        y[:, 1].mul_(v[:, 0])
        return y

    got = jvp(f, (x,), (t,))[1]
    assert rl.allclose(got, jvp(f, (x.contiguous(),), (t,))[1])


def test_moves_keep_the_layout(device):
    x = images()
    y = x.to(device)
    assert y.stride() == x.stride() and rl.equal(y.cpu(), x)
    assert (y + 1).cpu().stride() == x.stride()


def test_anomalies_are_found_in_dense_results(device):
    x = images().abs().to(device)
    x[1, 2, 3, 4] = -1
    with pytest.raises(rl.AnomalyError, match="log"), rl.autograd.detect_anomaly():
        x.log().sum().item()
