"""An optimiser is one declaration: its state, its numbers and its formula.

Every kind of step follows.
"""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import optim
from rushlight.ops.optim.formula import sqrt
from rushlight.optim.fused import FusedOptimizer


class RootStep(FusedOptimizer):
    """A step along the root of a mean, as an optimiser that the package does not have."""

    by_rows = True

    def __init__(self, params, lr=0.1, beta=0.5, weight_decay=0.0, **switches):
        options = {"lr": lr, "beta": beta, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": False, **switches})

    def kept(self, group):
        return ("mean",)

    def numbers(self, group, state):
        return {"rate": group["lr"] / state["step"], "keep": group["beta"]}

    @staticmethod
    def formula(p, g, mean, *, rate, keep):
        mean = mean * keep + g * g
        return p - rate * sqrt(mean), mean


def start() -> rl.Tensor:
    return rl.tensor([1.0, -2.0, 0.5], dtype=rl.float64)


def steps(p: rl.Tensor, optimiser: optim.Optimizer, count: int = 3) -> list[float]:
    for i in range(count):
        p.grad = rl.tensor([0.5, 1.0, -1.5], dtype=rl.float64) * (i + 1)
        optimiser.step()
    return p.tolist()


def by_hand(decay: float = 0.0, decoupled: bool = False, maximize: bool = False) -> list[float]:
    p, mean = start(), rl.zeros(3, dtype=rl.float64)
    for i in range(3):
        g = rl.tensor([0.5, 1.0, -1.5], dtype=rl.float64) * (i + 1) * (-1 if maximize else 1)
        if decoupled:
            p = p * (1 - 0.1 * decay)
        elif decay:
            g = g + p * decay
        mean = mean * 0.5 + g * g
        p = p - 0.1 / (i + 1) * mean.sqrt()
    return p.tolist()


@pytest.mark.parametrize(
    "options, want",
    [
        ({}, {}),
        ({"weight_decay": 0.3}, {"decay": 0.3}),
        (
            {"weight_decay": 0.3, "decoupled_weight_decay": True},
            {"decay": 0.3, "decoupled": True},
        ),
        ({"weight_decay": 0.3, "maximize": True}, {"decay": 0.3, "maximize": True}),
        ({"foreach": True}, {}),
        ({"fused": True}, {}),
    ],
)
def test_every_switch_follows_from_the_formula(options, want):
    p = start().requires_grad_()
    assert steps(p, RootStep([p], **options)) == pytest.approx(by_hand(**want), rel=1e-14)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.3, "maximize": True}])
def test_the_differentiable_step_has_the_same_bits_and_a_derivative(options):
    fused = start().requires_grad_()
    want = steps(fused, RootStep([fused], **options))
    x = start().requires_grad_()
    p = x * 1.0
    p.retain_grad()
    assert steps(p, RootStep([p], differentiable=True, **options)) == want
    (g,) = rl.autograd.grad(p.sum(), x)
    assert g.shape == (3,) and g.isfinite().all()


def test_its_state_is_saved_and_loaded():
    p, q = start().requires_grad_(), start().requires_grad_()
    first = RootStep([p])
    want = steps(p, first, 2)
    with rl.no_grad():
        q.copy_(p)
    second = RootStep([q])
    second.load_state_dict(first.state_dict())
    assert set(second.state[q]) == {"step", "mean"} and second.state[q]["step"] == 2
    assert want != steps(p, first) == steps(q, second)


def test_a_sparse_gradient_moves_its_rows():
    w = rl.ones(4, 2, requires_grad=True)
    optimiser = RootStep([w])
    rl.nn.functional.embedding(rl.tensor([1, 3]), w, sparse=True).sum().backward()
    optimiser.step()
    assert w[:, 0].tolist() == pytest.approx([1.0, 0.9, 1.0, 0.9])


def test_an_optimiser_without_a_formula_is_told():
    p = rl.ones(2, requires_grad=True)
    p.grad = rl.ones(2)
    with pytest.raises(NotImplementedError, match="FusedOptimizer"):
        FusedOptimizer([p], {}).step()


FUSED = [
    *(optim.SGD, optim.Adam, optim.AdamW, optim.Adadelta, optim.Adagrad, optim.RMSprop),
    *(optim.Adamax, optim.NAdam, optim.RAdam, optim.ASGD, optim.Rprop, optim.SparseAdam),
]


@pytest.mark.parametrize("kind", FUSED, ids=lambda kind: kind.__name__)
def test_each_has_one_formula(kind):
    """The formula takes what `kept`, `numbers` and `choices` name, by those names."""
    p = rl.ones(2, requires_grad=True)
    optimiser = kind([p])
    group = optimiser.param_groups[0]
    state = {**optimiser.start(p, group), "step": 1}
    update, numbers = optimiser.kernel(group, state)
    assert update.name == kind.__name__.lower()
    assert update.targets == 1 + len(optimiser.kept(group)) and update.n_params == len(numbers)
    assert update is optimiser.kernel(group, {**state, "step": 2})[0] or kind is optim.RAdam
