"""A gradient that nobody else holds may give its memory: Note [Derivatives] 7 and [Backward] 2."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import rushlight as rl
from rushlight import memory
from rushlight.core.dtypes import float32
from rushlight.nn import functional as F
from rushlight.tape.program.derivative import Derivative, recall
from rushlight.tape.record.op import Plans
from rushlight.tape.walk import backward
from tests.catalog.run import call, samples_of
from tests.tape.test_cached_derivatives import DIFFERENTIABLE

SIZE = 1 << 16
NBYTES = 4 * SIZE


def bits(tensors):
    return [None if t is None else t.detach().cpu().numpy().tobytes() for t in tensors]


def gradients(make, leaves, **options):
    """The bits of the gradients of `make()`."""
    return bits(rl.autograd.grad(make(), leaves, allow_unused=True, **options))


def check(make, leaves):
    """A pass that may write over gradients gives the bits of one that records, which may not."""
    want = gradients(make, leaves, create_graph=True)
    for _ in range(3):
        assert gradients(make, leaves) == want


def count_in_place(monkeypatch):
    """The derivatives that were run with a gradient that they may write over."""
    found = []
    before = Derivative.__init__

    def made(self, *args):
        before(self, *args)
        run = self.run

        def counting(node, mine, *gradients):
            if mine and self.over is not None:
                found.append(node)
            return run(node, mine, *gradients)

        self.run = counting

    monkeypatch.setattr(Derivative, "__init__", made)
    return found


def of_catalog(row, sample):
    """The gradients of a row's leaves; the row's own derivative gets a new buffer."""
    rl.manual_seed(0)
    leaves: list[rl.Tensor] = []
    made = [t * 1 for t in call(row, sample, float32, "cpu", leaves=leaves) if t.requires_grad]
    if not made:
        return []
    ones = [rl.ones_like(t) * (i + 1) for i, t in enumerate(made)]
    try:
        return bits(rl.autograd.grad(made, leaves, ones, allow_unused=True))
    except rl.NotDifferentiable:
        return []


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=repr)
def test_every_derivative_gives_the_same_bits_in_place(row, monkeypatch):
    for sample in [s for s in samples_of(row, float32) if s.smooth][:2]:
        with monkeypatch.context() as patched:
            patched.setattr(
                backward, "recall", lambda n, sums, _, *rest: recall(n, sums, (), *rest)
            )
            want = of_catalog(row, sample)
            assert of_catalog(row, sample) == want
        for _ in range(2):
            assert of_catalog(row, sample) == want


def test_a_chain_of_pointwise_derivatives_has_one_gradient(device):
    x = rl.rand(SIZE, device=device, requires_grad=True)
    for _ in range(2):
        x.grad = None
        y = x.tanh().sigmoid().sin().exp().sum()
        before = memory.allocated(device)
        memory.reset_peak(device)
        y.backward()
        assert memory.peak(device) - before < 1.5 * NBYTES


def test_a_row_derivative_is_written_over_its_gradient(device):
    x = rl.rand(64, SIZE // 64, device=device, requires_grad=True)

    def make():
        return F.softmax(x * 2, -1).tanh().sum()

    check(make, [x])
    y = make()
    before = memory.allocated(device)
    memory.reset_peak(device)
    y.backward()
    assert memory.peak(device) - before < 1.5 * NBYTES


def test_users_gradients_keep_their_bits(device):
    x = rl.rand(64, device=device, requires_grad=True)
    for _ in range(3):
        given_, y = rl.rand(64, device=device), x.tanh().exp()
        want = bits([given_])
        y.backward(given_)
        assert bits([given_]) == want


def test_hooks_keep_what_they_get(device):
    x = rl.rand(64, device=device, requires_grad=True)
    for kind in ("value", "before", "after"):
        for _ in range(3):
            kept = []
            a = x.tanh()
            b = a.exp()
            c = b.sin()
            for t in (c, b):
                if kind == "value":
                    t.register_hook(kept.append)
                elif kind == "before":
                    t.grad_fn.register_prehook(lambda outs, kept=kept: kept.extend(outs))
                else:
                    t.grad_fn.register_hook(lambda ins, outs, kept=kept: kept.extend(outs))
            b.retain_grad()
            (c * 2).sum().backward()
            at_c = rl.full((64,), 2.0, device=device)
            assert bits(kept) == bits([at_c, at_c * b.detach().cos()])
            assert bits([b.grad]) == bits(kept[1:])


def test_gradients_that_are_asked_for_stay(device):
    x = rl.rand(64, device=device, requires_grad=True)
    for _ in range(3):
        a = x.tanh()
        b = a.exp()
        found = rl.autograd.grad((b.sin() * 3).sum(), [b, a, x])
        at_b = 3 * b.detach().cos()
        assert bits(found[:2]) == bits([at_b, at_b * b.detach()])
        alone = rl.autograd.grad((x.tanh().exp().sin() * 3).sum(), [x])
        assert bits(alone) == bits(found[2:])


def test_user_functions_keep_what_they_get_and_give():
    kept = []

    class Twice(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            out = g * 2
            kept.extend((g, out))
            return out

    x = rl.rand(64, requires_grad=True)
    for _ in range(3):
        kept.clear()
        y = x.tanh()
        (Twice.apply(y).exp() * 1.0).sum().backward()
        g = (2 * y.detach()).exp()
        assert bits(kept) == bits([g, g * 2])


def test_one_gradient_for_two_readers(device):
    x, w = (rl.rand(64, device=device, requires_grad=True) for _ in range(2))

    def make():
        both = x.exp() + w.sin()  # passes one buffer to both
        skip = both.tanh() + both
        return (skip.sigmoid() + skip).exp().sum()

    check(make, [x, w])


def test_a_retained_graph_gives_the_same_bits_again(device):
    x = rl.rand(64, device=device, requires_grad=True)
    y = x.tanh().exp().sigmoid().sum()
    want = bits(rl.autograd.grad(y, [x], retain_graph=True))
    for _ in range(3):
        assert bits(rl.autograd.grad(y, [x], retain_graph=True)) == want


def test_a_sum_takes_the_memory_of_the_new_gradient():
    x = rl.rand(SIZE, requires_grad=True)

    def make():
        y = x * 2
        return (y + (y * 3).view(2, -1).t().sin().t().reshape(-1)).sum()

    check(make, [x])
    # The gradient that is passed through is another's too; that of the product is new.
    given_ = rl.ones(SIZE)
    for _ in range(2):
        y = x * 2
        z = y + y * y
        before = memory.allocated()
        memory.reset_peak()
        z.backward(given_)
        assert memory.peak() - before < 2.5 * NBYTES
        x.grad = None
    assert bits([given_]) == bits([rl.ones(SIZE)])


def test_workers_give_the_same_bits():
    x = rl.rand(1 << 16, requires_grad=True)

    def make():
        parts = [(x * k).tanh().exp().sigmoid() for k in range(1, 5)]
        return (parts[0] * parts[1] + parts[2] * parts[3]).sum()

    want = gradients(make, [x], create_graph=True)
    for _ in range(3):
        x.grad = None
        make().backward(workers=2)
        assert bits([x.grad]) == want


def test_turned_gradients_give_the_same_bits(monkeypatch):
    x = rl.rand(64, 64, requires_grad=True)
    found = count_in_place(monkeypatch)
    check(lambda: (x.tanh().t().exp().t() * 1.0).sin().sum(), [x])
    assert found


STEPS = ("tanh", "sigmoid", "exp", "relu", "softmax", "flip", "double", "view", "turn", "sum")


def step_of(name, values, i, j):
    x = values[i % len(values)]
    other = values[j % len(values)]
    if name == "softmax":
        return x.softmax(-1)
    if name == "flip":
        return x.flip(0) * 0.5
    if name == "double":
        return x + x
    if name == "view":
        return x.reshape(-1).reshape(x.shape)
    if name == "turn":
        return x.t().sin().t()
    if name == "sum":
        return x * 0.5 + other
    return getattr(x, name)()


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 6), st.integers(0, 6)),
        min_size=1,
        max_size=12,
    )
)
def test_random_graphs_give_the_same_bits(steps):
    rl.manual_seed(0)
    leaves = [rl.rand(8, 8, requires_grad=True) for _ in range(2)]

    def make():
        values = list(leaves)
        for name, i, j in steps:
            values.append(step_of(name, values, i, j))
        return values[-1].sum() + values[len(values) // 2].exp().sum()

    check(make, leaves)
    want = gradients(make, leaves, create_graph=True)
    with memory.budget(memory.allocated() + (64 << 10)):
        for _ in range(2):
            assert gradients(make, leaves) == want


def test_a_budget_has_room_for_a_derivative_over_its_gradient():
    x = rl.rand(SIZE, requires_grad=True)
    scale = rl.rand(SIZE)

    def step():
        x.grad = None
        ((x * 2).sigmoid() * scale).sum().backward()
        return bits([x.grad])

    want = step()
    x.grad = None
    for _ in range(3):
        with memory.budget(memory.allocated() + int(2.5 * NBYTES)):
            assert step() == want
        x.grad = None


def test_a_gradient_in_another_shape_is_a_value_of_its_own():
    x = rl.rand(8).requires_grad_()
    w = rl.rand(4, 8)
    for _ in range(3):  # the first pass traces the derivative
        x.grad = None
        (w @ x).sum().backward()  # the product's gradient has two dimensions
        assert x.grad._base is None and x.grad._offset == 0
        assert rl.equal(x.grad, w.sum(0))
    before = x.grad
    with memory.budget(1 << 30):
        x.grad = None
        (w @ x).sum().backward()
        assert x.grad._base is None and rl.equal(x.grad, before)


def test_a_gradient_in_another_shape_is_not_copied(launches_of):
    x, w = rl.rand(8).requires_grad_(), rl.rand(4, 8)
    g = rl.rand(4)
    for _ in range(3):
        x.grad = None
        (w @ x).backward(g)
    x.grad = None
    names = launches_of(lambda: (w @ x).backward(g))
    assert names.count("matmul") == 2 and "clone" not in names


@pytest.fixture
def launches_of(monkeypatch):
    """The names of the ops whose kernels a call launches, from plans that there are."""

    def names_of(act):
        found = []
        for reference in list(Plans.every.values()):
            plan = reference()
            if plan is not None and plan.launch is not None:

                def launch(*numbers, _launch=plan.launch, _name=plan.op.name):
                    found.append(_name)
                    return _launch(*numbers)

                monkeypatch.setattr(plan, "launch", launch)
        act()
        monkeypatch.undo()
        return found

    return names_of
