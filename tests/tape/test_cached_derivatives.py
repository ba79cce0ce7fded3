"""Programs of derivatives give the rule's own bits. See Note [Derivatives]."""

from __future__ import annotations  # noqa: I001

import pytest

import rushlight as rl
from rushlight.core.dtypes import float32
from rushlight.nn import functional as F
from rushlight.ops.nn import cross_entropy
from rushlight.ops.family.rowwise import call_rows
from rushlight.tape.program.derivative import Derivative
from rushlight.tape.program.trace import trace
from rushlight.tape.record.op import Grad
from rushlight.tape.walk import backward
from tests.catalog.rows import ROWS
from tests.catalog.run import call, samples_of


def gradients(row, sample, device):
    """The gradients of every leaf, for a gradient of ones times each result's number."""
    rl.manual_seed(0)  # some draw a random start
    leaves: list[rl.Tensor] = []
    made = [t for t in call(row, sample, float32, device, leaves=leaves) if t.requires_grad]
    if not made:
        return []
    try:
        found = rl.autograd.grad(
            made, leaves, [rl.ones_like(t) * (i + 1) for i, t in enumerate(made)], allow_unused=True
        )
    except rl.NotDifferentiable as error:
        return str(error)
    return [None if g is None else g.detach().cpu().numpy().tobytes() for g in found]


DIFFERENTIABLE = [
    row for row in ROWS if float32 in row.dtypes and not row.random and samples_of(row, float32)
]


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=repr)
def test_every_derivative_gives_the_rules_bits(row, monkeypatch):
    samples = [s for s in samples_of(row, float32) if s.smooth][:2]
    for sample in samples:
        with monkeypatch.context() as patched:
            for name in ("recall", "by_program"):
                patched.setattr(backward, name, lambda *_: None)
            want = gradients(row, sample, "cpu")
        for _ in range(3):  # traced, and twice by the program
            assert gradients(row, sample, "cpu") == want


def count_rules(monkeypatch):
    """How often a rule itself runs."""
    ran = []
    before = backward.spread_values

    def counting(node, outs, saved):
        ran.append(node)
        return before(node, outs, saved)

    monkeypatch.setattr(backward, "spread_values", counting)
    return ran


def test_the_rule_runs_once_and_other_values_are_seen(device, monkeypatch):
    ran = count_rules(monkeypatch)
    w = rl.rand(5, 7, device=device, requires_grad=True)
    for turn in range(5):
        x = rl.rand(3, 7, device=device) + turn
        (g,) = rl.autograd.grad(F.linear(x, w).sum(), w)
        assert rl.allclose(g, x.sum(0).expand(5, 7), rtol=1e-5)
    assert 0 < len(ran) <= 3  # linear, sum and what it is made of


def test_dropout_has_its_own_mask_every_time():
    x = rl.rand(64, 64, requires_grad=True)
    for _ in range(5):
        y = F.dropout(x @ x, 0.5)
        (g,) = rl.autograd.grad(y.sum(), x)
        mask = (y != 0).float() * 2
        assert rl.allclose(g, mask @ x.t() + x.t() @ mask, rtol=1e-4)


def test_layouts_are_learned_apart():
    w = rl.rand(4, 4, requires_grad=True)
    for _ in range(3):
        for x in (rl.rand(4, 4), rl.rand(4, 4).t(), rl.rand(4, 8)[:, ::2]):
            (g,) = rl.autograd.grad((x @ w).sum(), w)
            assert rl.allclose(g, x.t() @ rl.ones(4, 4), rtol=1e-5)


def test_one_tensor_in_two_places():
    x = rl.rand(4, 4, requires_grad=True)
    for turn in range(4):
        y = rl.rand(4, 4)
        (g,) = rl.autograd.grad((x @ x).sum(), x)
        ones = rl.ones(4, 4)
        assert rl.allclose(g, ones @ x.t() + x.t() @ ones, rtol=1e-5)
        (g,) = rl.autograd.grad((x @ y).sum(), x)
        assert rl.allclose(g, ones @ y.t(), rtol=1e-5), turn


def test_derivatives_of_one_form_share_their_code():
    def code_of(size):
        x, w = rl.ones(size, requires_grad=True), rl.ones(size)
        for _ in range(2):
            y = x * w
            node = y.grad_fn
            y.backward(rl.ones(size))
        (found,) = node.grad.programs.values()
        return found.run.__code__

    assert code_of(5) is code_of(7)


@pytest.mark.parametrize("act", [lambda x, w: x * w, lambda x, w: x.tanh()])
def test_saves_that_were_freed_or_written_to_are_refused(act):
    x, g = rl.ones(4, requires_grad=True), rl.ones(4)
    for _ in range(2):  # the second pass runs the program
        y = act(x, rl.ones(4))
        y.backward(g)
    with pytest.raises(rl.GraphFreedError):
        y.backward(g)
    w = rl.ones(4)
    y = act(x, w)
    w.add_(1)
    y.add_(1)
    with pytest.raises(rl.InplaceError):
        y.backward(g)


def test_a_call_that_saves_nothing_runs_again_by_its_program(monkeypatch):
    x = rl.ones(4, requires_grad=True)
    (x + 1).backward(rl.ones(4))
    y = x + 1
    y.backward(rl.ones(4))
    ran = count_rules(monkeypatch)
    y.backward(rl.ones(4))
    assert not ran
    assert x.grad.tolist() == [3.0] * 4


def test_a_launch_that_no_gradient_reads_is_left_out():
    g = rl.ones(4)
    _, program = trace(lambda: (g, rl.exp(g))[0], [g])
    assert len(program.steps) == 1
    made = Derivative.of(program, Grad(1, (), (), rl.exp), 1, 0).run(None, False, g)
    assert made == ((g,), (False,))


def test_hundreds_of_gradients_and_operands():
    x = rl.arange(600.0).reshape(300, 2).requires_grad_()
    for _ in range(3):
        x.grad = None
        rows = x.unbind(0)
        rl.stack([row * i for i, row in enumerate(rows) if i % 2]).sum().backward()
        assert x.grad[:, 0].tolist() == [float(i) if i % 2 else 0.0 for i in range(300)]


def test_second_derivatives_after_programs():
    x = rl.rand(4, 4, requires_grad=True)
    for _ in range(4):
        rl.autograd.grad((x @ x).sum(), x)
    (g,) = rl.autograd.grad((x @ x @ x).sum(), x, create_graph=True)
    assert g.requires_grad
    (h,) = rl.autograd.grad(g.sum(), x)
    assert rl.autograd.gradgradcheck(
        lambda v: (v @ v @ v).sum(), x.detach().double().requires_grad_()
    )
    assert h.shape == x.shape


def test_in_a_checkpoint_and_a_budget_after_programs():
    w = rl.rand(64, 64, requires_grad=True)

    def step(v):
        return rl.tanh(F.linear(v, w)).softmax(-1)

    x = rl.rand(64, 64)
    for _ in range(4):
        (want,) = rl.autograd.grad((step(step(x)) * x).sum(), w)
    (kept,) = rl.autograd.grad(
        (rl.utils.checkpoint.checkpoint(lambda v: step(step(v)), x) * x).sum(), w
    )
    assert kept.numpy().tobytes() == want.numpy().tobytes()
    with rl.memory.budget(rl.memory.allocated() + (1 << 20)):
        (kept,) = rl.autograd.grad((step(step(x)) * x).sum(), w)
    assert kept.numpy().tobytes() == want.numpy().tobytes()


def test_intermediates_go_with_their_last_reader():
    x = rl.rand(256, 256, requires_grad=True)
    peaks = []
    for _ in range(4):
        y = x.softmax(-1).cumsum(0).softmax(0).sum()
        rl.memory.reset_peak()
        y.backward()
        x.grad = None
        peaks.append(rl.memory.peak())
    assert peaks[3] <= peaks[0]


def _several(x):
    """Calls along rows with several results."""
    return {
        "loss and level": lambda: call_rows(
            cross_entropy._cross_entropy(-100),
            (x, rl.zeros(5, 1, dtype=rl.int64, device=x.device)),
            1,
            False,
        ),
        "var_mean": lambda: rl.var_mean(x, 1),
        "aminmax": lambda: tuple(rl.aminmax(x, dim=1)),
    }


@pytest.mark.parametrize("name", list(_several(None)))
def test_a_gradient_that_did_not_come_counts_as_zeros(name, device):
    x = rl.randn(5, 6, device=device, requires_grad=True)
    outs = _several(x)[name]()
    for alone in range(len(outs)):
        g = rl.rand(outs[alone].shape, device=device)
        zeros = [g if i == alone else rl.zeros_like(out) for i, out in enumerate(outs)]
        (want,) = rl.autograd.grad(outs, x, zeros, retain_graph=True)
        (got,) = rl.autograd.grad(outs[alone], x, g, retain_graph=True)
        assert rl.allclose(got, want, rtol=1e-6, atol=1e-7)


def test_the_mean_over_kept_targets_to_second_order(device):
    x = rl.randn(7, 5, device=device, requires_grad=True)
    y = rl.tensor([0, 4, 2, 2, 3, 1, 2], device=device)
    for _ in range(3):
        loss = F.cross_entropy(x, y, ignore_index=2)
        kept = y != 2
        want = F.cross_entropy(x, y, ignore_index=2, reduction="sum") / kept.sum()
        for a, b in zip(_two_orders(loss, x), _two_orders(want, x), strict=True):
            assert rl.allclose(a, b, rtol=1e-5, atol=1e-7)


def _two_orders(loss, x):
    (g,) = rl.autograd.grad(loss, x, create_graph=True)
    return loss, g, rl.autograd.grad((g**3).sum(), x)[0]
